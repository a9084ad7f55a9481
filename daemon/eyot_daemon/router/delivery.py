"""One message on its way through a route.

Local subscriptions are handed the message one by one; of a queue group one member takes it, local members before leaf
links. A leaf link gets it once, after all groups have chosen, with the names of those that chose it.
"""

from collections.abc import Callable, Iterable

from eyot_daemon.router.route import LeafMember, Member, QueueGroup, Route
from eyot_daemon.router.subscription import Kind, LeafDestination, Origin
from eyot_wire.jetstream.ack import PREFIX, split_leaf_reply


class Delivery:
    """A message being routed. `shown` is the subject receivers see, `leaf_reply` the reply that leaf links get; `sent`: to how many
    clients and leaf links it went."""

    __slots__ = ("_chosen", "_random", "header", "leaf_reply", "origin", "payload", "reply", "route", "sent", "shown")

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
        self._chosen: dict[tuple[int, bytes], tuple[LeafDestination, list[bytes]]] = {}
        if origin is not None and origin.kind is Kind.LEAF:
            if b"@" in reply and reply.startswith(PREFIX):
                self.reply, split = split_leaf_reply(reply)
                self.shown = split or b""
        elif original and reply:
            self.leaf_reply = reply + b"@" + original

    def run(self, queues: tuple[bytes, ...] | None) -> int:
        """Hand the message out; returns how many destinations took it. `queues`: see `Account.publish`."""
        count = 0
        for member in self.route.plain:
            if self.hand(member):
                count += 1
        for leaf in self.route.leaf_links:
            if self._leaf_accepts(leaf):
                self._chosen[id(leaf.dest), leaf.subject] = (leaf.dest, [])
        for group in self.route.groups:
            if (queues is None or group.queue in queues) and self._serve_group(group):
                count += 1
        for (_, subject), (dest, names) in self._chosen.items():
            if self.cross(dest, subject, tuple(names)):
                count += 1
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

    def _serve_group(self, group: QueueGroup) -> bool:
        """True when a local member took the message; a leaf link that is chosen is only noted.

        Starts at a random member and goes round: a member that refuses (closed, denied, own echo) is passed over.
        """
        local = group.local
        count = len(local)
        if count:
            start = int(self._random() * count)
            for step in range(count):
                if self.hand(local[(start + step) % count]):
                    return True
        leaf = self._draw(leaf for leaf in group.leaf_links if self._leaf_accepts(leaf))
        if leaf is not None:
            self._chosen.setdefault((id(leaf.dest), leaf.subject), (leaf.dest, []))[1].append(group.queue)
        return False

    def _draw(self, leaf_links: Iterable[LeafMember]) -> LeafMember | None:
        """A random leaf link, each as likely as the members it stands for."""
        candidates = list(leaf_links)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        point = self._random() * sum(leaf.weight for leaf in candidates)
        for leaf in candidates:
            point -= leaf.weight
            if point < 0:
                return leaf
        return candidates[-1]
