"""The rule of delivery along a route.

`Delivery` is the rule, for one message. `deliver_run` does the same for messages that share their control line, as far
as clients and leaf links accept them. `FanOut` optimises both for the most common publishes.

Local subscriptions get the message one by one; of a queue group one member does, local members before leaf links. A
leaf link gets it once, after all groups were decided, with the names of the groups that selected it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from eyot_daemon.router.route import LeafMember, Member, QueueGroup, Route
from eyot_daemon.router.subscription import Kind, LeafDestination, Origin
from eyot_wire.fan_out import serve_group
from eyot_wire.frames import FrameLine
from eyot_wire.jetstream.ack import PREFIX, split_leaf_reply
from eyot_wire.native import FanOut, Publishes


class Delivery:
    """A message being routed.

    `shown`: the subject that receivers see. `leaf_reply`: the reply for leaf links. `sent`: number of clients and leaf
    links reached.
    """

    __slots__ = ("_random", "header", "leaf_reply", "origin", "payload", "reply", "route", "sent", "shown")

    def __init__(
        self,
        route: Route,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Origin | None,
        original: bytes,
        random: Callable[[], float],
    ) -> None:
        self.route = route
        self.reply = self.leaf_reply = reply
        self.header = header
        self.payload = payload
        self.origin = origin
        self.shown = original
        self._random = random
        self.sent = 0
        if origin is not None and origin.kind is Kind.LEAF:
            if b"@" in reply and reply.startswith(PREFIX):
                self.reply, split = split_leaf_reply(reply)
                self.shown = split or b""
        elif original and reply:
            self.leaf_reply = reply + b"@" + original

    def run(self, queues: tuple[bytes, ...] | None) -> int:
        """Deliver the message; return how many destinations accepted it. `queues`: see `Account.publish`."""
        route = self.route
        count = 0
        for member in route.plain:
            if self.hand(member):
                count += 1
        if route.local:
            return count
        unserved: list[QueueGroup] = []
        for group in route.groups:
            if queues is None or group.queue in queues:
                if group.local and serve_group(group.local, self._random, self.hand):
                    count += 1
                else:
                    unserved.append(group)
        return count + self.over_links(unserved)

    def over_links(self, groups: Iterable[QueueGroup]) -> int:
        """Deliver to leaf links: those with plain interest, and one for each of `groups`, which no local member served.

        Returns how many accepted it.
        """
        chosen: dict[tuple[int, bytes], tuple[LeafDestination, list[bytes]]] = {}
        for leaf in self.route.leaf_links:
            if self._leaf_accepts(leaf):
                chosen[id(leaf.dest), leaf.subject] = (leaf.dest, [])
        for group in groups:
            drawn = self._draw([leaf for leaf in group.leaf_links if self._leaf_accepts(leaf)])
            if drawn is not None:
                chosen.setdefault((id(drawn.dest), drawn.subject), (drawn.dest, []))[1].append(group.queue)
        count = 0
        for (_, subject), (dest, names) in chosen.items():
            count += self.cross(dest, subject, tuple(names))
        return count

    def cross(self, dest: LeafDestination, subject: bytes, queues: tuple[bytes, ...]) -> bool:
        """Give the message to one leaf link."""
        taken = dest.deliver_leaf(subject, self.leaf_reply, self.header, self.payload, queues, self.origin)
        self.sent += taken
        return taken

    def hand(self, member: Member) -> bool:
        """Give the message to one local subscription."""
        sub = member.sub
        if not sub.active:
            return False
        subject = self.route.subject
        if sub.rewrite is not None:
            shown = self.shown or subject
            taken = sub.rewrite(sub, subject, shown, self.reply, self.header, self.payload, self.origin)
        else:
            shown = self.shown or member.local or subject
            taken = sub.dest.deliver(sub, shown, self.reply, self.header, self.payload, self.origin)
        if sub.dest.kind is Kind.CLIENT:
            self.sent += taken
        return taken

    def _leaf_accepts(self, leaf: LeafMember) -> bool:
        return leaf.dest is not self.origin and leaf.dest.accepts(leaf.subject, self.origin)

    def _draw(self, candidates: list[LeafMember]) -> LeafMember | None:
        """Select a random leaf link, weighted by its members."""
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        point = self._random() * sum(leaf.weight for leaf in candidates)
        for leaf in candidates:
            point -= leaf.weight
            if point < 0:
                return leaf
        return candidates[-1]


class RunOutcome(NamedTuple):
    """`reached`: messages of a run that reached a destination; `crossed`: messages over leaf links, counted per link."""

    reached: int
    crossed: int


def deliver_run(
    fan_out: FanOut, route: Route, row: Publishes, run: range, origin: Origin, random: Callable[[], float]
) -> RunOutcome:
    """Deliver messages with one control line along a route whose local subscriptions take frames (`Route.takes_frames`).

    The result equals that of `Delivery` for each. `run`: their indexes in `row`.
    """
    line, count = row.line(run.start), len(run)
    tails = row.tails(run.start, count)
    has_header = line.header_size > 0
    reached = 0
    for sub, subject, _ in route.targets:
        if fan_out.append(sub, subject, tails, count * line.total, has_header):
            reached = count
    short: list[tuple[QueueGroup, int]] = []  # groups, and how many messages their local members accepted
    for group in route.groups:
        given = fan_out.share([(sub, subject) for sub, subject, _ in group.targets], tails, line.total, has_header)
        reached = max(reached, given)
        if given < count:
            short.append((group, given))
    if not route.leaf_links and not short:
        return RunOutcome(reached, 0)
    if not short:
        most, crossed = _run_over_links(route, line, row, run, tails, origin)
        return RunOutcome(max(reached, most), crossed)
    crossed = served = 0
    for at, index in enumerate(run):
        delivery = Delivery(route, line.reply, *row.content(index), origin, b"", random)
        served += bool(delivery.over_links(group for group, given in short if at >= given)) or at < reached
        crossed += delivery.sent
    return RunOutcome(served, crossed)


def _run_over_links(
    route: Route, line: FrameLine, row: Publishes, run: range, tails: list[bytes], origin: Origin
) -> tuple[int, int]:
    """Send a run to the leaf links with plain interest; return the most that one accepted, and the sum over all."""
    most = crossed = 0
    for leaf in route.leaf_links:
        if not leaf.dest.accepts(leaf.subject, origin):
            continue
        sent = leaf.dest.deliver_run(leaf.subject, line, tails)
        if sent < 0:
            sent = sum(
                leaf.dest.deliver_leaf(leaf.subject, line.reply, *row.content(index), (), origin) for index in run
            )
        most = max(most, sent)
        crossed += sent
    return most, crossed
