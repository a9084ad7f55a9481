"""Message tracing: a publisher asks with a header what becomes of its message, and is told on a subject of its choice.

`Nats-Trace-Dest: <subject>` asks; with `Nats-Trace-Only: true` the message goes nowhere. In an account with `msg_trace` a
sampled `traceparent` (W3C) asks as well. The answer is one JSON document: who published, how the subject was mapped, which
imports and exports it crossed, which stream and which subscriptions it reached, or why it did not reach them. Such messages
take a way of their own: it is slow, nothing else shall be.

Over a leaf link the message goes with the number of its hop (`Nats-Trace-Hop`: `1`, then `1.1` over the next link), and the server
there tells its part on the same subject.

A trace ends where the message leaves the account, unless the exporter of a service or the importer of a stream says `allow_trace`:
what lies behind is another account's business. So that no server farther on takes it up again, the message goes on with
`Nats-Trace-Dest: trace disabled`, as does one that is stored.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

from eyot_daemon.router.account import Account
from eyot_daemon.router.delivery import Delivery
from eyot_daemon.router.imports import ServiceImport, StreamImports
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.route import LeafMember, Member, QueueGroup, Route
from eyot_daemon.router.service_replies import service_replies
from eyot_daemon.router.subscription import IMPORTED, Kind, LeafDestination, Origin, Subscription
from eyot_wire.fan_out import TRACE_HEADER
from eyot_wire.frames import LeafMsg
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.headers import HeaderError, parse, set_field
from eyot_wire.mapping import DROPPED
from eyot_wire.quoting import quoted
from eyot_wire.subject import is_valid_literal, matches

if TYPE_CHECKING:
    from eyot_daemon.client.connection import ClientConnection
    from eyot_daemon.leaf.link import LeafConnection

log = logging.getLogger("eyot.client")

#: A destination that is none: whoever traced before has decided that nobody shall.
DISABLED = b"trace disabled"
HOP_HEADER = b"Nats-Trace-Hop"
#: With which servers before 2.11 let traces cross accounts.
ORIGIN_ACCOUNT_HEADER = b"Nats-Trace-Origin-Account"
SUBSCRIPTION_DENIED = "Not delivered because subscription denies this subject"
NO_ECHO = "Not delivered because of no echo"
CLOSED = "Not delivered because client is closed"
LEAF_ONLY = "Not delivered because remote does not support message tracing"
LEAF_SILENT = "Message delivered but remote does not support message tracing so no trace event generated from there"
#: Kinds of connections, as nats-server numbers them.
_CLIENT, _LEAF = 0, 4
#: Bytes of a destination that are logged.
_SHOWN = 256

Json = dict[str, object]


class Asked(msgspec.Struct, frozen=True):
    """What a header asks for. `hop`: which link it came over, "" from the publisher itself.

    `destination` b"": nothing shall be told, here or farther on.
    """

    destination: bytes
    only: bool
    fields: dict[str, list[str]]
    hop: str = ""


def asked_for(header: bytes, account: Account, *, linked: bool = False) -> Asked | None:
    """What the header of a message asks for, None if it asks for no trace. `linked`: it came over a leaf link, so that
    the server it came from has drawn the sample."""
    try:
        pairs = [(name, value) for name, value in parse(header).fields if value]
    except HeaderError:
        return None
    values = dict(reversed(pairs))  # the first of several counts
    destination = values.get(TRACE_HEADER, b"")
    if destination == DISABLED:
        return None
    only = False
    if destination:
        only = values.get(b"Nats-Trace-Only", b"").lower() in (b"1", b"true", b"on")
    elif any(name.lower() == b"traceparent" and _is_sampled(value) for name, value in pairs):
        sampled = linked or account.broker.random() * 100 < account.trace_sampling
        destination = account.trace_destination if sampled else b""
        if account.trace_destination and not sampled:
            return Asked(b"", False, {})
    if not destination:
        return None
    if values.get(ORIGIN_ACCOUNT_HEADER):
        log.error("Message tracing disabled because of header %s", quoted(ORIGIN_ACCOUNT_HEADER))
        return Asked(b"", only, {})
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name.decode("utf-8", "replace"), []).append(value.decode("utf-8", "replace"))
    return Asked(destination, only, fields, _text(values.get(HOP_HEADER, b"")) if linked else "")


def _is_sampled(traceparent: bytes) -> bool:
    parts = traceparent.split(b"-")
    try:
        return len(parts) == 4 and len(parts[3]) == 2 and bool(int(parts[3], 16) & 1)
    except ValueError:
        return False


class MessageTrace:
    """The trace of one message of a client or of a leaf link."""

    def __init__(
        self, origin: ClientConnection | LeafConnection, account: Account, subject: bytes, size: int, asked: Asked
    ) -> None:
        self.only = asked.only
        self.random = account.broker.random
        self._account = account
        self._broker = account.broker
        self._asked = asked
        self._request: Json = {"header": asked.fields, "msgsize": size}
        self._hops = 0
        kind, name = _CLIENT if origin.kind is Kind.CLIENT else _LEAF, _name(origin)
        self._ingress: Json = self._event("in", kind=kind, cid=origin.cid)
        if name:
            self._ingress["name"] = name
        self._ingress |= {"acc": account.name, "subj": _text(subject)}
        self._events: list[Json] = [self._ingress]

    def _event(self, kind_of_event: str, **more: object) -> Json:
        return {"type": kind_of_event, "ts": ns_to_rfc3339(self._broker.clock.now_ns())} | more

    def refused(self, subject: bytes) -> None:
        """The client may not publish there."""
        self._ingress["error"] = f"Permissions Violation for Publish to {quoted(subject)}"

    def mapped(self, to: bytes) -> None:
        self._events.append(self._event("sm", to=_text(to)))

    def reached(self, sub: Subscription, subject: bytes, wanted: bytes, why_not: str = "") -> None:
        """A local subscription to `wanted` got the message, or did not for a reason."""
        dest = sub.dest
        if dest.kind is Kind.JETSTREAM and hasattr(dest, "config"):
            self._events.append(self._event("js", stream=dest.config.name, subject=_text(subject)))
        elif dest.kind is Kind.CLIENT:
            self._egress(_CLIENT, dest, sub.account, {"sub": _text(wanted), "queue": _text(sub.queue)}, why_not)

    def exported(self, account: Account, local: bytes) -> None:
        """A stream import of this account has it too, as `local`."""
        self._events.append(self._event("se", acc=account.name, to=_text(local)))

    def linked(self, link: LeafDestination) -> bytes:
        """A leaf link takes it: the number of the hop. b"": its end tells nothing, and gets nothing of a mere trace."""
        account = getattr(link, "account", None) or self._account
        if not getattr(link, "traces", False):
            self._egress(_LEAF, link, account, {}, LEAF_ONLY if self.only else LEAF_SILENT)
            return b""
        self._hops += 1
        hop = f"{self._asked.hop}.{self._hops}" if self._asked.hop else str(self._hops)
        self._egress(_LEAF, link, account, {"hop": hop}, "")
        return hop.encode()

    def _egress(self, kind: int, dest: object, account: Account, more: dict[str, str], why_not: str) -> None:
        event = self._event("eg", kind=kind, cid=getattr(dest, "cid", 0))
        said = {"name": _name(dest)} | more | {"error": why_not}
        if account is not self._account:
            said["acc"] = account.name
        self._events.append(event | {key: value for key, value in said.items() if value})

    def imported(self, exporter: Account, subject: bytes, target: bytes) -> None:
        """It is a request to a service of another account."""
        self._events.append(self._event("si", acc=exporter.name, **{"from": _text(subject), "to": _text(target)}))

    @property
    def destination(self) -> bytes:
        """Where it is told, in the account of the publisher."""
        return self._asked.destination

    @property
    def account(self) -> Account:
        """The publisher's."""
        return self._account

    def tell(self) -> None:
        """Publish what was found."""
        document: Json = {"server": self._broker.server_info(), "request": self._request}
        if self._hops:
            document["hops"] = self._hops
        document["events"] = self._events
        self._account.publish(self._asked.destination, payload=msgspec.json.encode(document))


def disabled(header: bytes) -> bytes:
    """The header of a message that nobody shall trace any more."""
    return set_field(header, TRACE_HEADER, DISABLED)


class TracedDelivery(Delivery):
    """A delivery in `account` that notes what it does, and with `only` does not do it."""

    __slots__ = ("_account", "_trace")

    def __init__(
        self,
        trace: MessageTrace,
        account: Account,
        route: Route,
        message: tuple[bytes, bytes, bytes],
        origin: Origin | None,
    ) -> None:
        reply, header, payload = message
        super().__init__(route, reply, header, payload, origin, b"", trace.random)
        self._trace = trace
        self._account = account

    def run(self, queues: tuple[bytes, ...] | None) -> int:
        if not self._trace.only:
            return super().run(queues)
        for member in self.route.plain:
            self.hand(member)
        chosen: dict[int, tuple[LeafMember, list[bytes]]] = {}
        for leaf in self.route.leaf_links:
            if self._leaf_accepts(leaf):
                chosen[id(leaf.dest)] = (leaf, [])
        for group in self.route.groups:
            sink = self._note_group(group) if queues is None or group.queue in queues else None
            if sink is not None:
                chosen.setdefault(id(sink.dest), (sink, []))[1].append(group.queue)
        for leaf, names in chosen.values():
            self.cross(leaf.dest, leaf.subject, tuple(names))
        return 0

    def _note_group(self, group: QueueGroup) -> LeafMember | None:
        """One member stands for a group, as in a delivery; a leaf link is given back."""
        if group.local:
            self.hand(group.local[int(self._random() * len(group.local))])
            return None
        return self._draw(leaf for leaf in group.leaf_links if self._leaf_accepts(leaf))

    def cross(self, dest: LeafDestination, subject: bytes, queues: tuple[bytes, ...]) -> bool:
        account = getattr(dest, "account", None) or self._account
        if account is not self._account:
            self._trace.exported(account, subject)
            if not self._follows(account, subject):
                return not self._trace.only and self._pass_on(dest, subject, disabled(self.header), queues)
        hop = self._trace.linked(dest)
        if not hop and self._trace.only:
            return False
        return self._pass_on(dest, subject, set_field(self.header, HOP_HEADER, hop) if hop else self.header, queues)

    def _pass_on(self, dest: LeafDestination, subject: bytes, header: bytes, queues: tuple[bytes, ...]) -> bool:
        return dest.deliver_leaf(subject, self.leaf_reply, header, self.payload, queues, self.origin)

    def hand(self, member: Member) -> bool:
        sub = member.sub
        wanted = sub.subject
        if isinstance(sub.dest, ServiceImport):
            return sub.active and self._request(sub.dest)
        if sub.account is not self._account:
            local = member.local or self.route.subject
            self._trace.exported(sub.account, local)
            if not self._follows(sub.account, local):
                return not self._trace.only and self._give(member)
            here = (shadow.subject for shadow in sub.shadows if shadow.account is self._account)
            wanted = next((subject for subject in here if matches(subject, self.route.subject)), wanted)
        self._trace.reached(sub, self.route.subject, wanted, self._why_not(sub, member.local or self.route.subject))
        return not self._trace.only and self._give(member)

    def _give(self, member: Member) -> bool:
        if member.sub.dest.kind is not Kind.JETSTREAM:
            return super().hand(member)
        kept, self.header = self.header, disabled(self.header)
        try:
            return super().hand(member)
        finally:
            self.header = kept

    def _follows(self, importer: Account, local: bytes) -> bool:
        """Whether the trace goes on in an account that imports the message as a stream."""
        imports = importer.stream_imports
        return isinstance(imports, StreamImports) and imports.traces(self._account, self.route.subject, local)

    def _request(self, dest: ServiceImport) -> bool:
        """Ask another account's service; if its exporter allows it, the trace goes on there."""
        subject = self.route.subject
        target = dest.target(subject)
        if not target:
            return False
        if not dest.allow_trace:
            self._trace.imported(dest.exporter, subject, dest.transform.apply(subject) or target)
            if self._trace.only:
                return False
            return dest.request(
                target, self.reply, disabled(self.header), self.payload, self.origin, dest.exporter.publish_imported
            )
        self._trace.imported(dest.exporter, subject, target)

        def publish(target: bytes, reply: bytes, header: bytes, payload: bytes) -> int:
            return self._trace_in(dest.exporter, target, (reply, header, payload), dest.threshold_s)

        if self._trace.only:
            publish(target, self.reply, self.header, self.payload)
            return False
        return dest.request(target, self.reply, self.header, self.payload, self.origin, publish)

    def _trace_in(
        self, exporter: Account, target: bytes, message: tuple[bytes, bytes, bytes], threshold_s: float
    ) -> int:
        """Go on in the exporting account. Servers behind its leaf links tell their part on a reply subject that leads back."""
        route = exporter.route(target).within(exporter)
        reply, header, payload = message
        replies = service_replies(exporter)
        back = replies.expect(self._trace.account, self._trace.destination, "stream", threshold_s)
        header = set_field(header, TRACE_HEADER, back)
        taken = TracedDelivery(self._trace, exporter, route, (reply, header, payload), IMPORTED).run(None)
        if not route.leaf_links and not any(group.leaf_links for group in route.groups):
            replies.forget(back)  # nobody else has something to tell
        return taken

    def _why_not(self, sub: Subscription, subject: bytes) -> str:
        """Why a client will not get it, as far as that is known beforehand."""
        dest = sub.dest
        if not isinstance(dest, KnownClient):
            return ""
        if dest.closed or not sub.active:
            return CLOSED
        if dest is self.origin and not dest.echo:
            return NO_ECHO
        if dest.access is not None and sub.deny_filter and not dest.access.may_receive(subject, sub.queue):
            return SUBSCRIPTION_DENIED
        return ""


def publish_traced(
    client: ClientConnection,
    account: Account,
    asked: Asked,
    message: tuple[bytes, bytes, bytes, bytes],
    may_publish: Callable[[bytes], bool],
) -> int | None:
    """Publish one message of a client and tell what became of it; how many took it, None if it was refused.

    `message`: subject, reply, header, payload.
    """
    subject, reply, header, payload = message
    if not asked.destination:
        if not may_publish(account.mappings.apply(subject) or subject):
            return None
        return 1 if asked.only else account.publish(subject, reply, disabled(header), payload, origin=client)
    if not is_valid_literal(asked.destination):
        log.error(
            "%r - Destination %s is not valid, won't be able to trace events",
            client,
            quoted(asked.destination[:_SHOWN]),
        )
        return 0 if asked.only else account.publish(subject, reply, header, payload, origin=client)
    if not may_publish(asked.destination):
        client.send_error(f"Permissions Violation for Publish to {quoted(asked.destination)}")
        return 1
    trace = MessageTrace(client, account, subject, len(header) + len(payload), asked)
    mapped = account.mappings.apply(subject)
    taken = 0
    if mapped is not None and mapped != DROPPED:
        trace.mapped(mapped)
    target = subject if mapped is None or mapped == DROPPED else mapped
    if not may_publish(target):
        trace.refused(target)
        trace.tell()
        return None
    if mapped != DROPPED:
        delivery = TracedDelivery(trace, account, account.route(mapped or subject), (reply, header, payload), client)
        taken = delivery.run(None)
        account.out_msgs += delivery.sent
        account.out_bytes += delivery.sent * (len(header) + len(payload))
    trace.tell()
    return taken or (1 if asked.only else 0)


def publish_from_link(account: Account, message: LeafMsg, origin: Origin) -> bool:
    """Publish a message that came over a leaf link and tell what became of it here; False: it does not ask for that."""
    link = cast("LeafConnection", origin)
    asked = asked_for(message.header, account, linked=True)
    if asked is None:
        return False
    if not asked.destination:
        if not asked.only:
            publish = functools.partial(account.publish, message.subject, message.reply, disabled(message.header))
            publish(message.payload, origin=link, queues=message.queues)
        return True
    if not is_valid_literal(asked.destination):
        log.error(
            "%r - Destination %s is not valid, won't be able to trace events", link, quoted(asked.destination[:_SHOWN])
        )
        return asked.only
    if not link.session.rules.receive.permits(asked.destination):
        log.warning("%r - may not be told about its messages on %r", link, asked.destination)
        return True
    size = len(message.header) + len(message.payload)
    trace = MessageTrace(link, account, message.subject, size, asked)
    subject = message.subject
    queues: tuple[bytes, ...] | None = message.queues
    mapped = account.mappings.apply(subject)
    if mapped != DROPPED:
        if mapped is not None:
            trace.mapped(mapped)
            subject, queues = mapped, queues or None
        route = account.route(subject)
        content = (message.reply, message.header, message.payload)
        delivery = TracedDelivery(trace, account, route, content, link)
        delivery.run(queues)
        account.out_msgs += delivery.sent
        account.out_bytes += delivery.sent * size
    trace.tell()
    return True


def _name(connection: object) -> str:
    """What a connection calls itself; of a leaf link, the server at its other end."""
    state = getattr(connection, "state", None)
    return str(getattr(connection, "name", "") or getattr(state, "peer_name", "") or "")


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")
