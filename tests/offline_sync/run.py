"""One seed from an empty directory to the end: everything that could differ from run to run is decided by the seed."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import trio
import trio.testing

from eyot_sync.leaf import handshake_messages
from eyot_wire import nuid
from offline_sync.fleet import Fleet
from offline_sync.model import Violation
from offline_sync.schedule import plan, play
from offline_sync.twins import TwinFleet

STEPS = 60
#: Longer than any run is in simulated time: one that hangs is a violation too.
RUN_S_MAX = 3600.0
_FAST = Path("/dev/shm")


@dataclass(frozen=True)
class Outcome:
    """What became of a seed. `violation` is "" if everything held; `cpu_s` is what it cost."""

    seed: int
    violation: str
    digest: str
    simulated_s: float
    cpu_s: float
    trace: tuple[str, ...]


def run_seed(seed: int, steps: int = STEPS, only: Collection[int] | None = None, *, kind: str = "") -> Outcome:
    """One seed. `only`: the numbers of the steps that are played, None for all. `kind`: of fleet, one of `schedule.KINDS`."""
    fleets: list[Fleet] = []
    violation = ""
    begun = time.process_time()

    async def main(path: Path) -> None:
        with trio.fail_after(RUN_S_MAX):
            async with trio.open_nursery() as nursery:
                fleet = (TwinFleet if kind == "twins" else Fleet)(seed, path, nursery)
                fleets.append(fleet)
                await fleet.build()
                await play(fleet, plan(seed, steps, kind=kind), only)
                await fleet.finish()
                nursery.cancel_scope.cancel()

    with tempfile.TemporaryDirectory(dir=_FAST if _FAST.is_dir() else None) as directory:
        clock = trio.testing.MockClock(autojump_threshold=0)
        try:
            with _deterministic(seed):
                trio.run(main, Path(directory), clock=clock)
        except* Exception as group:
            violation = _text(group)
        finally:
            for node in fleets[0].nodes.values() if fleets else ():
                if hasattr(node, "store"):
                    node.store.crash()
    fleet = fleets[0]
    cpu_s = time.process_time() - begun
    return Outcome(seed, violation, fleet.digest(), clock.current_time(), cpu_s, tuple(fleet.trace))


@contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    """Trio orders tasks that are ready at the same time at random, and names are drawn from the system: here the seed decides.

    The clock stands still between its jumps: what it asks of real time each time it is read is left out.
    """
    scheduler = trio._core._run  # type: ignore[attr-defined]
    names = random.Random(f"names {seed}")
    with (
        mock.patch.multiple(scheduler, _ALLOW_DETERMINISTIC_SCHEDULING=True, _r=random.Random(seed)),
        mock.patch.object(nuid.short_id, "__defaults__", (names, 8)),
        mock.patch.object(nuid.nuid, "__defaults__", (names,)),
        mock.patch.object(
            handshake_messages, "secrets", mock.Mock(token_bytes=random.Random(f"nonces {seed}").randbytes)
        ),
        mock.patch.object(trio.testing.MockClock, "current_time", lambda clock: clock._virtual_base),
    ):
        yield


def _text(group: BaseException) -> str:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    if isinstance(group, Violation):
        return str(group)
    return f"{type(group).__name__}: {group}"
