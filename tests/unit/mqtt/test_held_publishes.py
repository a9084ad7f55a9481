"""QoS 2 publishes that a client has not released: what a repetition of them finds, and when an identifier is free."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from eyot_daemon.mqtt.held_publishes import HeldPublishes
from eyot_daemon.mqtt.publication import Result
from eyot_daemon.mqtt.session_record import SessionRecord
from eyot_wire.mqtt.reason_codes import ReasonCode


class Flash:
    """Where identifiers are removed: each removal waits for its result."""

    def __init__(self) -> None:
        self.removals: list[Callable[[str], None]] = []

    def release(self, record: SessionRecord, packet_id: int, done: Callable[[str], None]) -> None:
        self.removals.append(done)


def held_publishes(flash: Flash | None) -> HeldPublishes:
    return HeldPublishes(SessionRecord("c"), cast("Any", flash))


@pytest.mark.parametrize("kept", [True, False])
def test_repetitions_before_the_commit_get_its_result(kept: bool) -> None:
    held, results = held_publishes(Flash()), list[Result]()
    held.hold(7, b"digest")
    entry = held.get(7)
    assert entry is not None
    assert not entry.committed
    entry.waiting.append(results.append)
    for waiting in held.settled(7, kept=kept):
        waiting(Result(ReasonCode.SUCCESS))
    assert len(results) == 1
    assert held.settled(7, kept=kept) == []
    assert (held.get(7) is entry, entry.committed, len(held)) == (kept, True, int(kept))


def test_an_identifier_is_held_until_its_release_is_on_flash() -> None:
    flash, told = Flash(), list[tuple[str, str]]()
    held = held_publishes(flash)
    held.restore({7: b"digest"})
    for connection in ("first", "second"):  # only the last one that asks is told
        held.release(7, lambda error, connection=connection: told.append((connection, error)))
    (removal,) = flash.removals
    removal("the disk is full")
    assert (told, held.get(7) is None) == ([("second", "the disk is full")], False)
    held.release(7, lambda error: told.append(("third", error)))
    assert len(flash.removals) == 2
    flash.removals[1]("")
    assert (told[1:], held.get(7)) == ([("third", "")], None)


def test_a_publish_that_takes_a_released_identifier_stays() -> None:
    flash = Flash()
    held = held_publishes(flash)
    held.restore({7: b"digest"})
    held.release(7, partial(str))
    held.hold(7, b"another")
    flash.removals[0]("")
    entry = held.get(7)
    assert entry is not None
    assert entry.digest == b"another"


def test_without_flash_an_identifier_is_free_at_once() -> None:
    held, told = held_publishes(None), list[str]()
    held.hold(7, b"digest")
    held.settled(7, kept=True)
    held.release(7, told.append)
    assert (told, held.get(7)) == ([""], None)
