"""Payloads of binary formats as JSON values: MessagePack (msgspec) and CBOR (cbor2, RFC 8949).

Types without a JSON equivalent become types that a schema can declare: byte strings become text, times RFC 3339,
decimals and fractions numbers, map keys text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from typing import Any, Final

import cbor2
import msgspec


def _cbor(payload: bytes) -> Any:
    """Decode one data item with nothing after it. Raises CBORError."""
    stream = BytesIO(payload)
    value = cbor2.CBORDecoder(stream).decode()
    if stream.tell() != len(payload):
        raise cbor2.CBORDecodeError("trailing bytes after the data item")
    return value


DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {"msgpack": msgspec.msgpack.decode, "cbor": _cbor}


def plain_value(form: str, payload: bytes) -> Any:
    """Decode a payload. Raises the decoder's errors for malformed payloads and for cyclic values."""
    return plain(DECODERS[form](payload))


def plain(value: Any) -> Any:
    """Convert a decoder's value to JSON types. Raises RecursionError for a cycle, ValueError for NaN-like decimals."""
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Decimal | Fraction):
        return float(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, cbor2.CBORTag | cbor2.CBORSimpleValue):
        return plain(value.value)
    return None if value is cbor2.undefined else str(value)


def _key(key: Any) -> str:
    text = plain(key)
    return text if isinstance(text, str) else json.dumps(text)
