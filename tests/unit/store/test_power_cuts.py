"""Power cuts at every write and flush of a small workload (see `support/store/power_cuts.py`, which can do this for hours)."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_store.records import store_cipher
from eyot_store.subjects import batch_index, index_writer
from support.store.power_cuts import FLUSH, PAGE, WRITE, Event, build_capture, check_states, record
from support.store.power_workload import KINDS, LONG_MIN

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload sets them; they are put back."""
    monkeypatch.setattr(index_writer, "INDEX_EVERY", index_writer.INDEX_EVERY)
    monkeypatch.setattr(batch_index, "INDEX_EVERY", batch_index.INDEX_EVERY)
    monkeypatch.setattr(batch_index, "RUN_MIN", batch_index.RUN_MIN)
    monkeypatch.setattr(store_cipher, "_SCRYPT_LOG2_N", store_cipher._SCRYPT_LOG2_N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_cut_leaves_what_was_acknowledged(tmp_path: Path, kind: str) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", kind, txns=24, seed=5)
    assert any(event.kind == WRITE and event.path.startswith("journal/") for event in recording.events) == (
        kind != "lmdb"
    )
    assert check_states(recording, tmp_path, random.Random(5), torn_max=3, part=0.25) > 150


def test_the_judge_notices_a_missing_flush(tmp_path: Path) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", "journal", txns=6, seed=5)
    unflushed = [event._replace(durable=False) for event in recording.events]
    with pytest.raises(AssertionError, match="not what was there after any"):
        check_states(recording._replace(events=unflushed), tmp_path, random.Random(5), torn_max=1)


#: `mp_flags` and `mp_pages` of LMDB's page header, behind `mp_pgno` and `mp_pad`; and the flag of overflow pages
OVERFLOW_HEAD, OVERFLOW = struct.Struct("<10xHI"), 0x04


def overflow_parts(event: Event) -> Iterator[tuple[bool, Event]]:
    """A write of LMDB in parts: whether the part is the overflow pages of one value, and the part."""
    at = 0
    while at < len(event.data):
        flags, pages = OVERFLOW_HEAD.unpack_from(event.data, at) if len(event.data) >= PAGE else (0, 0)
        is_long = bool(flags & OVERFLOW)
        end = at + (pages if is_long else 1) * PAGE
        yield is_long, event._replace(at=event.at + at, data=event.data[at:end])
        at = end


def without_flushes_of_long_records(events: list[Event]) -> Iterator[Event]:
    """As if long records were written behind the flush: a frame of the journal, or LMDB's pages of a value."""
    late: list[Event] = []
    for event in events:
        if event.kind != WRITE:
            yield event
            if event.kind == FLUSH and event.path == "data.mdb":
                yield from late
                late.clear()
        elif event.path == "data.mdb" and not event.durable:
            for is_long, part in overflow_parts(event):
                if is_long:
                    late.append(part)
                else:
                    yield part
        else:
            yield event._replace(durable=event.durable and len(event.data) < LONG_MIN)


@pytest.mark.parametrize("kind", ["lmdb", "long"])
def test_the_judge_notices_a_missing_flush_of_long_records(tmp_path: Path, kind: str) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", kind, txns=24, seed=5)
    unflushed = list(without_flushes_of_long_records(recording.events))
    with pytest.raises(AssertionError, match=r"not what was there after any|damaged"):
        check_states(recording._replace(events=unflushed), tmp_path, random.Random(5), torn_max=0)
