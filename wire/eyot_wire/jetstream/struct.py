"""The JSON of the JetStream API, read and written as nats-server does.

Writing: members have the order of the Struct's fields. A member with its zero value is left out, unless the field was
declared with `always(...)`: nats-server always writes those.

Reading: as Go's decoder. `null` gives the zero value, names match without regard to case, and a mistake raises
InvalidJson with Go's own words, which error 10025 quotes. A strict reader (nats-server 2.12 and later) refuses unknown
members; a lenient one ignores them. The common case is one pass of msgspec; only text that msgspec refuses is parsed
again by the slower reader.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from eyot_wire.go.json import SyntaxFault, values
from eyot_wire.go.values import Unfit, as_go

T = TypeVar("T")
_INT64 = {"ge": -(2**63), "le": 2**63 - 1}
#: Integer types by nats-server's type names, which its words quote; Duration in nanoseconds.
UInt = Annotated[int, msgspec.Meta(ge=0, extra={"go": "uint64"})]
Int = Annotated[int, msgspec.Meta(**_INT64, extra={"go": "int"})]
Int64 = Annotated[int, msgspec.Meta(**_INT64, extra={"go": "int64"})]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1, extra={"go": "int32"})]
Duration = Annotated[int, msgspec.Meta(**_INT64, extra={"go": "time.Duration"})]


class JsStruct(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all Structs of the JetStream API."""


def always(value: Any) -> Any:
    """Declare a field that is written even when it has its default value."""
    return msgspec.field(default_factory=_constant(value))


def empty(kind: type[list[Any]] | type[dict[Any, Any]]) -> Any:
    """Declare a field with an empty list or map as default, left out when empty."""
    return msgspec.field(default_factory=kind)


def always_list() -> Any:
    """Declare a list field that is written as `[]` when empty."""
    return msgspec.field(default_factory=_new_list)


def always_struct(kind: type[Any]) -> Any:
    """Declare a Struct field that is written even when it has its zero value."""
    return msgspec.field(default_factory=lambda: kind())


def _new_list() -> list[Any]:
    return []


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


class InvalidJson(ValueError):
    """Text that does not hold the expected value; str() gives Go's words."""


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
#: Numbers that the fast reader accepts and Go refuses: too large, with a fraction, or -0 for an unsigned type.
_DOUBTFUL_NUMBER = re.compile(rb"[0-9]{19}|[0-9][.eE][0-9+-]|-0")


def encode(value: object) -> bytes:
    """Encode a Struct (or any value that msgspec supports) as JSON."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T], *, strict: bool = True) -> T:
    """Decode `data` as `kind`. Raises InvalidJson. As in Go, a strict reader merges several consecutive values."""
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
    """Return the words of a lenient nats-server for the same mistake; it reads the text as one value."""
    return "unexpected end of JSON input" if words == "unexpected EOF" else re.sub(r" at offset \d+$", "", words)


def encode_response(kind: str, *parts: object) -> bytes:
    """Encode a response: its `type` (the suffix after `io.nats.jetstream.api.v1.`), then the members of each part in turn."""
    out = [b'{"type":"io.nats.jetstream.api.v1.%b"' % kind.encode()]
    for part in parts:
        members = _encoder.encode(part)[1:-1]
        if members:
            out.append(members)
    return b",".join(out) + b"}"
