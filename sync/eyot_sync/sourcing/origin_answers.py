"""The parts of an origin's answers that are used."""

from __future__ import annotations

from msgspec import field

from eyot_wire.jetstream.consumer import ConsumerInfo
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.struct import JsStruct


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


class OriginInfo(JsStruct, kw_only=True):
    """The used part of the origin's STREAM.INFO."""

    created: str = ""
    state: OriginState = field(default_factory=OriginState)
    error: ApiError | None = None


class StoredMessage(JsStruct, kw_only=True):
    """The used part of the message in STREAM.MSG.GET."""

    seq: int = 0
    time: str = ""


class StoredAnswer(JsStruct, kw_only=True):
    """The used part of the answer to STREAM.MSG.GET: a message, or none (removed, or not permitted)."""

    message: StoredMessage | None = None
