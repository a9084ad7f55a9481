"""The history of the local page: its bounds, restarts and damage."""

from __future__ import annotations

import random
from pathlib import Path

from eyot_daemon.monitor.page.history import (
    COLUMNS_MAX,
    FILE_BYTES,
    HEAD_BYTES,
    MINUTES,
    ROW_BYTES,
    History,
    HistoryReport,
    Sample,
    read_file,
    write_file,
)

NOW = 28_000_000  # minutes since 1970, the first of a point of five


def sample(backlog: int | None, stream: str = "S", *, uncertain: bool = False) -> Sample:
    return Sample("A", stream, 1000, backlog, 60.0 if backlog else None, uncertain)


def backlog(report: HistoryReport, stream: str = "S") -> list[int | None]:
    return next(each.backlog for each in report.streams if each.name == stream)


def kept(history: History, file: Path) -> None:
    write_file(file, history.take_unwritten())


def loaded(file: Path) -> History:
    history = History()
    assert history.load(read_file(file))
    return history


def test_a_point_is_the_largest_of_its_minutes() -> None:
    history = History()
    for minute, value in enumerate((3, 9, 4, 0, 1, 5)):
        history.add(NOW + minute, [sample(value)], linked=minute == 5)
    report = history.report(NOW + 5)
    assert backlog(report)[-3:] == [None, 9, 5]
    assert report.linked[-3:] == [None, False, True]
    assert (report.until, report.step_s) == ((NOW + 10) * 60, 300)
    assert report.streams[0].oldest_s[-1] == 60
    assert report.streams[0].stored[-1] == 1000


def test_what_is_not_known_is_a_gap() -> None:
    history = History()
    history.add(NOW, [sample(None)], linked=True)
    history.add(NOW + 5, [sample(7, uncertain=True)], linked=True)
    report = history.report(NOW + 5)
    assert backlog(report)[-2:] == [None, None]
    assert report.streams[0].stored[-2:] == [1000, 1000]


def test_it_holds_a_day_and_no_more() -> None:
    history = History()
    for minute in range(3 * MINUTES):
        history.add(NOW + minute, [sample(minute)], linked=True)
    report = history.report(NOW + 3 * MINUTES - 1)
    values = backlog(report)
    assert len(values) == MINUTES // 5
    assert (values[0], values[-1]) == (2 * MINUTES + 4, 3 * MINUTES - 1)
    parts = history.take_unwritten().parts
    assert sum(len(data) for _, data in parts) <= FILE_BYTES
    assert len(parts) == 2, "the head, and the rows in one run"


def test_streams_beyond_the_bound_are_counted_and_a_free_column_is_used_again() -> None:
    history = History()
    names = [f"S{number}" for number in range(COLUMNS_MAX + 3)]
    history.add(NOW, [sample(1, name) for name in names], linked=True)
    report = history.report(NOW)
    assert [each.name for each in report.streams] == names[:COLUMNS_MAX]
    assert report.left_out == 3
    later = [sample(2, name) for name in names[1:]]
    history.add(NOW + 5, later, linked=True)
    report = history.report(NOW + 5)
    assert report.left_out == 2
    newcomer = names[COLUMNS_MAX]
    assert backlog(report, newcomer)[-2:] == [None, 2], "what the column held before is another stream's"
    assert names[0] not in [each.name for each in report.streams]


def test_a_clock_that_goes_back_leaves_the_future_out() -> None:
    history = History()
    history.add(NOW + 600, [sample(9)], linked=True)
    history.add(NOW, [sample(1)], linked=True)
    assert [value for value in backlog(history.report(NOW)) if value is not None] == [1]


def test_a_restart_continues(tmp_path: Path) -> None:
    file = tmp_path / "page-history"
    first = History()
    for minute in range(10):
        first.add(NOW + minute, [sample(minute), sample(5, "T")], linked=True)
        if minute % 3 == 0:
            kept(first, file)
    kept(first, file)
    assert not first.take_unwritten().parts
    assert file.stat().st_mode & 0o777 == 0o600
    second = loaded(file)
    assert second.report(NOW + 9) == first.report(NOW + 9)
    second.add(NOW + 10, [sample(10)], linked=False)
    write = second.take_unwritten()
    assert [len(data) for _, data in write.parts] == [ROW_BYTES], "only what is new is written"
    second.not_written(write)
    kept(second, file)
    assert backlog(loaded(file).report(NOW + 10))[-3:] == [4, 9, 10]


def test_a_torn_row_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "page-history"
    history = History()
    for minute in (NOW, NOW + 5):
        history.add(minute, [sample(4)], linked=True)
    kept(history, file)
    image = bytearray(file.read_bytes())
    place = HEAD_BYTES + (NOW + 5) % MINUTES * ROW_BYTES + 20
    image[place] ^= 0xFF
    file.write_bytes(image)
    assert backlog(loaded(file).report(NOW + 5))[-2:] == [4, None]


def test_a_file_of_any_content_is_taken_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "page-history"
    history = History()
    history.add(NOW, [sample(4)], linked=True)
    kept(history, file)
    whole = file.read_bytes()
    rng = random.Random(1)
    for image in (
        b"",
        b"x",
        whole[: HEAD_BYTES - 1],
        bytes(FILE_BYTES),
        whole.replace(b'"S"', b'"T"'),
        bytes(FILE_BYTES + 1),
    ):
        assert not History().load(image)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged) if rng.random() < 0.5 else 200)] = rng.randrange(256)
        fresh = History()
        fresh.load(bytes(damaged[: rng.randint(0, len(damaged))] if rng.random() < 0.3 else damaged))
        fresh.add(NOW + 5, [sample(1)], linked=True)
        assert backlog(fresh.report(NOW + 5))[-1] == 1


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "page-history"
    file.write_bytes(b"z" * (FILE_BYTES + 5))
    history = History()
    assert not history.load(read_file(file))
    history.add(NOW, [sample(4)], linked=True)
    kept(history, file)
    assert backlog(loaded(file).report(NOW))[-1] == 4


def test_names_that_do_not_fit_into_the_head_are_left_out_of_the_file(tmp_path: Path) -> None:
    history = History()
    history.add(NOW, [sample(number, f"{number}" + "n" * 1000) for number in range(COLUMNS_MAX)], linked=True)
    file = tmp_path / "page-history"
    kept(history, file)
    assert 5 < len(loaded(file).report(NOW).streams) < COLUMNS_MAX


def test_points_that_are_kept_are_those_that_would_be_computed(tmp_path: Path) -> None:
    """Streams come and go, the clock jumps: a history that reports often says the same as one that never did."""
    rng = random.Random(5)
    often, file, minute = History(), tmp_path / "page-history", NOW
    names: list[int] = []
    for step in range(240):
        minute += rng.choice((1, 1, 1, 1, 1, 7, 40)) if step != 110 else -100
        names = rng.sample(range(COLUMNS_MAX + 4), 6) if step % 50 == 0 else names
        rows = [sample(rng.randrange(100), f"S{name}", uncertain=rng.random() < 0.1) for name in names]
        often.add(minute, rows, linked=rng.random() < 0.5)
        report = often.report(minute)
        if step % 20 == 0:
            write_file(file, often.take_unwritten())
            rare = loaded(file)
            for _ in rare.prepare(minute) if step % 40 == 0 else ():
                pass
            assert rare.report(minute).streams == report.streams
            assert rare.report(minute).linked == report.linked


def test_without_a_file_it_is_empty(tmp_path: Path) -> None:
    assert read_file(tmp_path / "nothing") == b""
    assert History().report(NOW).streams == []
