"""Revocations and one-time tokens, by the operator's tool: its store, its rules and its own audit log stay the only ones."""

from __future__ import annotations

import logging
import subprocess
import time
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec import Struct

from eyot_fleet.errors import FleetError
from eyot_wire.quoting import printable
from eyot_wire.trust.enrolment import is_device_name
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from eyot_fleet.web_options import TrustOptions

log = logging.getLogger("eyot.fleet")

#: Of a command, with its wait for the one before; less than a response may take.
WITHIN_S: Final = 45.0
TEXT_MAX: Final = 2000
_TOKEN_KEY_CHARS: Final = 56


class Token(Struct, frozen=True, kw_only=True):
    """A one-time token, as the store's records have it."""

    #: its public key
    id: str
    #: the names of devices that it enrols: one, or a pattern
    names: str
    #: devices that it can still enrol
    left: int
    #: seconds since 1970
    valid_until: float


class TrustCommands:
    """Runs `eyot fleet`, one command at a time."""

    def __init__(self, options: TrustOptions) -> None:
        self._options = options
        self._lock = trio.Lock()

    async def revoke(self, name: str) -> None:
        """Cut a device at once, and free its name. Raises FleetError."""
        if not is_device_name(name):
            raise FleetError(f"{printable(name)} cannot be the name of an enrolled device")
        await self._run("revoke", name)

    async def withdraw(self, token: str) -> None:
        """Withdraw a one-time token, given by its public key. Raises FleetError."""
        if len(token) != _TOKEN_KEY_CHARS or not token.isalnum() or not token.isascii():
            raise FleetError("that is not the id of a token")
        await self._run("withdraw", token)

    async def tokens(self) -> list[Token]:
        """Return the tokens that can still be used. Raises FleetError."""
        listed, now = await self._run("tokens"), time.time()
        try:
            found = msgspec.convert(listed, list[Token])
        except msgspec.ValidationError:
            raise FleetError("`eyot fleet tokens` gave no list of tokens") from None
        return [each for each in found if each.left > 0 and each.valid_until > now]

    async def _run(self, command: str, *arguments: str) -> object:
        """Run a command; return its JSON. Raises FleetError with what it said."""
        words = [*self._options.command, command, "--json", "-a", self._options.account, *arguments]
        ended = None
        with trio.move_on_after(WITHIN_S):
            async with self._lock:
                try:
                    ended = await trio.run_process(
                        words, stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True, check=False
                    )
                except OSError as error:
                    raise FleetError(f"{self._options.command[0]}: {error.strerror}") from None
        if ended is None:
            raise FleetError(f"`eyot fleet {command}` has not ended within {WITHIN_S:g} s: look whether it was done")
        if ended.returncode:
            said = ended.stderr.decode("utf-8", "replace").strip() or f"exit status {ended.returncode}"
            raise FleetError(" ".join(printable(line) for line in said[:TEXT_MAX].splitlines()))
        try:
            found: object = decode_json(ended.stdout)
        except msgspec.DecodeError:
            raise FleetError(f"`eyot fleet {command}` gave no JSON") from None
        return found
