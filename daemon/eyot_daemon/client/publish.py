"""What a client publishes.

A read is scanned whole, and publishes in a row come as one operation. The account's `FanOut` hands out the plain ones
among them, which is nearly all; what it leaves is published here, by all the rules. Whatever depends on the control line
alone (permission, mapping, route) is worked out once for messages in a row that share it (a run), and if only client
connections and leaf links match, a run goes out as one: frames joined of a cached prefix (`MSG <subject> <sid> `) and the
bytes that followed the subject in the input. Everything else goes through `Account.deliver`, message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from eyot_daemon.router.message_trace import Asked, asked_for, publish_traced
from eyot_daemon.router.route import Route, Target
from eyot_wire.fan_out import EARLY_FLUSH, RENAMES, RESERVED_REPLIES, TRACE_HEADER
from eyot_wire.frames import OK, FrameLine, Published, encode_err
from eyot_wire.headers import NO_RESPONDERS, set_field
from eyot_wire.jetstream.ack import PREFIX
from eyot_wire.mapping import DROPPED
from eyot_wire.native import IngestQueue, Publishes
from eyot_wire.quoting import quoted
from eyot_wire.subject import is_valid_literal

if TYPE_CHECKING:
    from eyot_daemon.client.connection import ClientConnection
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.ack_sinks import Ack, AckSink, AckSinks
    from eyot_daemon.router.broker import Broker
    from eyot_wire.mapping import MappingTable

#: Answer of `_may_publish`: each message has to be asked for.
SOME: Final = "some"
#: Subjects of nats-server's replication, never a client's.
RESERVED_SUBJECT = b"$NRG."


def publish(client: ClientConnection, row: Publishes) -> None:
    """Publish messages in a row."""
    at, count = 0, len(row)
    while at < count and not client.closed:
        account = client.account
        assert account is not None
        one_by_one = client.verbose or client.pedantic  # answered one by one
        if not one_by_one:
            at = account.fan_out.publish(row, at, client, client.access, client.no_responders)
            if at < count and account.ack_sinks is not None:
                at = _acknowledge_all(client, account, account.ack_sinks, row, at)
        if at < count and not client.closed:
            run = range(at, at + (1 if one_by_one else row.run(at)))
            if row.line(at).header_size and client.headers:
                run = _untraced(client, account, row, run)
            if run:
                _publish_run(client, account, row, run)
            at = run.stop


def _untraced(client: ClientConnection, account: Account, row: Publishes, run: range) -> range:
    """The messages of a run before the first that is to be traced. If that is the first, it is published here, and what is
    returned is the empty range after it."""
    for index in run:
        header = row.content(index)[0]
        if TRACE_HEADER in header or account.trace_destination:
            asked = asked_for(header, account)
            if asked is not None:
                if index == run.start:
                    _publish_traced(client, account, row, index, asked)
                    return range(index + 1, index + 1)
                return range(run.start, index)
    return run


def _publish_traced(client: ClientConnection, account: Account, row: Publishes, index: int, asked: Asked) -> None:
    """One message whose publisher wants to know what becomes of it."""
    line, access = row.line(index), client.access
    client.in_msgs += 1
    client.in_bytes += line.total
    account.count_in(1, line.total)

    def may_publish(subject: bytes) -> bool:
        if subject.startswith(RESERVED_SUBJECT) and not account.is_system:
            return False
        return access is None or access.may_publish(subject, client.clients.broker.clock.monotonic())

    if line.reply and line.reply.startswith(RESERVED_REPLIES):
        _refuse(client, line, 1)
        return
    if client.verbose and _may_publish(client, account, line):
        client.queue_output(OK)
    message = (line.subject, line.reply, *row.content(index))
    taken = publish_traced(client, account, asked, message, may_publish)
    if taken is None:
        _refuse(client, line, 1, account.mappings.apply(line.subject) or b"")
    elif not taken:
        _nobody_there(client, line, 1)


def _publish_run(client: ClientConnection, account: Account, row: Publishes, run: range) -> None:
    """Publish the messages of a run, which share their control line; `run` are their indexes."""
    line = row.line(run.start)
    count = len(run)
    if line.header_size and not client.headers:
        # nats-server hangs up without a word.
        client.close("Message Headers Not Supported", linger=True)
        return
    client.in_msgs += count
    client.in_bytes += count * line.total
    account.count_in(count, count * line.total)
    if client.pedantic and not is_valid_literal(line.subject):
        client.queue_output(encode_err("Invalid Publish Subject") * count)
    if account.mappings.maps(line.subject):
        for index in run:
            _publish_mapped(client, line, *row.content(index))
        return
    allowed = _may_publish(client, account, line)
    if not allowed:
        _refuse(client, line, count)
        return
    if client.verbose and allowed is not SOME:
        client.queue_output(OK * count)
    if allowed is SOME:
        for index in run:
            _publish_checked(client, line, *row.content(index))
        return
    route = account.route(line.subject)
    if not route:
        _nobody_there(client, line, count)
    elif route.sink is not None and RENAMES not in line.reply:
        _take_in(account, route.sink, line, row, run)
    elif not route.fast or not _append_run(client, account, line, route, row, run):
        for index in run:
            _publish_one(client, line, *row.content(index))


def _may_publish(client: ClientConnection, account: Account, line: FrameLine) -> bool | Literal["some"]:
    """Whether the line's subject and reply may be used; SOME when each message has to be asked for (tracked replies)."""
    subject, reply = line.subject, line.reply
    if reply and reply.startswith(RESERVED_REPLIES):
        return False
    if subject.startswith(RESERVED_SUBJECT) and not account.is_system:
        return False
    access = client.access
    if access is None or access.may_publish_always(subject):
        return True
    return False if access.replies is None else SOME


def _refuse(client: ClientConnection, line: FrameLine, count: int, mapped: bytes = b"") -> None:
    """Say why a line may not be published, once a message. `mapped`: where the account's mappings lead."""
    access = client.access
    subject = mapped or line.subject
    if line.reply.startswith(RESERVED_REPLIES) and (access is None or access.may_publish_always(subject)):
        text = f"Permissions Violation for Publish with Reply of {quoted(line.reply)}"
        client.clients.violations.reply(client, line.reply)
    else:
        text = f"Permissions Violation for Publish to {quoted(subject)}"
        client.clients.violations.publish(client, subject)
    client.queue_output(encode_err(text) * count)


def _acknowledge_all(client: ClientConnection, account: Account, sinks: AckSinks, row: Publishes, at: int) -> int:
    """Hand acknowledgements in a row, from index `at` on, straight to their consumers; returns the index of the first message
    that goes another way."""
    access, mappings, begin = client.access, account.mappings, at
    found: AckSink | None = None
    acks: list[Ack] = []
    size = 0
    while at < len(row):
        line = row.line(at)
        subject, reply = line.subject, line.reply
        if not subject.startswith(PREFIX) or line.header_size or mappings.maps(subject):
            break
        if reply.startswith(RESERVED_REPLIES) or not (access is None or access.may_publish_always(subject)):
            break
        sink = sinks.find(subject)
        if sink is None:
            break
        if found is not None and sink is not found:
            found.acknowledge(acks)
            acks = []
        found = sink
        # What holds for this one holds for others with its prefix, unless permissions or mappings look closer.
        plain, plain_size = _plain_acks(row, at, sinks.prefix_of(subject), mappings) if access is None else ([], 0)
        if plain:
            if acks:
                sink.acknowledge(acks)
                acks = []
            sink.acknowledge_plain(plain)
            at += len(plain)
            size += plain_size
        else:
            acks.append((subject, reply, row.content(at)[1]))
            at += 1
            size += line.total
    if found is not None:
        if acks:
            found.acknowledge(acks)
        client.in_msgs += at - begin
        client.in_bytes += size
        account.count_in(at - begin, size)
    return at


def _plain_acks(row: Publishes, at: int, prefix: bytes, mappings: MappingTable) -> tuple[list[int], int]:
    """What the messages from index `at` on acknowledge, and the bytes of their payloads: see `Publishes.acknowledged`."""
    return ([], 0) if mappings and mappings.maps_below(prefix) else row.acknowledged(at, prefix)


def _nobody_there(client: ClientConnection, line: FrameLine, count: int) -> None:
    if line.reply and client.no_responders:
        for _ in range(count):
            _no_responders(client, line)


def _no_responders(client: ClientConnection, line: FrameLine) -> None:
    """A request found nobody: answer 503 on the client's own subscription for the reply, if there is one."""
    assert client.account is not None
    for sub in client.account.sublist.match(line.reply).all():
        if sub.dest is client and sub.active:
            client.deliver(sub, line.reply, b"", set_field(NO_RESPONDERS, b"Nats-Subject", line.subject), b"", None)
            return


def _append_run(
    client: ClientConnection, account: Account, line: FrameLine, route: Route, row: Publishes, run: range
) -> bool:
    """Append ready frames, for leaf links and for clients of importing accounts too. False when a subscription needs the
    full `deliver`."""
    targets, groups = route.targets, route.groups
    has_header = line.header_size > 0
    for sub, dest, _, _ in targets:
        if sub.slow or (has_header and not dest.headers):
            return False
    for group in groups:
        for sub, dest, _, _ in group.targets:
            if sub.slow or (has_header and not dest.headers):
                return False
    count = len(run)
    tails = row.tails(run.start, count)
    if route.leaf_links:
        taken = _send_over_links(client, account, line, route, row, run, tails)
        if not taken and not targets and not groups:
            _nobody_there(client, line, count)
    broker, total = client.clients.broker, line.total
    for target in targets:
        _append(broker, target, has_header, tails, total)
    for group in groups:
        _append_shared(broker, group.targets, has_header, tails, total)
    copies = count * (len(targets) + len(groups))
    account.out_msgs += copies
    account.out_bytes += copies * total
    return True


def _take_in(account: Account, ingest_queue: IngestQueue, line: FrameLine, row: Publishes, run: range) -> None:
    """Give a run to the stream that gathers there."""
    if not ingest_queue:
        account.broker.mark_dirty(ingest_queue.owner)
    for index in run:
        ingest_queue.add(Published(line.subject, line.reply, *row.content(index)))


def _append_shared(
    broker: Broker, members: tuple[Target, ...], has_header: bool, tails: list[bytes], total: int
) -> None:
    """Give each message of a run to one random member of a queue group."""
    count = len(members)
    if count == 1 or len(tails) == 1:
        _append(broker, members[int(broker.random() * count)], has_header, tails, total)
        return
    random = broker.random
    shares: list[list[bytes]] = [[] for _ in members]
    for tail in tails:
        shares[int(random() * count)].append(tail)
    for member, share in zip(members, shares, strict=True):
        if share:
            _append(broker, member, has_header, share, total)


def _append(broker: Broker, target: Target, has_header: bool, tails: list[bytes], total: int) -> None:
    """Append a run to the output of one connection."""
    sub, dest, msg, hmsg = target
    if dest.closed:
        return
    prefix = hmsg if has_header else msg
    count = len(tails)
    out = dest.out
    out += prefix
    out += tails[0] if count == 1 else prefix.join(tails)
    dest.out_msgs += count
    dest.out_bytes += count * total
    sub.delivered += count
    if not dest.dirty:
        dest.dirty = True
        broker.mark_dirty(dest)
    if len(out) > EARLY_FLUSH:
        dest.flush()


def _send_over_links(
    client: ClientConnection,
    account: Account,
    line: FrameLine,
    route: Route,
    row: Publishes,
    run: range,
    tails: list[bytes],
) -> int:
    """Send a run over the leaf links on its route; returns how many messages were taken, by all of them together."""
    taken = 0
    for leaf in route.leaf_links:
        if not leaf.dest.accepts(leaf.subject, client):
            continue
        sent = leaf.dest.deliver_run(leaf.subject, line, tails)
        if sent < 0:
            sent = sum(
                leaf.dest.deliver_leaf(leaf.subject, line.reply, *row.content(index), (), client) for index in run
            )
        taken += sent
    account.out_msgs += taken
    account.out_bytes += taken * line.total
    return taken


def _publish_one(client: ClientConnection, line: FrameLine, header: bytes, payload: bytes) -> None:
    """One message on the general path. The route is looked up each time: a delivery may change interest."""
    account = client.account
    if account is None:
        return  # closed by a delivery of this very run
    route = account.route(line.subject)
    if not route or not account.deliver(route, line.reply, header, payload, origin=client):
        _nobody_there(client, line, 1)


def _publish_mapped(client: ClientConnection, line: FrameLine, header: bytes, payload: bytes) -> None:
    """One message whose subject the account maps. As in nats-server, permissions are of the subject that it is mapped to."""
    account, access = client.account, client.access
    if account is None:
        return
    mapped = account.mappings.apply(line.subject)
    subject = line.subject if mapped is None or mapped == DROPPED else mapped
    reserved = line.reply.startswith(RESERVED_REPLIES) if line.reply else False
    reserved = reserved or (subject.startswith(RESERVED_SUBJECT) and not account.is_system)
    now = client.clients.broker.clock.monotonic()
    if reserved or not (access is None or access.may_publish(subject, now)):
        _refuse(client, line, 1, subject)
        return
    if client.verbose:
        client.queue_output(OK)
    route = account.route(subject) if mapped != DROPPED else None
    if not route or not account.deliver(route, line.reply, header, payload, origin=client):
        _nobody_there(client, line, 1)


def _publish_checked(client: ClientConnection, line: FrameLine, header: bytes, payload: bytes) -> None:
    """One message whose permission is counted."""
    account = client.account
    if account is None:
        return
    access = client.access
    if access is not None and not access.may_publish(line.subject, client.clients.broker.clock.monotonic()):
        _refuse(client, line, 1)
        return
    if client.verbose:
        client.queue_output(OK)
    if not account.publish(line.subject, line.reply, header, payload, origin=client):
        _nobody_there(client, line, 1)
