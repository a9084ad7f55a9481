"""Reading and writing the JSON of the JetStream API as nats-server does.

Writing: members leave in the order of the Struct's fields; a member is left out when it has its zero value, unless the
field was declared with `always(...)`, which is for members that nats-server writes whatever their value.

Reading: as Go's decoder. `null` leaves the zero value, names match without regard to case, and a mistake becomes
InvalidJson with Go's own words, which error 10025 quotes. A strict reader (nats-server 2.12 and later) refuses unknown
members; a lenient one leaves them out. The common case is one pass of msgspec; only what that refuses is read again slowly.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from eyot_wire.go.json import SyntaxFault, values
from eyot_wire.go.values import Unfit, as_go

T = TypeVar("T")
_INT64 = {"ge": -(2**63), "le": 2**63 - 1}
#: Integers by what they are in nats-server, whose words name the type; Duration in nanoseconds.
UInt = Annotated[int, msgspec.Meta(ge=0, extra={"go": "uint64"})]
Int = Annotated[int, msgspec.Meta(**_INT64, extra={"go": "int"})]
Int64 = Annotated[int, msgspec.Meta(**_INT64, extra={"go": "int64"})]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1, extra={"go": "int32"})]
Duration = Annotated[int, msgspec.Meta(**_INT64, extra={"go": "time.Duration"})]


class JsStruct(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything the JetStream API says."""


def always(value: Any) -> Any:
    """A field default that is written even when the value equals it."""
    return msgspec.field(default_factory=_constant(value))


def empty(kind: type[list[Any]] | type[dict[Any, Any]]) -> Any:
    """A field default of an empty list or map, left out when it is empty."""
    return msgspec.field(default_factory=kind)


def always_list() -> Any:
    """An empty list that is written as `[]`."""
    return msgspec.field(default_factory=_new_list)


def always_struct(kind: type[Any]) -> Any:
    """A fresh zero Struct that is written as well."""
    return msgspec.field(default_factory=lambda: kind())


def _new_list() -> list[Any]:
    return []


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


class InvalidJson(ValueError):
    """The text does not hold what was expected; str() gives Go's words for it."""


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
#: Numbers that the fast reader takes and Go does not: too large, with a fraction, or -0 where none is below 0.
_DOUBTFUL_NUMBER = re.compile(rb"[0-9]{19}|[0-9][.eE][0-9+-]|-0")


def encode(value: object) -> bytes:
    """JSON of a Struct (or of anything msgspec knows)."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T], *, strict: bool = True) -> T:
    """`data` as `kind`. Raises InvalidJson. A strict reader takes several values, the later laid over the earlier, as Go's does."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    if _DOUBTFUL_NUMBER.search(data) is None:
        try:
            return decoder.decode(data)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return _decode_as_go(data, kind, strict)


def _decode_as_go(data: bytes, kind: type[T], strict: bool) -> T:
    merged: Any = None
    read = False
    try:
        for node in values(data, one=not strict):
            filled = as_go(kind, node, strict)
            both = isinstance(merged, dict) and isinstance(filled, dict)
            merged, read = {**merged, **filled} if both else filled, True
        if not read:
            raise SyntaxFault("unexpected EOF")
    except SyntaxFault as fault:
        raise InvalidJson(str(fault) if strict else _unmarshal_words(str(fault))) from None
    except Unfit as fault:
        raise InvalidJson(str(fault)) from None
    try:
        return msgspec.convert(merged, kind)
    except msgspec.ValidationError as err:
        raise InvalidJson(f"json: {err}") from None


def _unmarshal_words(words: str) -> str:
    """What a lenient nats-server says of the same mistake, which reads the text as one value."""
    return "unexpected end of JSON input" if words == "unexpected EOF" else re.sub(r" at offset \d+$", "", words)


def encode_response(kind: str, *parts: object) -> bytes:
    """A response: its `type` (the suffix after `io.nats.jetstream.api.v1.`), then the members of each part in turn."""
    out = [b'{"type":"io.nats.jetstream.api.v1.%b"' % kind.encode()]
    for part in parts:
        members = _encoder.encode(part)[1:-1]
        if members:
            out.append(members)
    return b",".join(out) + b"}"
