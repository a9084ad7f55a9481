"""Where a message came from before the stream that is read: the origin's stream, JetStream domain and sequence there.

A stream with sources writes the header `Nats-Stream-Source: <index name> <sequence> ...` on each message. The index
name is the origin's stream, followed by `:<hash of the API prefix>` when the origin is elsewhere. To turn the hash back
into a domain, this module hashes the prefixes of the configured sources. In a mirror the sequence itself is the
origin's. Messages published into the stream directly have no origin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.frame_columns import Ints
from eyot_hub.header_columns import HeaderLines
from eyot_wire.jetstream import stream_source

UNKNOWN_DOMAIN: Final = "unknown:"
_HEADER: Final = stream_source.HEADER.decode()


class Origin(NamedTuple):
    """Stream and JetStream domain; `domain` is None when the origin is in the same, unnamed domain."""

    stream: str
    domain: str | None


@dataclass(frozen=True)
class Origins:
    """The origins in one stream's configuration."""

    named: dict[str, Origin] = field(default_factory=dict)  # by index name
    mirror: Origin | None = None
    domain: str | None = None  # of the stream itself

    def resolve(self, index_name: str) -> Origin:
        """Return the origin of an index name; one that is no longer configured keeps its hash as domain."""
        found = self.named.get(index_name)
        if found is None:
            stream, colon, digest = index_name.partition(":")
            found = Origin(stream, UNKNOWN_DOMAIN + digest if colon else self.domain)
        return found


class OriginColumns(NamedTuple):
    stream: pa.StringArray
    domain: pa.StringArray
    sequence: pa.Int64Array


def domain_of_prefix(api_prefix: str) -> str:
    """Return the domain in `$JS.<domain>.API`; a prefix of another form (renamed by an import) is returned unchanged."""
    tokens = api_prefix.split(".")
    return tokens[1] if len(tokens) == 3 and tokens[0] == "$JS" and tokens[2] == "API" else api_prefix


def origin_columns(lines: HeaderLines | None, stream_seq: Ints, origins: Origins) -> OriginColumns:
    """Return the origin of each row: from its header, else from the mirror, else null."""
    count = len(stream_seq)
    columns = _mirror_columns(stream_seq, origins)
    if lines is None or not len(lines.row):
        return columns
    which = np.flatnonzero(pc.equal(lines.names, _HEADER).to_numpy(zero_copy_only=False))
    if not len(which):
        return columns
    values = lines.values.take(pa.array(which))
    names, sequences = _parse_values(values)
    encoded = names.dictionary_encode()
    resolved = [origins.resolve(name) for name in encoded.dictionary.to_pylist()]
    where = np.full(count, -1, dtype=np.int64)
    where[lines.row[which]] = np.arange(len(which))
    chooser = pa.array(where, mask=where < 0)
    streams = pa.array([origin.stream for origin in resolved], pa.string()).take(encoded.indices).take(chooser)
    domains = pa.array([origin.domain for origin in resolved], pa.string()).take(encoded.indices).take(chooser)
    numbers = sequences.take(chooser)
    if origins.mirror is None:
        return OriginColumns(streams, domains, numbers)
    sourced = numbers.is_valid()
    return OriginColumns(
        pc.if_else(sourced, streams, columns.stream),
        pc.if_else(sourced, domains, columns.domain),
        pc.if_else(sourced, numbers, columns.sequence),
    )


def _mirror_columns(stream_seq: Ints, origins: Origins) -> OriginColumns:
    count, mirror = len(stream_seq), origins.mirror
    if mirror is None:
        return OriginColumns(pa.nulls(count, pa.string()), pa.nulls(count, pa.string()), pa.nulls(count, pa.int64()))
    return OriginColumns(
        pa.repeat(pa.scalar(mirror.stream, pa.string()), count),
        pa.repeat(pa.scalar(mirror.domain, pa.string()), count),
        pa.array(stream_seq),
    )


def _parse_values(values: pa.StringArray) -> tuple[pa.StringArray, pa.Int64Array]:
    """Return index names and sequences of header values; null for values in an unknown form."""
    spaces = pc.count_substring(values, " ")
    if pc.min(spaces).as_py() >= 1:
        fields = pc.split_pattern(values, " ", max_splits=2)
        names, numbers = pc.list_element(fields, 0), pc.list_element(fields, 1)
        if pc.all(pc.ascii_is_decimal(numbers)).as_py() and pc.max(pc.binary_length(numbers)).as_py() < 19:
            return names, numbers.cast(pa.int64())
    parsed = [stream_source.parse(value.encode()) for value in values.to_pylist()]
    return (
        pa.array([None if one is None else one.name for one in parsed], pa.string()),
        pa.array([None if one is None else one.seq for one in parsed], pa.int64()),
    )
