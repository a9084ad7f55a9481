"""Applies a leftover journal to LMDB when a store is opened."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from eyot_store.changes import Changes, Operation, decode
from eyot_store.environment import Environment, as_store_error, journal_mark
from eyot_store.errors import StoreError
from eyot_store.journal.applier import apply
from eyot_store.journal.aside import last_aside, read_aside, remove_aside
from eyot_store.journal.high_water import UNKNOWN_END, decode_mark_record, read_high
from eyot_store.journal.journal import Frame, read_frames
from eyot_store.journal.losses import Losses, in_words, salvage
from eyot_store.lmdb.committer import LmdbCommitter
from eyot_store.records.record import CRC_SIZE, Counters, decode_body, file_message_bytes, seq_of
from eyot_store.records.store_cipher import StoreCipher
from eyot_store.txn import AppendRun, Op

_APPLY_BYTES = 4 << 20  # of one LMDB transaction


def replay(
    environment: Environment,
    lmdb_committer: LmdbCommitter,
    name_of: Callable[[int], str],
    mirrors: Container[int] = (),
) -> list[str]:
    """Apply the leftover journal, if any; return sentences about damage and loss.

    `mirrors`: streams whose sequences are another stream's. They request again what they lack, so an unknown end of the
    journal does not move theirs. Raises StoreError when the journal is missing or LMDB refuses it.
    """
    _take_in_aside(environment, lmdb_committer)
    mark = environment.read_journal_mark()
    if mark is None:
        return _known_ends(environment, lmdb_committer, name_of)
    salt, applied = mark
    path = environment.journal_path
    skips = environment.options.skip_unreadable
    if not path.is_dir():
        if not skips:
            raise StoreError(
                "corrupt",
                f"{path} is missing: it may hold acknowledged messages that are nowhere else",
                remedy=f"restore it, or have `eyot-check --repair {path.parent}` count them as lost",
            )
        path.mkdir(0o700)
    try:
        frames, missing = read_frames(path, salt, applied, skip_unreadable=skips)
        decoded, unreadable = _decoded(environment, frames)
        mark_of_end = read_high(environment.path, salt)
        mark_record = decode_mark_record(environment.read_mark_record())
        high, ends = mark_of_end or (0, {})
        last = frames[-1].number if frames else applied
        missing += unreadable + list(range(last + 1, high + 1))
        counted = {number: counters.last_seq for number, counters in lmdb_committer.counters.items()}
        plain = environment.store_cipher is None
        unknown = mark_record is not None and mark_record.misses_mark(salt, applied, mark_of_end)
        salvaged = salvage(path, salt, counted, skip_unreadable=skips) if (missing or unknown) and plain else {}
        losses = Losses(counted, salvaged, applied)
    except OSError as error:
        raise as_store_error(error) from error
    changes: Changes = []
    size = 0
    known, orphans = {*environment.messages, *environment.fenced}, dict[int, int]()
    for frame, all_held in decoded:
        held = _of_known(all_held, known, orphans)
        changes += losses.filled(frame.number, held) if missing or unknown else held
        size += len(frame.body)
        if size >= _APPLY_BYTES:
            _apply(environment, lmdb_committer, changes + losses.notes(), size, salt, frame.number)
            changes, size = [], 0
    if missing or unknown:
        changes += losses.end(ends)
    if mark_record is not None and unknown:
        fenced = environment.fenced
        changes += losses.unknown_end(mark_record.sequences_max, {i for i in counted if i in mirrors or i in fenced})
    if decoded or missing or unknown:
        _apply(environment, lmdb_committer, changes + losses.notes(), size, salt, max(last, high))
    sentences = _frames_in_words(sorted(set(missing)), losses.put_back)
    sentences += [UNKNOWN_END] * unknown + in_words(losses.lost, name_of)
    sentences += in_words(losses.doubtful, name_of, "may be lost")
    sentences += _orphans_in_words(orphans, name_of)
    return sentences + _known_ends(environment, lmdb_committer, name_of)


def _take_in_aside(environment: Environment, lmdb_committer: LmdbCommitter) -> None:
    """Apply set-aside changes of streams that were repaired."""
    try:
        aside = read_aside(environment.path, environment.store_cipher)
    except (StoreError, OSError):
        return
    counters, fenced, left = lmdb_committer.counters, environment.fenced, False
    mark = environment.read_journal_mark()
    for changes in aside:
        ready: Changes = []
        for stream_id, ops in changes:
            left = left or stream_id in fenced
            if stream_id in counters and stream_id not in fenced:
                ready.append((stream_id, list(_newer(ops, counters[stream_id]))))
        if ready:
            refusal = apply(environment, lmdb_committer, ready, 0, journal_mark(*mark) if mark is not None else b"")
            if refusal is not None:
                raise refusal
    if aside and not left:
        remove_aside(environment.path)


def _newer(ops: list[Operation], counters: Counters) -> Iterator[Operation]:
    """Yield the operations without what the stream's counters say to have been applied before; a removal is none of a message that is gone."""
    last_seq, floor = counters.last_seq, counters.floor
    for op, data in ops:
        if op is Op.SKIP:
            if data > last_seq:
                last_seq = data
                yield op, data
            continue
        if op is Op.PURGE:
            if data[0] > floor:
                floor = data[0]
                yield op, data
            continue
        if op is not Op.APPEND:
            yield op, data
            continue
        run = AppendRun()
        run.last_ts_ns = data.last_ts_ns
        for key, record in data.items:
            if seq_of(key) > last_seq:
                message = decode_body(record[:-CRC_SIZE])
                run.items.append((key, record))
                run.bytes += file_message_bytes(message.subject, message.header, message.payload)
        if run.items:
            last_seq = seq_of(run.items[-1][0])
            yield op, run


def _apply(
    environment: Environment, lmdb_committer: LmdbCommitter, changes: Changes, size: int, salt: bytes, number: int
) -> None:
    refusal = apply(environment, lmdb_committer, changes, size, journal_mark(salt, number))
    if refusal is not None:
        raise refusal


def _decoded(environment: Environment, frames: list[Frame]) -> tuple[list[tuple[Frame, Changes]], list[int]]:
    """Return the decoded frames, and the numbers of those that cannot be decoded."""
    decoded: list[tuple[Frame, Changes]] = []
    unreadable = []
    for frame in frames:
        try:
            decoded.append((frame, decode(frame_content(environment.store_cipher, frame))))
        except StoreError:
            unreadable.append(frame.number)
    return decoded, unreadable


def _of_known(changes: Changes, known: set[int], orphans: dict[int, int]) -> Changes:
    """Return the changes of streams that the database holds or that these create; count the others' messages in `orphans`.

    A database that went back by a commit, or lost an entry, lacks streams that the journal has messages of.
    """
    kept: Changes = []
    for stream_id, ops in changes:
        if ops and ops[0][0] is Op.CREATE:
            known.add(stream_id)
        if stream_id in known:
            kept.append((stream_id, ops))
        else:
            messages = sum(len(data.items) for op, data in ops if op is Op.APPEND)
            orphans[stream_id] = orphans.get(stream_id, 0) + messages
    return kept


def _orphans_in_words(orphans: dict[int, int], name_of: Callable[[int], str]) -> list[str]:
    return [
        f"stream {name_of(stream_id)}, which the database does not hold any more: "
        f"{count} message{'s' * (count != 1)} in the journal {'are' if count != 1 else 'is'} lost"
        for stream_id, count in orphans.items()
        if count
    ]


def _known_ends(environment: Environment, lmdb_committer: LmdbCommitter, name_of: Callable[[int], str]) -> list[str]:
    """Never give a sequence again that is known to have been given; return sentences about it.

    Needed where the database went back by a commit, or a stream's counters were lost.
    """
    examined = environment.examined
    ends = dict(examined.last_seqs) if examined is not None else {}
    try:
        for stream_id, last in last_aside(environment.path, environment.store_cipher).items():
            ends[stream_id] = max(ends.get(stream_id, 0), last)
    except (StoreError, OSError):
        pass
    counted = {number: counters.last_seq for number, counters in lmdb_committer.counters.items()}
    behind = {i: last for i, last in counted.items() if i not in environment.fenced and last < ends.get(i, 0)}
    if not behind:
        return []
    losses = Losses(behind, {})
    changes = losses.end(ends) + losses.notes()
    mark = environment.read_journal_mark()
    refusal = apply(environment, lmdb_committer, changes, 0, journal_mark(*mark) if mark is not None else b"")
    if refusal is not None:
        raise refusal
    return in_words(losses.lost, name_of)


def _frames_in_words(missing: list[int], put_back: int) -> list[str]:
    if not missing:
        return []
    spans: list[list[int]] = []
    for number in missing:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
    kept = f", but for {put_back} message{'s' * (put_back > 1)}" if put_back else ""
    many = len(missing) > 1
    return [
        f"journal: frame{'s' * many} {shown} {'are' if many else 'is'} damaged; what {'they' if many else 'it'} held is lost{kept}"
    ]


def frame_content(store_cipher: StoreCipher | None, frame: Frame) -> bytes | memoryview:
    """Return a frame's body, decrypted if sealed. Raises StoreError("corrupt")."""
    return frame.body if store_cipher is None else store_cipher.open(about_frame(frame.number), frame.body)


def about_frame(number: int) -> bytes:
    """Return the associated data of a sealed frame."""
    return b"frame" + number.to_bytes(8, "big")
