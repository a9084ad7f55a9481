"""Payloads of binary formats as JSON values: MessagePack (msgspec) and CBOR (cbor2, RFC 8949).

Types without a JSON equivalent become types that a schema can declare: byte strings become text, times RFC 3339,
decimals and fractions numbers, map keys text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from typing import Any, Final, NoReturn

import cbor2
import msgspec

MANTISSA_BITS_MAX: Final = 1000  # 300 digits
#: Texts of a CBOR payload, counted wherever a string reference (tag 25) stands for them, for each byte of the payload.
TEXT_PER_BYTE_MAX: Final = 32
#: What every encoding of tag 256 ends with. Outside of it there are no string references.
_NAMESPACE: Final = b"\x01\x00"


def _refuse(_value: Any, _immutable: bool) -> NoReturn:
    raise cbor2.CBORDecodeError("shared values are not taken")


def _parts(value: Any) -> tuple[int, int]:
    """Return exponent and mantissa of a decimal or big float."""
    exponent, mantissa = value
    if not (isinstance(exponent, int) and isinstance(mantissa, int)) or mantissa.bit_length() > MANTISSA_BITS_MAX:
        raise cbor2.CBORDecodeError("a number has a part that is no integer, or is too long")
    return exponent, mantissa


def _decimal(value: Any, _immutable: bool) -> Decimal:
    exponent, mantissa = _parts(value)
    return Decimal((int(mantissa < 0), tuple(map(int, str(abs(mantissa)))), exponent))


def _big_float(value: Any, _immutable: bool) -> float:
    exponent, mantissa = _parts(value)
    return math.ldexp(mantissa, exponent)


#: A decimal of a million bytes takes minutes. Shared values (28, 29) stand in several places: 300 bytes could hold 2**60.
_TAGS: Final = {4: _decimal, 5: _big_float, 28: _refuse, 29: _refuse}


def _cbor(payload: bytes) -> Any:
    """Decode one data item with nothing after it. Raises CBORError."""
    stream = BytesIO(payload)
    value = cbor2.CBORDecoder(stream, semantic_decoders=_TAGS).decode()
    if stream.tell() != len(payload):
        raise cbor2.CBORDecodeError("trailing bytes after the data item")
    # References take four bytes, and what they stand for is written out in map keys, byte strings and columns of texts.
    if _NAMESPACE in payload and _text_length(value) > TEXT_PER_BYTE_MAX * len(payload):
        raise cbor2.CBORDecodeError("its string references stand for too much text")
    return value


def _text_length(value: Any) -> int:
    """Return how long all texts and byte strings of a value are together, each counted where it stands."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_text_length(key) + _text_length(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(_text_length, value))
    return _text_length(value.value) if isinstance(value, cbor2.CBORTag) else 0


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
