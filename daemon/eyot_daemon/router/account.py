"""An account: one subject space, its subscriptions, and the routing of messages within it.

`publish` is the general path: everything that is not the plain client-to-client case goes through it. The rules it
keeps (nats-server's):

- Every plain subscription that matches gets the message; of every queue group one member does, a random one, local
  members before leaf links.
- A leaf link gets a message at most once, through `LeafDestination.deliver_leaf(subject, reply, header, payload,
  queues, origin)`, with the names of all groups for which it was chosen. Before a link is chosen it is asked
  `accepts(subject, origin)` (permissions, cluster and hub/spoke rules are the link's own business). Nothing goes back
  to the link it came from.
- A message that came over a leaf link carries `queues`: the groups the peer chose. Other queue groups do not get it.
- The account's subject mappings are applied to what clients and leaf links publish, before matching.
- JetStream deliveries: `subject` is where the message is routed (deliver subject or inbox), `original` the subject that
  receivers see. Over a leaf link it travels as `reply@original`, and is split again when it arrives from one; it goes
  on to further leaf links unsplit.

The `Route` of a subject hangs on its remembered `Match` (`Match.memo`), so it is exact as long as it exists: the
`SubList` forgets precisely the matches that a coming or going subscription changes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from eyot_daemon.router.delivery import Delivery
from eyot_daemon.router.route import NO_ROUTE, Route
from eyot_daemon.router.subscription import IMPORTED, Destination, Kind, Origin, Subscription
from eyot_wire.mapping import DROPPED, MappingTable
from eyot_wire.native import FanOut, Traffic
from eyot_wire.sublist import SubList

if TYPE_CHECKING:
    from eyot_daemon.router.ack_sinks import AckSinks
    from eyot_daemon.router.broker import Broker


class InterestListener(Protocol):
    """Who wants to know of every subscription that comes and goes in an account (leaf links, push consumers)."""

    def sub_added(self, sub: Subscription) -> None: ...

    def sub_removed(self, sub: Subscription) -> None: ...

    def weight_changed(self, sub: Subscription, previous: int) -> None: ...


class ImportHook(Protocol):
    """Makes shadow subscriptions for stream imports (see imports.py)."""

    def shadow(self, sub: Subscription) -> tuple[Subscription, ...]: ...


class Account(Traffic):
    """One account of the broker. Made by `Broker.add_account`."""

    def __init__(self, name: str, broker: "Broker") -> None:
        super().__init__()
        self.name = name
        self.name_tag = name  # what people call it
        self.broker = broker
        self.sublist: SubList[Subscription] = SubList()
        self.mappings = MappingTable(rng=broker.rng)  # configured ones and the JetStream domain's
        self.stream_imports: ImportHook | None = None
        self.service_replies: Destination | None = None  # made by imports.py when a service of ours is imported
        self.ack_sinks: AckSinks | None = None  # made by the first consumer that expects acknowledgements
        self.is_system = False
        # limits, -1: none
        self.connections_max = -1
        self.subscriptions_max = -1
        self.payload_max = -1
        self.leafnodes_max = -1
        # `msg_trace`: where messages with a sampled `traceparent` are traced to, and how many in a hundred
        self.trace_destination = b""
        self.trace_sampling = 100
        # what is connected
        self.connections: set[Destination] = set()
        self.leafnodes: set[Destination] = set()
        self.connections_total = 0
        # what Traffic counts: messages and payload bytes from and to clients and leaf links of this account
        self.slow_consumers = 0
        #: what clients publish, as far as it is plain
        self.fan_out = FanOut(self, self.sublist, self.mappings, broker.random, broker.mark_dirty)
        self._listeners: list[InterestListener] = []

    def __repr__(self) -> str:
        return f"<Account {self.name}>"

    # -- interest ------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        subject: bytes,
        dest: Destination,
        queue: bytes = b"",
        sid: bytes = b"",
        weight: int = 1,
    ) -> Subscription:
        """Add interest of `dest` in `subject` (already validated). Imported streams that match are joined."""
        sub = Subscription(self, subject, dest, queue, sid, weight)
        self.attach(sub)
        return sub

    def attach(self, sub: Subscription) -> None:
        """Insert a prepared subscription (imports and access checks prepare theirs before it takes effect)."""
        self.sublist.insert(sub)
        if self.stream_imports is not None and sub.parent is None and sub.rewrite is None:
            sub.shadows = self.stream_imports.shadow(sub)
            for shadow in sub.shadows:
                shadow.account.attach(shadow)
        for listener in self._listeners:
            listener.sub_added(sub)

    def unsubscribe(self, sub: Subscription) -> None:
        """Remove a subscription and its shadows; a second call does nothing."""
        if not sub.active:
            return
        sub.active = False
        self.sublist.remove(sub)
        for shadow in sub.shadows:
            shadow.account.unsubscribe(shadow)
        sub.shadows = ()
        for listener in self._listeners:
            listener.sub_removed(sub)

    def set_weight(self, sub: Subscription, weight: int) -> None:
        """A leaf link announced a new number of members for a queue group."""
        if sub.weight == weight:
            return
        previous, sub.weight = sub.weight, weight
        self.sublist.remove(sub)  # what was worked out with the former weight is forgotten
        self.sublist.insert(sub)
        for listener in self._listeners:
            listener.weight_changed(sub, previous)

    def subscriptions(self) -> Iterator[Subscription]:
        """All subscriptions of the account, leaf links' and internal ones included."""
        return iter(self.sublist)

    def has_interest(self, subject: bytes) -> bool:
        """True if a message on `subject` would find a subscription."""
        return self.sublist.has_interest(subject)

    def add_interest_listener(self, listener: InterestListener) -> None:
        """`listener` hears of every subscription added or removed from now on (not of those already there)."""
        self._listeners.append(listener)

    def remove_interest_listener(self, listener: InterestListener) -> None:
        self._listeners.remove(listener)

    # -- routing -------------------------------------------------------------------------------------------------

    def route(self, subject: bytes) -> Route:
        """The compiled route of a subject."""
        match = self.sublist.match(subject)
        route: Route | None = match.memo
        if route is None:
            if not match:
                return NO_ROUTE  # the empty match is shared: nothing may hang on it
            route = match.memo = Route(subject, match)
            match.sink = route.sink
        return route

    def publish(
        self,
        subject: bytes,
        reply: bytes = b"",
        header: bytes = b"",
        payload: bytes = b"",
        *,
        origin: Origin | None = None,
        queues: tuple[bytes, ...] | None = None,
        original: bytes = b"",
    ) -> int:
        """Route one message; returns how many destinations took it.

        `origin`    the client or leaf link it came from; None for the daemon's own messages.
        `queues`    only for messages from a leaf link: the groups the peer chose (None: not from a leaf link).
        `original`  the subject receivers shall see when it is not `subject`, the one it is routed by.
        """
        if origin is not None and origin.kind <= Kind.LEAF:
            mapped = self.mappings.apply(subject)
            if mapped is not None:
                if mapped == DROPPED:
                    return 0
                subject = mapped
                queues = queues or None  # the peer could not choose among the groups of the new subject
        route = self.route(subject)
        if not route:
            return 0
        return self.deliver(route, reply, header, payload, origin=origin, queues=queues, original=original)

    def publish_imported(
        self,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        *,
        original: bytes = b"",
        origin: Origin | None = IMPORTED,
    ) -> int:
        """Publish what a service import brought, a request or its reply: as `publish`, but not to other accounts' stream imports."""
        route = self.route(subject).within(self)
        return self.deliver(route, reply, header, payload, origin=origin, original=original) if route else 0

    def answer(self, answers: list[tuple[bytes, bytes]]) -> None:
        """Publish the daemon's own answers, (subject, payload) each: the same as `publish`, with little ado for the usual
        subject, an inbox of one client."""
        at = 0
        while (at := self.fan_out.answer(answers, at)) < len(answers):
            subject, payload = answers[at]
            route = self.route(subject)
            if route:
                self.deliver(route, b"", b"", payload, origin=None)
            at += 1

    def deliver(
        self,
        route: Route,
        reply: bytes,
        header: bytes,
        payload: bytes,
        *,
        origin: Origin | None,
        queues: tuple[bytes, ...] | None = None,
        original: bytes = b"",
    ) -> int:
        """Hand one message to everything `route` leads to (mappings are already applied)."""
        if route.local and not original and b"@" not in reply:
            # The usual case without ceremony: local subscriptions that all see the subject as it is.
            count = sent = 0
            subject = route.subject
            for sub, known in route.plain:
                if not sub.active:
                    continue
                if sub.rewrite is not None:
                    taken = sub.rewrite(sub, subject, subject, reply, header, payload, origin)
                else:
                    taken = sub.dest.deliver(sub, known or subject, reply, header, payload, origin)
                count += taken
                if sub.dest.kind is Kind.CLIENT:
                    sent += taken
        else:
            delivery = Delivery(route, reply, header, payload, origin, original, self.broker.random)
            count = delivery.run(queues)
            sent = delivery.sent
        self.out_msgs += sent
        self.out_bytes += sent * (len(header) + len(payload))
        return count

    def count_in(self, msgs: int, size: int) -> None:
        """Origins count what they bring in, a batch at a time: `size` is payload and header bytes."""
        self.in_msgs += msgs
        self.in_bytes += size
