"""`make fuzz`: throws anything at the scanners, the fan-out and whole connections for a while, looking for

- differences between the compiled and the plain twin of the hot room;
- faults: a process that dies, hangs, logs a traceback, keeps connections or memory;
- payloads that are not whole or not in order, over plain sockets, TLS and a leaf link;
- bytes in WebSocket frames, in S2 and to the pages that harm others;
- effects on others: a pair of well-behaved clients exchanges messages all the time and must receive them all;
- MQTT answers that the specification does not allow.

Each step has its own seed, which determines it. A finding prints the step and its seed and ends the run with exit code
1; `--only STEP --seed N --seconds 0` repeats it. What is found becomes a regression test beside its fix.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from connections import Daemons

from support.clients import hostile
from support.clients.ack_rows import acknowledged
from support.clients.fan_out_fixture import fanned_out
from support.clients.twins import GRAMMARS, assert_same
from support.clients.write_through_fixture import written
from support.mqtt.publish_run_fixture import scanned
from support.store.record_run_fixture import recorded
from support.store.stored_run_fixture import ran

# One turn of a step lasts about so long, seconds.
TURN_S = 2.0


def scanners(seed: int) -> None:
    """Both scanners see the same in the same bytes."""
    rng = hostile.Random(seed)
    message = rng.choice(sorted(GRAMMARS))
    pieces = hostile.cut(rng, hostile.hostile(rng, message))
    assert_same(message, pieces, rng.choice([5, 40, 4096, 65536]), rng.choice([0, 60, 1 << 20, 2**31 + 7]))


def fan_outs(seed: int) -> None:
    """Both fan-outs hand out the same."""
    assert fanned_out(1, seed) == fanned_out(0, seed)
    assert written(1, seed) == written(0, seed)


def stored_runs(seed: int) -> None:
    """Both runs of stored messages take up, drop and write the same."""
    assert ran(1, seed) == ran(0, seed)


def acknowledgements(seed: int) -> None:
    """Both find the same acknowledgements in a read."""
    assert acknowledged(1, seed) == acknowledged(0, seed)


def record_runs(seed: int) -> None:
    """Both twins of the store make the same records, answers and notes."""
    assert recorded(1, seed) == recorded(0, seed)


def publish_runs(seed: int) -> None:
    """Both find the same runs of MQTT publishes."""
    assert scanned(1, seed) == scanned(0, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description="throws anything at Eyot's scanners and connections")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="where to begin counting seeds; random if not given")
    parser.add_argument(
        "--only",
        help="one step: scanners, fan_outs, stored_runs, record_runs, publish_runs, acknowledgements, compressed_links, conversations, "
        "crowds, leafs, mqtt, mqtt_damage, mqtt_faults, pages, services, transports, web_sockets",
    )
    options = parser.parse_args()
    seed: int = secrets.randbits(40) if options.seed is None else options.seed
    print(f"fuzzing for {options.seconds:.0f} s from seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="eyot-fuzz-") as folder, Daemons(Path(folder)) as daemons:
        steps: dict[str, Callable[[int], None]] = {
            "scanners": scanners,
            "fan_outs": fan_outs,
            "stored_runs": stored_runs,
            "acknowledgements": acknowledgements,
            "record_runs": record_runs,
            "publish_runs": publish_runs,
            **daemons.steps(),
        }
        if options.only:
            steps = {options.only: steps[options.only]}
        done = dict.fromkeys(steps, 0)
        end = time.monotonic() + options.seconds
        while True:
            for name, step in steps.items():
                turn_ends = time.monotonic() + TURN_S
                while True:
                    try:
                        step(seed)
                        done[name] += 1
                    except Exception:
                        traceback.print_exc()
                        print(f"\nFOUND by {name}, seed {seed}: --only {name} --seed {seed} --seconds 0", flush=True)
                        return 1
                    seed += 1
                    if time.monotonic() > turn_ends or not options.seconds:
                        break
            if time.monotonic() > end:
                break
        print("no finding in", ", ".join(f"{count} {name}" for name, count in done.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
