"""`eyot mqtt import`: mosquitto's configuration as Eyot's."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eyot_cli.connection.target import Target
from eyot_cli.mqtt.mosquitto_import import Importer, Note, read
from eyot_cli.mqtt.mosquitto_users import read_passwords
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_line, print_payload
from eyot_cli.values.paths import FilePath

FILE = FilePath(exists=True, dir_okay=False)
#: Exit status: something is not converted.
INCOMPLETE = 3
#: The configuration may hold hashes of passwords.
MODE = 0o640


@click.command("import")
@click.argument("file", type=FILE)
@click.option(
    "--output",
    "-o",
    type=FilePath(dir_okay=False),
    metavar="FILE",
    help="write there, not to standard output",
)
@click.option("--passwords", type=FILE, metavar="FILE", help="lines of user:password, for hashes that Eyot can check")
@click.option("--store-dir", default="/var/lib/eyot", metavar="DIRECTORY", help="where the daemon keeps its store")
@click.pass_obj
def import_mosquitto(target: Target, file: Path, output: Path | None, passwords: Path | None, store_dir: str) -> None:
    """Convert mosquitto's configuration FILE.

    What has no equivalent is told on standard error, with file and line. Exit status 3 if there is any.
    """
    known = {} if passwords is None else {each.user: each.hash for each in read_passwords(passwords)}
    importer = Importer(read(file), known, store_dir=store_dir)
    text = f"# Converted from {file} by eyot mqtt import; check it with eyotd -t.\n{importer.result()}"
    if output is not None:
        _write(output, text)
    if target.as_json:
        notes = [each._asdict() for each in importer.notes]
        print_json({"config": text if output is None else None, "notes": notes})
    else:
        if output is None:
            print_payload(text.removesuffix("\n"))
        for note in importer.notes:
            print_line(_told(note), error=True)
        if output is not None:
            print_line(f"{output} is written: check it with eyotd -t -c {output}", error=True)
    if any(note.lost for note in importer.notes):
        raise click.exceptions.Exit(INCOMPLETE)


def _told(note: Note) -> str:
    return f"{note.where}: {note.line}: {'not converted' if note.lost else 'not needed'}: {note.text}"


def _write(output: Path, text: str) -> None:
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    except FileExistsError:
        raise Failure(f"{output} exists: name another file, or move it away first") from None
    except OSError as error:
        raise Failure(f"{output}: {error.strerror}") from error
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
