"""`eyot configure`: this device asks its hub what is desired of it, checks that, applies it, and reports.

The daemon's own check (`eyotd -t`) comes before anything is written. What a reload refuses, and what takes the link away, is
taken back.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import remove, write_private
from eyot_cli.terminal.show import print_json, print_line
from eyot_cli.upgrade.install.places import Places
from eyot_cli.upgrade.status import read_last
from eyot_cli.values.paths import FilePath
from eyot_wire.conf.errors import ConfError
from eyot_wire.conf.parser import parse_file
from eyot_wire.desired import APPLIED, REFUSED, ROLLED_BACK, SETTINGS, ConfigReport, DesiredDocument, UpgradeReport
from eyot_wire.quoting import printable
from eyot_wire.status import ReloadReport, StatusReport
from eyot_wire.trust.enrolment import is_device_name
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from nats.aio.client import Client

#: How long the hub may take to answer, seconds.
ANSWER_S: Final = 10.0
#: How long the link may take to come up again after a reload, seconds.
LINK_S: Final = 60.0
#: Beside the fragment: the version that the hub lets this device install.
RELEASE_FILE: Final = "release"
_VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.~-]{0,63}")
_PAUSE_S: Final = 0.5
#: Characters of an error that the hub is told.
_ERROR_MAX: Final = 300
_HEAD: Final = "# Made by `eyot configure`, which replaces this file: what the hub desires of this device.\n"


class Applied(Struct, kw_only=True):
    """What became of the last document; kept beside the fragment."""

    revision: str = ""
    outcome: str = ""
    error: str = ""


@click.command("configure")
@click.option("--name", default="", show_default="the server_name", metavar="NAME", help="the device's name at the hub")
@click.option("--prefix", default="fleet", metavar="SUBJECT", help="what subjects of eyot-fleet begin with")
@click.option(
    "--config",
    type=FilePath(dir_okay=False),
    default=Path("/etc/eyot/eyotd.conf"),
    help="the daemon's configuration",
)
@click.option(
    "--fragment",
    type=FilePath(dir_okay=False),
    default=Path("/etc/eyot/enrolled/desired.conf"),
    help="the file to write; the block eyot { } includes it",
)
@click.pass_obj
def configure(target: Target, name: str, prefix: str, config: Path, fragment: Path) -> None:
    """Apply what the hub desires of this device.

    The hub may set the blocks sync and flash of eyot { } and nothing else, where that block includes the fragment. Exit
    status: 0 if the device runs with what is desired, 1 if not, and then it runs as before.
    """
    name = name or _status(target).server_name
    if not is_device_name(name):
        raise Failure(f"{printable(name)} cannot be a device's name: give --name")
    device = _Device(target, name, prefix, config, fragment)
    done = device.run()
    if target.as_json:
        print_json(msgspec.to_builtins(done))
    elif not done.error:
        print_line(f"{done.revision or 'nothing is desired'}: {done.outcome or 'nothing to do'}")
    if done.error:
        raise Failure(f"{done.outcome}: {done.error}")


class _Device:
    """The files and the daemon of this device."""

    def __init__(self, target: Target, name: str, prefix: str, config: Path, fragment: Path) -> None:
        self._target = target
        self._name = name
        self._subject = f"{prefix}.{name}.config"
        self._config = config
        self._fragment = fragment
        self._kept = fragment.with_suffix(".json")
        self._release = fragment.with_name(RELEASE_FILE)

    def run(self) -> Applied:
        """Ask, apply and report. Raises Failure where the hub does not answer."""
        last = self._last()
        document = self._exchange(last)
        self._note_release(document.release)
        if document.revision == last.revision and (last.outcome != APPLIED or self._is_in_place(document)):
            return last
        done = self._applied(document)
        self._keep(done)
        self._exchange(done)
        return done

    # -- the hub ---------------------------------------------------------------------------------------------------

    def _exchange(self, last: Applied) -> DesiredDocument:
        """Report, and return what is desired now. Raises Failure."""
        report = ConfigReport(
            device=self._name,
            revision=last.revision,
            outcome=last.outcome,
            error=last.error,
            upgrade=_last_upgrade(),
        )

        async def ask(client: Client) -> bytes:
            answer = await client.request(self._subject, msgspec.json.encode(report), timeout=ANSWER_S)
            return bytes(answer.data)

        try:
            document = decode_json(self._target.with_client(ask), DesiredDocument)
        except msgspec.DecodeError as error:
            raise Failure(f"the hub's answer cannot be read: {error}") from None
        except Failure as failure:
            raise Failure(f"no eyot-fleet answers: {failure.lines[0]}", *failure.lines[1:]) from None
        if document.device != self._name:
            raise Failure(f"the hub's answer is for {printable(document.device)}, not for {self._name}")
        return document

    # -- this device -----------------------------------------------------------------------------------------------

    def _applied(self, document: DesiredDocument) -> Applied:
        """Apply a document, or leave everything as it is; return what became of it."""
        before = self._text()
        try:
            self._check(document)
        except Failure as failure:
            return self._done(document, REFUSED, failure)
        linked = any(_is_up(link.state, link.waiting) for link in _spokes(_status(self._target)))
        try:
            self._write(_fragment_text(document))
            self._check_place(document)
        except Failure as failure:
            self._write(before)
            return self._done(document, REFUSED, failure)
        try:
            self._reload()
            if linked:
                self._until_linked()
        except Failure as failure:
            self._write(before)
            self._reload()
            return self._done(document, ROLLED_BACK, failure)
        return Applied(revision=document.revision, outcome=APPLIED)

    @staticmethod
    def _done(document: DesiredDocument, outcome: str, failure: Failure) -> Applied:
        text = "; ".join(failure.lines)[:_ERROR_MAX]
        return Applied(revision=document.revision, outcome=outcome, error=text)

    def _check(self, document: DesiredDocument) -> None:
        """Have eyotd check its configuration with a document in it. Raises Failure."""
        unknown = sorted(set(document.settings) - set(SETTINGS))
        if unknown or not all(isinstance(value, dict) for value in document.settings.values()):
            raise Failure(f"the hub may set {' and '.join(SETTINGS)} only, not {printable(', '.join(unknown))}")
        block = self._present()
        for key in SETTINGS:
            block.pop(key, None)
        block |= document.settings
        text = f"include {json.dumps(str(self._config.absolute()))}\neyot: {json.dumps(block)}\n"
        with tempfile.TemporaryDirectory(prefix="eyot-configure-") as folder:
            whole = Path(folder) / "eyotd.conf"
            write_private(whole, text.encode())
            _eyotd("-t", "-c", str(whole))

    def _check_place(self, document: DesiredDocument) -> None:
        """Check that the daemon will read what was written. Raises Failure."""
        if not self._is_in_place(document):
            line = f'include "{self._fragment.parent}/{self._fragment.stem}*.conf"'
            raise Failure(
                f"the configuration does not read {self._fragment}, or sets the same itself: add to its block eyot {{ }}: {line}"
            )

    def _is_in_place(self, document: DesiredDocument) -> bool:
        if self._text() != _fragment_text(document):
            return False
        block = self._present()
        return all(block.get(key) == value for key, value in document.settings.items())

    def _present(self) -> dict[str, Any]:
        """Return the configuration's block eyot { }. Raises Failure."""
        try:
            found = parse_file(self._config)
        except ConfError as error:
            raise Failure(f"the present configuration is not valid: {printable(str(error))}") from None
        for entry in found:
            if entry.key.lower() == "eyot":
                plain = entry.value.plain()
                return dict(plain) if isinstance(plain, dict) else {}
        return {}

    def _reload(self) -> None:
        """Have the daemon take its configuration. Raises Failure with what it refuses."""
        report = msgspec.json.decode(self._target.get("/eyot/reloadz"), type=ReloadReport)
        _eyotd("-c", str(self._config), "--signal", f"reload={report.pid}")

    def _until_linked(self) -> None:
        """Wait until a link is up again, or waits by a policy. Raises Failure."""
        deadline = time.monotonic() + LINK_S
        while True:
            links = _spokes(_status(self._target))
            if any(_is_up(link.state, link.waiting) for link in links):
                return
            if time.monotonic() > deadline:
                errors = [link.last_error for link in links if link.last_error]
                raise Failure(f"no link for {LINK_S:g} s: {printable(errors[0]) if errors else 'no error is known'}")
            time.sleep(_PAUSE_S)

    # -- files -----------------------------------------------------------------------------------------------------

    def _last(self) -> Applied:
        try:
            return msgspec.json.decode(self._kept.read_bytes(), type=Applied)
        except FileNotFoundError:
            return Applied()
        except OSError as error:
            raise Failure(f"{self._kept}: {error.strerror}") from error
        except msgspec.DecodeError:
            return Applied()  # after a power cut of long ago: it is applied again

    def _keep(self, done: Applied) -> None:
        write_private(self._kept, msgspec.json.encode(done))

    def _note_release(self, release: str) -> None:
        """Keep the version that the hub lets this device install, for `eyot upgrade fetch --released`. Raises Failure."""
        if not release:
            remove(self._release)
            return
        try:
            present = self._release.read_text()
        except (OSError, UnicodeDecodeError):
            present = ""
        if present != f"{release}\n":
            if not _VERSION.fullmatch(release):
                raise Failure(f"the hub's answer names {printable(release[:100])}, which is no version")
            write_private(self._release, f"{release}\n".encode())

    def _text(self) -> str:
        try:
            return self._fragment.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise Failure(f"{self._fragment}: {error.strerror}") from error

    def _write(self, text: str) -> None:
        if text:
            write_private(self._fragment, text.encode(), mode=0o640)
        else:
            remove(self._fragment)


def _fragment_text(document: DesiredDocument) -> str:
    """Return the fragment: JSON, which the configuration's grammar reads; "" where nothing is desired."""
    if not document.settings:
        return ""
    lines = [f"{key}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(document.settings.items())]
    return _HEAD + "\n".join(lines) + "\n"


def _eyotd(*words: str) -> None:
    """Run eyotd. Raises Failure with what it says."""
    program = shutil.which("eyotd")
    if program is None:
        raise Failure("eyotd is not installed here")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(
            *([printable(line) for line in done.stderr.splitlines()[-3:]] or [f"eyotd ended with {done.returncode}"])
        )


def _last_upgrade() -> UpgradeReport:
    """Return how this device's last upgrade ended, for the hub."""
    last = read_last(Places().last_file)
    if last is None:
        return UpgradeReport()
    return UpgradeReport(
        to=last.to_version[:_ERROR_MAX],
        outcome=last.outcome[:_ERROR_MAX],
        reason=last.reason[:_ERROR_MAX],
        at=last.at[:_ERROR_MAX],
    )


def _status(target: Target) -> StatusReport:
    return msgspec.json.decode(target.get("/eyot/status"), type=StatusReport)


def _spokes(report: StatusReport) -> list[Any]:
    return [link for link in report.links if link.role == "spoke"]


def _is_up(state: str, waiting: str | None) -> bool:
    return state == "up" or bool(waiting)
