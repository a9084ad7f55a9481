"""Message tracing: a header requests a report of a message's path, which is published on the requested subject.

`Nats-Trace-Dest: <subject>` requests a trace; with `Nats-Trace-Only: true` the message is not delivered. In an account
with `msg_trace` a sampled `traceparent` (W3C) requests one as well. The report is one JSON document: the publisher, the
mapped subject, crossed imports and exports, the stream and the subscriptions it reached, or why it did not. Traced
messages take a slow path of their own, which leaves the others fast.

Over a leaf link the message carries its hop number (`Nats-Trace-Hop`: `1`, then `1.1` over the next link), and the
server there reports on the same subject.

A trace ends where the message leaves the account, unless the exporter of a service or the importer of a stream sets
`allow_trace`. The message continues with `Nats-Trace-Dest: trace disabled`, as does a stored one, so that no later
server resumes the trace. Source: NATS ADR-41.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from eyot_daemon.router.account import Account
from eyot_daemon.router.delivery import Delivery
from eyot_daemon.router.imports import ServiceImport, StreamImports
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.route import LeafMember, Member, QueueGroup, Route
from eyot_daemon.router.service_replies import service_replies
from eyot_daemon.router.subscription import IMPORTED, Kind, LeafDestination, Origin, SubjectSpace, Subscription
from eyot_wire.fan_out import TRACE_HEADER
from eyot_wire.frames import LeafMsg
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.headers import HeaderError, parse, set_field
from eyot_wire.mapping import DROPPED
from eyot_wire.quoting import quoted
from eyot_wire.subject import is_valid_literal, matches

log = logging.getLogger("eyot.client")

#: A destination that disables the trace: an earlier server decided so.
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


class TracedOrigin(Origin, Protocol):
    """A client or a leaf link whose message is traced."""

    @property
    def cid(self) -> int: ...


class TracedClient(TracedOrigin, Protocol):
    def send_error(self, text: str) -> None: ...


class TracedLink(TracedOrigin, Protocol):
    def peer_may_receive(self, subject: bytes) -> bool:
        """May the peer get messages on this subject?"""
        ...


class Asked(msgspec.Struct, frozen=True):
    """The requested trace. `hop`: the link it came over, "" from the publisher itself.

    `destination` b"": no report, here or later.
    """

    destination: bytes
    only: bool
    fields: dict[str, list[str]]
    hop: str = ""


def asked_for(header: bytes, account: Account, *, linked: bool = False) -> Asked | None:
    """Return the trace that a message's header requests, or None.

    `linked`: it came over a leaf link, whose other end has drawn the sample.
    """
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

    def __init__(self, origin: TracedOrigin, account: Account, subject: bytes, size: int, asked: Asked) -> None:
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
        """Report that the client may not publish there."""
        self._ingress["error"] = f"Permissions Violation for Publish to {quoted(subject)}"

    def mapped(self, to: bytes) -> None:
        self._events.append(self._event("sm", to=_text(to)))

    def reached(self, sub: Subscription, subject: bytes, wanted: bytes, why_not: str = "") -> None:
        """Report that a local subscription to `wanted` got the message, or why not."""
        dest = sub.dest
        if dest.kind is Kind.JETSTREAM and hasattr(dest, "config"):
            self._events.append(self._event("js", stream=dest.config.name, subject=_text(subject)))
        elif dest.kind is Kind.CLIENT:
            self._egress(_CLIENT, dest, sub.account, {"sub": _text(wanted), "queue": _text(sub.queue)}, why_not)

    def exported(self, account: SubjectSpace, local: bytes) -> None:
        """Report that a stream import of this account got it, as `local`."""
        self._events.append(self._event("se", acc=account.name, to=_text(local)))

    def linked(self, link: LeafDestination) -> bytes:
        """Report a leaf link; return the hop number. b"": its end reports nothing, and gets no trace-only message."""
        account = getattr(link, "account", None) or self._account
        if not getattr(link, "traces", False):
            self._egress(_LEAF, link, account, {}, LEAF_ONLY if self.only else LEAF_SILENT)
            return b""
        self._hops += 1
        hop = f"{self._asked.hop}.{self._hops}" if self._asked.hop else str(self._hops)
        self._egress(_LEAF, link, account, {"hop": hop}, "")
        return hop.encode()

    def _egress(self, kind: int, dest: object, account: SubjectSpace, more: dict[str, str], why_not: str) -> None:
        event = self._event("eg", kind=kind, cid=getattr(dest, "cid", 0))
        said = {"name": _name(dest)} | more | {"error": why_not}
        if account is not self._account:
            said["acc"] = account.name
        self._events.append(event | {key: value for key, value in said.items() if value})

    def imported(self, exporter: Account, subject: bytes, target: bytes) -> None:
        """Report a request to another account's service."""
        self._events.append(self._event("si", acc=exporter.name, **{"from": _text(subject), "to": _text(target)}))

    @property
    def destination(self) -> bytes:
        """Where the report goes, in the publisher's account."""
        return self._asked.destination

    @property
    def account(self) -> Account:
        """The publisher's."""
        return self._account

    def tell(self) -> None:
        """Publish the report."""
        document: Json = {"server": self._broker.server_info(), "request": self._request}
        if self._hops:
            document["hops"] = self._hops
        document["events"] = self._events
        self._account.publish(self._asked.destination, payload=msgspec.json.encode(document))


def disabled(header: bytes) -> bytes:
    """Return the header with the trace disabled."""
    return set_field(header, TRACE_HEADER, DISABLED)


class TracedDelivery(Delivery):
    """A delivery in `account` that records its steps; with `only` it does not carry them out."""

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
        """Record one member for a group, as in a delivery; return it if it is a leaf link."""
        if group.local:
            self.hand(group.local[int(self._random() * len(group.local))])
            return None
        return self._draw([leaf for leaf in group.leaf_links if self._leaf_accepts(leaf)])

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

    def _follows(self, importer: SubjectSpace, local: bytes) -> bool:
        """Return whether the trace continues in an account that imports the message as a stream."""
        imports = importer.stream_imports
        return isinstance(imports, StreamImports) and imports.traces(self._account, self.route.subject, local)

    def _request(self, dest: ServiceImport) -> bool:
        """Send the request to another account's service; the trace continues there if its exporter allows it."""
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
        """Continue in the exporting account. Servers behind its leaf links report on a reply subject that leads back."""
        route = exporter.route(target).within(exporter)
        reply, header, payload = message
        replies = service_replies(exporter)
        back = replies.expect(self._trace.account, self._trace.destination, "stream", threshold_s)
        header = set_field(header, TRACE_HEADER, back)
        taken = TracedDelivery(self._trace, exporter, route, (reply, header, payload), IMPORTED).run(None)
        if not route.leaf_links and not any(group.leaf_links for group in route.groups):
            replies.forget(back)  # no other server reports
        return taken

    def _why_not(self, sub: Subscription, subject: bytes) -> str:
        """Return why a client will not receive the message, as far as known in advance."""
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
    client: TracedClient,
    account: Account,
    asked: Asked,
    message: tuple[bytes, bytes, bytes, bytes],
    may_publish: Callable[[bytes], bool],
) -> int | None:
    """Publish one message of a client and report its path; return how many accepted it, None if it was refused.

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
        taken = account.carry_out(delivery)
    trace.tell()
    return taken or (1 if asked.only else 0)


def publish_from_link(account: Account, message: LeafMsg, link: TracedLink) -> bool:
    """Publish a message from a leaf link and report its path here; return False if it requests no trace."""
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
    if not link.peer_may_receive(asked.destination):
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
        account.carry_out(delivery, queues)
    trace.tell()
    return True


def _name(connection: object) -> str:
    """Return a connection's name for itself; for a leaf link, the server at its other end."""
    state = getattr(connection, "state", None)
    return str(getattr(connection, "name", "") or getattr(state, "peer_name", "") or "")


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")
