"""On the driver: which streams are read, from where to where, and in how many ranges.

Everything that is asked of the server is asked here, so that batch reader, stream reader and the ingest job agree.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from eyot_hub.columns import StreamLabels
from eyot_hub.errors import DataLoss, HubError, OptionError
from eyot_hub.jetstream import JetStream, StreamInfo
from eyot_hub.offsets import Position, Positions
from eyot_hub.options import Bound, SourceOptions
from eyot_hub.range_reader import StreamRange

log = logging.getLogger(__name__)

# A range of fewer messages is not worth a task of its own.
MESSAGES_PER_PARTITION: Final = 50_000


class Piece(NamedTuple):
    """One task's work."""

    span: StreamRange
    labels: StreamLabels


@dataclass
class Planner:
    """Plans reads with one set of options; keeps its connection."""

    options: SourceOptions

    def __post_init__(self) -> None:
        self.jetstream = JetStream(self.options.read.connect, self.options.read.api_prefix)
        self._account = self.options.account
        self._account_known = self._account is not None
        self._found: set[str] = set()

    def close(self) -> None:
        self.jetstream.close()

    def streams(self, *, must_exist: bool = True) -> dict[str, StreamInfo]:
        """The streams that the option `stream` names or matches. Raises OptionError when a named one does not exist."""
        named = {name for name in self.options.streams if not _is_pattern(name)}
        patterns = [name for name in self.options.streams if _is_pattern(name)]
        wanted = named | self._found
        if patterns:
            matches = [re.compile(fnmatch.translate(pattern)).match for pattern in patterns]
            wanted.update(name for name in self.jetstream.stream_names() if any(match(name) for match in matches))
        found = {name: _readable(info) for name, info in sorted(self.jetstream.streams(wanted).items())}
        for name in named - found.keys() if must_exist else ():
            raise OptionError("stream", f"names a stream that does not exist: {name!r}")
        # Pages of names shift when streams come and go: one that was there is gone only when it says so itself.
        self._found = set(found)
        return found

    def labels(self, info: StreamInfo) -> StreamLabels:
        if not self._account_known:
            self._account, self._account_known = self.jetstream.account_name(), True
        return StreamLabels(info.name, info.domain or self.options.domain, self._account, info.origins())

    def starting(self, streams: dict[str, StreamInfo]) -> Positions:
        """Where the option startingOffsets says that reading begins (positions before the first message)."""
        return {
            name: Position(max(0, self._sequence(info, self.options.starting, "startingOffsets") - 1), info.created)
            for name, info in streams.items()
        }

    def ending(self, streams: dict[str, StreamInfo]) -> Positions:
        """Where the option endingOffsets says that a batch read ends."""
        bound = self.options.ending
        found = {}
        for name, info in streams.items():
            last = self._sequence(info, bound, "endingOffsets") - (1 if bound.sequences is None else 0)
            found[name] = Position(min(last, info.state.last_seq), info.created)
        return found

    def _sequence(self, info: StreamInfo, bound: Bound, option: str) -> int:
        """The first sequence at or after the bound."""
        edge: int | str = bound.edge
        if bound.time is not None:
            return self.jetstream.sequence_at(info.name, bound.time)
        if bound.sequences is not None:
            edge = bound.sequences.get(info.name, bound.edge)
            unknown = set(bound.sequences) - {info.name} - set(self.options.streams)
            if unknown and not any(_is_pattern(name) for name in self.options.streams):
                raise OptionError(option, f"names streams that are not read: {', '.join(sorted(unknown))}")
        if isinstance(edge, int):
            return edge
        if edge == "earliest":
            return info.state.first_seq
        # As an end in JSON "latest" is the last message, elsewhere a bound lies before the message it names.
        return info.state.last_seq + (0 if bound.sequences is not None and option == "endingOffsets" else 1)

    def checked_start(self, info: StreamInfo, start: Position | None) -> int:
        """The first sequence to read behind `start`. Raises DataLoss when messages from there on are gone."""
        first = max(1, info.state.first_seq)
        if start is None:
            return first
        if start.created != info.created:
            self.created_again(info, start.sequence)
            return first
        if start.sequence + 1 < first:
            self._lost(f"messages {start.sequence + 1} to {first - 1} of stream {info.name} are gone")
        return max(start.sequence + 1, first)

    def created_again(self, info: StreamInfo, read_up_to: int) -> None:
        """Tell that a stream that was being read is another one now. Raises DataLoss."""
        self._lost(
            f"stream {info.name} was created again at {info.created}; the one before it had been read up to {read_up_to}"
        )

    def lost_stream(self, name: str) -> None:
        """Tell that a stream that was being read does not exist any more. Raises DataLoss."""
        self._lost(f"stream {name} was deleted")

    def _lost(self, what: str) -> None:
        if self.options.read.fail_on_data_loss:
            raise DataLoss(f"{what}; with the option failOnDataLoss=false reading goes on behind them")
        log.warning("%s; going on behind them (failOnDataLoss=false)", what)

    def pieces(self, spans: list[tuple[StreamRange, StreamLabels]]) -> list[Piece]:
        """Ranges cut into tasks: by minPartitions and maxRecordsPerPartition, else by size and this machine's cores."""
        spans = [(span, labels) for span, labels in spans if span.last_seq >= span.first_seq]
        sizes = [span.last_seq - span.first_seq + 1 for span, _ in spans]
        total = sum(sizes)
        if not total:
            return []
        parts = self.options.min_partitions or min(max(1, total // MESSAGES_PER_PARTITION), os.cpu_count() or 1)
        pieces = []
        for (span, labels), size in zip(spans, sizes, strict=True):
            count = max(1, round(parts * size / total))
            if self.options.max_per_partition:
                count = max(count, -(-size // self.options.max_per_partition))
            count = min(count, size)
            for part in range(count):
                first = span.first_seq + size * part // count
                last = span.first_seq + size * (part + 1) // count - 1
                pieces.append(Piece(StreamRange(span.stream, span.created, first, last), labels))
        return pieces


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _readable(info: StreamInfo) -> StreamInfo:
    if info.config.retention != "limits":
        raise HubError(
            f"stream {info.name} has retention {info.config.retention}: what is read from it is removed. Let a stream with "
            "retention limits mirror or source it and read that one"
        )
    return info
