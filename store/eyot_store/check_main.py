"""``eyot-check DIRECTORY``: verifies a store at rest (see ``check``) and says what is wrong.

Exit status: 0 all is well, 1 something is damaged, 2 there is no store or it cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eyot_store.check import CheckReport, check
from eyot_store.errors import StoreError


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    parser = argparse.ArgumentParser(
        prog="eyot-check",
        description="Verifies every page, checksum and counter of a store. Changes nothing. Where a daemon has the store open, "
        "what it last committed is verified.",
    )
    parser.add_argument("directory", type=Path, help="the store, or the store_dir that it is in")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    path: Path = options.directory
    if not (path / "data.mdb").exists() and (path / "eyot" / "data.mdb").exists():
        path = path / "eyot"
    try:
        report = check(path)
    except StoreError as error:
        print(f"eyot-check: {error}", file=sys.stderr)
        return 2
    print(msgspec.json.format(msgspec.json.encode(report)).decode() if options.json else describe(report))
    return 0 if report.ok else 1


def describe(report: CheckReport) -> str:
    """The report for people."""
    lines = [f"{report.path}: format {report.format}{', in use' if report.live else ''}"]
    lines += [
        f"  {stream.account}/{stream.name}: {stream.messages:,} messages, {stream.bytes:,} bytes, "
        f"sequences {stream.first_seq} to {stream.last_seq}, {stream.consumers} consumers"
        for stream in report.streams
    ]
    if report.journal_frames:
        lines.append(f"  and {report.journal_frames:,} groups in the journal, which the next start will take over")
    lines += [f"  damaged: {problem}" for problem in report.problems]
    lines.append("nothing is wrong" if report.ok else f"{len(report.problems)} problems")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
