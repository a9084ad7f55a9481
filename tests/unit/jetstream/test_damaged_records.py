"""A record that is damaged on flash is passed over: it stops nothing that concerns other messages."""

import os
from pathlib import Path
from typing import Any

import pytest

from support.jetstream.fixture import Fixture

S = 1_000_000_000
YEAR_S = 365 * 86_400


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def damage(fixture: Fixture, *payloads: bytes) -> None:
    """Change bytes of the records with these payloads on flash; they are no longer in the journal alone."""
    file = fixture.path / "data.mdb"
    data = file.read_bytes()
    with file.open("r+b") as out:
        for payload in payloads:
            at = data.index(payload)
            while at >= 0:  # older copies of its page, too
                os.pwrite(out.fileno(), b"\xff", at)
                at = data.find(payload, at + 1)


def fill(fixture: Fixture, count: int) -> Fixture:
    """Store messages a second apart, with the payloads `payload 1.` and so on; restart."""
    for number in range(1, count + 1):
        fixture.put(b"s.%d" % number, b"payload %d." % number)
        fixture.advance(1)
    return fixture.restart()


def left(fixture: Fixture) -> list[int]:
    log = fixture.stream().log
    return list(log.view.live_seqs_from(1))


# -- expiry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [0, 30, -2])
@pytest.mark.parametrize("config", [{}, {"allow_msg_ttl": True}])
def test_a_damaged_message_expires_with_the_next_one(fixture: Fixture, years: int, config: dict[str, Any]) -> None:
    """Not before it, and the last one by its own time; also where the clock jumped in between."""
    fixture.create(max_age=10 * S, **config)
    fixture = fill(fixture, 3)
    fixture.clock.jump(years * YEAR_S)
    for number in (4, 5):
        fixture.put(b"s.%d" % number, b"payload %d." % number)
        fixture.advance(1)
    fixture = fixture.restart()
    damage(fixture, b"payload 1.", b"payload 3.", b"payload 5.")
    seen = []
    for _ in range(10):
        fixture.run_out()
        seen.append(left(fixture))
        fixture.advance(1)
    assert seen == [[1, 2, 3, 4, 5]] * 6 + [[3, 4, 5]] * 2 + [[5], []]


@pytest.mark.parametrize("known", [False, True])
def test_a_damaged_message_stops_no_ttl(fixture: Fixture, known: bool) -> None:
    """One whose TTL was known before the damage leaves when that has passed."""
    fixture.create(allow_msg_ttl=True)
    for number in (1, 2, 3):
        fixture.put(b"s.%d" % number, b"payload %d." % number, {"Nats-TTL": "5"})
    fixture = fixture.restart()
    if known:
        fixture.run_out()
    damage(fixture, b"payload 1.", b"payload 3.")
    fixture.run_out()
    fixture.advance(6)
    assert left(fixture) == ([] if known else [1, 3])


def test_a_search_by_time_passes_over_damaged_messages(fixture: Fixture) -> None:
    fixture.create()
    fixture = fill(fixture, 5)
    damage(fixture, b"payload 1.", b"payload 3.", b"payload 5.")
    log, begin_ns = fixture.stream().log, 1_700_000_000 * S
    assert [log.seq_at_time(begin_ns + seconds * S) for seconds in range(6)] == [1, 1, 3, 3, 5, 5]
    assert log.state.first_ts_ns == begin_ns + S
