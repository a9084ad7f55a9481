"""A radio of 50 kbit/s with a round trip of 600 ms and a backlog of 2 MB, for an hour of simulated time.

Leaf and hub run in one process on Trio's mock clock, joined by a link with that rate and delay whose buffers hold 128 KiB (20 s of it), as
modems' do. Counted: how much of the link's capacity the stream's payload was while the backlog drained, how often the link was lost in
the hour, and how long a request to the hub's JetStream API took meanwhile. "Without a window" is the same with as much under way as the
buffers take.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import trio
import trio.testing

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from page import write_section
from rich.console import Console
from table import machine

from eyot_sync.link_window import LinkWindow
from offline_sync.fleet import quiet
from offline_sync.slow_world import RADIO_BYTES_PER_S, SlowWorld, slow_world

BACKLOG = 2 << 20
HOUR_S = 3600.0
SIZES = (128, 512, 2048, 16_384)
TITLE = "A slow radio"
console = Console(highlight=False)


class Outcome(NamedTuple):
    """One hour. `drained_s` None: the backlog was not through within it."""

    drained_s: float | None
    links: int
    asked_s: list[float]

    def row(self, what: str, size: int) -> str:
        share = "-" if self.drained_s is None else f"{BACKLOG / self.drained_s / RADIO_BYTES_PER_S:.1%}"
        drained = "not in an hour" if self.drained_s is None else f"{self.drained_s:.0f}"
        asked = f"{max(self.asked_s):.1f}" if self.asked_s else "never answered"
        return f"| {size:,} | {what} | {drained} | {share} | {self.links - 1} | {asked} |"


async def hour(size: int) -> Outcome:
    async with slow_world() as world:
        await world.start()
        await world.stream("R", subjects=["r.>"])
        count = BACKLOG // size
        world.publish("r.a", b"x" * size, count)
        await world.until(lambda: world.leaf.broker.links.is_up("ACC"), 60)
        await world.copy("ALL", "R")
        begun = trio.current_time()
        asked_s: list[float] = []
        drained_s = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ask, world, asked_s)
            while trio.current_time() - begun < HOUR_S:
                if world.last_seq(world.hub, "ALL") == count:
                    drained_s = trio.current_time() - begun
                    break
                await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        await trio.sleep(max(0.0, HOUR_S - (trio.current_time() - begun)))
        (state,) = world.leaf.broker.links.remotes
        return Outcome(drained_s, state.connects, asked_s)


async def _ask(world: SlowWorld, asked_s: list[float]) -> None:
    """One request after the other while the backlog drains."""
    while True:
        before = trio.current_time()
        answers: list[bytes] = []
        world.leaf.client.ask(b"$JS.hub.API.INFO", b"", answers.append)
        with trio.move_on_after(120):
            while not answers:
                await trio.sleep(0.05)
            asked_s.append(trio.current_time() - before)
        await trio.sleep(10)


@contextmanager
def without_window() -> Iterator[None]:
    with patch.object(LinkWindow, "room", property(lambda self: 1 << 40)):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "measured.md")
    arguments = parser.parse_args()
    quiet()
    rows = []
    for size in SIZES:
        rows.append(trio.run(hour, size, clock=trio.testing.MockClock(autojump_threshold=0)).row("with", size))
        console.print(rows[-1])
        with without_window():
            rows.append(trio.run(hour, size, clock=trio.testing.MockClock(autojump_threshold=0)).row("without", size))
        console.print(rows[-1])
    text = [
        f"`python tests/bench/slow_link.py`: {(__doc__ or '').partition(chr(10))[2].strip()}",
        "",
        machine(),
        "",
        "| message, bytes | window | drained, s | payload of capacity | links lost | longest API request, s |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    write_section(arguments.out, TITLE, "\n".join(text))


if __name__ == "__main__":
    main()
