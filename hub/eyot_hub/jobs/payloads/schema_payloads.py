"""Payloads with a schema as JSON values: Avro (fastavro), Protobuf (google.protobuf), JSON by JSON Schema (jsonschema-rs).

A decoder keeps each schema that it has met. What a payload is not becomes a `Misfit`: its row goes to the quarantine.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from eyot_hub.jobs.payloads.binary_payloads import plain
from eyot_hub.jobs.payloads.registry import UnknownSchema
from eyot_hub.jobs.payloads.schemas import SchemaSource

Decode = Callable[[bytes], Any]
MAGIC: Final = 0
HEAD_BYTES: Final = 5  # the magic byte and the schema's number
KEPT_MAX: Final = 1000  # decoders of schemas; the number is the sender's
UNKNOWN_KEPT_MAX: Final = 10_000


class Misfit(Exception):
    """A payload that its schema does not take; the text continues "payload "."""


def schema_decoder(form: str, source: SchemaSource) -> Decode:
    """Return the decoder of a table's payloads.

    Raises ValueError for an unusable schema. The decoder raises Misfit, whatever its library raises for malformed
    payloads, and HubError where the registry cannot be asked.
    """
    if source.text is not None:
        return _decoder_of_file(form, source)
    return _Numbered(form, source)


class _Numbered:
    """Decodes payloads that begin with the number of their schema."""

    def __init__(self, form: str, source: SchemaSource) -> None:
        self._form = form
        self._source = source
        self._known: OrderedDict[int, Decode] = OrderedDict()
        self._unknown: set[int] = set()
        for number in source.numbered or ():
            self._decoder(number)  # a mistake in a folder is one of the configuration

    def __call__(self, payload: bytes) -> Any:
        if len(payload) < HEAD_BYTES or payload[0] != MAGIC:
            raise Misfit("does not begin with the number of a schema")
        (number,) = struct.unpack_from(">I", payload, 1)
        return self._decoder(number)(payload[HEAD_BYTES:])

    def _decoder(self, number: int) -> Decode:
        found = self._known.get(number)
        if found is not None:
            return found
        if number in self._unknown:
            raise Misfit("names a schema that does not exist")
        try:
            made = self._made(number)
        except UnknownSchema:
            if len(self._unknown) >= UNKNOWN_KEPT_MAX:
                self._unknown.clear()
            self._unknown.add(number)
            raise Misfit("names a schema that does not exist") from None
        except ValueError as error:
            if self._source.numbered is not None:
                raise ValueError(f"schema {number}: {error}") from None
            raise Misfit("names a schema that cannot be used") from error
        if len(self._known) >= KEPT_MAX:
            self._known.popitem(last=False)
        self._known[number] = made
        return made

    def _made(self, number: int) -> Decode:
        registry, form = self._source.registry, self._form
        if registry is None:
            text = (self._source.numbered or {}).get(number)
            if text is None:
                raise UnknownSchema(number)
            return _with_indexes(text) if form == "protobuf" else _decoder(form, text, {})
        asked_as = "serialized" if form == "protobuf" else ""
        schema = registry.by_id(number, form=asked_as)
        if schema.schema_type.lower() != form:
            raise ValueError(f"the schema is of type {schema.schema_type}")
        others = {name: one.schema for name, one in registry.referenced(schema, form=asked_as).items()}
        if form == "protobuf":
            from eyot_hub.jobs.payloads.protobuf_payloads import of_files

            return of_files([*others.values(), schema.schema])
        return _decoder(form, schema.schema, others)


def _decoder_of_file(form: str, source: SchemaSource) -> Decode:
    assert source.text is not None
    if form == "protobuf":
        from eyot_hub.jobs.payloads.protobuf_payloads import of_descriptor_set

        return of_descriptor_set(source.text, source.message)
    return _decoder(form, source.text, {})


def _with_indexes(text: bytes) -> Decode:
    from eyot_hub.jobs.payloads.protobuf_payloads import of_descriptor_set

    return of_descriptor_set(text, "")


def _decoder(form: str, text: bytes | str, others: Mapping[str, str]) -> Decode:
    if form == "avro":
        from eyot_hub.jobs.payloads.avro_payloads import avro_decoder

        return avro_decoder(text, others)
    from eyot_hub.jobs.payloads.json_schemas import json_check

    check = json_check(text, others)

    def decode(payload: bytes) -> Any:
        value = msgspec.json.decode(payload)
        broken = check(value)
        if broken is not None:
            raise Misfit(f"breaks its schema at {broken}")
        return plain(value)

    return decode
