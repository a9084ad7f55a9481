"""Where a message came from before the stream that is read: the origin's stream, JetStream domain and sequence there.

A stream with sources writes the header `Nats-Stream-Source: <index name> <sequence> ...` on each message. The index
name is the origin's stream, followed by `:<hash of the API prefix>` when the origin is elsewhere. To turn the hash back
into a domain, this module hashes the prefixes of the configured sources. In a mirror the sequence itself is the
origin's. Messages published into the stream directly have no origin.

Clients of nats-server 2.14 and earlier may publish the header themselves. It counts only where no client can have
written it: in a stream with sources, on a subject that the stream does not take from clients. A mirror's messages may
have been published anywhere, so their headers count for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.frame_columns import Ints
from eyot_hub.header_columns import HeaderLines
from eyot_wire.jetstream import stream_source
from eyot_wire.subject import matches

UNKNOWN_DOMAIN: Final = "unknown:"
_HEADER: Final = stream_source.HEADER.decode()


class Origin(NamedTuple):
    """Stream and JetStream domain; `domain` is None when the origin is in the same, unnamed domain. `stream` is None for no origin."""

    stream: str | None
    domain: str | None


@dataclass(frozen=True)
class Origins:
    """The origins in one stream's configuration."""

    named: dict[str, Origin] = field(default_factory=dict)  # by index name
    mirror: Origin | None = None
    domain: str | None = None  # of the stream itself
    #: subjects that clients may publish to the stream on: there the header counts for nothing
    published: tuple[str, ...] = ()

    def is_published(self, subject: str) -> bool:
        """Return whether a client may have published a message on `subject`."""
        return any(matches(pattern.encode(), subject.encode()) for pattern in self.published)

    def resolve(self, index_name: str) -> Origin:
        """Return the origin of an index name; one that is no longer configured keeps its hash as domain."""
        found = self.named.get(index_name)
        if found is None:
            stream, colon, digest = index_name.partition(":")
            found = Origin(stream, UNKNOWN_DOMAIN + digest if colon else self.domain)
        return found

    def is_believed(self, index_name: str | None) -> bool:
        """Return whether a message may come from the origin of an index name.

        A stream that clients never publish to may have had other sources before.
        """
        return index_name is not None and (not self.published or index_name in self.named)


_NO_ORIGIN: Final = Origin(None, None)


class OriginColumns(NamedTuple):
    stream: pa.StringArray
    domain: pa.StringArray
    sequence: pa.Int64Array


def domain_of_prefix(api_prefix: str) -> str:
    """Return the domain in `$JS.<domain>.API`; a prefix of another form (renamed by an import) is returned unchanged."""
    tokens = api_prefix.split(".")
    return tokens[1] if len(tokens) == 3 and tokens[0] == "$JS" and tokens[2] == "API" else api_prefix


def origin_columns(
    lines: HeaderLines | None, stream_seq: Ints, subjects: pa.StringArray, origins: Origins
) -> OriginColumns:
    """Return the origin of each row: in a mirror the mirror's, else from a header that counts, else null."""
    count = len(stream_seq)
    columns = _mirror_columns(stream_seq, origins)
    if lines is None or not len(lines.row) or origins.mirror is not None or not origins.named:
        return columns
    which = np.flatnonzero(pc.equal(lines.names, _HEADER).to_numpy(zero_copy_only=False))
    if origins.published and len(which):
        which = which[~_published(subjects.take(pa.array(lines.row[which])), origins)]
    if not len(which):
        return columns
    values = lines.values.take(pa.array(which))
    names, sequences = _parse_values(values)
    encoded = names.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    resolved = [origins.resolve(name) if origins.is_believed(name) else _NO_ORIGIN for name in known]
    believed = pa.array([origin is not _NO_ORIGIN for origin in resolved], pa.bool_()).take(encoded.indices)
    where = np.full(count, -1, dtype=np.int64)
    where[lines.row[which]] = np.arange(len(which))
    chooser = pa.array(where, mask=where < 0)
    streams = pa.array([origin.stream for origin in resolved], pa.string()).take(encoded.indices).take(chooser)
    domains = pa.array([origin.domain for origin in resolved], pa.string()).take(encoded.indices).take(chooser)
    numbers = pc.if_else(believed, sequences, pa.scalar(None, pa.int64())).take(chooser)
    return OriginColumns(streams, domains, numbers)


def _published(subjects: pa.StringArray, origins: Origins) -> npt.NDArray[np.bool_]:
    """Return for each subject whether a client may have published on it."""
    encoded = subjects.dictionary_encode()
    known = np.array([origins.is_published(subject) for subject in encoded.dictionary.to_pylist()], dtype=np.bool_)
    found: npt.NDArray[np.bool_] = known[encoded.indices.to_numpy()]
    return found


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
