"""The policies of `eyot { sync { } }` at runtime: one `LinkGate` per link, one meter per metered remote, and the meters' file.

A consumer checks the gate of a link before it delivers a stream (`hold`). The link reports to its gate what left
(`delivering`) and what crossed (`crossed`). A reload replaces the policies: gates apply them at the next check, meters
keep their counts.
"""

from __future__ import annotations

import logging
from datetime import tzinfo
from pathlib import Path

import trio

from eyot_daemon.config.leaf import RemoteOptions
from eyot_daemon.router.budget_file import BudgetFile
from eyot_daemon.turn.clock import Clock
from eyot_sync.policy.budget import Budget, carried
from eyot_sync.policy.policy import RemotePolicy, StreamPolicy, SyncPolicies
from eyot_sync.policy.stream_gate import UNLIMITED, Hold, Meter, StreamGate, spoken_time
from eyot_sync.policy.windows import Timetable
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import MeteredStatus

log = logging.getLogger("eyot.sync")

#: Interval of writes of the used bytes, seconds.
SAVE_EVERY_S = 1.0


class SyncControl:
    """The policies of one daemon. `tz`: local time, None for the system's."""

    def __init__(self, clock: Clock, policies: SyncPolicies, tz: tzinfo | None = None) -> None:
        self.clock = clock
        self.policies = policies
        self.tz = tz
        #: Grows with every reload: gates notice by it.
        self.generation = 0
        self._meters: dict[str, Meter] = {}
        self._file: BudgetFile | None = None
        self._saved: dict[str, dict[str, int]] = {}
        self._save = trio.Event()

    def now_s(self) -> float:
        return self.clock.now_ns() / 1e9

    def reload(self, policies: SyncPolicies) -> None:
        """Apply new policies from now on."""
        if policies == self.policies:
            return
        self.policies = policies
        self.generation += 1

    def stream(self, account: str, name: str) -> StreamPolicy:
        return self.policies.stream(account, name)

    # -- remotes ---------------------------------------------------------------------------------------------------

    def remote(self, remote: RemoteOptions) -> RemotePolicy | None:
        """Return the policy of a remote, if any."""
        return self.policies.remote(tuple((url.host, url.port) for url in remote.urls), remote.account)

    def meter(self, policy: RemotePolicy | None, account: str) -> Meter | None:
        """Return the byte meter of a metered remote; None: not metered."""
        if policy is None or policy.metered is None:
            return None
        name = f"{account}@{policy.host}:{policy.port}"
        meter = self._meters.get(name)
        metered = policy.metered
        if meter is None:
            budget = Budget(metered.budget, reset_day=metered.reset_day, saved=self._saved.get(name), tz=self.tz)
            meter = self._meters[name] = Meter(metered, budget, self.tz)
        elif meter.policy != metered:
            if meter.policy.reset_day != metered.reset_day:
                meter.budget = Budget(
                    metered.budget, reset_day=metered.reset_day, saved=meter.budget.to_save(exact=True), tz=self.tz
                )
            meter.policy, meter.budget.limit = metered, metered.budget
        return meter

    def remote_hold(self, remote: RemoteOptions) -> Hold | None:
        """Return the policy that prevents the link to a remote; None: none does."""
        policy = self.remote(remote)
        if policy is None:
            return None
        now_s = self.now_s()
        if policy.windows:
            found = Timetable(policy.windows, self.tz).at(now_s)
            if not found.is_open:
                until = spoken_time(found.until_s, now_s, self.tz)
                return Hold(f"outside its windows until {until}", found.until_s - now_s)
        meter = self.meter(policy, remote.account)
        return None if meter is None else meter.link_hold(now_s)

    def metered_status(self, remote: RemoteOptions) -> MeteredStatus | None:
        policy = self.remote(remote)
        meter = self.meter(policy, remote.account)
        if meter is None:
            return None
        now_s = self.now_s()
        return MeteredStatus(
            budget_bytes=meter.policy.budget,
            spent_bytes=meter.budget.spent_at(now_s),
            reserve_bytes=meter.policy.reserve,
            resets=ns_to_rfc3339(int(meter.budget.resets_at(now_s) * 1e9)),
        )

    # -- the meters' file ----------------------------------------------------------------------------------------------

    def keep_in(self, directory: Path) -> None:
        """Keep the meters in this directory, and load the previous counts."""
        self._file = BudgetFile(directory)
        self._saved = self._file.read()

    def spent(self, meter: Meter, size: int) -> None:
        """`size` bytes were written to, or read from, a metered link at once."""
        meter.budget.spend(carried(size), self.now_s())
        if meter.budget.must_save:
            self._save.set()

    async def run(self) -> None:
        """Write the counts until cancelled; exact at the end, never too low before."""
        try:
            while True:
                await self._save.wait()
                self._save = trio.Event()
                await self._write()
                await trio.sleep(SAVE_EVERY_S)
        finally:
            if self._file is not None and self._meters:
                self._try(self._to_save(exact=True))

    async def _write(self) -> None:
        if self._file is not None:
            await trio.to_thread.run_sync(self._try, self._to_save(exact=False))

    def _to_save(self, *, exact: bool) -> dict[str, dict[str, int]]:
        current = {name: meter.budget.to_save(exact=exact) for name, meter in self._meters.items()}
        self._saved = self._saved | current
        return self._saved

    def _try(self, spent: dict[str, dict[str, int]]) -> None:
        assert self._file is not None
        try:
            self._file.write(spent)
        except OSError as error:
            log.error("The counters of metered links cannot be written: %s", error)


class LinkGate:
    """The policies of one link. `remote` is None for accepted links: there only policies of streams apply."""

    def __init__(self, control: SyncControl, account: str, remote: RemoteOptions | None) -> None:
        self._control = control
        self._account = account
        self._remote = remote
        self._generation = -1
        self._streams: dict[bytes, StreamGate] = {}
        self._timetable = Timetable(())
        self.meter: Meter | None = None

    def _follow(self) -> None:
        """Policies may have been replaced."""
        control = self._control
        if self._generation == control.generation:
            return
        self._generation = control.generation
        self._streams.clear()
        policy = None if self._remote is None else control.remote(self._remote)
        self.meter = control.meter(policy, self._account)
        self._timetable = Timetable(policy.windows if policy is not None else (), control.tz)

    @property
    def is_restricted(self) -> bool:
        """Whether the remote has a policy that may end the link."""
        self._follow()
        return self.meter is not None or bool(self._timetable.windows)

    def bind(self, account: str) -> None:
        """Set the account, which is known now."""
        self._account = account
        self._generation = -1

    def stream(self, name: bytes) -> StreamGate:
        self._follow()
        gate = self._streams.get(name)
        if gate is None:
            policy = self._control.stream(self._account, name.decode("utf-8", "replace"))
            gate = self._streams[name] = StreamGate(policy, self._control.clock.monotonic(), self._control.tz)
        return gate

    def hold(self, name: bytes) -> Hold | None:
        """Return the policy that holds back a stream on this link; None: none does."""
        control = self._control
        gate = self.stream(name)
        return gate.hold(control.clock.monotonic(), control.now_s(), self.meter)

    def allowance(self, name: bytes) -> int:
        """Bytes of a stream that its rate lets go at once."""
        return self.stream(name).allowance(self._control.clock.monotonic())

    def budget_left(self, name: bytes) -> int:
        """Bytes that the link's budget has left for a stream, with what still waits for the link."""
        priority = self.stream(name).policy.priority
        return UNLIMITED if self.meter is None else self.meter.left(priority, self._control.now_s())

    def delivering(self, name: bytes, size: int) -> int:
        """`size` bytes of a stream leave; returns its priority."""
        gate = self.stream(name)
        gate.sent(size)
        return gate.policy.priority

    def crossed(self, size: int) -> Hold | None:
        """Count `size` bytes, read or written; return what ends the link because of them, or of the time of day."""
        if self._remote is None:
            return None
        self._follow()
        if self.meter is not None:
            self._control.spent(self.meter, size)
        return self.link_hold()

    def link_hold(self) -> Hold | None:
        """Return the policy that ends the link now; None: none does."""
        self._follow()
        if self._remote is not None and not self._timetable.at(self._control.now_s()).is_open:
            return self._control.remote_hold(self._remote)
        return None if self.meter is None else self.meter.link_hold(self._control.now_s())

    def ends_at_s(self) -> float:
        """Return when its window closes, seconds since the epoch; infinity: never."""
        self._follow()
        return self._timetable.at(self._control.now_s()).until_s
