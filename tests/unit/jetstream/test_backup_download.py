"""Backups that a reader pulls: the same archive as a client receives, one at a time, and ended by whatever ends the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.jetstream.backup.download import Download, begin_download
from support.jetstream.backup_fixture import DELIVER, filled, random_payloads, remove, restore
from support.jetstream.consumers import ConsumerFixture


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerFixture:
    monkeypatch.setattr("eyot_daemon.jetstream.backup.stream_archive.SLICE_MESSAGES", 10)
    made = filled(tmp_path)
    random_payloads(made)
    return made


def begun(fixture: ConsumerFixture, name: str = "S") -> tuple[Download | None, str]:
    found: list[tuple[Download | None, str]] = []
    begin_download(fixture.jsa, name, lambda download, problem: found.append((download, problem)))
    fixture.commit()
    return found[0]


def download(fixture: ConsumerFixture) -> Download:
    made, problem = begun(fixture)
    assert made is not None, problem
    return made


def pulled(made: Download) -> tuple[list[bytes], str]:
    """All parts, and why the backup failed."""
    parts: list[bytes] = []
    while True:
        found: list[tuple[bytes, str]] = []
        made.next(lambda data, failure: found.append((data, failure)))  # noqa: B023
        ((data, failure),) = found
        if not data:
            return parts, failure
        parts.append(data)


def test_what_was_pulled_restores_the_stream(fixture: ConsumerFixture) -> None:
    fixture.add("C", ack_policy="explicit")
    held, info = fixture.held(), fixture.info()
    made = download(fixture)
    parts, failure = pulled(made)
    assert failure == ""
    assert len(parts) > 3
    meta: Any = msgspec.json.decode(made.meta)
    assert (meta["state"]["messages"], meta["state"]["consumer_count"]) == (260, 1)
    assert not fixture.jsa.snapshots
    remove(fixture)
    restore(fixture, meta, b"".join(parts))
    assert fixture.held() == held
    assert fixture.info()["num_pending"] == info["num_pending"]


def test_one_backup_of_a_stream_at_a_time(fixture: ConsumerFixture) -> None:
    made = download(fixture)
    assert begun(fixture)[0] is None
    asked = {"deliver_subject": DELIVER.decode()}
    assert fixture.request("STREAM.SNAPSHOT.S", asked)["error"]["err_code"] == 10064
    made.stop("the browser has gone")
    assert begun(fixture)[0] is not None


def test_a_stream_that_is_not_there_and_too_many_backups(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begun(fixture, "T") == (None, "there is no such stream")
    monkeypatch.setattr("eyot_daemon.jetstream.account.TRANSFERS_MAX", 1)
    fixture.create("T", subjects=["t"])
    assert begun(fixture, "T")[0] is not None
    refused, why = begun(fixture)
    assert refused is None
    assert "too many" in why


def test_a_stream_that_is_deleted_fails_its_backup(fixture: ConsumerFixture) -> None:
    made = download(fixture)
    first: list[tuple[bytes, str]] = []
    made.next(lambda data, failure: first.append((data, failure)))
    remove(fixture)
    assert first[0][0]
    assert pulled(made)[1] == "stream closed"
    assert not fixture.jsa.snapshots


def test_who_waits_for_a_part_is_told_of_the_end(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    made = download(fixture)
    monkeypatch.setattr(made, "_beside", Never())
    told: list[tuple[bytes, str]] = []
    made.next(lambda data, failure: told.append((data, failure)))
    assert told == []
    fixture.jsa.stop_transfers()
    assert told == [(b"", "server shutdown")]
    assert not fixture.jsa.snapshots
    assert pulled(made) == ([], "server shutdown")


class Never:
    """A thread that is busy with something else."""

    def run(self, work: object, done: object) -> None:
        """Do not come to it."""
