"""Streams in the JetStream API: configuration, state, info. Sizes in bytes, durations in ns, times RFC 3339.

Source: NATS ADR-1, ADR-2 and nats-server's JSON (member order and omission as nats-server 2.12 writes them).
"""

from typing import Literal

from eyot_wire.go.time import ZERO_TIME, as_go_writes
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.struct import Duration, Int, Int32, Int64, JsStruct, UInt, always, always_struct, empty

RetentionPolicy = Literal["limits", "interest", "workqueue"]
DiscardPolicy = Literal["old", "new"]
StorageType = Literal["file", "memory"]
Compression = Literal["none", "s2"]
PersistMode = Literal["default", "async"]


class SubjectTransform(JsStruct, kw_only=True):
    """Subjects that match `src` become `dest`."""

    src: str = always("")
    dest: str = always("")


class External(JsStruct, kw_only=True):
    """The origin of a mirror or source outside this account; `api` replaces `$JS.API`."""

    api: str = always("")
    deliver: str = always("")


class StreamConsumerSource(JsStruct, kw_only=True):
    """A pre-created consumer of the origin that a mirror or source uses (nats-server 2.14)."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(JsStruct, kw_only=True):
    """The origin of a mirror, or one origin of a stream with sources."""

    name: str = always("")
    opt_start_seq: UInt = 0
    opt_start_time: str | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = empty(list)
    external: External | None = None
    consumer: StreamConsumerSource | None = None

    def __post_init__(self) -> None:
        self.opt_start_time = as_go_writes(self.opt_start_time)


class Republish(JsStruct, kw_only=True):
    """Republishes stored messages whose subject matches `src` as `dest`."""

    src: str = ""
    dest: str = always("")
    headers_only: bool = False


class Placement(JsStruct, kw_only=True):
    """Placement in a cluster; kept as given, without effect on a single server."""

    cluster: str = ""
    tags: list[str] = empty(list)
    preferred: str = ""


class ConsumerLimits(JsStruct, kw_only=True):
    """Defaults and upper bounds for a stream's consumers."""

    inactive_threshold: Duration = 0
    max_ack_pending: Int = 0


class StreamConfig(JsStruct, kw_only=True):
    """A stream's configuration. Unset limits are -1 once the defaults are applied."""

    name: str = always("")
    description: str = ""
    subjects: list[str] = empty(list)
    retention: RetentionPolicy = always("limits")
    max_consumers: Int = always(0)
    max_msgs: Int64 = always(0)
    max_bytes: Int64 = always(0)
    max_age: Duration = always(0)
    max_msgs_per_subject: Int64 = always(0)
    max_msg_size: Int32 = 0
    discard: DiscardPolicy = always("old")
    storage: StorageType = always("file")
    num_replicas: Int = always(0)
    no_ack: bool = False
    duplicate_window: Duration = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = empty(list)
    compression: Compression = always("none")
    first_seq: UInt = 0
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_direct: bool = always(False)
    mirror_direct: bool = always(False)
    discard_new_per_subject: bool = False
    sealed: bool = always(False)
    deny_delete: bool = always(False)
    deny_purge: bool = always(False)
    allow_rollup_hdrs: bool = always(False)
    consumer_limits: ConsumerLimits = always_struct(ConsumerLimits)
    allow_msg_ttl: bool = always(False)
    subject_delete_marker_ttl: Duration = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: PersistMode = "default"
    allow_batched: bool = False
    metadata: dict[str, str] = empty(dict)


class StreamConfigRequest(StreamConfig, kw_only=True):
    """The body of STREAM.CREATE and STREAM.UPDATE."""

    pedantic: bool = False

    def plain(self) -> StreamConfig:
        """Return the configuration without the request's own members."""
        return StreamConfig(**{name: getattr(self, name) for name in StreamConfig.__struct_fields__})


class LostStreamData(JsStruct, kw_only=True):
    msgs: list[UInt] | None = always(None)
    bytes: UInt = always(0)


class StreamState(JsStruct, kw_only=True):
    """What a stream holds: message and byte counts, first and last message, deleted sequences."""

    messages: UInt = always(0)
    bytes: UInt = always(0)
    first_seq: UInt = always(0)
    first_ts: str = always(ZERO_TIME)
    last_seq: UInt = always(0)
    last_ts: str = always(ZERO_TIME)
    num_subjects: int = 0
    subjects: dict[str, int] = empty(dict)
    num_deleted: int = 0
    deleted: list[UInt] = empty(list)
    lost: LostStreamData | None = None
    consumer_count: int = always(0)


class StreamSourceInfo(JsStruct, kw_only=True):
    """State of a mirror or source. `lag` in messages; `active`: ns since the origin last answered, -1: never."""

    name: str = always("")
    external: External | None = None
    lag: UInt = always(0)
    active: int = always(-1)
    error: ApiError | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = empty(list)


class PeerInfo(JsStruct, kw_only=True):
    name: str = always("")
    current: bool = always(False)
    offline: bool = False
    active: int = always(0)
    lag: UInt = 0


class ClusterInfo(JsStruct, kw_only=True):
    """Cluster state, read from servers that are part of a cluster; a single server omits it."""

    name: str = ""
    leader: str = ""
    replicas: list[PeerInfo] = empty(list)


class StreamAlternate(JsStruct, kw_only=True):
    name: str = always("")
    domain: str = ""
    cluster: str = always("")


class StreamInfo(JsStruct, kw_only=True):
    config: StreamConfig
    created: str = always(ZERO_TIME)
    state: StreamState
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: StreamSourceInfo | None = None
    sources: list[StreamSourceInfo] = empty(list)
    alternates: list[StreamAlternate] = empty(list)
    ts: str = always(ZERO_TIME)
