"""`--translate`: a command that turns payloads into what is shown, as in the `nats` tool."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from eyot_cli.terminal.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])
#: What the command may name of a message, in the words of the `nats` tool's templates.
SUBJECT, STREAM = "{{Subject}}", "{{Stream}}"

HELP: Final = "show what this command makes of each payload"


def _command(_context: click.Context, _option: click.Parameter, given: str | None) -> Translation | None:
    if given is None:
        return None
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise click.BadParameter(f"{given!r}: {error}") from error
    if not words:
        raise click.BadParameter("it names no command")
    return Translation(words)


class Translation:
    """A command that reads a payload and prints what is to be shown."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    async def of(self, data: bytes, *, subject: str, stream: str = "") -> bytes:
        """Return what the command makes of a payload. Raises Failure if it fails."""
        # After the split: a subject's spaces and quotes make no words of their own.
        words = [word.replace(SUBJECT, subject).replace(STREAM, stream) for word in self._words]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise Failure(f"--translate: {words[0]}: {error.strerror}: name a command that is installed") from error
        made, _ = await process.communicate(data)
        if process.returncode:
            raise Failure(f"--translate: {words[0]} ended with status {process.returncode}")
        return made.rstrip(b"\n")


def translate_option(command: F) -> F:
    """Add `--translate`: a Translation or None."""
    return click.option("--translate", metavar="COMMAND", callback=_command, help=HELP)(command)
