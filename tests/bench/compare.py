"""`make bench-compare BASE=ref`: this checkout beside another state of it, in alternating rounds of the same rows.

A row counts as slower when it is more than 5 % worse in the median of all rounds, and worse in all rounds but one at most. Then the
command fails.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import core_rows
import durable_rows
import idle_rows
import leaf_rows
import peers
from rich.console import Console
from table import Row, markdown

GROUPS = {"core": core_rows, "durable": durable_rows, "leaf": leaf_rows, "idle": idle_rows}
#: The most that a row may be worse, a part of the other's figure.
TOLERATED = 0.05
START = """#!/bin/sh
PYTHONPATH="{packages}" exec "{python}" -c 'import sys; from eyot_daemon.launch import main; sys.exit(main())' "$@"
"""
console = Console(highlight=False)


def program(ref: str) -> Path:
    """The eyotd of another state, built with its compiled modules into build/compare."""
    commit = _git("rev-parse", "--verify", f"{ref}^{{commit}}").decode().strip()
    folder = ROOT / "build" / "compare" / commit
    script = folder / "eyotd"
    if not script.exists():
        console.print(f"building {commit[:12]}")
        source, packages = folder / "source", folder / "packages"
        for each in (source, packages):
            each.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-x", "-C", source], input=_git("archive", commit), check=True)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "-w", folder, source], check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
        script.write_text(START.format(packages=packages, python=sys.executable))
        script.chmod(0o755)
    return script


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=True).stdout


def is_slower(row: Row, base: str) -> bool:
    """Whether this checkout is worse than the base: see the module."""
    pairs = zip(row.figures.get(peers.OURS, []), row.figures.get(base, []), strict=False)
    worse = [(their / mine if row.more_is_better else mine / their) - 1 for mine, their in pairs if mine and their]
    if not worse:
        return False
    return statistics.median(worse) > TOLERATED and sum(each > 0 for each in worse) >= max(1, len(worse) - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description="this checkout beside another state of it")
    parser.add_argument("base", help="a commit, branch or tag")
    parser.add_argument("group", nargs="?", choices=tuple(GROUPS), help="only these rows; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=0.5, help="factor on all message counts")
    options = parser.parse_args()
    base = f"eyotd of {options.base}"
    peers.MORE[base] = str(program(options.base))
    slower: list[str] = []
    for name, group in GROUPS.items():
        if options.group in (None, name):
            rows = group.measure(options.scale, options.rounds, console.print, [base])
            console.print(markdown(rows, peers.OURS, [base]), soft_wrap=True)
            slower += [f"{name}: {row.what}" for row in rows if is_slower(row, base)]
    for each in slower:
        console.print(f"slower by more than {TOLERATED:.0%}: {each}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
