"""Consumers in the JetStream API: configuration, state, info. Durations in ns, times RFC 3339.

Source: NATS ADR-13, ADR-37, ADR-42 and nats-server's JSON (member order and omission as nats-server 2.12 writes them).
"""

from typing import Literal

from eyot_wire.go.time import ZERO_TIME, as_go_writes, check_times
from eyot_wire.jetstream.stream import ClusterInfo
from eyot_wire.jetstream.struct import Duration, Int, Int64, JsStruct, UInt, always, always_struct, empty

DeliverPolicy = Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Literal["none", "overflow", "pinned_client", "prioritized"]
ConsumerAction = Literal["", "create", "update"]


class ConsumerConfig(JsStruct, kw_only=True):
    """A consumer's configuration."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = always("all")
    opt_start_seq: UInt = 0
    opt_start_time: str | None = None
    ack_policy: AckPolicy = always("none")
    ack_wait: Duration = 0
    max_deliver: Int = 0
    backoff: list[Duration] = empty(list)
    filter_subject: str = ""
    filter_subjects: list[str] = empty(list)
    replay_policy: ReplayPolicy = always("instant")
    rate_limit_bps: UInt = 0
    sample_freq: str = ""
    max_waiting: Int = 0
    max_ack_pending: Int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Int = 0
    max_expires: Duration = 0
    max_bytes: Int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Duration = 0
    inactive_threshold: Duration = 0
    num_replicas: Int = always(0)
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = empty(dict)
    pause_until: str | None = None
    priority_groups: list[str] = empty(list)
    priority_policy: PriorityPolicy = "none"
    priority_timeout: Duration = 0

    def __post_init__(self) -> None:
        self.opt_start_time = as_go_writes(self.opt_start_time)
        self.pause_until = as_go_writes(self.pause_until)


class CreateConsumerRequest(JsStruct, kw_only=True):
    """The body of CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    stream_name: str = always("")
    config: ConsumerConfig = always_struct(ConsumerConfig)
    action: ConsumerAction = always("")
    pedantic: bool = False


class SequenceInfo(JsStruct, kw_only=True):
    """A position of a consumer: its delivery count and the stream's sequence."""

    consumer_seq: UInt = always(0)
    stream_seq: UInt = always(0)
    last_active: str | None = None


class PriorityGroupState(JsStruct, kw_only=True):
    group: str = always("")
    pinned_client_id: str = ""
    pinned_ts: str = always(ZERO_TIME)


class ConsumerInfo(JsStruct, kw_only=True):
    stream_name: str = always("")
    name: str = always("")
    created: str = always(ZERO_TIME)
    config: ConsumerConfig | None = None
    delivered: SequenceInfo
    ack_floor: SequenceInfo
    num_ack_pending: int = always(0)
    num_redelivered: int = always(0)
    num_waiting: int = always(0)
    num_pending: UInt = always(0)
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: int = 0
    ts: str = always(ZERO_TIME)
    priority_groups: list[PriorityGroupState] = empty(list)


class NextRequest(JsStruct, kw_only=True):
    """The JSON body of CONSUMER.MSG.NEXT; unknown members are ignored even by a strict server."""

    expires: Duration = 0
    batch: Int = 0
    max_bytes: Int = 0
    no_wait: bool = False
    idle_heartbeat: Duration = 0
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int = 0


class PauseRequest(JsStruct, kw_only=True):
    pause_until: str | None = None

    def __post_init__(self) -> None:
        check_times(self.pause_until)


class PauseResponse(JsStruct, kw_only=True):
    paused: bool = always(False)
    pause_until: str = always(ZERO_TIME)
    pause_remaining: int = 0


class ResetRequest(JsStruct, kw_only=True):
    """The body of CONSUMER.RESET: where the consumer continues; 0: after its ack floor."""

    seq: UInt = 0


class ResetPart(JsStruct, kw_only=True):
    reset_seq: UInt = always(0)


class UnpinRequest(JsStruct, kw_only=True):
    group: str = always("")
