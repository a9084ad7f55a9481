"""The driver's planning: which streams are read, their ranges, and the number of pieces.

All requests to the server are here, so that batch reader, stream reader and the ingest job agree.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eyot_hub.columns import StreamLabels
from eyot_hub.errors import DataLoss, HubError, OptionError
from eyot_hub.grouping import grouped
from eyot_hub.jetstream import JetStream, StreamInfo
from eyot_hub.offsets import LastRow, Position, Positions
from eyot_hub.options import Bound, SourceOptions
from eyot_hub.range_reader import Piece, StreamRange
from eyot_wire.go.time import ns_to_rfc3339

log = logging.getLogger(__name__)

# A smaller range does not justify a task of its own.
MESSAGES_PER_PARTITION: Final = 50_000
MESSAGES_PER_PIECE: Final = 2000  # a range takes as long to begin and to end as to read so many messages


#: Streams whose oldest waiting message is looked up: those furthest behind. Each lookup is a request.
OLDEST_ASKED: Final = 20


class Waiting(NamedTuple):
    """What a stream holds beyond a position: messages (by sequence), and the age of the oldest; None: not known."""

    messages: int
    oldest_s: float | None

    def as_json(self) -> dict[str, Any]:
        age = {} if self.oldest_s is None else {"oldestSeconds": round(self.oldest_s, 3)}
        return {"behind": self.messages, **age}


@dataclass
class Planner:
    """Plans reads with one set of options; keeps its connection."""

    options: SourceOptions

    def __post_init__(self) -> None:
        self.jetstream = JetStream(self.options.read.connect, self.options.read.api_prefix)
        self._account = self.options.account
        self._account_known = self._account is not None
        self._found: set[str] = set()
        self._compared: dict[
            str, tuple[LastRow, LastRow | None]
        ] = {}  # by stream: a row and the stream's end, when they last matched

    def close(self) -> None:
        self.jetstream.close()

    def streams(self, *, must_exist: bool = True) -> dict[str, StreamInfo]:
        """Return the streams that the option `stream` names or matches. Raises OptionError for a named one that does not exist."""
        named = {name for name in self.options.streams if not _is_pattern(name)}
        patterns = [fnmatch.translate(name) for name in self.options.streams if _is_pattern(name)]
        patterns += [] if self.options.pattern is None else [self.options.pattern]
        wanted = named | self._found
        if patterns:
            matches = [re.compile(pattern).fullmatch for pattern in patterns]
            wanted.update(name for name in self.jetstream.stream_names() if any(match(name) for match in matches))
        found = {name: _readable(info) for name, info in sorted(self.jetstream.streams(wanted).items())}
        for name in named - found.keys() if must_exist else ():
            raise OptionError("stream", f"names a stream that does not exist: {name!r}")
        # Pages of names shift when streams come and go: a known stream is gone only when its own info says so.
        self._found = set(found)
        return found

    def labels(self, info: StreamInfo) -> StreamLabels:
        if not self._account_known:
            self._account, self._account_known = self.jetstream.account_name(), True
        return StreamLabels(info.name, info.domain or self.options.domain, self._account, info.origins())

    def starting(self, streams: dict[str, StreamInfo]) -> Positions:
        """Return where the option startingOffsets begins (positions before the first message).

        Raises OptionError where the option names streams that are not read.
        """
        self.check_named(streams)
        return {name: self.starting_of(info) for name, info in streams.items()}

    def starting_of(self, info: StreamInfo) -> Position:
        """Return where the option startingOffsets begins one stream. Raises OptionError where that is beyond the end."""
        before = max(0, self._sequence(info, self.options.starting, "startingOffsets") - 1)
        end = info.state.last_seq
        named = isinstance((self.options.starting.sequences or {}).get(info.name), int)
        if named and before > end:
            self._beyond(info, before + 1)
            before = end
        return Position(before, info.created, info.last_row if before == end else None)

    def _beyond(self, info: StreamInfo, first: int) -> None:
        """Report a start beyond a stream's end: a mistake, or a stream whose end moved back. Raises OptionError."""
        what = f"begins beyond the end of stream {info.name}: at {first}, and its last message is {info.state.last_seq}"
        if self.options.read.fail_on_data_loss:
            raise OptionError(
                "startingOffsets", f"{what}; with the option failOnDataLoss=false reading begins at the end"
            )
        log.warning("option 'startingOffsets' %s; beginning at the end (failOnDataLoss=false)", what)

    def check_named(self, streams: Collection[str]) -> None:
        """Raise OptionError where a JSON of offsets names streams that are not read, as Spark's Kafka source does."""
        for option, bound in (("startingOffsets", self.options.starting), ("endingOffsets", self.options.ending)):
            unknown = set(bound.sequences or ()) - set(streams)
            if unknown:
                raise OptionError(option, f"names streams that are not read: {', '.join(sorted(unknown))}")

    def ending(self, streams: dict[str, StreamInfo]) -> Positions:
        """Return where the option endingOffsets ends a batch read."""
        bound = self.options.ending
        found = {}
        for name, info in streams.items():
            last = self._sequence(info, bound, "endingOffsets") - (1 if bound.sequences is None else 0)
            found[name] = Position(min(last, info.state.last_seq), info.created)
        return found

    def _sequence(self, info: StreamInfo, bound: Bound, option: str) -> int:
        """Return the first sequence at or after the bound."""
        edge: int | str = bound.edge
        if bound.time is not None:
            return self.jetstream.sequence_at(info.name, bound.time)
        if bound.sequences is not None:
            edge = bound.sequences.get(info.name, bound.edge)
        if isinstance(edge, int):
            return edge
        if edge == "earliest":
            return info.state.first_seq
        # As an end in JSON, a bound is the last message; elsewhere it lies before the message it names.
        included = 1 if bound.sequences is not None and option == "endingOffsets" else 0
        if edge == "latest":
            return info.state.last_seq + 1 - included
        return self.jetstream.sequence_at(info.name, edge) - included

    def checked_start(self, info: StreamInfo, start: Position | None) -> int:
        """Return the first sequence to read after `start`. Raises DataLoss when messages from there on are gone.

        A stream whose end moved back has lost data, too. If that is accepted, the result may be `start`'s sequence or
        lower: the stream holds other messages under sequences that were read.
        """
        first = max(1, info.state.first_seq)
        if start is None:
            return first
        if start.created != info.created:
            self.created_again(info, start.sequence)
            return first
        moved = self.moved_back(info, start)
        if moved is not None:
            self._lost(moved)
            return max(self.first_not_read(info, start), first)
        if start.sequence + 1 < first:
            self._lost(f"messages {start.sequence + 1} to {first - 1} of stream {info.name} are gone")
        return max(start.sequence + 1, first)

    def moved_back(self, info: StreamInfo, start: Position) -> str | None:
        """Return evidence that the stream's end moved below `start` since, or None.

        The end is still below, or other messages have the sequences.
        """
        name, row = info.name, start.row
        if info.state.last_seq < start.sequence:
            return f"stream {name} ends at {info.state.last_seq}, and had been read up to {start.sequence}: its end moved back"
        if row is None or row == info.last_row or row.sequence < info.state.first_seq:
            return None
        if self._compared.get(name) == (row, info.last_row):
            return None
        stored_ns = self.jetstream.stored_ns(name, row.sequence, self.options.read.subjects)
        if stored_ns is None or stored_ns == row.stored_ns:
            self._compared[name] = (row, info.last_row)
            return None
        return (
            f"message {row.sequence} of stream {name}, stored at {ns_to_rfc3339(stored_ns)}, is not the one that was read, stored "
            f"at {ns_to_rfc3339(row.stored_ns)}: the stream's end moved back, and it has stored others since"
        )

    def first_not_read(self, info: StreamInfo, start: Position) -> int:
        """Return the first unread message of a stream whose end moved back: stored after the last one that was read."""
        if start.row is None:
            return min(start.sequence, info.state.last_seq) + 1
        return min(self.jetstream.sequence_at(info.name, ns_to_rfc3339(start.row.stored_ns + 1)), start.sequence + 1)

    def end(self, info: StreamInfo, at: Position, start: Position | None) -> Position:
        """Return `at` with the last message up to there as its row; `start`'s row when the stream does not hold that message."""
        if info.last_row is not None and info.last_row.sequence == at.sequence:
            return at._replace(row=info.last_row)
        stored_ns = self.jetstream.stored_ns(info.name, at.sequence, self.options.read.subjects)
        if stored_ns is not None:
            return at._replace(row=LastRow(at.sequence, stored_ns))
        same = start is not None and start.created == at.created and start.sequence <= at.sequence
        return at._replace(row=start.row if same and start else None)

    def waiting(self, streams: dict[str, StreamInfo], read: Positions) -> dict[str, Waiting]:
        """Return what each stream holds beyond the positions `read`."""
        found: dict[str, Waiting] = {}
        firsts: dict[str, int] = {}
        for name, info in streams.items():
            at = read.get(name)
            after = at.sequence if at is not None and at.created == info.created else 0
            firsts[name] = max(info.state.first_seq, after + 1)
            found[name] = Waiting(max(0, info.state.last_seq - firsts[name] + 1), 0.0)
        behind = sorted((name for name in found if found[name].messages), key=lambda name: -found[name].messages)
        for rank, name in enumerate(behind):
            stored_ns = self._stored_ns(name, firsts[name]) if rank < OLDEST_ASKED else None
            age_s = None if stored_ns is None else max(0.0, time.time() - stored_ns / 1e9)
            found[name] = found[name]._replace(oldest_s=age_s)
        return found

    def _stored_ns(self, name: str, sequence: int) -> int | None:
        """Return a message's stored time, or None: a figure for an operator is no reason for a query to fail."""
        try:
            return self.jetstream.stored_ns(name, sequence, self.options.read.subjects)
        except HubError as error:
            log.info("the age of message %d of stream %s is not known: %s", sequence, name, error)
            return None

    def created_again(self, info: StreamInfo, read_up_to: int) -> None:
        """Report that a stream was deleted and created again while it was read. Raises DataLoss."""
        self._lost(
            f"stream {info.name} was created again at {info.created}; the one before it had been read up to {read_up_to}"
        )

    def changed(self, name: str, row: LastRow) -> None:
        """Report that a message was replaced by another one. Raises DataLoss."""
        self._lost(
            f"message {row.sequence} of stream {name} is not the one that was read: the stream's end moved back meanwhile"
        )

    def lost_stream(self, name: str) -> None:
        """Report that a stream that was being read no longer exists. Raises DataLoss."""
        self._lost(f"stream {name} was deleted")

    def _lost(self, what: str) -> None:
        if self.options.read.fail_on_data_loss:
            raise DataLoss(f"{what}; with the option failOnDataLoss=false reading goes on behind them")
        log.warning("%s; going on behind them (failOnDataLoss=false)", what)

    def pieces(self, spans: list[tuple[StreamRange, StreamLabels]]) -> list[Piece]:
        """Cut ranges into tasks: by minPartitions and maxRecordsPerPartition, else by size and this machine's cores."""
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

    def tasks(self, spans: list[tuple[StreamRange, StreamLabels]], cores: int | None = None) -> list[list[Piece]]:
        """Return the pieces of each task: small ones share a task, so that tasks do not grow with the number of streams.

        `cores`: of all executors; None: this machine's.
        """
        pieces = self.pieces(spans)
        sizes = [piece.span.last_seq - piece.span.first_seq + 1 for piece in pieces]
        if self.options.max_per_partition:  # bounds a task
            return [[piece] for piece in pieces]
        cores = cores or os.cpu_count() or 1
        count = max(self.options.min_partitions or 0, cores, sum(sizes) // MESSAGES_PER_PARTITION)
        return grouped(pieces, [size + MESSAGES_PER_PIECE for size in sizes], count)


def read_spans(planner: Planner) -> list[tuple[StreamRange, StreamLabels]]:
    """Return the ranges of a batch read, from startingOffsets to endingOffsets as the streams are now."""
    streams = planner.streams()
    starting, ending = planner.starting(streams), planner.ending(streams)
    spans = []
    for name, info in streams.items():
        # Messages below a named sequence may be gone, which is data loss; a time or an edge finds what there is.
        exact = isinstance((planner.options.starting.sequences or {}).get(name), int)
        first = planner.checked_start(info, starting[name]) if exact else starting[name].sequence + 1
        span = StreamRange(name, info.created, max(first, info.state.first_seq), ending[name].sequence)
        spans.append((span, planner.labels(info)))
    return spans


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _readable(info: StreamInfo) -> StreamInfo:
    if info.config.retention != "limits":
        raise HubError(
            f"stream {info.name} has retention {info.config.retention}: what is read from it is removed. Let a stream with "
            "retention limits mirror or source it and read that one"
        )
    return info
