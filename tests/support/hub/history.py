"""A stream's random history, and the expected content of bronze, silver, quarantine and gaps, in plain Python.

The model knows a message by its number, which is never given twice. What bronze must hold is simple: every message that the stream
held when it was ingested, once. Losses are reported: a job that may not lose data fails exactly when messages that it has not read may be
lost.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from support.hub.streams import Message, Streams
from support.hub.truth import NEW_YEAR_MS
from support.servers.nats_server import NatsServer

CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""
STREAM = "READINGS"


def reading(number: int) -> Message:
    """Every fifth is poison."""
    if number % 5 == 4:
        return "readings.d", b'{"n": %d} and more' % number
    body = {"device": f"d{number % 3}", "metric": "m", "at": NEW_YEAR_MS + number * 1000, "value": float(number)}
    return "readings.d", json.dumps(body).encode()


@dataclass
class State:
    """A stream: its messages by sequence, and its ends."""

    epoch: int = 0
    messages: dict[int, int] = field(default_factory=dict)  # sequence: number
    first: int = 1
    last: int = 0

    def copy(self) -> State:
        return State(self.epoch, dict(self.messages), self.first, self.last)


class History:
    """One stream on one server; `step` does something at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = NatsServer(CONFIG, folder)
        self.server.start()
        self.streams = Streams(self.server.client_port)
        self.streams.create(STREAM, ["readings.>"])
        self.state = State()
        self.number = 0
        self.saved: State | None = None
        self.read_state = State()  # as it was when it was last ingested
        self.lost = False  # a job that may not lose data must fail
        self.noted = False  # the table knows a position in the stream
        self.bronze: set[int] = set()
        self.told: list[str] = []

    def close(self) -> None:
        self.server.kill()

    def step(self) -> None:
        """Publish, remove, purge, save, put back or make again."""
        acts = {self._publish: 6, self._remove: 2, self._purge: 2, self._save: 2, self._create_again: 1}
        if self.saved is not None and self.saved.epoch == self.state.epoch:
            acts[self._put_back] = 4
        (act,) = self.chance.choices(list(acts), list(acts.values()))
        act()

    def ingested(self) -> None:
        """Everything that the stream holds now has been read."""
        self.bronze |= set(self.state.messages.values())
        self.noted |= self.lost or self.state.last > 0
        self.read_state, self.lost = self.state.copy(), False

    # -- what happens --------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        count = self.chance.choice([1, 3, 10, 40])
        self.told.append(f"publish {count} from {self.state.last + 1}")
        self.streams.publish([reading(self.number + one) for one in range(count)])
        for _ in range(count):
            self.state.last += 1
            self.state.messages[self.state.last] = self.number
            self.number += 1

    def _remove(self) -> None:
        # The last one that was read stays: it is what the next read is compared with.
        inner = [
            one for one in self.state.messages if one not in (self.state.last, self.read_state.last, self.state.first)
        ]
        if inner:
            sequence = self.chance.choice(inner)
            self.told.append(f"remove {sequence}")
            self.streams.remove(STREAM, sequence)
            del self.state.messages[sequence]

    def _purge(self) -> None:
        """Below what was read (that is no loss), or beyond it."""
        position = self.read_state.last
        floor, held = self.state.first, sorted(self.state.messages)
        least = [one for one in held if one > floor and (one <= position or one > position + 1)]
        if not least or position > self.state.last:
            return
        below = self.chance.choice(least)
        self.told.append(f"purge below {below}")
        self.streams.purge(STREAM, below)
        self.state.messages = {one: number for one, number in self.state.messages.items() if one >= below}
        self.state.first = below
        self.lost |= below > position + 1 and self.state.epoch == self.read_state.epoch

    def _create_again(self) -> None:
        self.told.append("create again")
        self.streams.delete(STREAM)
        self.streams.create(STREAM, ["readings.>"])
        self.state = State(self.state.epoch + 1)
        self.lost |= self.noted

    def _save(self) -> None:
        if self.state.messages:
            self.told.append(f"save at {self.state.last}")
            self._stopped(self._copy)
            self.saved = self.state.copy()

    def _put_back(self) -> None:
        """The server has a power cut, or a backup is restored: its store is as it was when it was saved."""
        assert self.saved is not None
        self.told.append(f"put back to {self.saved.last}")
        self._stopped(self._restore)
        self.state = self.saved.copy()
        assert self.streams.state(STREAM)["last_seq"] == self.state.last
        self.lost |= self.state.last < self.read_state.last

    def _stopped(self, act: object) -> None:
        self.server.stop()
        act()  # type: ignore[operator]
        self.server.start()

    def _copy(self) -> None:
        shutil.rmtree(self.server.workdir / "saved", ignore_errors=True)
        shutil.copytree(self.server.workdir / "js", self.server.workdir / "saved")

    def _restore(self) -> None:
        shutil.rmtree(self.server.workdir / "js")
        shutil.copytree(self.server.workdir / "saved", self.server.workdir / "js")
