"""Which commits may wait for others to spare the flash: those of streams whose metadata say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.jetstream.fixture import Fixture

PACED = {"eyot.flash": "paced"}


def test_commits_of_a_stream_wait_only_as_its_metadata_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture(tmp_path)
    driver: Any = fixture.store._driver  # type: ignore[attr-defined]
    submit, noted = driver.submit, list[bool]()

    def note(txn: Any) -> None:
        noted.append(txn.patient)
        submit(txn)

    monkeypatch.setattr(driver, "submit", note)

    def patience(subject: bytes) -> list[bool]:
        noted.clear()
        assert fixture.put(subject, b"x")["seq"]
        return list(noted)

    assert fixture.create("S", metadata=PACED)["config"]["metadata"].items() >= PACED.items()
    fixture.create("T")
    fixture.create("U", metadata={"eyot.flash": "never"})
    assert True not in noted, "creating a stream waits"
    assert patience(b"s.a") == [True]
    assert patience(b"t.a") == [False]
    assert patience(b"u.a") == [False]
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    assert patience(b"s.a") == [False]
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "metadata": PACED})
    assert patience(b"s.a") == [True]
