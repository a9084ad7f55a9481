"""Random configurations, one reloaded after the other, on eyotd and nats-server 2.14.6 at once (`support/servers/random_reloads.py`).

    .venv/bin/python tests/fuzz/reloads.py --first 0 --count 50 [--reloads 4]

Prints the first round of each seed that differs; exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.servers.random_reloads import play


def main() -> int:
    parser = argparse.ArgumentParser(description="holds eyotd's reloads against nats-server's")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=50, help="how many seeds")
    parser.add_argument("--reloads", type=int, default=4, help="reloads of each")
    options = parser.parse_args()
    differing = 0
    for seed in range(options.first, options.first + options.count):
        with tempfile.TemporaryDirectory(prefix="eyot-reloads-") as folder:
            found = play(seed, options.reloads, Path(folder))
        if found:
            differing += 1
            print(f"seed {seed}:", *found, sep="\n  ", flush=True)
    print(f"{differing} of {options.count} seeds differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
