"""Checks the configuration of an enrolled device, restarts the daemon with it, and waits for the link."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from eyot_cli.terminal.failure import Failure
from eyot_wire.status import StatusReport

if TYPE_CHECKING:
    from eyot_cli.connection.target import Target

SERVICE: Final = "eyotd.service"
TIMER: Final = "eyot-renew.timer"
#: How long the daemon may take to start and link, seconds.
WITHIN_S: Final = 60.0
_PAUSE_S: Final = 0.2


def check_configuration(config: Path) -> None:
    """Have eyotd check its configuration, where both exist. Raises Failure with what it says."""
    eyotd = shutil.which("eyotd")
    if eyotd is None or not config.exists():
        return
    done = subprocess.run([eyotd, "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure("eyotd does not accept its configuration now:", *done.stderr.splitlines()[-5:])


def restart() -> bool:
    """Restart the daemon's service; return whether there is one here. Raises Failure."""
    systemctl = shutil.which("systemctl")
    if systemctl is None or not Path("/run/systemd/system").is_dir():
        return False
    known = subprocess.run([systemctl, "cat", SERVICE], capture_output=True, check=False)
    if known.returncode:
        return False
    done = subprocess.run([systemctl, "restart", SERVICE], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{SERVICE} did not start: see `journalctl -u {SERVICE}`", *done.stderr.splitlines()[-5:])
    return True


def renew_daily() -> None:
    """Start the timer that renews the device's token, where systemd has it. Raises Failure."""
    systemctl = shutil.which("systemctl")
    if systemctl is None or not Path("/run/systemd/system").is_dir():
        return
    if subprocess.run([systemctl, "cat", TIMER], capture_output=True, check=False).returncode:
        return
    done = subprocess.run([systemctl, "enable", "--now", TIMER], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{TIMER} did not start: renew with `eyot enrol --renew`", *done.stderr.splitlines()[-5:])


def until_linked(target: Target, leaf_urls: tuple[str, ...]) -> str:
    """Wait until a link to one of the addresses is up; return its peer's name. Raises Failure with the link's last error."""
    deadline = time.monotonic() + WITHIN_S
    said = "the daemon does not run"
    while time.monotonic() < deadline:
        try:
            report = msgspec.json.decode(target.get("/eyot/status"), type=StatusReport)
        except Failure as failure:
            said = failure.lines[0]
        else:
            mine = [link for link in report.links if link.role == "spoke"]
            for link in mine:
                if link.state == "up":
                    return link.peer_name or link.url
            errors = [link.last_error for link in mine if link.last_error]
            said = errors[0] if errors else f"no link to {', '.join(leaf_urls)} yet"
        time.sleep(_PAUSE_S)
    raise Failure(f"enrolled, but not linked after {WITHIN_S:g} s: {said}", "`eyot doctor` says what to do")
