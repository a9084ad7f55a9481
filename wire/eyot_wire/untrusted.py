"""JSON from peers, with one kind of error for every defect."""

from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


@overload
def decode_json(data: bytes) -> Any: ...


@overload
def decode_json(data: bytes, kind: type[T]) -> T: ...


def decode_json(data: bytes, kind: Any = Any) -> Any:
    """Decode `data` as `kind`. Raises msgspec.DecodeError, or its subclass msgspec.ValidationError for wrong types.

    msgspec alone raises other errors for text that is not UTF-8, also in skipped members, and for JSON that nests too
    deep.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is no UTF-8: {error.reason}") from error
    except RecursionError:
        raise msgspec.DecodeError("JSON nests too deep") from None
