"""Roll-ups of an origin whose messages have to be searched for at its mirror or source: nothing is lost, doubled or reordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import trio

from eyot_daemon.jetstream.ingest import rollup_search
from eyot_daemon.jetstream.ingest.rollup_search import RollupSearch, RollupWait
from eyot_store.log import subjects as log_subjects
from offline_sync.layout import external
from offline_sync.test_sourcing import Pair, simulated

SUBJECTS, COUNT = 10, 120
ROLLUP = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"


@pytest.mark.parametrize("too_large", [False, True], ids=["tracked", "too large"])
@pytest.mark.parametrize("kind", ["mirror", "source"])
@pytest.mark.parametrize("cut", [False, True], ids=["linked", "cut"])
def test_what_comes_behind_a_roll_up_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, too_large: bool, cut: bool
) -> None:
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 5)
    monkeypatch.setattr(log_subjects, "_TRACK_READS", 2)
    monkeypatch.setattr(rollup_search, "WALK_MAX", 20)
    if too_large:
        for module in (log_subjects, rollup_search):
            monkeypatch.setattr(module, "TRACKED_MESSAGES_MAX", 50)
    waits: list[bool] = []
    holds = RollupWait.holds
    monkeypatch.setattr(RollupWait, "holds", lambda wait, gathered: waits.append(holds(wait, gathered)) or waits[-1])

    async def play(pair: Pair) -> None:
        await pair.start(allow_rollup_hdrs=True)
        origin = external("ORIGIN", "leaf")
        of = {"mirror": origin} if kind == "mirror" else {"sources": [origin]}
        await pair.make(pair.hub, "COPY", allow_rollup_hdrs=True, **of)
        for number in range(COUNT):
            await pair.publish(f"in.{number % SUBJECTS}", str(number))
        await trio.sleep(3)
        assert len(pair.held(pair.hub, "COPY")) == COUNT
        client = pair.leaf.client
        for number in range(COUNT, COUNT + 30):
            header = ROLLUP if number % 7 == 0 else b""
            client.ask(b"in.%d" % (number % SUBJECTS), b"%d" % number, lambda _: None, header)
            if number % 10 == 5:
                await trio.sleep(0.01)
                if cut:
                    pair.network.cut("leaf")
                    await trio.sleep(1)
                    pair.network.restore("leaf")
        await trio.sleep(60)
        assert pair.held(pair.hub, "COPY") == pair.held(pair.leaf, "ORIGIN")
        assert any(waits)
        copy = pair.hub.stream("COPY")
        assert copy is not None
        assert copy.log.subjects().tracked is not too_large
        assert dict(copy.log.subject_totals()) == {
            subject: copy.log.count(1, (subject,)) for subject, _ in copy.log.subject_totals()
        }

    simulated(tmp_path, play)


def test_what_waits_for_a_search_is_of_the_former_epoch_of_an_origin_that_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(pair: Pair) -> None:
        def delays(search: RollupSearch, gathered: Iterable[object], ready: Callable[[], None]) -> bool:
            return bool(list(gathered)) and bool(search._stream.timers.call_later(5.0, ready))

        await pair.start(allow_rollup_hdrs=True)
        await pair.make(pair.hub, "COPY", allow_rollup_hdrs=True, sources=[external("ORIGIN", "leaf")])
        await pair.publish("in.a", "before")
        await trio.sleep(3)
        monkeypatch.setattr(RollupSearch, "delays", delays)
        await pair.publish("in.a", "waits")
        pair.network.cut("leaf")
        await pair.leaf.request("STREAM.DELETE.ORIGIN", {})
        await pair.make(pair.leaf, "ORIGIN", subjects=["in.>"])
        await pair.publish("in.a", "new")
        pair.network.restore("leaf")
        await trio.sleep(2)
        assert pair.held(pair.hub, "COPY") == ["before"], "the search is under way"
        await trio.sleep(20)
        assert pair.held(pair.hub, "COPY") == ["before", "waits", "new"]

    simulated(tmp_path, play)
