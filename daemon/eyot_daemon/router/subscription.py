"""A subscription and its destination.

A `Subscription` is in its account's `SubList` and refers to a `Destination`: a client connection, a leaf link, a
JetStream stream or consumer, a system service, or an import into another account. The router knows nothing of a
destination's internals: it calls `deliver` (or, for leaf links, `deliver_leaf` once a message) and, at the end of the
turn, `flush`.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from eyot_sync.policy.stream_gate import Hold
from eyot_wire.first_deliveries import FirstDeliveries
from eyot_wire.frames import FrameLine
from eyot_wire.native import Interest


class Kind(IntEnum):
    """The kind of a destination, on which routing rules depend."""

    CLIENT = 0
    LEAF = 1
    JETSTREAM = 2
    SYSTEM = 3
    ACCOUNT = 4


class Flushing(Protocol):
    """Something that has to do with the end of a turn."""

    def flush(self) -> None:
        """Send what the turn gathered. Called once a turn for destinations that marked themselves dirty."""
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
        """Accept one message for `sub`; must neither block nor send: `flush` sends.

        False: refused (closed, denied, own echo); a queue group then tries another member.
        """
        ...

    def flush(self) -> None:
        """Send what the turn gathered. Called once a turn if the destination marked itself dirty."""
        ...


class LeafDestination(Destination, Protocol):
    """A leaf link: however many of its subscriptions match, it gets one message with the selected queue names."""

    def accepts(self, subject: bytes, origin: "Origin | None") -> bool:
        """Return whether a message on `subject` from `origin` may leave over this link (permissions, cluster and role rules).

        Called before a queue member is selected, so that a refusing link does not lose a group's message.
        """
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
        """Send deliveries of one stream on one subject (reply, header and payload of each); return how many were accepted."""
        ...

    def deliver_stored(self, stream: bytes, subject: bytes, messages: FirstDeliveries) -> tuple[int, int] | None:
        """Send stored messages of one stream as first deliveries (see `StoredRun.write_lmsgs`).

        Returns how many were accepted, and their bytes of header and payload; None when they need `deliver_all_of`.
        """
        ...

    def deliver_run(self, subject: bytes, line: FrameLine, tails: list[bytes]) -> int:
        """Send messages that share the control line of their PUB or HPUB: `tails` are the bytes after its subject.

        Returns how many were accepted; -1 when they must be delivered one by one.
        """
        ...

    def hold(self, stream: bytes) -> Hold | None:
        """Return the reason that holds back deliveries of a stream: a policy, or enough waiting data; None: there is none."""
        ...

    def allowance(self, stream: bytes) -> int:
        """Return the bytes of a stream's deliveries that the link accepts at once when nothing holds them back."""
        ...


class Origin(Protocol):
    """The source of a message: a client connection, a leaf link, or an internal publisher."""

    @property
    def kind(self) -> Kind: ...


class _Imported:
    """The origin of a service import's message: another account's, whose `Nats-Request-Info` names the requester."""

    kind = Kind.ACCOUNT


IMPORTED: Origin = _Imported()


class ImportHook(Protocol):
    """Makes shadow subscriptions for stream imports (see imports.py)."""

    def shadow(self, sub: "Subscription") -> "tuple[Subscription, ...]": ...


class SubjectSpace(Protocol):
    """The account of a subscription, as destinations of messages know it."""

    name: str
    name_tag: str
    stream_imports: ImportHook | None

    def attach(self, sub: "Subscription") -> None: ...

    def unsubscribe(self, sub: "Subscription") -> None: ...

    def remove_retired(self, sub: "Subscription") -> None: ...

    def forget_routes(self) -> None: ...

    def publish(self, subject: bytes, reply: bytes = b"", header: bytes = b"", payload: bytes = b"") -> int: ...


#: (sub, routed subject, shown subject, reply, header, payload, origin) -> delivered
Rewrite = Callable[["Subscription", bytes, bytes, bytes, bytes, bytes, "Origin | None"], bool]


class Subscription(Interest):
    """One subscription: `subject` (may contain wildcards), `queue` (b"": none), `sid` of the subscriber.

    - `weight`: the members that a leaf link announces for a queue group; 1 elsewhere.
    - `delivered`: messages delivered so far; `max_msgs` (0: unlimited) ends the subscription.
    - `slow`: delivery needs the destination's full `deliver` (limits, deny filter, tracked replies, no echo); False
      lets a client's publish append a ready frame to the destination's buffer.
    - `rewrite`: set on service imports: called instead of `dest.deliver`, with the routed and the shown subject.
    - `shadows`: the shadow subscriptions in exporting accounts. In a shadow, `parent` is the subscription it serves,
      and `translate` returns the importer's subject (None: not for this one).
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
        account: SubjectSpace,
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
