"""The fleet's page without a hub: the real site and index, what the service would do kept in memory, in a thread of its own.

python tests/support/devices/fleet_page.py 8300     serves 10,000 devices; log in as viewer or operator, with the same password
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from eyot_fleet.connection import Connection
from eyot_fleet.desired import DesiredError, Group, check_name
from eyot_fleet.device_index import DeviceIndex
from eyot_fleet.errors import Conflict, ConnectionLost, FleetError
from eyot_fleet.history import STEP_S, DayHistory
from eyot_fleet.login import Login
from eyot_fleet.rollout import Rollout
from eyot_fleet.web.backend import AuditEntry, Day, Desired, Freshness
from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web.site import Site
from eyot_fleet.web_options import NatsOptions, WebOptions
from support.devices import fleet_devices

T = TypeVar("T")
WAIT_S = 60.0


class MemoryBackend:
    """A service that keeps everything in memory."""

    def __init__(self) -> None:
        self.index = DeviceIndex()
        self.lines: list[AuditEntry] = []
        self.hub = Freshness(connected=True, since=time.time() - 3600)
        self.histories: dict[str, DayHistory] = {}
        self.documents: dict[str, Desired] = {}
        #: by name: a group, None if it was removed, and its revision
        self.stored_groups: dict[str, tuple[Group | None, int]] = {}
        self.stored_rollouts: dict[str, Rollout] = {}
        #: why the audit stream cannot be written
        self.audit_error = ""
        self.connected: Connection | None = None
        self.ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def freshness(self) -> Freshness:
        return self.hub

    def connection(self) -> Connection:
        if self.connected is None:
            raise ConnectionLost("the hub cannot be reached")
        return self.connected

    def day(self, name: str) -> Day:
        history = self.histories.get(name)
        if history is None and (record := self.index.get(name)) is not None:
            history = self.histories[name] = fleet_devices.day(record, self.now())
        return Day(step_s=STEP_S, points=(history or DayHistory()).points(self.now()))

    async def audit(self, entry: AuditEntry) -> None:
        if self.audit_error:
            raise FleetError(self.audit_error)
        self.lines.append(entry)

    async def audited(self, count: int, device: str = "") -> list[AuditEntry]:
        return [line for line in reversed(self.lines) if not device or line.device == device][:count]

    async def desired(self, name: str) -> Desired:
        return self.documents.get(name, Desired(labels=(), settings={}, applies={}, revision=0))

    def groups(self) -> dict[str, Group]:
        return {name: group for name, (group, _) in self.stored_groups.items() if group is not None}

    def rollouts(self) -> dict[str, Rollout]:
        return self.stored_rollouts

    async def group(self, name: str) -> tuple[Group | None, int]:
        return self.stored_groups.get(name, (None, 0))

    async def set_group(self, name: str, group: Group | None, revision: int, actor: str) -> None:
        if self.stored_groups.get(name, (None, 0))[1] != revision:
            raise Conflict("somebody else has changed it meanwhile")
        if group is not None:
            check_name("group", name)
            group.check()
        self.stored_groups[name] = (group, revision + 1)

    async def start_rollout(self, name: str, rollout: Rollout, actor: str) -> None:
        rollout.check()
        self.stored_rollouts[name] = replaced(rollout, started_at=self.now(), by=actor)

    async def steer_rollout(self, name: str, actor: str, to: str, reason: str, back_to: str) -> None:
        found = self.stored_rollouts.get(name)
        if found is None:
            raise DesiredError(f"there is no rollout {name}")
        made = replaced(found, state=to, reason=reason, back_to=back_to, by=actor)
        made.check()
        self.stored_rollouts[name] = made

    async def forget(self, name: str, actor: str, reason: str) -> None:
        record = self.index.get(name)
        if record is not None and record.linked:
            raise DesiredError(f"{name} is linked: it would come back with its next status")
        self.index.remove(name)

    async def desire(
        self,
        name: str,
        revision: int,
        actor: str,
        *,
        labels: tuple[str, ...] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        before = await self.desired(name)
        if before.revision != revision:
            raise Conflict("somebody else has changed it meanwhile")
        found = before.settings if settings is None else settings
        own = before.labels if labels is None else labels
        self.documents[name] = Desired(labels=own, settings=found, applies=found, revision=revision + 1)
        record = self.index.get(name)
        assert record is not None
        enrolled = set(record.labels) - set(before.labels)
        self.index.put(replaced(record, labels=tuple(sorted(enrolled | set(own)))), self.now())


def replaced(record: Any, **members: Any) -> Any:
    """A record with other members."""
    from msgspec.structs import replace

    return replace(record, **members)


class MemoryLogin:
    """Users whose password is their name."""

    away = False

    async def check(self, user: str, password: str) -> Identity:
        if self.away:
            raise LoginUnavailable("the hub cannot be reached, so no login can be checked")
        if user not in ("viewer", "operator") or password != user:
            raise LoginRefused("the name or the password is wrong, or the user has no role here")
        return Identity(name=user, role=user, method="nats")

    async def check_creds(self, text: str) -> Identity:
        if text != "creds of ada":
            raise LoginRefused("that is no credentials file of a user")
        return Identity(name="ada (UADA)", role="operator", method="nats")


OPTIONS = WebOptions(listen="127.0.0.1:0", nats=NatsOptions(viewers=("viewer",), operators=("operator",)))


class FleetPage:
    """The page while the block runs. `oidc`: a login provider's side, given to the site."""

    def __init__(self, count: int = 0, options: WebOptions = OPTIONS, port: int = 0, **parts: Any) -> None:
        self.backend = MemoryBackend()
        now = self.backend.now()
        for record in fleet_devices.fleet(count, now):
            self.backend.index.put(record, now)
        self.login = MemoryLogin()
        self._options = replaced(options, listen=f"127.0.0.1:{port}") if port else options
        self._parts = parts
        #: seconds by which the site's monotonic clock is ahead
        self.later_s = 0.0
        self.site = Site(self._options, Login(), self.backend, now=self._monotonic, **parts)
        self.port = self.site.listen()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.site.access._nats = self.login  # type: ignore[assignment]
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)

    def _monotonic(self) -> float:
        return time.monotonic() + self.later_s

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._up.set()
        with self._scope:
            await self.site.run()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(WAIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self._scope.cancel)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def do(self, act: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the site's thread."""
        assert self._token is not None
        return trio.from_thread.run_sync(act, *arguments, trio_token=self._token)

    def put(self, name: str, **members: Any) -> None:
        """Change a device."""

        def change() -> None:
            record = self.backend.index.get(name)
            self.backend.index.put(replaced(record, **members), self.backend.now())

        self.do(change)


if __name__ == "__main__":
    with FleetPage(10_000, port=int(sys.argv[1])) as page:
        print(page.url, flush=True)
        threading.Event().wait()
