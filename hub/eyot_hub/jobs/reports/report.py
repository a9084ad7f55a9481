"""One HTML page about fleet and gaps: the verdict first, then charts and tables (`report_charts.py`)."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs.bronze.bronze import bronze_table
from eyot_hub.jobs.bronze.gaps import gaps_table, origins_table
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.fleet import Fleet
from eyot_hub.jobs.gold.gold import gold_table
from eyot_hub.jobs.maintenance.expiry import expired_rows
from eyot_hub.jobs.reports.quality import FAILED, WARNED, quality_rows
from eyot_hub.jobs.reports.report_charts import (
    TEXT_MAX,
    TITLE_MAX,
    Piece,
    amount,
    columns,
    duration,
    lag_bars,
    strips,
    visible,
)
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_wire.quantities import counted, rounded

ROWS_MAX: Final = 500  # the most rows of a table
LONG_MAX: Final = 400  # characters of a sentence in a cell
_LONG: Final = ("reported_error", "examples")
PICTURED_MAX: Final = 60
REFRESH_S_MIN: Final = 10
DAYS_MAX: Final = 60
#: Worst first; docs/hub/tables.md explains the classes.
STATUSES: Final = ("missing", "lost", "moved_back", "unknown", "expired", "in_flight", "deleted", "filtered")
_MEANINGS: Final = {
    "missing": "Missing: the origin holds them, and later ones have arrived, or nothing has for long.",
    "lost": "Lost: the origin was made again before they were copied.",
    "moved_back": "Moved back: the stream does not hold them any more, and has taken their sequences for others.",
}
NAMED_MAX: Final = 5
#: Columns that are left out when all rows lack a value.
_OPTIONAL: Final = ("domain", "backlog")
#: Columns of free text, which may wrap.
_TEXTS: Final = ("device", "domain", "stream", "reported_error", "table", "name", "examples")
_TITLES: Final = {"reported_backlog": "backlog, its own word", "rtt_ms_p50": "rtt", "link_up_share": "link up"}
_STYLE: Final = """
:root { --ink: #1b1f23; --soft: #5b6570; --line: #dfe4e9; --paper: #fff; --card: #f6f8fa; --bar: #3a7fbf; --held: #b9d5ec;
  --bad: #b3261e; --warn: #a86b00; --way: #2f6fb0; --quiet: #8a939c; --good: #1f7a3d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa5b0; --line: #30363d; --paper: #0f1418; --card: #171d23;
  --bar: #5a9bd6; --held: #24445f; --bad: #f2867d; --warn: #e0ad4f; --way: #79b4ea; --quiet: #77818b; --good: #6cc58a; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 74rem; padding: 0 1rem; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 0.8rem; }
.note, .soft { color: var(--soft); fill: var(--soft); }
.verdict { border-left: 5px solid var(--good); background: var(--card); padding: 0.8rem 1rem; font-size: 1.05rem; }
.verdict.bad { border-color: var(--bad); } .verdict.warn { border-color: var(--warn); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: 0.7rem; margin-top: 1rem; }
.card { background: var(--card); border-radius: 6px; padding: 0.6rem 0.9rem; border-top: 3px solid var(--line); }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; } .card span { color: var(--soft); font-size: 0.85rem; }
.card.missing, .card.lost, .card.moved_back { border-color: var(--bad); } .card.unknown, .card.expired { border-color: var(--warn); } .card.in_flight { border-color: var(--way); }
.scroll { overflow-x: auto; padding-bottom: 0.6rem; } table { border-collapse: collapse; width: 100%; font-size: 0.88rem; white-space: nowrap; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; } th, td { padding: 0.35rem 0.5rem; border-bottom: 1px solid var(--line); }
td.text { white-space: normal; overflow-wrap: break-word; max-width: 20rem; }
td.text:first-child, td.text:last-child { min-width: 14rem; }
tr:hover td { background: var(--card); } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.chip { border-radius: 9px; padding: 0.05rem 0.55rem; border: 1px solid currentColor; font-size: 0.8rem; }
.chip.missing, .chip.lost, .chip.moved_back, .chip.silent, .chip.failed { color: var(--bad); } .chip.unknown, .chip.expired, .chip.behind, .chip.warned { color: var(--warn); }
.chip.in_flight { color: var(--way); } .chip.deleted, .chip.filtered, .chip.no_data { color: var(--quiet); } .chip.synced, .chip.passed { color: var(--good); }
/* Scrolled to its right end */ .newest { direction: rtl; } .newest svg { direction: ltr; }
svg { width: 100%; min-width: 50rem; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg text.soft { fill: var(--soft); }
svg .bar { fill: var(--bar); } svg .held { fill: var(--held); } svg .grid { stroke: var(--line); }
svg .missing, svg .lost, svg .moved_back { fill: var(--bad); } svg .unknown, svg .expired { fill: var(--warn); } svg .in_flight { fill: var(--way); } svg .deleted, svg .filtered { fill: var(--quiet); }
.meter { display: inline-block; width: 3.5rem; height: 0.5rem; border-radius: 3px; background: var(--line); margin-right: 0.4rem; overflow: hidden; }
@media (max-width: 40rem) { body { margin: 1rem auto; padding: 0 0.7rem; } h1 { font-size: 1.35rem; } h2 { margin-top: 1.6rem; }
  .cards { grid-template-columns: repeat(auto-fill, minmax(6.4rem, 1fr)); } .card { padding: 0.5rem 0.7rem; } .card b { font-size: 1.15rem; }
  td.text:first-child { position: sticky; left: 0; min-width: 8rem; background: var(--paper); } }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --card: #f4f4f4; --held: #b9d5ec; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } body { margin: 0; max-width: none; font-size: 11px; } svg { min-width: 0; } h2 { break-after: avoid; }
  tr, svg, .cards { break-inside: avoid; } .scroll { overflow: visible; } table { white-space: normal; } }
.meter i { display: block; height: 100%; background: var(--bar); }
"""


def write_report(spark: SparkSession, config: Config, path: str, fresh_s: float | None = None) -> None:
    """Write the page from the tables as they are; `fresh_s`: in how many seconds it is written again. Raises OSError."""
    write_page(path, render(collect(spark, config), fresh_s))


def write_page(path: str, text: str) -> None:
    """Write a page so that readers see the one before or this one; a full disk leaves the one before. Raises OSError."""
    page = Path(path)
    is_file = page.is_file() or not page.exists()
    if is_file:
        page = page.resolve()  # a link such as /dev/stdout stays one
    # A pipe cannot be replaced, nor a file in a folder of another user.
    whole = is_file and os.access(page.parent, os.W_OK)
    part = page.with_name(f"{page.name}.part") if whole else page
    try:
        part.write_text(text, encoding="utf-8")
        if whole:
            if page.exists():
                part.chmod(page.stat().st_mode)  # whoever was allowed to read it still is
            part.replace(page)
    except OSError as error:
        if whole:
            part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, path) from None


def collect(spark: SparkSession, config: Config) -> dict[str, Any]:
    """Collect everything that the page shows."""
    bronze = bronze_table(config).files()
    quarantine = quarantine_table(config).files()
    per_day: Counter[str] = Counter()
    for file in bronze:
        per_day[str(file.partition["date"])] += file.rows
    return {
        "tables": [
            {"table": "bronze", "rows": sum(file.rows for file in bronze), "files": len(bronze)},
            *[_size(f"silver/{one.name}", silver_table(config, one).files()) for one in config.silver],
            *[_size(f"gold/{one.name}", gold_table(config, one).files()) for one in config.gold],
            _size("quarantine", quarantine),
        ],
        "expired": expired_rows(config),
        "per_day": sorted(per_day.items()),
        "origins": origins_table(config)
        .dataframe(spark)
        .orderBy("kind", "domain", "stream", "epoch")
        .toArrow()
        .to_pylist(),
        **_gaps(gaps_table(config).dataframe(spark)),
        **_fleet(Fleet(spark, config).table.dataframe(spark)),
        "quality": quality_rows(config),
    }


def _gaps(frame: DataFrame) -> dict[str, Any]:
    """Return the amount of each kind of gap, and the worst rows."""
    totals = frame.groupBy("status").agg(F.sum("count").alias("sequences"), F.count("*").alias("rows")).collect()
    badness = F.array_position(F.array(*map(F.lit, STATUSES)), F.col("status"))
    rows = frame.orderBy(badness, "kind", "domain", "stream", "epoch", "first_sequence").limit(ROWS_MAX)
    return {
        "gaps": rows.toArrow().to_pylist(),
        "gap_counts": {row["status"]: row["sequences"] for row in totals},
        "gap_rows": sum(row["rows"] for row in totals),
    }


def _fleet(frame: DataFrame) -> dict[str, Any]:
    """Return the number of devices, those that need attention first, and the slowest."""
    silent = F.col("state") == "silent"
    (totals,) = frame.agg(F.count("*").alias("devices"), F.count_if(silent).alias("silent")).collect()
    worst = F.when(silent, 0).when(F.col("state") == "behind", 1).otherwise(2)
    timed = frame.where("delay_s_p95 is not null").select("device", "delay_s_p95")
    slow = timed.orderBy(F.desc("delay_s_p95"), "device").limit(PICTURED_MAX)
    return {
        "fleet": frame.orderBy(worst, "device").limit(ROWS_MAX).toArrow().to_pylist(),
        "devices": totals["devices"],
        "silent": totals["silent"],
        "slow": [(row["device"], row["delay_s_p95"]) for row in slow.collect()],
    }


def render(found: dict[str, Any], fresh_s: float | None = None) -> str:
    """Render the page. With `fresh_s` the browser loads it again after so many seconds, without a script."""
    gaps, fleet, counts = found["gaps"], found["fleet"], Counter(found["gap_counts"])
    troubled = {_epoch(gap) for gap in gaps}
    origins = sorted(found["origins"], key=lambda row: _epoch(row) not in troubled)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<meta http-equiv=refresh content={max(REFRESH_S_MIN, round(fresh_s))}>" if fresh_s else "",
        "<meta name=color-scheme content='light dark'>",
        f"<title>Eyot hub</title><style>{_STYLE}</style><h1>Eyot hub</h1>",
        f"<p class=note>As of {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC{_fresh(fresh_s)}</p>",
        verdict(
            counts,
            found["tables"][0]["rows"] + found["expired"].get("bronze", 0),
            found["devices"],
            found["silent"],
            _whose(gaps),
            unheard(found["origins"]),
        ),
        _quality_verdict(found["quality"]),
        _cards(found["tables"][0]["rows"], len(origins), counts, found["devices"]),
        "<h2>Messages stored, by day</h2>",
        columns(every_day(found["per_day"]), "messages"),
        "<h2>What is in the table, by origin</h2>",
        _legend(counts),
        strips(coverage(origins, gaps)),
        _only("Those with gaps first;", PICTURED_MAX, len(origins)),
        "<h2>Gaps</h2>",
        table(
            gaps,
            ["domain", "stream", "epoch", "first_sequence", "last_sequence", "count", "status", "after", "before"],
        )
        if gaps
        else "<p class=note>None.</p>",
        _only("The worst first;", ROWS_MAX, found["gap_rows"]),
        "<h2>Fleet</h2>",
        table(fleet, _fleet_columns(fleet)),
        _only("Silent devices and those behind first;", ROWS_MAX, found["devices"]),
        *_quality(found["quality"]),
        "<h2>Delay from reading to hub, 95th percentile</h2>",
        lag_bars(found["slow"]),
        _only("The slowest;", len(found["slow"]), found["devices"]) if len(found["slow"]) == PICTURED_MAX else "",
        "<h2>Origins</h2>",
        table(
            origins[:ROWS_MAX],
            [
                "kind",
                "domain",
                "stream",
                "epoch",
                "in_table",
                "last_in_table",
                "last_sequence",
                "reachable",
                "last_stored_at",
            ],
        ),
        _only("Those with gaps first;", ROWS_MAX, len(origins)),
        "<h2>Tables</h2>",
        table(found["tables"], ["table", "rows", "files"]),
        _expired(found["expired"]),
    ]
    return "\n".join(part for part in parts if part)


def _fresh(fresh_s: float | None) -> str:
    """Say how often the page is made, so that a reader notices a page that is no longer made."""
    return f"; made again every {duration(fresh_s)}" if fresh_s else ""


def _expired(rows: Mapping[str, int]) -> str:
    """Say how many rows retention removed from which tables; nothing where it removed none."""
    told = ", ".join(f"{counted(count, 'row')} from {escape(name)}" for name, count in rows.items() if count)
    return f"<p class=note>Retention removed {told}.</p>" if told else ""


def _quality_verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Name the rules that fail, in a sentence; nothing where all pass."""
    bad = [row for row in rows if row["status"] == FAILED]
    if not bad:
        return ""
    named = ", ".join(visible(f"{row['silver']}: {row['name']}") for row in bad[:NAMED_MAX])
    more = f" and {len(bad) - NAMED_MAX} more" if len(bad) > NAMED_MAX else ""
    return f"<p class='verdict bad'>{len(bad)} of {counted(len(rows), 'rule')} of data quality {'fails' if len(bad) == 1 else 'fail'}: {named}{more}.</p>"


def _quality(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Render the section of the rules, those that do not pass first; nothing without rules."""
    if not rows:
        return []
    order = {FAILED: 0, WARNED: 1}
    worst = sorted(rows, key=lambda row: order.get(row["status"], 2))
    names = ["name", "silver", "status", "checked", "violations", "share", "devices", "since", "examples"]
    return [
        "<h2>Data quality</h2>",
        table(worst[:ROWS_MAX], names),
        _only("Those that do not pass first;", ROWS_MAX, len(rows)),
    ]


def _legend(counts: Counter[str]) -> str:
    """Render the legend of the strips' colours that occur."""
    present = [status for status in STATUSES if counts[status]]
    chips = " ".join(f"<span class='chip {status}'>{status.replace('_', ' ')}</span>" for status in present)
    return f"<p class=note>Sequences from the first to the last; marked: {chips}</p>" if present else ""


def _only(order: str, shown: int, total: int) -> str:
    """Say what a shortened list leaves out."""
    return f"<p class=note>{order} {shown:,} of {total:,}.</p>" if total > shown else ""


def _whose(gaps: Sequence[dict[str, Any]]) -> list[str]:
    """Return the origins and streams with missing or lost messages."""
    bad = (gap for gap in gaps if gap["status"] in _MEANINGS)
    return list(dict.fromkeys("/".join(filter(None, (gap["domain"], gap["stream"]))) for gap in bad))


def unheard(origins: Sequence[dict[str, Any]]) -> str:
    """Return a sentence on origins that did not answer, "" without any. Of an origin's epochs only the last one can."""
    answered = {
        (row["kind"], row["domain"], row["stream"]): row["reachable"]
        for row in sorted(origins, key=lambda row: row["epoch"])
    }
    silent = sum(not each for each in answered.values())
    hold = "holds" if silent == 1 else "hold"
    return f" What {silent:,} of {counted(len(answered), 'origin')} {hold} now is not known." if silent else ""


def verdict(
    counts: Counter[str], rows: int, devices: int, silent: int, whose: Sequence[str] = (), unheard: str = ""
) -> str:
    """Return the verdict in sentences. `rows`: of bronze, those that retention removed included."""
    bad = [f"{counts[status]:,} {status.replace('_', ' ')}" for status in _MEANINGS if counts[status]]
    open_ = [f"{counts[status]:,} {status.replace('_', ' ')}" for status in ("in_flight", "unknown") if counts[status]]
    told = f" {silent:,} of {counted(devices, 'device')} {'is' if silent == 1 else 'are'} silent." if silent else ""
    told = unheard + told
    if counts["expired"]:
        told = f" {counts['expired']:,} expired at their origin before they were copied.{told}"
    if bad:
        meaning = "".join(f" {text}" for status, text in _MEANINGS.items() if counts[status])
        more = " and others" if len(whose) > NAMED_MAX else ""
        at = f" At {', '.join(map(visible, whose[:NAMED_MAX]))}{more}." if whose else ""
        return f"<p class='verdict bad'><b>{escape(' and '.join(bad))}.</b>{at}{escape(meaning)}{told}</p>"
    if open_:
        return f"<p class='verdict warn'>Nothing is missing as far as is known; {escape(', '.join(open_))}.{told}</p>"
    if not rows:
        return f"<p class='verdict warn'>No message has arrived yet.{told}</p>"
    kind = "verdict warn" if told else "verdict"
    hold = "are known to hold" if unheard else "hold"
    return f"<p class='{kind}'>Everything that the origins {hold} is in the table.{told}</p>"


def every_day(per_day: Sequence[tuple[str, int]]) -> list[tuple[str, float]]:
    """Return the last days, including those without stored messages."""
    if not per_day:
        return []
    counts, last = dict(per_day), date.fromisoformat(per_day[-1][0])
    first = max(date.fromisoformat(per_day[0][0]), last - timedelta(days=DAYS_MAX - 1))
    days = [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
    return [(day, float(counts.get(day, 0))) for day in days]


def coverage(origins: Sequence[dict[str, Any]], gaps: Sequence[dict[str, Any]]) -> list[tuple[str, int, list[Piece]]]:
    """Return name, last sequence and missing pieces of each epoch of each origin."""
    pieces: dict[tuple[Any, ...], list[Piece]] = defaultdict(list)
    for gap in gaps:
        pieces[_epoch(gap)].append(Piece(gap["first_sequence"], gap["last_sequence"], gap["status"]))
    epochs_of_origin = Counter((row["kind"], row["domain"], row["stream"]) for row in origins)
    lines = []
    for row in origins[:PICTURED_MAX]:
        missing = pieces[_epoch(row)]
        last = max([row["last_sequence"] or 0, row["last_in_table"] or 0, *(piece.last for piece in missing)])
        name = "/".join(filter(None, (row["domain"], row["stream"])))
        if epochs_of_origin[row["kind"], row["domain"], row["stream"]] > 1:
            name += f" ({row['epoch']})"
        lines.append((name, last, missing))
    return lines


def table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Render an HTML table; numbers aligned right."""
    if not rows:
        return "<p class=note>Nothing yet.</p>"
    names = [name for name in names if name not in _OPTIONAL or any(row.get(name) not in (None, "") for row in rows)]
    numeric = {
        name
        for name in names
        if any(isinstance(row.get(name), int | float) and not isinstance(row.get(name), bool) for row in rows)
    }

    def attribute(name: str) -> str:
        return " class=number" if name in numeric else " class=text" if name in _TEXTS else ""

    head = "".join(f"<th{attribute(name)}>{escape(_title(name))}" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td{attribute(name)}>{_cell(name, row.get(name))}" for name in names) for row in rows
    )
    return f"<div class=scroll><table><tr>{head}{body}</table></div>"


def _cards(rows: int, origins: int, counts: Counter[str], devices: int) -> str:
    cards = [
        ("", amount(rows), "rows in bronze"),
        ("", f"{origins:,}", "streams" if origins != 1 else "stream"),
    ]
    if devices:
        cards.append(("", f"{devices:,}", "devices" if devices != 1 else "device"))
    cards += [(status, amount(counts[status]), status.replace("_", " ")) for status in STATUSES if counts[status]]
    inside = "".join(f"<div class='card {kind}'><b>{value}</b><span>{name}</span></div>" for kind, value, name in cards)
    return f"<div class=cards>{inside}</div>"


def _fleet_columns(fleet: Sequence[dict[str, Any]]) -> list[str]:
    names = [
        "device",
        "readings",
        "last_event_at",
        "last_stored_at",
        "delay_s_p50",
        "delay_s_p95",
        "late_readings",
        "backlog",
    ]
    if any(row.get("statuses") for row in fleet):
        names[1:1] = ["state"]
        names += ["reported_backlog", "link_up_share", "rtt_ms_p50", "reported_error"]
    return names


def _epoch(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["kind"], row["domain"], row["stream"], row["epoch"]


def _size(name: str, files: Iterable[Any]) -> dict[str, Any]:
    listed = list(files)
    return {"table": name, "rows": sum(file.rows for file in listed), "files": len(listed)}


def _title(name: str) -> str:
    return _TITLES.get(name) or name.replace("_s_", " ").replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"<time title='{value.isoformat()}'>{value:%Y-%m-%d %H:%M}</time>"
    if name.startswith("delay_s"):
        return duration(value)
    if name == "rtt_ms_p50":
        return duration(value / 1000)
    if name == "share":
        return f"{value:.2%}"
    if name == "link_up_share":
        return f"<span class=meter><i style='width:{value:.0%}'></i></span>{value:.0%}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return rounded(value)
    if name in ("status", "state"):
        text = escape(str(value))
        return f"<span class='chip {text}'>{text.replace('_', ' ')}</span>"
    text = visible(str(value), LONG_MAX if name in _LONG else TEXT_MAX)
    return f"<span title='{visible(str(value), TITLE_MAX)}'>{text}</span>" if text.endswith("…") else text
