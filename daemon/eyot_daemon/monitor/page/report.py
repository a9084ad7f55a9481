"""`/eyot/page.json`: what the local page shows now. The daemon's own reports are parts of it, as `/eyot/status` and `/eyot/syncz` give them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor.hardware import Memory, memory
from eyot_daemon.monitor.page.recent_log import LogLine, RecentLog
from eyot_daemon.net.cert_dates import not_after, own_certificates, trouble_of
from eyot_daemon.router.providers import HealthzQuery
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.report import checks_of
from eyot_wire.status import LinkStatus, StatusReport, StoreStatus, SyncReport, SyncStatus
from eyot_wire.sync_headline import Headline, sync_headline

#: Certificates are read again after this time.
CERTIFICATES_EVERY_NS = 60 * 10**9
FULL_BELOW_BYTES = 64 << 20


class CertificateStatus(Struct, frozen=True, kw_only=True):
    """A certificate of this server's own. `trouble`: what is wrong with its dates, null if nothing is."""

    file: str
    not_after: str | None = None
    trouble: str | None = None


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
    """Makes the report; what is slow to read is read once a minute."""

    def __init__(self, clients: Clients, recent: RecentLog) -> None:
        self._clients = clients
        self._recent = recent
        self._certificates: list[CertificateStatus] = []
        self._read_ns = 0
        self._read_for: Options | None = None

    def report(self) -> PageReport:
        """Return the present state."""
        clients = self._clients
        broker = clients.broker
        status, sync = monitor_server.status_report(clients), monitor_server.sync_report(clients)
        _, health = monitor_server.healthz(clients, HealthzQuery())
        certificates = self._certificates_at(broker.clock.now_ns())
        error = health.get("error")
        return PageReport(
            headline=sync_headline(sync, status.store),
            problems=problems(status, sync, certificates, error, synchronized=broker.clock.is_synchronized()),
            doctor=checks_of(status, sync),
            status=status,
            sync=sync,
            health=error,
            clock_synchronized=broker.clock.is_synchronized(),
            memory=memory(monitor_server.memory_bytes()),
            certificates=certificates,
            warnings=self._recent.warnings(),
        )

    def _certificates_at(self, now_ns: int) -> list[CertificateStatus]:
        options = self._clients.broker.options
        if options is not self._read_for or not 0 <= now_ns - self._read_ns < CERTIFICATES_EVERY_NS:
            self._certificates = certificates_of(options, now_ns)
            self._read_for, self._read_ns = options, now_ns
        return self._certificates


def certificates_of(options: Options, now_ns: int) -> list[CertificateStatus]:
    """Return this server's own certificates, the first to expire first."""
    now = datetime.fromtimestamp(now_ns / 1e9, UTC)
    found = []
    for file in own_certificates(options):
        ends = not_after(file)
        found.append(
            CertificateStatus(
                file=file,
                not_after=None if ends is None else ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
                trouble=trouble_of(file, now) or (None if ends is not None else "cannot be read"),
            )
        )
    return sorted(found, key=lambda each: each.not_after or "")


def problems(
    status: StatusReport,
    sync: SyncReport,
    certificates: list[CertificateStatus],
    health: str | None,
    *,
    synchronized: bool,
) -> list[Problem]:
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
    remedy = "replace the file, then: eyotd --signal reload"
    found += (
        Problem(what=f"certificate {each.file}", error=each.trouble, remedy=remedy)
        for each in certificates
        if each.trouble
    )
    if not synchronized:
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
        yield Problem(what=what, error=f"{each.never_arrived:,} messages never arrived", remedy=remedy)


def _store_problems(store: StoreStatus | None) -> Iterator[Problem]:
    if store is None:
        return
    if store.error:
        is_full = store.free_bytes is not None and store.free_bytes < FULL_BELOW_BYTES
        remedy = "free space on the disk; eyotd goes on by itself" if is_full else "see the log, and: eyot-check"
        yield Problem(what="store", error=store.error, remedy=remedy)
    for damage in store.damaged:
        yield Problem(what="store", error=damage, remedy="run eyot-check on the store while eyotd is stopped")
    for stream in store.offline:
        yield Problem(what="stream out of service", error=stream, remedy="restore it from a backup")
