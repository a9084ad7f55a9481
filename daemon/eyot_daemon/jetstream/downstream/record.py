"""The stored record of one downstream: a mirror or source elsewhere that replicates a stream here."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from eyot_store.log.log import Log
from eyot_wire.jetstream.forget_downstream import ForgetRequest
from eyot_wire.subject import matches

#: The records of a stream's downstreams stand under this and their own keys among its positions.
RECORD_KEY = b"eyot.out."
#: A longer key is kept as its hash, bytes.
_KEY_MAX = 400
#: The `peer` of a mirror or source at home.
LOCAL = "this server"


class Downstream(msgspec.Struct, array_like=True):
    """The stored record of one mirror or source elsewhere. Sequences are those of the stream here."""

    #: Name of its server, or of the server's cluster: the servers of a cluster share streams, and each leader continues where the
    #: one before stopped. Where its server is linked through another one (`via`): name of its domain.
    peer: str
    #: Its JetStream domain; "" where it has none.
    domain: str
    #: `mirror`, `source`, or `reader` where its deliver subject says neither.
    kind: str
    #: Its filter subjects; empty: everything.
    filters: tuple[bytes, ...]
    #: Highest sequence that the downstream has confirmed. It falls only when the downstream requests confirmed messages again.
    seq: int = 0
    #: Time of its last confirmation, or of its first request, ns since epoch.
    at_ns: int = 0
    #: Sequences a second between its last two confirmations; 0.0: not known.
    rate: float = 0.0
    #: The subject on which it listened last; b"": not known.
    deliver: bytes = b""
    #: The downstream's stream; "": not named in requests (nats-server before 2.14). Such mirrors and sources at one server share
    #: one record, with the position of the one that is furthest behind.
    target: str = ""
    #: Sequence after which its first request began. Messages up to here were never sent to it; it may have them from an earlier
    #: epoch of this stream.
    begun: int = 0
    #: `peer` is a cluster.
    is_cluster: bool = False
    #: The downstream accepts no message with a sequence above `ahead_from` and up to `ahead`. <= `ahead`.
    ahead_from: int = 0
    #: Sequence after which it requested messages although this stream ended before, or had not sent that many: the downstream has
    #: messages of another epoch, or messages that this stream lost. 0: none.
    ahead: int = 0
    #: The peer through which its server is linked; "": its server is linked itself.
    via: str = ""
    #: Last sequence sent to it; None while it reads: every stored message may have been sent.
    sent: int | None = None

    @property
    def key(self) -> bytes:
        """The key of the record among the stream's positions."""
        who = self.domain or self.peer if self.target else self.peer
        key = f"{who} {self.kind} {self.target} ".encode() + b"\f".join(self.filters)
        return RECORD_KEY + (key if len(key) <= _KEY_MAX else sha256(key).hexdigest().encode())

    @property
    def name(self) -> str:
        """Name in pages and logs: kind, stream and peer."""
        return f"{self.kind} {self.target} at {self.peer}".replace("  ", " ")

    def takes(self, seq: int) -> bool:
        """Return whether the downstream has, or will accept, the message with this sequence."""
        return not self.ahead_from < seq <= self.ahead

    def copies(self, subject: bytes) -> bool:
        """Return whether its filters match this subject."""
        return not self.filters or any(matches(each, subject) for each in self.filters)

    def passed_over(self, log: Log) -> int:
        """Return the number of stored messages that the downstream does not accept because it is ahead of this stream."""
        if not self.ahead:
            return 0
        return log.count(self.ahead_from + 1, self.filters) - log.count(self.ahead + 1, self.filters)

    def is_meant_by(self, asked: ForgetRequest) -> bool:
        """Return whether a request means this downstream, possibly among others."""
        filters = None if asked.filters is None else tuple(each.encode() for each in asked.filters)
        return (
            asked.server in (self.peer, self.domain)
            and asked.kind in ("", self.kind)
            and asked.target in ("", self.target)
            and filters in (None, self.filters)
        )


encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Downstream).decode
