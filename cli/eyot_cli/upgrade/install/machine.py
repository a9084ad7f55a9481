"""The state machine of an upgrade that has begun. It goes on from its state file, wherever a power cut stopped it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from eyot_cli.upgrade.install import rules, state, unit
from eyot_cli.upgrade.install.dpkg import INSTALLED, Dpkg
from eyot_cli.upgrade.install.files import remove, sync_folder, write_whole
from eyot_cli.upgrade.install.health import Clock, Comparison, read_sample
from eyot_cli.upgrade.install.places import Places
from eyot_cli.upgrade.install.refusal import Stuck
from eyot_cli.upgrade.install.state import BACK, DONE, INSTALL, RETURNED, WATCH, State

#: How often an installation may be cut before the device goes back: the new package may be what cuts it.
INSTALLS_MAX: Final = 3
#: How often the machine may start again during the watch.
WATCHES_MAX: Final = 5
#: The pause between two looks at the daemon, seconds.
POLL_S: Final = 10.0
#: How long a watch goes on while a link's address cannot be reached, and nobody can tell whether the link is worse, seconds.
UNKNOWN_S: Final = 86_400.0


class Machine:
    """Goes on with an upgrade until it is done.

    `tell` takes a line for the journal. `busy`: called with True before dpkg changes something, with False after it.
    """

    def __init__(
        self,
        places: Places,
        dpkg: Dpkg,
        clock: Clock,
        systemctl: Sequence[str],
        tell: Callable[[str], None],
        busy: Callable[[bool], None] = lambda is_busy: None,
    ) -> None:
        self._places, self._dpkg, self._clock, self._systemctl = places, dpkg, clock, systemctl
        self._tell, self._busy = tell, busy

    def run(self) -> None:
        """Go on until there is no upgrade under way. Raises Stuck, OSError."""
        steps = {INSTALL: self._install, WATCH: self._watch, BACK: self._go_back, RETURNED: self._look_back}
        with state.lock(self._places.lock_file, wait=True):
            while (now := state.load(self._places.state_file)) is not None and now.phase != DONE:
                steps[now.phase](now)
                self._save(now)
            if now is not None:
                self._end(now)
            self._clean()

    # -- the steps: each may be cut anywhere, and is then done again ------------------------------------------------

    def _install(self, now: State) -> None:
        """Install the new package."""
        if now.installs >= INSTALLS_MAX:
            self._return(now, f"the installation of {now.version} was cut {now.installs} times")
            return
        now.installs += 1
        self._save(now)
        self._tell(f"installing {now.version} over {now.former}")
        said = self._have_installed(self._places.staged / now.staged, now.version)
        if said is None:
            now.phase = WATCH
        else:
            self._return(now, f"dpkg did not install {now.version}: {said}")

    def _watch(self, now: State) -> None:
        """Watch the new version's health."""
        if now.watches >= WATCHES_MAX:
            self._return(now, f"the machine started {now.watches} times while {now.version} was watched")
            return
        now.watches += 1
        self._save(now)
        self._tell(f"watching {now.version} for {now.watch_s:.0f} s")
        worse = self._worse(now, now.version, now.watch_s)
        if worse is None:
            self._finish(now, "superseded")
        elif worse:
            self._return(now, worse)
        else:
            self._finish(now, "upgraded")

    def _go_back(self, now: State) -> None:
        """Install the kept package."""
        state.refuse(self._places.refused_file, now)
        said = self._have_installed(self._places.kept / now.kept, now.former)
        if said is not None:
            raise Stuck(f"dpkg did not install {now.former} again: {said}")
        now.phase = RETURNED

    def _look_back(self, now: State) -> None:
        """See whether all is as it was before."""
        worse = self._worse(now, now.former, 0.0)
        if worse:
            now.reason += f"; and with {now.former} again: {worse}"
        self._finish(now, "superseded" if worse is None else "returned")

    # -- their parts -----------------------------------------------------------------------------------------------

    def _have_installed(self, file: Path, version: str) -> str | None:
        """Have dpkg install a version unless it is; return None, or what dpkg said. Completes what a power cut interrupted."""
        self._busy(True)
        try:
            with self._dpkg.locked():
                said = ""
                if self._dpkg.installed(rules.PACKAGE) != (INSTALLED, version):
                    self._dpkg.configure()
                if self._dpkg.installed(rules.PACKAGE) != (INSTALLED, version):
                    said = self._dpkg.install(file)
                is_installed = self._dpkg.installed(rules.PACKAGE) == (INSTALLED, version)
        finally:
            self._busy(False)
        return None if is_installed else said

    def _worse(self, now: State, version: str, watch_s: float) -> str | None:
        """Watch the daemon; return what is worse for too long, "" if all is well, None if somebody else changed the package."""
        comparison = Comparison(now.before)
        control = Path(now.control)
        began_s = last_s = self._clock.monotonic()
        #: how long something has been worse; the time that one start takes, which systemd bounds, does not count
        worse_s: float | None = None
        starting: str | None = None
        while self._dpkg.installed(rules.PACKAGE) == (INSTALLED, version):
            sample = read_sample(control)
            at_s = self._clock.monotonic()
            verdict = comparison.compare(sample, at_s)
            before, starting = starting, None if sample is not None else unit.starting_process(self._systemctl)
            if not verdict.worse:
                worse_s = None
                if at_s - began_s >= (UNKNOWN_S if verdict.unknown else watch_s):
                    return ""
            elif worse_s is None:
                worse_s = 0.0
                self._tell(f"worse than before: {'; '.join(verdict.worse)}")
            elif starting is None or starting != before:
                worse_s += at_s - last_s
            if worse_s is not None and worse_s >= now.grace_s:
                return "; ".join(verdict.worse)
            last_s = at_s
            self._clock.sleep(POLL_S)
        return None

    def _return(self, now: State, reason: str) -> None:
        self._tell(f"going back to {now.former}: {reason}")
        now.phase, now.reason = BACK, reason

    def _finish(self, now: State, outcome: str) -> None:
        now.phase, now.outcome = DONE, outcome

    def _save(self, now: State) -> None:
        state.save(self._places.state_file, now)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, now: State) -> None:
        """Say how it ended, and forget the upgrade."""
        told = {
            "upgraded": f"upgraded from {now.former} to {now.version}",
            "returned": f"went back from {now.version} to {now.former}: {now.reason}",
            "superseded": f"somebody else changed the package after {now.version}: it stays as it is",
        }[now.outcome]
        self._tell(told)
        ended = {"outcome": now.outcome, "from": now.former, "to": now.version, "reason": now.reason,
                 "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}  # fmt: skip
        write_whole(self._places.last_file, json.dumps(ended).encode(), mode=0o644)
        self._places.state_file.unlink()
        sync_folder(self._places.state)

    def _clean(self) -> None:
        """Remove what an upgrade leaves behind; the kept package stays for the operator.

        As long as the unit is there, a cut is made up for at the next boot: the large package goes before the unit, and what the unit
        runs after it.
        """
        remove(self._places.staged)
        unit.remove_unit(self._places)
        remove(self._places.program)
        unit.reload_units(self._systemctl)
