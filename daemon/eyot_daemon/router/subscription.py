"""A subscription and what it leads to.

A `Subscription` sits in its account's `SubList` and points at a `Destination`: a client connection, a leaf link, a
JetStream stream or consumer, a system service, or an import into another account. The router never looks inside a
destination; it calls `deliver` (or, for leaf links, `deliver_leaf` once a message) and, at the end of the turn,
`flush`.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from eyot_sync.policy.stream_gate import Hold
from eyot_wire.first_deliveries import FirstDeliveries
from eyot_wire.frames import FrameLine
from eyot_wire.native import Interest

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account


class Kind(IntEnum):
    """What a destination is; the routing rules differ by it."""

    CLIENT = 0
    LEAF = 1
    JETSTREAM = 2
    SYSTEM = 3
    ACCOUNT = 4


class Flushing(Protocol):
    """Something that has to do with the end of a turn."""

    def flush(self) -> None:
        """Send what the turn has gathered. Called once a turn for whoever marked itself dirty."""
        ...


class Destination(Protocol):
    """Where a subscription's messages go."""

    @property
    def kind(self) -> Kind: ...

    def deliver(
        self,
        sub: "Subscription",
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: "Origin | None",
    ) -> bool:
        """Take one message for `sub`. False: refused (closed, denied, own echo); a queue group then tries another
        member. Must not block and must not send: sending happens in `flush`."""
        ...

    def flush(self) -> None:
        """Send what the turn has gathered. Called once a turn if the destination marked itself dirty."""
        ...


class LeafDestination(Destination, Protocol):
    """A leaf link: however many of its subscriptions match, it gets one message with the chosen queue names."""

    def accepts(self, subject: bytes, origin: "Origin | None") -> bool:
        """May a message on `subject` from `origin` go out on this link (permissions, cluster and role rules)?
        Asked before a queue member is chosen, so that a link that refuses does not swallow a group's message."""
        ...

    def deliver_leaf(
        self,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        queues: tuple[bytes, ...],
        origin: "Origin | None",
    ) -> bool:
        """Send one LMSG/HMSG. `queues` are the groups for which this link was chosen (empty: plain interest only)."""
        ...

    def deliver_all_of(self, stream: bytes, subject: bytes, messages: list[tuple[bytes, bytes, bytes]]) -> int:
        """Send deliveries of one stream on one subject: reply, header and payload of each. Returns how many were taken."""
        ...

    def deliver_stored(self, stream: bytes, subject: bytes, messages: FirstDeliveries) -> tuple[int, int] | None:
        """Send stored messages of one stream as first deliveries (see `StoredRun.write_lmsgs`). Returns how many were taken, and
        their bytes of header and payload; None when they have to be delivered as `deliver_all_of` does."""
        ...

    def deliver_run(self, subject: bytes, line: FrameLine, tails: list[bytes]) -> int:
        """Send messages that share the control line of their PUB or HPUB: `tails` are the bytes behind its subject. Returns
        how many were taken, -1 when they have to be delivered one by one."""
        ...

    def hold(self, stream: bytes) -> Hold | None:
        """What keeps deliveries of a stream back for now: a policy, or enough of it waits for the link already. None: nothing."""
        ...

    def allowance(self, stream: bytes) -> int:
        """Bytes of a stream's deliveries that the link takes at once when nothing holds them back."""
        ...


class Origin(Protocol):
    """Where a message came from: a client connection, a leaf link, or an internal publisher."""

    @property
    def kind(self) -> Kind: ...


class _Imported:
    """The origin of a message that a service import brought: another account's, whose `Nats-Request-Info` says who asks."""

    kind = Kind.ACCOUNT


IMPORTED: Origin = _Imported()

#: (sub, routed subject, shown subject, reply, header, payload, origin) -> delivered
Rewrite = Callable[["Subscription", bytes, bytes, bytes, bytes, bytes, "Origin | None"], bool]


class Subscription(Interest):
    """One interest: `subject` (may hold wildcards), `queue` (b"" for none), `sid` of the subscriber.

    `weight`     members a leaf link announces for a queue group; 1 elsewhere.
    `delivered`  messages handed over so far; `max_msgs` (0: none) is where the subscription ends by itself.
    `slow`       delivery needs the destination's full `deliver` (limits, deny filter, tracked replies, no echo);
                 False lets a client's publish append a ready frame to the destination's buffer.
    `rewrite`    set on service imports: called instead of `dest.deliver`, because it needs the routed subject as well
                 as the shown one.
    `shadows`    the shadow subscriptions this one caused in exporting accounts. Of a shadow, `parent` is the
                 subscription it serves and `translate` gives the importer's subject (None: not for this one).
    """

    __slots__ = (
        "account",
        "active",
        "deny_filter",
        "max_msgs",
        "parent",
        "queue",
        "rewrite",
        "shadows",
        "subject",
        "translate",
        "weight",
    )

    dest: Destination

    def __init__(
        self,
        account: "Account",
        subject: bytes,
        dest: Destination,
        queue: bytes = b"",
        sid: bytes = b"",
        weight: int = 1,
    ) -> None:
        super().__init__(dest, sid)
        self.account = account
        self.subject = subject
        self.queue = queue
        self.weight = weight
        self.active = True
        self.max_msgs = 0
        self.deny_filter = False
        self.rewrite: Rewrite | None = None
        self.translate: Callable[[bytes], bytes | None] | None = None
        self.parent: Subscription | None = None
        self.shadows: tuple[Subscription, ...] = ()

    def __repr__(self) -> str:
        queue = f" queue={self.queue!r}" if self.queue else ""
        return f"<Subscription {self.subject!r}{queue} sid={self.sid!r} kind={self.dest.kind.name}>"


class CallbackDest:
    """A destination inside the daemon: calls `fn(sub, subject, reply, header, payload, origin)`.

    `fn` runs within the publisher's turn: it must be quick, and may publish itself.
    """

    __slots__ = ("fn", "kind", "name")

    def __init__(
        self,
        fn: Callable[[Subscription, bytes, bytes, bytes, bytes, Origin | None], None],
        kind: Kind = Kind.JETSTREAM,
        name: str = "",
    ) -> None:
        self.fn = fn
        self.kind = kind
        self.name = name

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        self.fn(sub, subject, reply, header, payload, origin)
        return True

    def flush(self) -> None:
        """Nothing is buffered here."""
