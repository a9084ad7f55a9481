"""A radio of 50 kbit/s with a round trip of 600 ms and a backlog of 2 MB, for an hour of simulated time.

Leaf and hub run in one process on Trio's mock clock, joined by a link with that rate and delay whose buffers hold 128 KiB (20 s of it), as
modems' do. Messages are readings of sensors as JSON. Counted: how much of the link's capacity the stream's payload was while the backlog
drained, how much its frames were (each message's once: subject, reply subject and payload, no repeats), how often the link was lost in the
hour, and how long a request to the hub's JetStream API took meanwhile. "No window" is the same with as much under way as the buffers
take, "S2" with compression: shares above 100 % are what it saves.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator
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

from eyot_daemon.config.leaf import CompressionOptions
from eyot_sync.leaf.sender import LeafSender
from eyot_sync.leaf.window import LinkWindow
from offline_sync.fleet import quiet
from offline_sync.slow_fixture import RADIO_BYTES_PER_S, SlowLinkFixture, slow_link_fixture

BACKLOG = 2 << 20
HOUR_S = 3600.0
SIZES = (128, 512, 2048, 16_384)
TITLE = "A slow radio"
console = Console(highlight=False)


class Outcome(NamedTuple):
    """One hour. `drained_s` None: the backlog was not through within it. `payload`, `frames`: bytes."""

    drained_s: float | None
    payload: int
    frames: int
    links: int
    asked_s: list[float]

    def row(self, what: str, size: int) -> str:
        drained, shares = "not in an hour", "- | -"
        if self.drained_s is not None:
            drained = f"{self.drained_s:.0f}"
            capacity = self.drained_s * RADIO_BYTES_PER_S
            shares = f"{self.payload / capacity:.1%} | {self.frames / capacity:.1%}"
        asked = f"{max(self.asked_s):.1f}" if self.asked_s else "never answered"
        return f"| {size:,} | {what} | {drained} | {shares} | {self.links - 1} | {asked} |"


def readings(size: int) -> list[bytes]:
    """2 MB of payloads of about `size` bytes: one reading or several."""
    rng = random.Random(size)
    found: list[bytes] = []
    total = 0
    while total < BACKLOG:
        some: list[dict[str, object]] = []
        while not some or len(json.dumps(some)) < size - 60:
            some.append(
                {
                    "device": f"pump-{rng.randint(1, 40):03}",
                    "at": f"2026-11-21T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.uniform(0, 60):06.3f}Z",
                    "temperature": round(rng.gauss(71.3, 2), 2),
                    "pressure": round(rng.gauss(3.21, 0.1), 3),
                    "status": "ok",
                }
            )
        found.append(json.dumps(some if len(some) > 1 else some[0]).encode())
        total += len(found[-1])
    return found


@contextmanager
def counted(frames: dict[bytes, int]) -> Iterator[None]:
    """Note the size of each delivery's frame by its sequence in the stream."""
    whole = LeafSender.send_deliveries

    def send(self: LeafSender, stream: bytes, subject: bytes, messages: Iterable[tuple[bytes, bytes, bytes]]) -> int:
        for reply, header, payload in messages:
            size = len(header) + len(payload)
            words = b"HMSG %b %b %d %d" if header else b"LMSG %b %b %d"
            sizes = (len(header), size) if header else (size,)
            frames[reply.split(b".")[5]] = len(words % (subject, reply, *sizes)) + size + 4
        return whole(self, stream, subject, messages)

    with patch.object(LeafSender, "send_deliveries", send):
        yield


async def hour(size: int, compression: str) -> Outcome:
    frames: dict[bytes, int] = {}
    with counted(frames):
        async with slow_link_fixture() as fixture:
            for node in (fixture.hub, fixture.leaf):
                node.compression = CompressionOptions(mode=compression)
            await fixture.start()
            await fixture.stream("R", subjects=["r.>"])
            payloads = readings(size)
            for payload in payloads:
                fixture.publish("r.a", payload)
            await fixture.until(lambda: fixture.leaf.broker.links.is_up("ACC"), 60)
            await fixture.copy("ALL", "R")
            begun = trio.current_time()
            asked_s: list[float] = []
            drained_s = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_ask, fixture, asked_s)
                while trio.current_time() - begun < HOUR_S:
                    if fixture.last_seq(fixture.hub, "ALL") == len(payloads):
                        drained_s = trio.current_time() - begun
                        break
                    await trio.sleep(0.5)
                nursery.cancel_scope.cancel()
            await trio.sleep(max(0.0, HOUR_S - (trio.current_time() - begun)))
            (state,) = fixture.leaf.broker.links.remotes
            return Outcome(drained_s, sum(map(len, payloads)), sum(frames.values()), state.connects, asked_s)


async def _ask(fixture: SlowLinkFixture, asked_s: list[float]) -> None:
    """One request after the other while the backlog drains."""
    while True:
        before = trio.current_time()
        answers: list[bytes] = []
        fixture.leaf.client.ask(b"$JS.hub.API.INFO", b"", answers.append)
        with trio.move_on_after(120):
            while not answers:
                await trio.sleep(0.05)
            asked_s.append(trio.current_time() - before)
        await trio.sleep(10)


@contextmanager
def without_window() -> Iterator[None]:
    with patch.object(LinkWindow, "room", lambda self, now: 1 << 40):
        yield


def play(size: int, compression: str) -> Outcome:
    with quiet():
        return trio.run(hour, size, compression, clock=trio.testing.MockClock(autojump_threshold=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "measured.md")
    arguments = parser.parse_args()
    rows = []
    for size in SIZES:
        rows.append(play(size, "off").row("window", size))
        rows.append(play(size, "s2_auto").row("window, S2", size))
        with without_window():
            rows.append(play(size, "off").row("no window", size))
        for row in rows[-3:]:
            console.print(row)
    text = [
        f"`python tests/bench/slow_link.py`: {(__doc__ or '').partition(chr(10))[2].strip()}",
        "",
        machine(),
        "",
        "| message, bytes | link | drained, s | payload of capacity | frames of capacity | links lost | longest API request, s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    write_section(arguments.out, TITLE, "\n".join(text))


if __name__ == "__main__":
    main()
