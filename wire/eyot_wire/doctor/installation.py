"""The doctor's checks of the installation, from the daemon's report: names, domain, store and disk."""

from __future__ import annotations

from eyot_wire.doctor.check import Check, failure, ok, skipped, warning
from eyot_wire.quantities import counted, size, span
from eyot_wire.status import FULL_BELOW_BYTES, NO_ROOM, RESERVE_NORMAL, FlashStatus, StatusReport, StoreStatus

_FREE_SHARE_MIN = 0.1
#: From here on the flash is worn, as the alert rules and the page say.
_USED_PERCENT_MAX, _LIFETIME_DAYS_MIN = 80, 365


def installation(report: StatusReport) -> list[Check]:
    """Return the checks of the daemon, its names, its store and its disk."""
    checks = [ok("daemon", f"{report.server_name}, Eyot {report.version}, up {span(report.uptime_s)}")]
    if report.server_name == report.server_id:
        checks.append(
            warning(
                "server name", "not configured: it changes with every start", 'set "server_name", unique in the fleet'
            )
        )
    checks.append(_domain(report))
    store = report.store
    if store is None:
        return checks
    if store.error:
        trouble = "not opened" if store.remedy else "cannot write"
        checks.append(failure("store", f"{trouble}: {store.error}", store_remedy(store)))
    else:
        checks.append(ok("store", f"stores messages at {store.path}"))
    repair = f"stop the daemon and run `eyot-check --repair {store.path}`"
    checks += [failure("stream", f"damaged, and offline: {stream}", repair) for stream in store.offline]
    checks += [
        warning("store", f"was damaged: {sentence}", "see the log; `eyot-check` names all damage")
        for sentence in store.damaged
    ]
    if store.free_bytes is not None and store.total_bytes:
        share = store.free_bytes / store.total_bytes
        text = f"{size(store.free_bytes)} free of {size(store.total_bytes)} at {store.path}"
        remedy = "limit streams (max_bytes, max_age) or make room"
        checks.append(ok("disk", text) if share >= _FREE_SHARE_MIN else warning("disk", text, remedy))
    return checks + _flash(report.flash)


def store_remedy(store: StoreStatus) -> str:
    """Return what to do about a store that cannot write, or was not opened."""
    if store.remedy:
        return store.remedy
    # A quota may be used up while the file system has room.
    is_full = (store.error or "").startswith(NO_ROOM) or (
        store.free_bytes is not None and store.free_bytes < FULL_BELOW_BYTES
    )
    if is_full:
        return "free space on the disk, or eyot stream purge STREAM --keep N; eyotd goes on by itself"
    return f"see the logs of eyotd and of the kernel; while eyotd is stopped, `eyot-check {store.path}` reads all of it"


def _flash(flash: FlashStatus | None) -> list[Check]:
    """Return what is wrong with the flash under the store; nothing for a disk that does not show its wear."""
    if flash is None:
        return []
    found, known = [], []
    if flash.used_percent is not None:
        known.append(
            "its life is exceeded" if flash.used_percent > 100 else f"up to {flash.used_percent} % of its life used"
        )
        if flash.used_percent >= _USED_PERCENT_MAX:
            found.append(warning("flash", f"{flash.device}: {known[-1]}", "plan its replacement"))
    if flash.reserve is not None:
        known.append(f"reserve: {flash.reserve}")
        if flash.reserve != RESERVE_NORMAL:
            found.append(warning("flash", f"{flash.device}: {known[-1]}", "plan its replacement"))
    if flash.lifetime_days is not None and flash.lifetime_days < _LIFETIME_DAYS_MIN:
        basis = ", with an endurance that is assumed" if flash.endurance_assumed else ""
        text = f"{flash.device}: lasts about {counted(flash.lifetime_days, 'day')} at this rate{basis}"
        remedy = 'see who writes ("eyot status"), and set eyot { flash { budget } }'
        found.append(warning("flash", text, remedy))
    return found or ([ok("flash", f"{flash.device}: {', '.join(known)}")] if known else [])


def _domain(report: StatusReport) -> Check:
    if report.store is None:
        return skipped("domain", "JetStream is not enabled")
    if not report.domain and report.links and all(link.role == "bridge" for link in report.links):
        return ok("domain", "none: bridges to MQTT brokers need none")
    if not report.domain:
        remedy = 'set "jetstream { domain: NAME }", another one on each server'
        return failure("domain", "none: the hub cannot distinguish streams here from its own", remedy)
    same = [link for link in report.links if link.peer_domain == report.domain]
    if same:
        return failure(
            "domain",
            f"{same[0].name} has the same domain, {report.domain}: requests for it may reach either server",
            "give each server its own domain",
        )
    return ok("domain", report.domain)
