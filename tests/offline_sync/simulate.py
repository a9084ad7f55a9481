"""Simulate fleets: `make simulate SEED=7` replays one seed and prints what happened, `SEEDS=1000` runs so many from SEED on.

Every seed is a fleet of its own (`layout.py`, `fleet.py`) with its own history of faults (`schedule.py`), checked against the model
(`model.py`). A single seed that fails is shrunk: the schedule that is printed is a short one that still fails. With `--plant NAME` a
known bug is planted first (`planted.py`) and the seeds are tried until one finds it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from offline_sync.fleet import quiet
from offline_sync.planted import PLANT_KINDS, PLANTS, planted
from offline_sync.run import STEPS, Outcome, run_seed
from offline_sync.schedule import plan
from offline_sync.shrink import shrink

#: How much of the trace is shown before a violation.
_LAST_EVENTS = 40
#: Seeds after which progress is told.
_TOLD_EVERY = 100


def _run(plant: str, steps: int, kind: str, seed: int) -> Outcome:
    with quiet(), planted(plant):
        try:
            return run_seed(seed, steps, kind=kind)
        finally:
            gc.collect()


def _begin() -> None:
    """A process that runs seeds: what it has imported is never looked through for garbage, a run only when it is over."""
    gc.freeze()
    gc.disable()


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    if options.seeds == 1:
        return _one(options)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    seeds = range(options.seed, options.seed + options.seeds)
    for outcome in _outcomes(partial(_run, options.plant, options.steps, options.kind), seeds, options.jobs):
        outcomes.append(outcome)
        if outcome.violation:
            print(f"seed {outcome.seed}: {outcome.violation}", flush=True)
            if options.plant:
                break
        if len(outcomes) % _TOLD_EVERY == 0:
            print(f"... {len(outcomes)} of {len(seeds)} seeds, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return _sum_up(outcomes, time.monotonic() - started, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first (or only) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--steps", type=int, default=STEPS, help="faults and work per seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at the same time")
    parser.add_argument("--plant", default="", choices=("", *PLANTS), help="plant a known bug and find it")
    kinds = parser.add_mutually_exclusive_group()
    for kind, does in (
        ("twins", "fleets with two leaf nodes of one domain (twins.py)"),
        ("edits", "fleets whose consumers, messages, limits and mirrors are removed and changed by hand (edits.py)"),
    ):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, default="", help=does)
    parser.add_argument("--only", default="", help="play only these steps (numbers, separated by commas)")
    parser.add_argument("--whole", action="store_true", help="one seed: show the whole trace, do not shrink what fails")
    parser.add_argument("--verbose", action="store_true", help="one seed: show what the daemons log, too")
    options = parser.parse_args()
    options.kind = PLANT_KINDS.get(options.plant, options.kind)
    return options


def _outcomes(run: partial[Outcome], seeds: range, jobs: int) -> Iterator[Outcome]:
    """In the order of the seeds; whoever stops listening stops the rest."""
    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        left = iter(seeds)
        running: list[Future[Outcome]] = [pool.submit(run, seed) for seed in islice(left, 2 * jobs)]
        try:
            while running:
                wait(running[:1])  # for any of them it would spin while the first one takes longer
                while running and running[0].done():
                    yield running.pop(0).result()
                    running += [pool.submit(run, seed) for seed in islice(left, 1)]
        finally:
            pool.shutdown(cancel_futures=True)


def _sum_up(outcomes: list[Outcome], lasted_s: float, options: argparse.Namespace) -> int:
    bad = [each for each in outcomes if each.violation]
    cpu_s = sum(each.cpu_s for each in outcomes)
    print(
        f"{len(outcomes)} seeds, {sum(each.simulated_s for each in outcomes) / 3600:.1f} simulated hours, {lasted_s:.0f} s; "
        f"{cpu_s / len(outcomes):.2f} CPU seconds a seed, {cpu_s / options.jobs:.0f} s on {options.jobs} cores of their own"
    )
    if options.plant:
        print(f"{options.plant}: " + (f"found by seed {bad[0].seed}" if bad else "not found"))
        return 0 if bad else 1
    print(f"{len(bad)} of {len(outcomes)} seeds violate the model" if bad else "no violation")
    return 1 if bad else 0


def _one(options: argparse.Namespace) -> int:
    """One seed, told to a person."""
    seed, steps, kind = options.seed, options.steps, options.kind
    if options.verbose:
        logging.basicConfig(level=logging.DEBUG, format="           %(message)s")
    only = frozenset(int(each) for each in options.only.split(",")) if options.only else None
    with nullcontext() if options.verbose else quiet(), planted(options.plant):
        outcome = run_seed(seed, steps, only, kind=kind)
        if outcome.violation and not options.whole and only is None:
            print(f"seed {seed}: {outcome.violation}\nshrinking...", flush=True)
            only = frozenset(shrink(range(steps), lambda kept: bool(run_seed(seed, steps, kept, kind=kind).violation)))
            outcome = run_seed(seed, steps, only, kind=kind)
    print("schedule:")
    for planned in plan(seed, steps, kind=kind):
        if only is None or planned.number in only:
            print(f"  {planned}")
    trace = outcome.trace
    hidden = 0 if options.whole or not outcome.violation else max(0, len(trace) - _LAST_EVENTS)
    print(f"trace:{f' ({hidden} earlier lines with --whole)' if hidden else ''}")
    print("\n".join(f"  {line}" for line in trace[hidden:]))
    print(f"seed {seed}: digest {outcome.digest}, {outcome.simulated_s:.0f} simulated s, {outcome.cpu_s:.2f} CPU s")
    if outcome.violation:
        played = f" --only {','.join(str(each) for each in sorted(only))}" if only is not None else ""
        print(f"seed {seed} violates the model: {outcome.violation}")
        fleet = f" --{kind}" if kind else ""
        print(f"again: simulate.py --seed {seed} --steps {steps}{fleet}{played} --whole")
        return 1
    print("no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
