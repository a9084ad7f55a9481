"""Devices of a fleet as its service would know them: a seed decides all of them, in every state, with alerts and odd labels."""

from __future__ import annotations

import random
from collections.abc import Iterator

from eyot_fleet.device_record import Alert, ConfigRecord, DeviceRecord, StreamRecord
from eyot_fleet.history import DayHistory

SITES = ("north", "south", "harbour", "ridge", "plant-3")
KINDS = ("pump", "gateway", "meter", "camera")
#: Text that would be markup, a script or a line end where somebody forgot to escape it.
MARKUP = ("<img-src=x-onerror=window.hit=1>", "site:<b>bold</b>", "javascript:alert(1)", "&lt;script&gt;", "\u202eevil")
ALERTS = (
    Alert(kind="disk", severity="critical", text="the store cannot commit: no space left on device", remedy="free space on the device, or lower max_bytes", since=0.0),
    Alert(kind="certificate", severity="warning", text="the certificate expires in 6 days", remedy="renew it", since=0.0),
    Alert(kind="clock", severity="warning", text="the clock is 4 min behind", remedy="is NTP running?", since=0.0),
    Alert(kind="wear", severity="info", text="the flash lasts 300 more days at this rate", since=0.0),
)  # fmt: skip


def device(number: int, now: float, rng: random.Random) -> DeviceRecord:
    """One device of a fleet. Nine of ten are well."""
    kind, site = KINDS[number % len(KINDS)], SITES[number % len(SITES)]
    luck = rng.random()
    linked, heard = luck > 0.03, now - rng.uniform(0, 50)
    if luck < 0.02:
        heard = now - rng.uniform(3600, 5 * 86400)
    behind = rng.randrange(1, 200_000) if luck < 0.08 else 0
    oldest = rng.uniform(10, 90_000) if behind else None
    alerts = (ALERTS[number % len(ALERTS)],) if luck < 0.005 or 0.2 < luck < 0.215 else ()
    streams = tuple(
        StreamRecord(
            account="$G", name=name, stored=40_000 + number, last_seq=50_000 + number, downstream="hub",
            confirmed_seq=50_000 + number - share, backlog=share, backlog_bytes=share * 180, oldest_s=oldest if share else None,
            eta_s=share / 50 if share else None, error="the link is down: connection refused" if share and not linked else "",
        )
        for name, share in (("READINGS", behind), ("EVENTS", 0))
    )  # fmt: skip
    return DeviceRecord(
        name=f"{kind}-{number:05}",
        labels=(f"kind:{kind}", f"site:{site}", f"ring:{number % 3}"),
        domain=f"{kind}-{number:05}",
        version="0.9.4" if number % 10 else "0.9.3",
        enrolled_at=now - 90 * 86400,
        linked=linked,
        linked_since=now - rng.uniform(60, 30 * 86400),
        rtt_ms=rng.uniform(8, 240) if linked else None,
        link_error="" if linked else "dial tcp: connection refused",
        heard_at=heard,
        reported_at="2026-11-25T16:00:00Z",
        uptime_s=rng.uniform(3600, 90 * 86400),
        synced=not behind,
        backlog=behind,
        backlog_bytes=behind * 180,
        oldest_s=oldest,
        eta_s=behind / 50 if behind else None,
        never_arrived=17 if 0.3 < luck < 0.301 else 0,
        messages=90_000 + number,
        streams=streams,
        disk_free_bytes=int(rng.uniform(1, 14) * 1e9),
        disk_total_bytes=16_000_000_000,
        flash_used_percent=number % 90,
        flash_lifetime_days=rng.randrange(200, 6000),
        memory_bytes=48_000_000,
        memory_free_bytes=210_000_000,
        certificate_expires=now + rng.uniform(2, 300) * 86400,
        token_expires=now + rng.uniform(10, 90) * 86400,
        clock_offset_s=rng.uniform(-0.4, 0.4),
        clock_synchronized=True,
        config=ConfigRecord(desired="4f1c0de2aa91", desired_at=now - 86400, reported="4f1c0de2aa91", reported_at=now - 80_000, outcome="applied"),
        alerts=tuple(Alert(kind=each.kind, severity=each.severity, text=each.text, remedy=each.remedy, since=now - 7200) for each in alerts),
    )  # fmt: skip


def fleet(count: int, now: float, seed: int = 16) -> Iterator[DeviceRecord]:
    """So many devices."""
    rng = random.Random(seed)
    for number in range(count):
        yield device(number, now, rng)


def day(record: DeviceRecord, now: float, seed: int = 16) -> DayHistory:
    """A day of a device: behind in the night, without a link for some hours, silent for an hour."""
    rng, history = random.Random(f"{seed} {record.name}"), DayHistory()
    backlog, oldest = 0, 0.0
    for step in range(143, -1, -1):
        at = now - step * 600
        linked = not 60 < step < 85
        if 30 < step < 37:
            continue
        backlog = backlog + rng.randrange(200, 900) if not linked else max(0, backlog - 4000)
        oldest = oldest + 600 if backlog else 0.0
        last = step == 0 and record.backlog is not None
        history.note(
            at,
            record.backlog if last else backlog,
            record.oldest_s if last else oldest,
            linked=linked,
            synced=not backlog,
        )
    return history
