"""The origin of a mirror or source, and the consumer requested there.

The request has the form that every nats-server since 2.9 accepts (`direct: true`, no acknowledgements, heartbeats, flow
control). What it resumes with: docs/leaf-links.md, "Resume".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from eyot_wire import headers
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.consumer import ConsumerConfig, CreateConsumerRequest, ResetRequest
from eyot_wire.jetstream.stream import StreamSource
from eyot_wire.jetstream.stream_source import HEADER, SourceStamp, full_index, index_name
from eyot_wire.jetstream.struct import encode
from eyot_wire.transform import Transform

LOCAL_API = "$JS.API"
#: In the metadata of a request: the mirror or source deregisters itself when it is removed (docs/protocol-extensions.md).
DEREGISTERS_KEY = "eyot.deregisters"
_FOR_ORIGIN = (b"Nats-Expected-", b"Nats-Batch-")
_NOT_COPIED = (*_FOR_ORIGIN, HEADER + b":")
ACK_WAIT_NS = 22 * 3600 * 1_000_000_000
#: How long the origin keeps the consumer without interest in its deliver subject: a flap of the link shorter than this
#: leaves one dead consumer there, never two that both deliver.
INACTIVE_THRESHOLD_NS = 10_000_000_000


class Origin(Struct, frozen=True):
    """One origin of a stream, from its `mirror` or an entry of its `sources`.

    `filters`: subjects requested from the origin; `transforms`: rewrite the subjects of received messages (first match
    wins). `consumer`, `deliver`: a pre-created consumer at the origin and its deliver subject, "" where one is created.
    `target`: the stream that replicates, `home`: its JetStream domain. `name`: as in `Nats-Stream-Source`: the stream,
    with a hash of the API prefix when external.
    """

    stream: str
    api: str
    deliver_prefix: str
    filters: tuple[str, ...]
    transforms: tuple[tuple[Transform, bool], ...]
    start_seq: int
    start_time: str | None
    config: StreamSource
    name: str
    mark: SourceStamp
    consumer: str = ""
    deliver: str = ""
    target: str = ""
    home: str = ""

    @classmethod
    def of(cls, config: StreamSource, target: str = "", home: str = "") -> Origin:
        """Convert a validated StreamSource. A transform without destination only filters."""
        external = config.external
        filters = [config.filter_subject] if config.filter_subject else []
        filters += [each.src for each in config.subject_transforms]
        transforms = tuple(
            (Transform((each.src or ">").encode(), each.dest.encode()), bool(each.dest))
            for each in config.subject_transforms
        )
        api = (external.api if external and external.api else LOCAL_API).rstrip(".")
        consumer = config.consumer.name if config.consumer is not None else ""
        name = index_name(config.name, api if external is not None else "", consumer)
        return cls(
            stream=config.name,
            api=api,
            deliver_prefix=(external.deliver if external else "").rstrip("."),
            filters=tuple(filters),
            transforms=transforms,
            start_seq=config.opt_start_seq,
            start_time=config.opt_start_time,
            config=config,
            name=name,
            mark=SourceStamp(name, filters, [each.dest for each in config.subject_transforms]),
            consumer=consumer,
            deliver=config.consumer.deliver_subject if config.consumer is not None else "",
            target=target,
            home=home,
        )

    @property
    def key(self) -> bytes:
        """Identifies this origin among the sources of one stream; the committed position is stored under it."""
        destinations = [each.dest for each in self.config.subject_transforms]
        return full_index(self.name, self.filters, destinations).encode("utf-8", "surrogateescape")

    @property
    def api_subject(self) -> str:
        """Return the subject of the request for messages; for created consumers without the filters."""
        if self.consumer:
            return f"{self.api}.CONSUMER.RESET.{self.stream}.{self.consumer}"
        return f"{self.api}.CONSUMER.CREATE.{self.stream}"

    def stamp(self, header: bytes, seq: int, subject: bytes, epoch: bytes = b"", stored_ns: int = 0) -> bytes:
        """Return the header block of a source's copy of message `seq`, which names its origin.

        Headers for the origin only (`Nats-Expected-*`, `Nats-Batch-*`) and the mark of an earlier hop are dropped.
        `epoch`, `stored_ns`: as in `SourceStamp`.
        """
        if not header:
            return self.mark.block(seq, subject, epoch, stored_ns)
        kept = headers.strip(header, _NOT_COPIED)
        return headers.add_field(kept, HEADER, self.mark.value(seq, subject, epoch, stored_ns))

    @staticmethod
    def without_expectations(header: bytes) -> bytes:
        """Return the header block of a mirror's copy, without headers for the origin only."""
        return headers.strip(header, _FOR_ORIGIN)

    def rewrite(self, subject: bytes) -> bytes:
        """Return the subject under which a message of the origin is stored here."""
        for transform, changes in self.transforms:
            rewritten = transform.apply(subject)
            if rewritten is not None:
                return rewritten if changes else subject
        return subject


class Start(Struct, frozen=True):
    """Where a consumer at the origin begins: at a sequence, at a time, or with everything."""

    seq: int = 0
    time: str | None = None


def start_of(origin: Origin, last_seq: int, last_stored_ns: int = 0) -> Start:
    """Return the start after `last_seq` (0: nothing copied yet).

    A source whose own messages are newer than the configured start time begins there, so that what its limits removed
    is not copied again.
    """
    if last_seq > 0:
        return Start(seq=last_seq + 1)
    if origin.start_seq > 0:
        return Start(seq=origin.start_seq)
    if origin.start_time is not None:
        own = ns_to_rfc3339(last_stored_ns) if last_stored_ns else ""
        return Start(time=max(origin.start_time, own))
    return Start()


def consumer_request(
    origin: Origin,
    *,
    mirror: bool,
    start: Start,
    deliver: str,
    short_id: str,
    rate_limit_bps: int = 0,
    heartbeat_s: float = 1.0,
    asks: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes]:
    """Return (subject, body) of the request that creates the consumer at the origin.

    `short_id` makes a filtered one's name unique; `rate_limit_bps`: bits per second, 0: unlimited; `heartbeat_s`:
    heartbeat interval; `asks`: metadata with further questions.
    """
    policy: dict[str, object] = {"deliver_policy": "all"}
    if start.seq:
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": start.seq}
    elif start.time:
        policy = {"deliver_policy": "by_start_time", "opt_start_time": start.time}
    name = ""
    if len(origin.filters) == 1:
        name = f"{'mirror' if mirror else 'src'}-{short_id}"
    config = ConsumerConfig(
        name=name,
        ack_policy="none",
        ack_wait=ACK_WAIT_NS,
        max_deliver=1,
        filter_subject=origin.filters[0] if len(origin.filters) == 1 else "",
        filter_subjects=_many(origin.filters),
        flow_control=True,
        deliver_subject=deliver,
        idle_heartbeat=int(heartbeat_s * 1e9),
        inactive_threshold=INACTIVE_THRESHOLD_NS,
        direct=True,
        rate_limit_bps=rate_limit_bps,
        metadata=_who_asks(origin, "mirror" if mirror else "src") | {DEREGISTERS_KEY: "true"} | dict(asks or {}),
        **policy,  # type: ignore[arg-type]
    )
    subject = f"{origin.api}.CONSUMER.CREATE.{origin.stream}"
    if name:
        subject += f".{name}.{origin.filters[0]}"
    return subject.encode(), encode(CreateConsumerRequest(stream_name=origin.stream, config=config))


def _who_asks(origin: Origin, kind: str) -> dict[str, str]:
    """Return the metadata by which nats-server 2.14 and later identify a mirror or source to its origin."""
    told = {f"_nats.{kind}.stream": origin.target, f"_nats.{kind}.domain": origin.home}
    return {key: value for key, value in told.items() if value}


def release_request(origin: Origin, consumer: str) -> bytes:
    """Return the subject of the request that deletes a consumer created with `consumer_request`."""
    return f"{origin.api}.CONSUMER.DELETE.{origin.stream}.{consumer}".encode()


def reset_request(origin: Origin, start: Start) -> tuple[bytes, bytes]:
    """Return (subject, body) of the request that resets a pre-created consumer to `start` (2.14)."""
    body = encode(ResetRequest(seq=start.seq)) if start.seq else b""
    return origin.api_subject.encode(), body


def _many(filters: Sequence[str]) -> list[str]:
    return list(filters) if len(filters) > 1 else []
