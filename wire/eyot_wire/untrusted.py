"""JSON that somebody sent: whatever is wrong with it is one kind of error."""

from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


@overload
def decode_json(data: bytes) -> Any: ...


@overload
def decode_json(data: bytes, kind: type[T]) -> T: ...


def decode_json(data: bytes, kind: Any = Any) -> Any:
    """`data` as `kind`. Raises msgspec.DecodeError, of which msgspec.ValidationError (the wrong types) is one.

    msgspec lets two others through: text that is no UTF-8, also in what it skips, and JSON that nests too deep for the stack.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is no UTF-8: {error.reason}") from error
    except RecursionError:
        raise msgspec.DecodeError("JSON nests too deep") from None
