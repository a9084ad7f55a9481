"""The parts of an origin's answers that are used."""

from __future__ import annotations

from msgspec import field

from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.consumer import ConsumerInfo
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.struct import JsStruct

#: Metadata by which a server tells its API level (nats-server 2.11 and later).
_LEVEL = "_nats.level"
_REFUSES_SOURCE_HEADER = 5


class CreateResponse(ConsumerInfo, kw_only=True):
    """The origin's answer: a consumer, or an error."""

    type: str = ""
    error: ApiError | None = None


class ErrorOnly(JsStruct, kw_only=True):
    """Any answer: an error, or none."""

    error: ApiError | None = None


class OriginState(JsStruct, kw_only=True):
    """The used part of the state in STREAM.INFO."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int | None = None


class OriginConfig(JsStruct, kw_only=True):
    """The used part of the configuration in STREAM.INFO."""

    subjects: list[str] | None = None
    mirror: dict[str, object] | None = None
    metadata: dict[str, str] | None = None


class OriginInfo(JsStruct, kw_only=True):
    """The used part of the origin's STREAM.INFO."""

    created: str = ""
    config: OriginConfig = field(default_factory=OriginConfig)
    state: OriginState = field(default_factory=OriginState)
    error: ApiError | None = None

    @property
    def only_sourced(self) -> bool:
        """Whether no client can have written the `Nats-Stream-Source` of its messages.

        The stream takes none from clients and is no mirror of one that does, or its server refuses such a header
        (nats-server 2.15).
        """
        if not self.config.subjects and self.config.mirror is None:
            return True
        level = parse_uint((self.config.metadata or {}).get(_LEVEL, "").encode())
        return level is not None and level >= _REFUSES_SOURCE_HEADER


class StoredMessage(JsStruct, kw_only=True):
    """The used part of the message in STREAM.MSG.GET."""

    seq: int = 0
    time: str = ""


class StoredAnswer(JsStruct, kw_only=True):
    """The used part of the answer to STREAM.MSG.GET: a message, or none (removed, or not permitted)."""

    message: StoredMessage | None = None
