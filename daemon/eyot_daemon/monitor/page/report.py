"""`/eyot/page.json`: what the local page shows now. The daemon's own reports are parts of it, as `/eyot/status` and `/eyot/syncz` give them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from eyot_daemon.client.clients import Clients
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor.hardware import Memory, memory
from eyot_daemon.monitor.page.recent_log import LogLine, RecentLog
from eyot_daemon.router.providers import HealthzQuery
from eyot_wire.doctor.certificates import CERTIFICATE_REMEDY
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.installation import store_remedy
from eyot_wire.doctor.report import checks_of
from eyot_wire.quantities import counted
from eyot_wire.status import CertificateStatus, LinkStatus, StatusReport, StoreStatus, SyncReport, SyncStatus
from eyot_wire.sync_headline import Headline, sync_headline


class Problem(Struct, frozen=True, kw_only=True):
    """Something that needs attention now. `remedy`: what to do next, null if unknown."""

    what: str
    error: str
    remedy: str | None = None


class PageReport(Struct, frozen=True, kw_only=True):
    """`/eyot/page.json`."""

    headline: Headline
    problems: list[Problem]
    #: checks of `eyot doctor` that need no client connection, failures first
    doctor: list[Check]
    status: StatusReport
    sync: SyncReport
    #: error of `/healthz`; null: healthy
    health: str | None
    clock_synchronized: bool
    memory: Memory
    certificates: list[CertificateStatus]
    #: warnings and errors of the log, newest first
    warnings: list[LogLine]


class PageReporter:
    """Makes the report."""

    def __init__(self, clients: Clients, recent: RecentLog) -> None:
        self._clients = clients
        self._recent = recent

    def report(self) -> PageReport:
        """Return the present state."""
        clients = self._clients
        status, sync = monitor_server.status_report(clients), monitor_server.sync_report(clients)
        _, health = monitor_server.healthz(clients, HealthzQuery())
        error = health.get("error")
        return PageReport(
            headline=sync_headline(sync, status.store, status.certificates),
            problems=problems(status, sync, error),
            doctor=checks_of(status, sync),
            status=status,
            sync=sync,
            health=error,
            clock_synchronized=status.clock_synchronized is not False,
            memory=memory(monitor_server.memory_bytes()),
            certificates=status.certificates,
            warnings=self._recent.warnings(),
        )


def problems(status: StatusReport, sync: SyncReport, health: str | None) -> list[Problem]:
    """Return what needs attention, the store first: each cause once."""
    found = [*_store_problems(status.store)]
    if health and not found:
        found.append(Problem(what="health", error=health))
    found += map(_link_problem, (link for link in sync.links_down if link.last_error or link.waiting))
    for each in sync.out:
        found += _downstream_problems(each)
    found += (
        Problem(what=f"{copy.stream} from {copy.origin}", error=copy.error, remedy=copy.remedy)
        for copy in status.copies
        if copy.error
    )
    found += (
        Problem(what=f"certificate {each.file}", error=each.trouble, remedy=CERTIFICATE_REMEDY)
        for each in status.certificates
        if each.trouble
    )
    if status.clock_synchronized is False:
        remedy = "set up NTP (timedatectl); ages and certificates depend on the clock"
        found.append(Problem(what="clock", error="the system does not report the clock as synchronized", remedy=remedy))
    return found


def _link_problem(link: LinkStatus) -> Problem:
    if link.waiting:
        return Problem(what=f"link {link.name}", error=f"waiting: {link.waiting}")
    return Problem(what=f"link {link.name}", error=link.last_error or "", remedy=link.remedy)


def _downstream_problems(each: SyncStatus) -> Iterator[Problem]:
    """Yield what keeps a linked downstream from making progress (a link that is down is its own problem), and its losses."""
    what = f"{each.stream} to {each.peer}"
    if each.error and each.linked:
        yield Problem(what=what, error=each.error, remedy=each.remedy)
    if each.never_arrived:
        remedy = f"when you have dealt with the loss: eyot sync forget {each.stream} {each.peer} --lost"
        yield Problem(what=what, error=f"{counted(each.never_arrived, 'message')} never arrived", remedy=remedy)


def _store_problems(store: StoreStatus | None) -> Iterator[Problem]:
    if store is None:
        return
    if store.error:
        yield Problem(what="store", error=store.error, remedy=store_remedy(store))
    for damage in store.damaged:
        yield Problem(what="store", error=damage, remedy="run eyot-check on the store while eyotd is stopped")
    for stream in store.offline:
        yield Problem(what="stream out of service", error=stream, remedy="restore it from a backup")
