"""What the streams of one turn store is handed to the committing side together, when all of it is staged."""

from __future__ import annotations

from eyot_daemon.config.options import Options
from eyot_daemon.router.broker import Broker
from support.manual_clock import ManualClock


class Recorder:
    """The store, and the destinations that hand in something."""

    def __init__(self) -> None:
        self.broker = Broker(Options(), clock=ManualClock())
        self.broker.turn_store = self
        self.events: list[str] = []

    def hold(self) -> None:
        self.events.append("hold")

    def release(self) -> None:
        self.events.append("release")

    def dirty(self, name: str, *, then: str = "", fails: bool = False) -> None:
        """A destination that has something to send in this turn; at that, another one gets something, or it fails."""
        self.broker.mark_dirty(_Destination(self, name, then, fails))


class _Destination:
    def __init__(self, recorder: Recorder, name: str, then: str, fails: bool) -> None:
        self._recorder, self._name, self._then, self._fails = recorder, name, then, fails

    def flush(self) -> None:
        self._recorder.events.append(self._name)
        if self._then:
            self._recorder.dirty(self._then)
        if self._fails:
            raise RuntimeError("on purpose")


def test_several_destinations_hand_in_together() -> None:
    turn = Recorder()
    turn.dirty("a", then="c")
    turn.dirty("b", fails=True)
    turn.broker.flush()
    assert turn.events == ["hold", "a", "b", "c", "release"]


def test_one_destination_hands_in_at_once() -> None:
    turn = Recorder()
    turn.dirty("a")
    turn.broker.flush()
    turn.broker.flush()
    assert turn.events == ["a"]
