"""Republishing of stored messages (ADR-28): another subject, and headers that say where the message is stored."""

from collections.abc import Sequence

from eyot_wire import headers
from eyot_wire.jetstream.model import Republish, ns_to_rfc3339
from eyot_wire.subject import matches
from eyot_wire.transform import Transform


class Republisher:
    """Made from a checked `republish` configuration of stream `stream`, which stores what comes on `subjects`.

    A destination that an update left empty is `>`: what the stream would store again, and publish again, is left out. nats-server goes
    on until the headers are too long.
    """

    def __init__(self, stream: str, config: Republish, subjects: Sequence[str] = ()) -> None:
        self._stream = stream.encode()
        self._own = [subject.encode() for subject in subjects] if config.dest == ">" else []
        self._headers_only = config.headers_only
        self._transform = Transform(config.src.encode(), config.dest.encode(), republish=True)

    def make(
        self, subject: bytes, header: bytes, payload: bytes, seq: int, ts_ns: int, last_seq: int
    ) -> tuple[bytes, bytes, bytes] | None:
        """(subject, header, payload) to publish for a stored message; None when `src` does not match it.

        `last_seq` is the sequence of the message before on the same subject, 0 when there was none.
        """
        dest = self._transform.apply(subject)
        if dest is None or any(matches(own, dest) for own in self._own):
            return None
        fields = [
            (b"Nats-Stream", self._stream),
            (b"Nats-Subject", subject),
            (b"Nats-Sequence", b"%d" % seq),
            (b"Nats-Time-Stamp", ns_to_rfc3339(ts_ns).encode()),
            (b"Nats-Last-Sequence", b"%d" % last_seq),
        ]
        if self._headers_only:
            fields.append((b"Nats-Msg-Size", b"%d" % len(payload)))
            payload = b""
        for name, value in fields:
            header = headers.add_field(header, name, value)
        return dest, header, payload
