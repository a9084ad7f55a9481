"""`STREAM.EYOT_FORGET`: a mirror or source elsewhere that will not come back is asked to be forgotten by the stream it read.

Eyot's own part of the JetStream API. Who stops copying while its link is down says so when the link returns; an operator says it
(`eyot sync forget`) of a server that is gone for good.
"""

from __future__ import annotations

from typing import Final

from eyot_wire.jetstream.struct import JsStruct, always

#: Between `$JS.API.` and the name of the stream that was read.
WORDS: Final = "STREAM.EYOT_FORGET"


class ForgetRequest(JsStruct, kw_only=True):
    """Whom to forget: those that fit every member that is given. `server` is a server's name or its JetStream domain; `kind` is
    `mirror` or `source`, `target` the stream that copied, `filters` what it asked for (null: any). `lost`: they are kept; only what never
    arrived there, and what they pass over, is not to be told any more."""

    server: str = ""
    kind: str = ""
    target: str = ""
    filters: list[str] | None = None
    lost: bool = False


class ForgottenPart(JsStruct, kw_only=True):
    """How many were forgotten, and how many of those that fit were left, since they read the stream at the moment."""

    forgotten: int = always(0)
    reading: int = always(0)
