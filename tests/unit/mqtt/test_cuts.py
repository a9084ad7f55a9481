"""A cut between any two packets of a client that publishes to itself with QoS 1 and 2: nothing is lost, QoS 2 comes once.

The client resumes as the specification says (`support/mqtt/cuts.py`). Each case plays one schedule of packets and
commits again and again, with the cut one step later each time, and with another cut soon after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from support.mqtt.cuts import Sent, Server, StrictClient

MESSAGES = [Sent(b"a1", 1), Sent(b"b2", 2), Sent(b"c2", 2), Sent(b"d1", 1), Sent(b"e2", 2)]
#: Steps of a connection that nothing happens in before a play is over.
IDLE = 10


class Case(NamedTuple):
    """`commit_every`: steps between commits; `reads`: packets that the server reads at once."""

    level: int
    commit_every: int
    reads: int
    receive_maximum: int = 100


class Play:
    """One conversation, with a cut after each of so many steps (`cuts`, counted from the one before)."""

    def __init__(self, path: Path, case: Case, cuts: list[int], *, power: bool) -> None:
        self._case, self._cuts, self._power = case, cuts, power
        self.server = Server(path)
        self.client = StrictClient(case.level, MESSAGES, receive_maximum=case.receive_maximum)

    def run(self) -> None:
        self.client.connect(self.server)
        since = steps = idle = 0
        while idle < IDLE:
            if self._cuts and since >= self._cuts[0]:
                del self._cuts[0]
                since = 0
                self._cut()
            steps += 1
            since += 1
            idle = 0 if self._step(steps) else idle + 1
        self.server.settle()

    def _step(self, number: int) -> bool:
        client, server = self.client, self.server
        moved = client.act()
        for _ in range(self._case.reads):
            moved = client.deliver() or moved
        server.fixture.broker.flush()
        if number % self._case.commit_every == 0:
            moved = server.turn() or moved
            if not moved:
                server.fixture.advance(0.2)  # deliveries are written after a while
        client.receive()
        return moved

    def _cut(self) -> None:
        if self._power:
            self.server = self.server.power_cut()
        else:
            self.client.lose_connection()
            self.server.fixture.broker.flush()
        self.client.connect(self.server)

    def problems(self) -> list[str]:
        """What the play broke."""
        client, fixture = self.client, self.server.fixture
        found = list(client.faults)
        if not client.done:
            found.append(f"unfinished: {client._outgoing}, {client._unreleased}")
        stored = [payload for _, payload in fixture.held("LOG")]
        for place, payloads in (("stream", stored), ("client", client.got)):
            if list(dict.fromkeys(payloads)) != [sent.payload for sent in MESSAGES]:
                found.append(f"{place}: {payloads}")
            found += [f"{place}: {each!r} twice" for each, qos in MESSAGES if qos == 2 and payloads.count(each) > 1]
        session = self.server.sessions.session("strict")
        assert session is not None
        left = (fixture.held("$MQTT_msgs"), session.flights, session.held)
        if any(left):
            found.append(f"left behind: {left}")
        return found

    @property
    def was_cut(self) -> bool:
        return not self._cuts


CASES = [
    Case(4, 1, 1),
    Case(5, 3, 1),
    Case(5, 2, 3),
    Case(4, 5, 3),
    Case(5, 3, 2, receive_maximum=1),
]


@pytest.mark.parametrize("power", [True, False], ids=["power", "link"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_cut_between_any_two_packets(tmp_path: Path, case: Case, power: bool) -> None:
    at, was_cut = 0, True
    while was_cut:
        for again in (None, 2 if power else 3):
            play = Play(tmp_path / f"{at}-{again}", case, [at] if again is None else [at, again], power=power)
            play.run()
            assert play.problems() == [], f"cut after {at} steps, again after {again}"
            if again is None:
                was_cut = play.was_cut
            play.server.stop()
        at += 1
    assert at > 3 * len(MESSAGES), "there was hardly anything to cut"
