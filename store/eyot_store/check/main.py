"""`eyot-check DIRECTORY`: verifies a store at rest (see `check`) and reports damage.

`--repair` rewrites damaged streams from their readable records. `--compact` rewrites a store that no process has
open: without unused pages, encrypted with the given key.

Exit status: 0 no damage, 1 damage, 2 there is no store, it cannot be read or written, or the key is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from eyot_store.check.check import CheckReport, check
from eyot_store.check.repair import repair
from eyot_store.environment import has_journal, no_store
from eyot_store.errors import StoreError
from eyot_store.options import StoreOptions
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.rewrite import is_sealed, rewrite
from eyot_store.store import settle
from eyot_wire.argument_parser import ArgumentParser
from eyot_wire.program import run_program
from eyot_wire.quantities import counted
from eyot_wire.quoting import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the console script."""
    return run_program("eyot-check", lambda: _run(arguments), failed=2)


def _run(arguments: Sequence[str] | None) -> int:
    options = command_line().parse_args(arguments)
    if options.raw and not options.repair:
        print("eyot-check: --raw goes with --repair", file=sys.stderr)
        return 2
    path: Path = options.directory
    inner = path / "eyot"
    if not (path / "data.mdb").exists() and ((inner / "data.mdb").exists() or has_journal(inner)):
        path = inner
    try:
        keys = StoreKeys(read_key(options.key_file)) if options.key_file else None
        if options.repair:
            for sentence in repair_store(path, keys, raw=options.raw):
                print(f"repaired: {sentence}", file=sys.stderr if options.json else sys.stdout)
        if options.compact:
            before, after, sentences = compact(path, keys)
            told = sys.stderr if options.json else sys.stdout
            for sentence in sentences:
                print(f"repaired: {sentence}", file=told)
            print(f"{path}: {before:,} bytes before, {after:,} after", file=told)
        report = check(path, keys)
    except OSError as error:
        print(f"eyot-check: {error.filename or path}: {error.strerror or error}", file=sys.stderr)
        return 2
    except (StoreError, ValueError) as error:
        print(f"eyot-check: {error}", file=sys.stderr)
        return 2
    print(msgspec.json.format(msgspec.json.encode(report)).decode() if options.json else describe(report))
    return 0 if report.ok else 1


def command_line() -> ArgumentParser:
    """Return the parser of the command line."""
    parser = ArgumentParser(
        prog="eyot-check",
        description="Verifies every page, checksum and counter of a store. Changes nothing, unless it is told to. Where a daemon has the store open, "
        "what it last committed is verified.",
    )
    parser.add_argument("directory", type=Path, help="the store, or the store_dir that it is in")
    parser.add_argument("--version", action="version", version=f"eyot-check {metadata.version('eyot')}")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--key-file", type=Path, help="the key of an encrypted store; without it only checksums are verified"
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="write the store anew first, without what was deleted; it must not be in use",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="write damaged streams anew from what can be read, and say what is lost; the store must not be in use",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="with --repair: look through the whole file for messages of damaged streams, also in pages that nothing leads to",
    )
    return parser


def read_key(path: Path) -> bytes:
    """Return the key in a file, without the end of its line. Raises OSError, ValueError."""
    key = path.read_bytes().rstrip(b"\r\n")
    if not key:
        raise ValueError(f"{path} holds no key")
    return key


def repair_store(path: Path, keys: StoreKeys | None, *, raw: bool = False) -> list[str]:
    """Repair the store; return sentences about the damage. `raw`: read pages that nothing leads to, too."""
    if not (path / "data.mdb").exists():
        raise no_store(path)
    owner = (path / "data.mdb").stat()
    try:
        return repair(path, keys, raw=raw)
    finally:
        if os.geteuid() == 0:
            _give_back(path, owner.st_uid, owner.st_gid)


def compact(path: Path, keys: StoreKeys | None) -> tuple[int, int, list[str]]:
    """Rewrite the store, encrypted if a key is given; return the data file's bytes before and after.

    The sentences beside them tell of damage that was found and mended at that.
    """
    sealed = is_sealed(path)
    if sealed is None:
        raise no_store(path)
    options = StoreOptions(keys=keys if sealed else None)
    owner = (path / "data.mdb").stat()
    try:
        sentences = settle(path, options)
        return *rewrite(path, options, keys), sentences
    finally:
        if os.geteuid() == 0:
            _give_back(path, owner.st_uid, owner.st_gid)


def _give_back(path: Path, user: int, group: int) -> None:
    """Give files that root created back to the store's owner; otherwise the daemon could not open them."""
    for file in (path, *path.rglob("*")):
        found = file.lstat()
        if found.st_uid == 0 and user != 0:
            os.chown(file, user, group, follow_symlinks=False)


def describe(report: CheckReport) -> str:
    """Return the report for people."""
    lines = [f"{report.path}: format {report.format}{', in use' if report.live else ''}"]
    if report.sealed:
        lines.append("  encrypted, and no key given: checksums were verified, not what is sealed")
    lines += [
        f"  {f'{stream.account}/{stream.name}' if stream.account else f'stream {stream.name}'}: {counted(stream.messages, 'message')}, {stream.bytes:,} bytes, "
        f"sequences {stream.first_seq} to {stream.last_seq}, {counted(stream.consumers, 'consumer')}"
        for stream in report.streams
    ]
    if report.journal_frames:
        lines.append(
            f"  and {counted(report.journal_frames, 'group')} in the journal, which the next start will take over"
        )
    lines += [f"  damaged: {problem}" for problem in report.problems]
    lines.append("nothing is wrong" if report.ok else f"{counted(len(report.problems), 'problem')}")
    return "\n".join(map(printable, lines))


if __name__ == "__main__":
    sys.exit(main())
