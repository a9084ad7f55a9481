"""`eyot check` and `eyot compact`: the store of a daemon on this machine, by the program `eyot-check`.

The program opens the store itself, which `eyot` never does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.paths import FilePath

PROGRAM = "eyot-check"
#: Where the package keeps streams.
STORE = Path("/var/lib/eyot")

_directory = click.argument("directory", type=FilePath(), default=STORE, metavar="[DIRECTORY]")
_key_file = click.option(
    "--key-file", type=FilePath(dir_okay=False), metavar="FILE", help="the key of an encrypted store"
)


@click.command()
@_directory
@_key_file
@click.option("--repair", is_flag=True, help="write damaged streams anew from what can be read; stop eyotd first")
@click.option("--raw", is_flag=True, help="with --repair: look through the whole file")
@click.pass_context
def check(context: click.Context, directory: Path, key_file: Path | None, repair: bool, raw: bool) -> None:
    """Verify every page, checksum and counter of a store.

    DIRECTORY is the store_dir of the daemon, by default the package's. Exit status and options are those of eyot-check.
    """
    wanted = [word for word, is_wanted in (("--repair", repair), ("--raw", raw)) if is_wanted]
    _run(context, directory, key_file, wanted)


@click.command()
@_directory
@_key_file
@click.pass_context
def compact(context: click.Context, directory: Path, key_file: Path | None) -> None:
    """Make a store smaller: rewrite it without deleted messages.

    Stop eyotd first. DIRECTORY is the store_dir of the daemon, by default the package's.
    """
    _run(context, directory, key_file, ["--compact"])


def _run(context: click.Context, directory: Path, key_file: Path | None, options: list[str]) -> None:
    target = context.find_object(Target)
    if target is not None and target.as_json:
        options = [*options, "--json"]
    if key_file is not None:
        options = [*options, "--key-file", str(key_file)]
    done = subprocess.run([_program(), *options, "--", str(directory)], check=False)
    context.exit(done.returncode if done.returncode >= 0 else 1)


def _program() -> str:
    """Return the program beside this one, else on the path. Raises Failure."""
    beside = [Path(sys.argv[0]).parent, Path(sys.executable).parent]
    found = next((shutil.which(PROGRAM, path=str(folder)) for folder in beside if (folder / PROGRAM).exists()), None)
    found = found or shutil.which(PROGRAM)
    if found is None:
        raise Failure(f"{PROGRAM} is not installed: install the package eyot on the machine that has the store")
    return found
