"""Simulate fleets: `make simulate SEED=7` replays one seed and prints what happened, `SEEDS=1000` runs so many from SEED on.

Every seed is a fleet of its own (`fleet.py`) with its own history of faults (`schedule.py`), checked against the model (`model.py`).
With `--plant NAME` a known bug is planted first (`planted.py`): the simulator must find it.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import trio
import trio.testing

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from offline_sync.fleet import Fleet, quiet
from offline_sync.model import Violation
from offline_sync.planted import PLANTS, planted
from offline_sync.schedule import play

STEPS = 60
#: Longer than any run is in simulated time: one that hangs is a violation too.
RUN_S_MAX = 3600.0
_FAST = Path("/dev/shm")


@dataclass(frozen=True)
class Outcome:
    """What became of a seed. `violation` is "" if everything held."""

    seed: int
    violation: str
    digest: str
    simulated_s: float
    trace: tuple[str, ...]


def run_seed(seed: int, steps: int = STEPS) -> Outcome:
    """One seed, from an empty directory to the end."""
    fleets: list[Fleet] = []
    violation = ""

    async def main(path: Path) -> None:
        with trio.fail_after(RUN_S_MAX):
            async with trio.open_nursery() as nursery:
                fleet = Fleet(seed, path, nursery)
                fleets.append(fleet)
                await fleet.build()
                await play(fleet, steps)
                await fleet.finish()
                nursery.cancel_scope.cancel()

    with tempfile.TemporaryDirectory(dir=_FAST if _FAST.is_dir() else None) as directory:
        clock = trio.testing.MockClock(autojump_threshold=0)
        try:
            with _deterministic(seed):
                trio.run(main, Path(directory), clock=clock)
        except* (Violation, trio.TooSlowError) as group:
            violation = _text(group)
        finally:
            for node in fleets[0].nodes.values() if fleets else ():
                if hasattr(node, "store"):
                    node.store.crash()
    fleet = fleets[0]
    return Outcome(seed, violation, fleet.digest(), clock.current_time(), tuple(fleet.trace))


@contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    """Trio orders tasks that are ready at the same time at random; here the seed decides."""
    scheduler = trio._core._run  # type: ignore[attr-defined]
    with mock.patch.multiple(scheduler, _ALLOW_DETERMINISTIC_SCHEDULING=True, _r=random.Random(seed)):
        yield


def _text(group: BaseException) -> str:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return str(group) or type(group).__name__


def _run_planted(plant: str, steps: int, seed: int) -> Outcome:
    quiet()
    with planted(plant):
        return run_seed(seed, steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first (or only) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--steps", type=int, default=STEPS, help="faults and work per seed")
    parser.add_argument("--plant", default="", choices=("", *PLANTS), help="plant a known bug and find it")
    parser.add_argument("--verbose", action="store_true", help="show what the daemons log, too")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    run = partial(_run_planted, options.plant, options.steps)
    if options.seeds == 1:
        if options.verbose:
            logging.basicConfig(level=logging.DEBUG, format="           %(message)s")
            with planted(options.plant):
                return _report([run_seed(options.seed, options.steps)], show=True)
        return _report([run(options.seed)], show=True)
    started = time.monotonic()
    seeds = range(options.seed, options.seed + options.seeds)
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(run, seeds, chunksize=4))
    print(f"{len(outcomes)} seeds, {sum(each.simulated_s for each in outcomes) / 3600:.1f} simulated hours, "
          f"{time.monotonic() - started:.0f} s")  # fmt: skip
    return _report(outcomes, show=False)


def _report(outcomes: list[Outcome], *, show: bool) -> int:
    bad = [each for each in outcomes if each.violation]
    for each in outcomes if show else ():
        print("\n".join(each.trace))
        print(f"seed {each.seed}: digest {each.digest}")
    for each in bad[:10]:
        print(f"seed {each.seed}: {each.violation}")
    print(f"{len(bad)} of {len(outcomes)} seeds violate the model" if bad else "no violation")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
