"""What Python's garbage collector looks at in a daemon, and when; in a process of its own, whose collector is not pytest's."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
import trio, trio.testing
from eyot_daemon.process import collector


class Held:
    "Is in a cycle with itself."
    def __init__(self):
        self.me = self


def cycles(number):
    return [Held() for _ in range(number)]


async def main():
    gc.disable()
    found = collector.Collector()
    found.settle()
    # A cycle that ends young is found soon.
    young = weakref.ref(Held())
    held = [[] for _ in range(collector.YOUNG_OBJECTS + 10)]
    assert young() is None
    # What was looked at is not looked at again, however much is new.
    old = cycles(10)
    gone = weakref.ref(old[0])
    looks = [each["collections"] for each in gc.get_stats()]
    held += [[] for _ in range(50 * collector.YOUNG_OBJECTS)]
    assert gc.get_stats()[0]["collections"] > looks[0] + 40
    assert len(gc.get_objects()) < 2 * collector.YOUNG_OBJECTS
    old.clear()
    del old
    held += [[] for _ in range(2 * collector.YOUNG_OBJECTS)]
    assert gone() is not None
    # Until as many are new as there were.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.run)
        await trio.sleep(collector.CHECK_S + 1)
        assert gone() is None
        cycle = cycles(10)
        held += [[] for _ in range(collector.GROWTH_MIN // 2)]
        gone = weakref.ref(cycle[0])
        cycle.clear()
        await trio.sleep(collector.CHECK_S)
        assert gone() is not None
        held += [[] for _ in range(collector.GROWTH_MIN)]
        await trio.sleep(collector.CHECK_S)
        assert gone() is None
        nursery.cancel_scope.cancel()


trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
"""


def test_each_object_is_looked_at_once_until_very_many_are_new() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
