"""What became of a job, in the words that its command prints."""

from __future__ import annotations

from eyot_hub.jobs.aggregate import AggregateRound
from eyot_hub.jobs.bronze.bronze import Round
from eyot_hub.jobs.bronze.gaps import Report
from eyot_hub.jobs.maintenance.erasure import Erasure
from eyot_hub.jobs.maintenance.maintenance import Maintained
from eyot_hub.jobs.reports.explain import Explanation
from eyot_hub.jobs.silver.replay import Replayed
from eyot_wire.quantities import counted


def round_text(done: Round) -> str:
    """Say what became of a round of ingest."""
    streams = ", ".join(f"{name} {first}..{last}" for name, (first, last) in done.advanced.items())
    rate = done.rows / done.seconds if done.seconds else 0.0
    return f"{streams}: {counted(done.rows, 'row')} in {counted(done.files, 'file')}, {done.seconds:.2f} s, {rate:,.0f} rows/s, {done.behind:,} behind"


def aggregate_text(done: AggregateRound) -> str:
    """Say what became of a round of aggregate."""
    lines = [
        f"silver {one.name}: {counted(one.added, 'row')} added, {counted(one.duplicates, 'duplicate')}, {one.quarantined:,} in quarantine"
        f"{f', {one.expired} of days that have left' if one.expired else ''}"
        f"{f'; {one.kept} kept, whose messages have left bronze' if one.kept else ''}"
        for one in done.silver
    ]
    lines += [
        f"gold {one.name}: {counted(one.windows, 'window')} from {counted(one.rows, 'new row')}, {one.corrected:,} of them corrected"
        for one in done.gold
    ]
    return "\n".join(lines)


def maintained_text(done: Maintained) -> str:
    """Say what became of the maintenance of one table."""
    refused = ", some left: other jobs write" if done.refused else ""
    expired = f"; {counted(done.expired, 'expired row')} removed" if done.expired else ""
    waits = f"; more wait until {', '.join(done.waits_for)} have read them" if done.waits_for else ""
    files = f"{counted(done.files_before, 'file')}, now {done.files:,}{refused}"
    jumped = "; the clock jumped, ages do not count by its present time yet" if done.clock_jumped else ""
    return f"{done.table}: {files}{expired}{waits}; {counted(done.removed, 'old file')} removed{jumped}"


def replayed_text(done: Replayed, *, dry_run: bool) -> str:
    """Say what became of a replay."""
    expired = f", {done.expired} of days that have left" if done.expired else ""
    moved = f"{counted(done.added, 'row')} added, {counted(done.duplicates, 'duplicate')}{expired}, {done.removed:,} removed from quarantine"
    lines = [
        f"silver {done.table}: {counted(done.read, 'row')} parsed again, {done.passed:,} of them good; {'nothing changed' if dry_run else moved}"
    ]
    return "\n".join([*lines, *(f"{count} left: {reason}" for reason, count in done.left.items())])


def erased_text(done: Erasure) -> str:
    """Say what became of an erasure."""
    rows = ", ".join(f"{name} {count}" for name, count in done.rows.items() if count) or "no rows"
    until = "for ever" if done.files_until is None else f"until {done.files_until:%Y-%m-%d %H:%M}"
    return f"erasure {done.erasure}: {done.device or repr('')}: {rows}; files of older versions stay {until}"


def explained_text(done: Explanation) -> str:
    """Sum up an explanation."""
    window = f"{done.metric} of {done.device}, {done.window_start.isoformat()} to {done.window_end.isoformat()}"
    waiting = len(done.readings) - done.found
    lines = [f"gold {done.gold}: {window}: revision {done.revision}, {counted(done.count, 'reading')}"]
    if done.left:
        lines.append("silver no longer has the readings of this day: retention has removed them")
    elif not done.agrees:
        lines.append(f"silver has {done.found} of these readings: backfill computes the window again")
    if waiting:
        lines.append(f"the next round of aggregate counts {counted(waiting, 'more reading')} of silver")
    return "\n".join(lines)


def gaps_text(report: Report) -> str:
    """Sum up all gaps."""
    sources = len(report.coverage.epochs)
    rows = sum(epoch.count for epochs in report.coverage.epochs.values() for epoch in epochs)
    counts = {status: report.count(status) for status in sorted({gap.status for gap in report.gaps})}
    found = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no gaps"
    hold = "holds" if report.unheard == 1 else "hold"
    silent = f"; what {report.unheard:,} of {len(report.known):,} {hold} now is not known" if report.unheard else ""
    return f"{counted(sources, 'stream')}, {counted(rows, 'sequence')} in the table: {found}{silent}"
