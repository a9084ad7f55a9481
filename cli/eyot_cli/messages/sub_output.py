"""How `eyot sub` shows messages: in lines, raw, as JSON, or each in a file."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.stored import print_stored, stored_of
from eyot_cli.messages.common import print_message
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.terminal.show import console, print_line, print_raw, raw_option
from eyot_cli.terminal.translating import Translation, translate_option

if TYPE_CHECKING:
    from nats.aio.msg import Msg

F = TypeVar("F", bound=Callable[..., Any])


def output_options(command: F) -> F:
    """Add the options of `Output`."""
    for option in (
        click.option(
            "--dump", metavar="FOLDER", help="write each message into a JSON file there; `-`: print with NULs"
        ),
        translate_option,
        click.option("--delta-time", "-d", is_flag=True, help="show the time since the beginning"),
        click.option("--timestamp", "-t", is_flag=True, help="show the time of arrival"),
        click.option("--subjects-only", is_flag=True, help="subjects alone"),
        click.option("--headers-only", is_flag=True, help="no payloads"),
        raw_option,
    ):
        command = option(command)
    return command


class Output:
    """Shows messages in the form that the options name."""

    def __init__(
        self,
        target: Target,
        *,
        raw: bool,
        headers_only: bool,
        subjects_only: bool,
        timestamp: bool,
        delta_time: bool,
        translate: Translation | None,
        dump: str | None,
    ) -> None:
        self.needs_no_payload = headers_only or subjects_only
        self._target = target
        self._raw = raw
        self._subjects_only = subjects_only
        self._timestamp = timestamp
        self._began = time.monotonic() if delta_time else None
        self._translate = translate
        self._folder = None if dump in (None, "-") else Path(str(dump))
        self._nul = dump == "-"
        if timestamp and delta_time:
            raise click.UsageError("--timestamp and --delta-time exclude each other")
        if self._folder is not None:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise Failure(f"{self._folder}: {error.strerror}") from error

    def say(self, text: str) -> None:
        """Print a line that is no message, out of the way of those."""
        print_line(text, error=True)

    async def show(self, message: Msg, number: int, *, stored: bool) -> None:
        """Show one message, the `number`th. `stored`: it is one of a stream."""
        if self._translate is not None:
            in_stream = message.metadata.stream if stored else ""
            message.data = await self._translate.of(message.data, subject=message.subject, stream=in_stream)
        if self.needs_no_payload:
            message.data = b""
        if self._nul or self._folder is not None:
            self._dump(message, message.metadata.sequence.stream if stored else number)
        elif self._raw:
            print_raw(message.data)
        elif self._subjects_only and not self._target.as_json:
            self._print_time()
            print_line(message.subject)
        elif stored:
            self._print_time()
            print_stored(self._target, message.metadata.stream, stored_of(message))
        else:
            self._print_time()
            print_message(self._target, message)

    def _print_time(self) -> None:
        if self._target.as_json:
            return
        if self._timestamp:
            console.print(datetime.now(UTC).astimezone().isoformat(timespec="microseconds"))
        if self._began is not None:
            console.print(f"{time.monotonic() - self._began:.6f} s")

    def _dump(self, message: Msg, number: int) -> None:
        """Write a message as the `nats` tool does: the members of its client's messages."""
        headers = {name: [value] for name, value in (message.headers or {}).items()}
        told = {
            "Subject": message.subject, "Reply": message.reply, "Header": headers or None,
            "Data": base64.b64encode(message.data).decode(), "Sub": None,
        }  # fmt: skip
        data = msgspec.json.encode(told)
        if self._folder is None:
            sys.stdout.buffer.write(data + b"\0")
            sys.stdout.buffer.flush()
        else:
            write_private(self._folder / f"{number}.json", data)
