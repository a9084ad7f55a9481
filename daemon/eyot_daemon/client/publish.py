"""Publishes of a client.

A read is scanned whole, and consecutive publishes are one operation. The account's `FanOut` delivers the plain ones,
which is nearly all. The others are published here, by the full rules. Everything that depends on the control line alone
(permission, mapping, route) is computed once for consecutive messages that share the line (a run). If only a stream, or
only client connections and leaf links match, `Account.deliver_run` delivers a run at once. All other messages go
through `Account.deliver` one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from eyot_daemon.client.state import ClientState
from eyot_daemon.router.message_trace import Asked, asked_for, publish_traced
from eyot_wire.fan_out import RESERVED_REPLIES, TRACE_HEADER
from eyot_wire.frames import OK, FrameLine
from eyot_wire.headers import NO_RESPONDERS, set_field
from eyot_wire.jetstream.ack import PREFIX
from eyot_wire.mapping import DROPPED
from eyot_wire.native import Publishes
from eyot_wire.quoting import quoted
from eyot_wire.subject import is_valid_literal

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.ack_sinks import Ack, AckSink, AckSinks
    from eyot_wire.mapping import MappingTable

#: Result of `_may_publish`: each message must be checked.
SOME: Final = "some"
#: Subjects of nats-server's replication, never a client's.
RESERVED_SUBJECT = b"$NRG."


def publish(client: ClientState, row: Publishes) -> None:
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


def _untraced(client: ClientState, account: Account, row: Publishes, run: range) -> range:
    """Return the messages of a run before the first with a trace header.

    If that is the first one, it is published here, and the result is the empty range after it.
    """
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


def _publish_traced(client: ClientState, account: Account, row: Publishes, index: int, asked: Asked) -> None:
    """Publish one message with a trace header."""
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
        _no_subscriber(client, line, 1)


def _publish_run(client: ClientState, account: Account, row: Publishes, run: range) -> None:
    """Publish the messages of a run, which share their control line; `run` are their indexes."""
    line = row.line(run.start)
    count = len(run)
    if line.header_size and not client.headers:
        # nats-server closes without a word.
        client.close("Message Headers Not Supported", linger=True)
        return
    client.in_msgs += count
    client.in_bytes += count * line.total
    account.count_in(count, count * line.total)
    if client.pedantic and not is_valid_literal(line.subject):
        client.send_error("Invalid Publish Subject", count)
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
    reached = account.deliver_run(route, row, run, client) if route else 0
    if reached is None:
        for index in run:
            _publish_one(client, line, *row.content(index))
    else:
        _no_subscriber(client, line, count - reached)


def _may_publish(client: ClientState, account: Account, line: FrameLine) -> bool | Literal["some"]:
    """Return whether the line's subject and reply are allowed; SOME when each message must be checked (tracked replies)."""
    subject, reply = line.subject, line.reply
    if reply and reply.startswith(RESERVED_REPLIES):
        return False
    if subject.startswith(RESERVED_SUBJECT) and not account.is_system:
        return False
    access = client.access
    if access is None or access.may_publish_always(subject):
        return True
    return False if access.replies is None else SOME


def _refuse(client: ClientState, line: FrameLine, count: int, mapped: bytes = b"") -> None:
    """Report why a line may not be published, once per message. `mapped`: the subject after the account's mappings."""
    access = client.access
    subject = mapped or line.subject
    if line.reply.startswith(RESERVED_REPLIES) and (access is None or access.may_publish_always(subject)):
        text = f"Permissions Violation for Publish with Reply of {quoted(line.reply)}"
        client.clients.violations.reply(client, line.reply)
    else:
        text = f"Permissions Violation for Publish to {quoted(subject)}"
        client.clients.violations.publish(client, subject)
    client.send_error(text, count)


def _acknowledge_all(client: ClientState, account: Account, sinks: AckSinks, row: Publishes, at: int) -> int:
    """Pass consecutive acknowledgements, from index `at` on, directly to their consumers.

    Returns the index of the first message that needs another path.
    """
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
        # What holds for this one holds for others with its prefix, unless permissions or mappings depend on the
        # subject.
        simple = access is None and sink.takes_plain_acks
        plain, plain_size = _plain_acks(row, at, sinks.prefix_of(subject), mappings) if simple else ([], 0)
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
    """Return what the messages from index `at` on acknowledge, and the bytes of their payloads: see `Publishes.acknowledged`."""
    return ([], 0) if mappings and mappings.maps_below(prefix) else row.acknowledged(at, prefix)


def _no_subscriber(client: ClientState, line: FrameLine, count: int, mapped: bytes = b"") -> None:
    """Answer requests that reached nobody. `mapped`: the subject after the account's mappings."""
    if line.reply and client.no_responders:
        for _ in range(count):
            _no_responders(client, line, mapped or line.subject)


def _no_responders(client: ClientState, line: FrameLine, subject: bytes) -> None:
    """Answer a request without subscribers with 503 on the client's own subscription for the reply, if there is one.

    A member of a queue group is not told: its group's replies are work, of which a status is none.
    """
    assert client.account is not None
    for sub in client.account.sublist.match(line.reply).all():
        if sub.dest is client and sub.active and not sub.queue:
            client.deliver(sub, line.reply, b"", set_field(NO_RESPONDERS, b"Nats-Subject", subject), b"", None)
            return


def _publish_one(client: ClientState, line: FrameLine, header: bytes, payload: bytes) -> None:
    """Publish one message on the general path. The route is looked up each time: a delivery may change interest."""
    account = client.account
    if account is None:
        return  # closed by a delivery of this very run
    route = account.route(line.subject)
    if not route or not account.deliver(route, line.reply, header, payload, origin=client):
        _no_subscriber(client, line, 1)


def _publish_mapped(client: ClientState, line: FrameLine, header: bytes, payload: bytes) -> None:
    """Publish one message on a mapped subject. As in nats-server, permissions apply to the mapped subject."""
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
        _no_subscriber(client, line, 1, subject)


def _publish_checked(client: ClientState, line: FrameLine, header: bytes, payload: bytes) -> None:
    """Publish one message under a permission that counts (tracked replies)."""
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
        _no_subscriber(client, line, 1)
