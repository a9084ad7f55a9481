"""Reading and writing the JSON of the JetStream API as nats-server does.

Writing: members leave in the order of the Struct's fields; a member is left out when it has its zero value, unless the
field was declared with `always(...)`, which is for members that nats-server writes whatever their value.

Reading: as Go's decoder. `null` leaves the zero value, names match without regard to case, and a mistake becomes
InvalidJson with Go's own words, which error 10025 quotes. A strict reader (nats-server 2.12 and later) refuses unknown
members; a lenient one leaves them out. The common case is one pass of msgspec; only what that refuses is read again slowly.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
UInt = Annotated[int, msgspec.Meta(ge=0)]


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


@cache
def _type_info(kind: Any) -> inspect.Type:
    """What a type looks like; working it out anew takes milliseconds."""
    return inspect.type_info(kind)


def encode(value: object) -> bytes:
    """JSON of a Struct (or of anything msgspec knows)."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T], *, strict: bool = True) -> T:
    """`data` as `kind`. Raises InvalidJson."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        pass
    except msgspec.DecodeError as err:
        raise InvalidJson(_syntax_words(data, err)) from None
    try:
        plain = msgspec.json.decode(data)
        return msgspec.convert(_as_go(_type_info(kind), plain, strict), kind)  # type: ignore[arg-type]
    except msgspec.ValidationError as err:
        raise InvalidJson(_go_words(str(err))) from None
    except msgspec.DecodeError as err:
        raise InvalidJson(_syntax_words(data, err)) from None  # of another type, and cut short


def encode_response(kind: str, *parts: object) -> bytes:
    """A response: its `type` (the suffix after `io.nats.jetstream.api.v1.`), then the members of each part in turn."""
    out = [b'{"type":"io.nats.jetstream.api.v1.%b"' % kind.encode()]
    for part in parts:
        members = _encoder.encode(part)[1:-1]
        if members:
            out.append(members)
    return b",".join(out) + b"}"


def _as_go(info: inspect.Type, value: Any, strict: bool) -> Any:
    """`value` with nulls, unknown members and names in other case brought into the form that `info` describes."""
    match info:
        case inspect.StructType() if isinstance(value, dict):
            return _struct_as_go(info, value, strict)
        case inspect.ListType(item_type=item) if isinstance(value, list):
            return [_as_go(item, _zero(item) if each is None else each, strict) for each in value]
        case inspect.DictType(value_type=item) if isinstance(value, dict):
            return {key: _as_go(item, _zero(item) if each is None else each, strict) for key, each in value.items()}
        case inspect.UnionType(types=types):
            for option in types:
                if not isinstance(option, inspect.NoneType):
                    return _as_go(option, value, strict)
        case inspect.Metadata(type=inner):
            return _as_go(inner, value, strict)
        case _:
            pass
    return value


def _struct_as_go(info: inspect.StructType, value: dict[str, Any], strict: bool) -> dict[str, Any]:
    fields = {field.encode_name: field for field in info.fields}
    folded = {name.lower(): name for name in fields}
    out: dict[str, Any] = {}
    for name, member in value.items():
        known = name if name in fields else folded.get(name.lower())
        if known is None:
            if strict:
                raise InvalidJson(f'json: unknown field "{name}"')
        elif member is not None:
            out[known] = _as_go(fields[known].type, member, strict)
    return out


def _zero(info: inspect.Type) -> Any:
    match info:
        case inspect.StructType() | inspect.DictType():
            return {}
        case inspect.ListType():
            return []
        case inspect.StrType():
            return ""
        case inspect.IntType():
            return 0
        case inspect.BoolType():
            return False
        case _:
            return None


def _syntax_words(data: bytes, err: msgspec.DecodeError) -> str:
    if not data.strip() or "truncated" in str(err):
        return "unexpected end of JSON input"
    trailing = "trailing" in str(err)
    position = str(err).rpartition("(byte ")[2].rstrip(")")
    if position.isdigit():
        character = data[min(int(position) - trailing, len(data) - 1) :].decode("utf-8", "replace")[0]
        where = "after top-level value" if trailing else "looking for beginning of value"
        return f"invalid character '{character}' {where}"
    return str(err)


def _go_words(text: str) -> str:
    """Go's words for msgspec's `Expected ..., got ... - at $.path`."""
    problem, _, path = text.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    if problem.startswith("Invalid enum value '"):
        quoted = problem.removeprefix("Invalid enum value '").removesuffix("'")
        return f'json: cannot unmarshal "\\"{quoted}\\""'
    expected, _, got = problem.removeprefix("Expected ").partition(", got ")
    go_names = {"`int`": "number", "`float`": "number", "`str`": "string", "`bool`": "bool", "`null`": "null"}
    if got and path:
        expected = expected.strip("`").replace(" | null", "")
        return (
            f"json: cannot unmarshal {go_names.get(got, got.strip('`'))} into Go struct field {path} of type {expected}"
        )
    if got:
        return f"json: cannot unmarshal {go_names.get(got, got.strip('`'))} into Go value of type {expected.strip('`')}"
    if problem.startswith("parsing time"):
        return problem
    return f"json: cannot unmarshal {path}: {problem}" if path else f"json: {problem}"
