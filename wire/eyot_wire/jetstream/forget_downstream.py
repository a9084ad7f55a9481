"""`STREAM.EYOT_FORGET`: asks an origin to forget a downstream (a mirror or source elsewhere) that will not return.

The request is an extension of Eyot to the JetStream API. A server sends it when the link returns after a mirror or
source was removed; an operator sends it (`eyot sync forget`) for a server that will not return.
"""

from __future__ import annotations

from typing import Final

from eyot_wire.jetstream.struct import JsStruct, always

#: Stands between `$JS.API.` and the name of the origin stream.
WORDS: Final = "STREAM.EYOT_FORGET"


class ForgetRequest(JsStruct, kw_only=True):
    """Which downstreams to forget: those that match every given member.

    `server`: a server's name or its JetStream domain. `kind`: `mirror` or `source`. `target`: the downstream's stream.
    `filters`: its filter subjects (null: any). `lost`: keep the downstreams, and forget only what never arrived there
    and what their filters do not match.
    """

    server: str = ""
    kind: str = ""
    target: str = ""
    filters: list[str] | None = None
    lost: bool = False


class ForgottenPart(JsStruct, kw_only=True):
    """Numbers of downstreams: those forgotten, and those kept because they replicate the stream at present (`reading`)."""

    forgotten: int = always(0)
    reading: int = always(0)
