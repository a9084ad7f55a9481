"""An account: one subject space, its subscriptions, and the routing of messages within it.

`publish` is the general path for everything but the plain client-to-client case. Its rules (nats-server's):

- Every matching plain subscription gets the message. One member of every queue group does, selected at random, local
  members before leaf links.
- A leaf link gets a message at most once, through `LeafDestination.deliver_leaf(subject, reply, header, payload,
  queues, origin)`, with the names of all groups for which it was selected. Before that, `accepts(subject, origin)` is
  called (permissions, cluster and hub/spoke rules belong to the link). A message never returns over the link it came
  from.
- A message from a leaf link carries `queues`: the groups that the peer selected. Other queue groups do not get it.
- The account's subject mappings apply to what clients and leaf links publish, before matching.
- JetStream deliveries: `subject` is the routing subject (deliver subject or inbox), `original` the subject that
  receivers see. Over a leaf link it travels as `reply@original`, and is split again on arrival; further leaf links get
  it unsplit.

The `Route` of a subject is stored in its remembered `Match` (`Match.memo`). It is exact as long as it exists: the
`SubList` drops exactly the matches that an added or removed subscription changes.
"""

from collections.abc import Iterator
from typing import Protocol

from eyot_daemon.router.ack_sinks import AckSinks
from eyot_daemon.router.core import BrokerCore
from eyot_daemon.router.delivery import Delivery, deliver_run
from eyot_daemon.router.route import NO_ROUTE, Route
from eyot_daemon.router.subscription import IMPORTED, Destination, ImportHook, Kind, Origin, Subscription
from eyot_wire.fan_out import RENAMES
from eyot_wire.frames import Published
from eyot_wire.mapping import DROPPED, MappingTable
from eyot_wire.native import FanOut, Publishes, Traffic
from eyot_wire.sublist import SubList


class InterestListener(Protocol):
    """A listener to every added and removed subscription of an account (leaf links, push consumers)."""

    def sub_added(self, sub: Subscription) -> None: ...

    def sub_removed(self, sub: Subscription) -> None: ...

    def weight_changed(self, sub: Subscription, previous: int) -> None: ...


class Account(Traffic):
    """One account of the broker. Made by `Broker.add_account`."""

    def __init__(self, name: str, broker: BrokerCore) -> None:
        super().__init__()
        self.name = name
        self.name_tag = name  # display name
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
        # connections
        self.connections: set[Destination] = set()
        self.leafnodes: set[Destination] = set()
        self.connections_total = 0
        # Traffic counters: messages and payload bytes from and to clients and leaf links of this account
        self.slow_consumers = 0
        #: the plain part of what clients publish
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
        if sub.active:
            sub.active = False
            self.remove_retired(sub)

    def remove_retired(self, sub: Subscription) -> None:
        """Remove a subscription that is not active any more (`retire`)."""
        self.sublist.remove(sub)
        for shadow in sub.shadows:
            shadow.account.unsubscribe(shadow)
        sub.shadows = ()
        for listener in self._listeners:
            listener.sub_removed(sub)

    def forget_routes(self) -> None:
        """Compute all routes again: some subscriptions are not active any more."""
        self.sublist.forget_all()

    def set_weight(self, sub: Subscription, weight: int) -> None:
        """Set the number of a queue group's members that a leaf link announced."""
        if sub.weight == weight:
            return
        previous, sub.weight = sub.weight, weight
        self.sublist.remove(sub)  # drops what was computed with the former weight
        self.sublist.insert(sub)
        for listener in self._listeners:
            listener.weight_changed(sub, previous)

    def subscriptions(self) -> Iterator[Subscription]:
        """Return all subscriptions of the account, leaf links' and internal ones included."""
        return iter(self.sublist)

    def has_interest(self, subject: bytes) -> bool:
        """Return whether a message on `subject` would reach a subscription."""
        return self.sublist.has_interest(subject)

    def add_interest_listener(self, listener: InterestListener) -> None:
        """Notify `listener` of every subscription added or removed from now on."""
        self._listeners.append(listener)

    def remove_interest_listener(self, listener: InterestListener) -> None:
        self._listeners.remove(listener)

    def acknowledgement_sinks(self) -> AckSinks:
        """Return the consumers that take acknowledgements directly, created on first use."""
        if self.ack_sinks is None:
            self.ack_sinks = AckSinks(self.sublist)
            self.add_interest_listener(self.ack_sinks)
        return self.ack_sinks

    # -- routing -------------------------------------------------------------------------------------------------

    def route(self, subject: bytes) -> Route:
        """Return the compiled route of a subject."""
        match = self.sublist.match(subject)
        route: Route | None = match.memo
        if route is None:
            if not match:
                return NO_ROUTE  # the empty match is shared: no route may be stored in it
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
        """Route one message; return how many destinations accepted it.

        `origin`: its client or leaf link; None for the daemon's own messages. `queues`: only for messages from a leaf
        link: the groups that the peer selected (None: not from a leaf link). `original`: the subject that receivers
        see, if it differs from `subject`.
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
        """Publish a service import's request or reply: as `publish`, but not to other accounts' stream imports."""
        route = self.route(subject).within(self)
        return self.deliver(route, reply, header, payload, origin=origin, original=original) if route else 0

    def answer(self, answers: list[tuple[bytes, bytes]]) -> None:
        """Publish the daemon's own answers, (subject, payload) each, as `publish` does, with a fast path for one client's inbox."""
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
        return self.carry_out(Delivery(route, reply, header, payload, origin, original, self.broker.random), queues)

    def carry_out(self, delivery: Delivery, queues: tuple[bytes, ...] | None = None) -> int:
        """Deliver a prepared message and count it; return how many destinations accepted it."""
        count = delivery.run(queues)
        self.out_msgs += delivery.sent
        self.out_bytes += delivery.sent * (len(delivery.header) + len(delivery.payload))
        return count

    def deliver_run(self, route: Route, row: Publishes, run: range, origin: Origin) -> int | None:
        """Deliver messages that a client published with one control line along `route`; `run`: their indexes in `row`.

        Returns how many of them reached a destination; None: they must be delivered one by one.
        """
        line = row.line(run.start)
        if route.sink is not None and RENAMES not in line.reply:
            if not route.sink:
                self.broker.mark_dirty(route.sink.owner)
            for index in run:
                route.sink.add(Published(line.subject, line.reply, *row.content(index)))
            return len(run)
        if not route.takes_frames(line.header_size > 0):
            return None
        outcome = deliver_run(self.fan_out, route, row, run, origin, self.broker.random)
        self.out_msgs += outcome.crossed
        self.out_bytes += outcome.crossed * line.total
        return outcome.reached

    def count_in(self, msgs: int, size: int) -> None:
        """Count messages at their origin, a batch at a time; `size`: bytes of payload and header."""
        self.in_msgs += msgs
        self.in_bytes += size
