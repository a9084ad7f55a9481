"""Converts JSON values to the form of our Structs as Go's decoder fills its own, with Go's words for mismatches.

nats-server's requests are Go structs; their names and types appear in the words of error 10025. The first mistake in
the order of the text is reported (nats-server 2.14). `null` gives the zero value; names match without regard to case.
"""

import json
import math
from functools import cache
from typing import Any

from msgspec import inspect

from eyot_wire.digits import is_digits
from eyot_wire.go.json import Node
from eyot_wire.go.time import parse_words

#: nats-server's names of our Structs, where they differ.
_GO_STRUCTS = {
    "ConsumerLimits": "StreamConsumerLimits",
    "External": "ExternalStream",
    "MsgDeleteRequest": "JSApiMsgDeleteRequest",
    "MsgGetRequest": "JSApiMsgGetRequest",
    "NextRequest": "",
    "PageRequest": "JSApiConsumersRequest",
    "PauseRequest": "JSApiConsumerPauseRequest",
    "PurgeRequest": "JSApiStreamPurgeRequest",
    "Republish": "RePublish",
    "ResetRequest": "JSApiConsumerResetRequest",
    "RestoreRequest": "JSApiStreamRestoreRequest",
    "SnapshotRequest": "JSApiStreamSnapshotRequest",
    "StreamInfoRequest": "JSApiStreamInfoRequest",
    "StreamListRequest": "JSApiStreamListRequest",
    "StreamNamesRequest": "JSApiStreamNamesRequest",
    "SubjectTransform": "SubjectTransformConfig",
    "UnpinRequest": "JSApiConsumerUnpinRequest",
}
_INT_RANGES = {"int32": (-(2**31), 2**31 - 1), "uint64": (0, 2**64 - 1)}
_INT64 = (-(2**63), 2**63 - 1)
_DIGITS_MAX = 21  # with sign, more than any integer needs; Python refuses integers of 4,301 digits
_COMPRESSIONS = frozenset(("none", "s2"))
#: Enumerations with error words of their own in nats-server.
_OWN_WORDS = {
    _COMPRESSIONS: "unknown compression algorithm",
    frozenset(("none", "overflow", "pinned_client", "prioritized")): "unknown priority policy: {raw}",
    frozenset(("", "create", "update")): "unknown consumer action: {raw}",
}
#: Alternative spellings of enumeration values.
_SPELLINGS = {
    frozenset(("default", "async")): {"": "default"},
    frozenset(("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject")): {"undefined": "all"},
}
_FOLDED = frozenset(("old", "new"))


class Unfit(ValueError):
    """A value that does not fit its type; str() gives Go's words."""


@cache
def type_info(kind: Any) -> inspect.Type:
    """Return the description of a type. Cached: computing one takes milliseconds."""
    return inspect.type_info(kind)


def as_go(kind: Any, node: Node, strict: bool) -> Any:
    """Convert `node` to the form that `kind` describes, for msgspec.convert. Raises Unfit; `strict`: also for unknown members."""
    info = type_info(kind)
    name = _struct_name(info) if isinstance(info, inspect.StructType) else ""
    return _Filler(name, strict).value(info, node, ())


class _Filler:
    def __init__(self, root: str, strict: bool) -> None:
        self.root = root
        self.strict = strict

    def value(self, info: inspect.Type, node: Node, path: tuple[str | int, ...]) -> Any:
        match info:
            case inspect.Metadata(type=inspect.IntType(), extra=extra):
                return self._integer((extra or {}).get("go", "int"), node, path)
            case inspect.Metadata(type=inspect.StrType(), extra={"go": str(go)}) if node.kind not in ("string", "null"):
                raise self._unfit(node.kind, go, path)
            case inspect.Metadata(type=inner):
                return self.value(inner, node, path)
            case inspect.LiteralType(values=allowed):
                return _chosen([str(each) for each in allowed], node)
            case _ if node.kind == "null":
                return zero(info)
            case inspect.StructType() if node.kind == "object":
                return self._struct(info, node, path)
            case inspect.ListType(item_type=item) if node.kind == "array":
                return [self.value(item, each, (*path, at)) for at, each in enumerate(node.value)]
            case inspect.DictType(value_type=item) if node.kind == "object":
                return {name: self.value(item, each, (*path, name)) for name, each in node.value}
            case inspect.UnionType(types=types):
                return self._optional(types, node, path)
            case inspect.StrType() if node.kind == "string":
                return node.value
            case inspect.BoolType() if node.kind == "bool":
                return node.value
            case inspect.IntType():
                return self._integer("int", node, path)
            case inspect.BytesType() if node.kind == "string":
                return node.value
        raise self._unfit(node.kind, info, path)

    def _struct(self, info: inspect.StructType, node: Node, path: tuple[str | int, ...]) -> dict[str, Any]:
        fields = {field.encode_name: field for field in info.fields}
        folded = {name.lower(): name for name in fields}
        out: dict[str, Any] = {}
        for name, member in node.value:
            known = name if name in fields else folded.get(name.lower())
            if known is None:
                if self.strict:
                    raise Unfit(f"json: unknown field {json.dumps(name, ensure_ascii=False)}")
                continue
            filled = self.value(fields[known].type, member, (*path, name))
            if filled is not None:
                out[known] = filled
        return out

    def _integer(self, go: str, node: Node, path: tuple[str | int, ...]) -> int:
        if node.kind == "null":
            return 0
        if node.kind != "number":
            raise self._unfit(node.kind, go, path)
        low, high = _INT_RANGES.get(go, _INT64)
        digits: str = node.value
        sound = len(digits) <= _DIGITS_MAX and is_digits(digits.lstrip("-")) and not (low == 0 and digits[0] == "-")
        if not sound or not low <= int(digits) <= high:
            raise self._unfit(f"number {digits}", go, path)
        return int(digits)

    def _optional(self, types: tuple[inspect.Type, ...], node: Node, path: tuple[str | int, ...]) -> Any:
        """Convert a value that may be absent; optional text is a time."""
        inner = next(each for each in types if not isinstance(each, inspect.NoneType))
        if not isinstance(inner, inspect.StrType):
            return self.value(inner, node, path)
        if node.kind != "string":
            raise self._unfit(node.kind, "time.Time", path)
        fault = parse_words(node.value)
        if fault:
            raise Unfit(fault)
        return node.value

    def _unfit(self, what: str, info: inspect.Type | str, path: tuple[str | int, ...]) -> Unfit:
        go = info if isinstance(info, str) else _go_type(info)
        if not path:
            return Unfit(f"json: cannot unmarshal {what} into Go value of type {go}")
        field = "" if isinstance(path[-1], int) else "Go struct field "
        where = ".".join((self.root, *map(str, path)))
        return Unfit(f"json: cannot unmarshal {what} into {field}{where} of type {go}")


def _chosen(allowed: list[str], node: Node) -> str:
    """Return a node's text as one of an enumeration's values."""
    names = frozenset(allowed)
    spelled = _SPELLINGS.get(names, {}).get(node.value, node.value) if node.kind == "string" else None
    if names == _FOLDED and spelled is not None:
        spelled = spelled.lower()
    if spelled in names:
        return str(spelled)
    if names == _COMPRESSIONS and node.kind not in ("string", "null"):
        raise Unfit(f"json: cannot unmarshal {node.kind} into Go value of type string")
    raw = node.raw.decode("utf-8", "replace")
    words = _OWN_WORDS.get(names, "can not unmarshal {quoted}")
    raise Unfit(words.format(raw=raw, quoted=json.dumps(raw, ensure_ascii=False)))


def zero(info: inspect.Type) -> Any:
    """Return the value of `null`: None for optional members, else the zero value."""
    match info:
        case inspect.Metadata(type=inner):
            return zero(inner)
        case inspect.StructType() | inspect.DictType():
            return {}
        case inspect.ListType():
            return []
        case inspect.StrType():
            return ""
        case inspect.IntType():
            return 0
        case inspect.FloatType():
            return math.nan
        case inspect.BoolType():
            return False
        case _:
            return None


def _struct_name(info: inspect.StructType) -> str:
    return _GO_STRUCTS.get(info.cls.__name__, info.cls.__name__)


def _go_type(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata(type=inspect.IntType(), extra=extra):
            return str((extra or {}).get("go", "int"))
        case inspect.Metadata(type=inner):
            return _go_type(inner)
        case inspect.StructType():
            return f"server.{_struct_name(info)}"
        case inspect.ListType(item_type=item):
            pointer = "*" if isinstance(item, inspect.StructType) and item.cls.__name__ == "StreamSource" else ""
            return f"[]{pointer}{_go_type(item)}"
        case inspect.DictType(value_type=item):
            return f"map[string]{_go_type(item)}"
        case inspect.BoolType():
            return "bool"
        case _:
            return "string"
