"""Requests and responses of the JetStream API other than configurations.

A response on the wire is `{"type": ..., <members>}`. The Structs here hold the members, and `struct.encode_response`
adds the type. ErrorPart replaces the members of a failed request.
"""

from eyot_wire.go.time import ZERO_TIME, check_times
from eyot_wire.jetstream.consumer import ConsumerInfo
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.stream import StreamConfig, StreamInfo, StreamState
from eyot_wire.jetstream.struct import Int, JsStruct, UInt, always, always_list, always_struct, empty


class ErrorPart(JsStruct, kw_only=True):
    error: ApiError | None = None


class SuccessPart(JsStruct, kw_only=True):
    success: bool = False


class PagePart(JsStruct, kw_only=True):
    """Paging of a list: total entries, offset of this page, and the most entries of a page."""

    total: int = always(0)
    offset: int = always(0)
    limit: int = always(0)


class PageRequest(JsStruct, kw_only=True):
    offset: Int = 0


class StreamNamesRequest(JsStruct, kw_only=True):
    offset: Int = 0
    subject: str = ""


class StreamListRequest(StreamNamesRequest, kw_only=True):
    """The body of STREAM.LIST."""


class StreamNamesPart(JsStruct, kw_only=True):
    streams: list[str] | None = always(None)


class StreamListPart(JsStruct, kw_only=True):
    streams: list[StreamInfo] = always_list()
    missing: list[str] = empty(list)
    offline: dict[str, str] = empty(dict)


class StreamInfoRequest(JsStruct, kw_only=True):
    offset: Int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class DidCreatePart(JsStruct, kw_only=True):
    did_create: bool = False


class PurgeRequest(JsStruct, kw_only=True):
    """The body of STREAM.PURGE. `seq`: purge all messages below; `keep`: keep this many; `filter`: only matching subjects."""

    seq: UInt = 0
    keep: UInt = 0
    filter: str = ""


class PurgePart(JsStruct, kw_only=True):
    success: bool = False
    purged: UInt = always(0)


class MsgGetRequest(JsStruct, kw_only=True):
    """The body of STREAM.MSG.GET and DIRECT.GET."""

    seq: UInt = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: Int = 0
    max_bytes: Int = 0
    start_time: str | None = None
    multi_last: list[str] = empty(list)
    up_to_seq: UInt = 0
    up_to_time: str | None = None
    no_hdr: bool = False

    def __post_init__(self) -> None:
        check_times(self.start_time, self.up_to_time)


class StoredMsg(JsStruct, kw_only=True):
    """A stored message in JSON: header block and payload in base64 (msgspec's form of bytes)."""

    subject: str = always("")
    seq: UInt = always(0)
    hdrs: bytes = b""
    data: bytes = b""
    time: str = always(ZERO_TIME)


class MessagePart(JsStruct, kw_only=True):
    message: StoredMsg


class MsgDeleteRequest(JsStruct, kw_only=True):
    seq: UInt = always(0)
    no_erase: bool = False


class SnapshotRequest(JsStruct, kw_only=True):
    deliver_subject: str = always("")
    no_consumers: bool = False
    chunk_size: Int = 0
    window_size: Int = 0
    jsck: bool = False


class SnapshotPart(JsStruct, kw_only=True):
    config: StreamConfig | None = None
    state: StreamState | None = None


class RestoreRequest(JsStruct, kw_only=True):
    """The body of STREAM.RESTORE: the answer to STREAM.SNAPSHOT. `state` is informative; the archive decides what is restored."""

    config: StreamConfig = always_struct(StreamConfig)
    state: StreamState = always_struct(StreamState)


class RestorePart(JsStruct, kw_only=True):
    deliver_subject: str = always("")


class AccountLimits(JsStruct, kw_only=True):
    """JetStream limits of an account; -1: unlimited."""

    max_memory: int = always(-1)
    max_storage: int = always(-1)
    max_streams: int = always(-1)
    max_consumers: int = always(-1)
    max_ack_pending: int = always(-1)
    memory_max_stream_bytes: int = always(-1)
    storage_max_stream_bytes: int = always(-1)
    max_bytes_required: bool = always(False)


class ApiStats(JsStruct, kw_only=True):
    level: int = always(0)
    total: UInt = always(0)
    errors: UInt = always(0)
    inflight: UInt = 0


class AccountTier(JsStruct, kw_only=True):
    memory: UInt = always(0)
    storage: UInt = always(0)
    reserved_memory: UInt = always(0)
    reserved_storage: UInt = always(0)
    streams: int = always(0)
    consumers: int = always(0)
    limits: AccountLimits


class AccountInfo(JsStruct, kw_only=True):
    memory: UInt = always(0)
    storage: UInt = always(0)
    reserved_memory: UInt = always(0)
    reserved_storage: UInt = always(0)
    streams: int = always(0)
    consumers: int = always(0)
    limits: AccountLimits
    domain: str = ""
    api: ApiStats
    tiers: dict[str, AccountTier] = empty(dict)


class PubAckError(JsStruct, kw_only=True):
    """The error answer to a publisher, in place of a PubAck."""

    error: ApiError
    stream: str = always("")
    seq: UInt = always(0)
    domain: str = ""


class ConsumerNamesPart(JsStruct, kw_only=True):
    consumers: list[str] = always_list()


class ConsumerListPart(JsStruct, kw_only=True):
    consumers: list[ConsumerInfo] = always_list()


class ResponseHead(JsStruct, kw_only=True):
    """The common members of all responses, for clients."""

    type: str = always("")
    error: ApiError | None = None
