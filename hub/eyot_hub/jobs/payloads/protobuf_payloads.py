"""Protobuf payloads as JSON values, by descriptors: no generated code.

Names are those of the fields in the `.proto` file. A field without presence has its default value; an enum is its
name; a `Timestamp` is RFC 3339, a wrapper its value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_COMMON: Final = (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
_TEXTS: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"})
_DYNAMIC: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
VARINT_BYTES_MAX: Final = 5
INDEXES_MAX: Final = 32  # how deep a message may be declared within others

Plain = Callable[[Any], Any]


def of_descriptor_set(content: bytes, message: str) -> Callable[[bytes], Any]:
    """Return the decoder for a FileDescriptorSet (`protoc --include_imports --descriptor_set_out`).

    With `message`, its full name, payloads are that message. Without it they begin with Confluent's indexes of a message
    in the last file. Raises ValueError.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
    except DecodeError:
        files = None
    if not files:
        raise ValueError("the schema is no FileDescriptorSet")
    pool, last = _pool(list(files))
    if not message:
        return _Indexed(last)
    try:
        return _Whole(pool.FindMessageTypeByName(message))
    except KeyError:
        raise ValueError(f"the schema has no message {message!r}") from None


def of_files(serialized: Sequence[str]) -> Callable[[bytes], Any]:
    """Return the decoder for FileDescriptorProtos in base64, as a registry gives them, the last of which has the messages."""
    files = []
    for text in serialized:
        try:
            files.append(descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True)))
        except (DecodeError, binascii.Error):
            raise ValueError("the schema is no FileDescriptorProto") from None
    _, last = _pool(files)
    return _Indexed(last)


def _pool(files: list[descriptor_pb2.FileDescriptorProto]) -> tuple[DescriptorPool, FileDescriptor]:
    pool = DescriptorPool()
    given = {file.name for file in files}
    for module in _COMMON:
        if module.DESCRIPTOR.name not in given:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
        return pool, pool.FindFileByName(files[-1].name)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the schema cannot be used: {error}") from None


class _Whole:
    """Decodes payloads that are one message."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._parse = GetMessageClass(descriptor).FromString
        self._plain = _message_plain(descriptor, {})

    def __call__(self, payload: bytes) -> Any:
        return self._plain(self._parse(payload))


class _Indexed:
    """Decodes payloads that begin with the path of their message in a file: a count and indexes, or 0 for the first."""

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file
        self._known: dict[tuple[int, ...], _Whole] = {}
        if not file.message_types_by_name:
            raise ValueError("the schema has no message")

    def __call__(self, payload: bytes) -> Any:
        indexes, at = _indexes(payload)
        found = self._known.get(indexes)
        if found is None:
            found = self._known[indexes] = _Whole(self._message(indexes))
        return found(payload[at:])

    def _message(self, indexes: tuple[int, ...]) -> Descriptor:
        inside = list(self._file.message_types_by_name.values())
        for depth, index in enumerate(indexes):
            if not 0 <= index < len(inside):
                raise ValueError("there is no message at these indexes")
            descriptor = inside[index]
            if depth + 1 == len(indexes):
                return descriptor
            inside = list(descriptor.nested_types)
        raise ValueError("no indexes")


def _indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    count, at = _zigzag(payload, 0)
    if not count:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise ValueError("too many indexes")
    found = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        found.append(index)
    return tuple(found), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(VARINT_BYTES_MAX):
        octet = payload[at + number]  # IndexError: the payload ends here
        value |= (octet & 0x7F) << (7 * number)
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), at + number + 1
    raise ValueError("an index is too large")


def _message_plain(descriptor: Descriptor, known: dict[str, Plain]) -> Plain:
    """Return the function that makes a dict of a message; one for each type, so that a type may hold itself."""
    name = descriptor.full_name
    if name in known:
        return known[name]
    if name in _TEXTS:
        return lambda message: message.ToJsonString()
    if name in _DYNAMIC:
        return lambda message: MessageToDict(message)
    if descriptor.file.name == wrappers_pb2.DESCRIPTOR.name:
        return lambda message: _scalar(message.value)
    members: list[tuple[str, bool, Plain]] = []

    def plain(message: Message) -> dict[str, Any]:
        return {
            name: value(getattr(message, name)) if not optional or message.HasField(name) else None
            for name, optional, value in members
        }

    known[name] = plain
    members += [(field.name, field.has_presence, _field_plain(field, known)) for field in descriptor.fields]
    return plain


def _field_plain(field: FieldDescriptor, known: dict[str, Plain]) -> Plain:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        of_value = _value_plain(entry["value"], known)
        return lambda entries: {_key(key): of_value(entries[key]) for key in entries}
    of_item = _value_plain(field, known)
    return (lambda items: [of_item(item) for item in items]) if field.is_repeated else of_item


def _value_plain(field: FieldDescriptor, known: dict[str, Plain]) -> Plain:
    if field.message_type is not None:
        return _message_plain(field.message_type, known)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    return _scalar if field.type == FieldDescriptor.TYPE_BYTES else _same


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _scalar(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _same(value: Any) -> Any:
    return value
