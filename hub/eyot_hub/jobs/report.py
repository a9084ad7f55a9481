"""One HTML page about fleet and gaps: the verdict first, then pictures and tables (`report_charts.py`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze import bronze_table
from eyot_hub.jobs.config import Config
from eyot_hub.jobs.fleet import Fleet
from eyot_hub.jobs.gaps import gaps_table, origins_table
from eyot_hub.jobs.gold import gold_table
from eyot_hub.jobs.report_charts import Piece, amount, columns, duration, lag_bars, strips
from eyot_hub.jobs.silver import quarantine_table, silver_table

ROWS_MAX: Final = 500  # a page, not a data dump
PICTURED_MAX: Final = 60
DAYS_MAX: Final = 60
#: Worst first; what the classes mean stands in docs/hub.md.
STATUSES: Final = ("missing", "lost", "unknown", "expired", "in_flight", "deleted", "filtered")
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
.card.missing, .card.lost { border-color: var(--bad); } .card.unknown, .card.expired { border-color: var(--warn); } .card.in_flight { border-color: var(--way); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 0.88rem; white-space: nowrap; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; } th, td { padding: 0.35rem 0.5rem; border-bottom: 1px solid var(--line); }
tr:hover td { background: var(--card); } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.chip { border-radius: 9px; padding: 0.05rem 0.55rem; border: 1px solid currentColor; font-size: 0.8rem; }
.chip.missing, .chip.lost, .chip.silent { color: var(--bad); } .chip.unknown, .chip.expired, .chip.behind { color: var(--warn); }
.chip.in_flight { color: var(--way); } .chip.deleted, .chip.filtered { color: var(--quiet); } .chip.synced { color: var(--good); }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg text.soft { fill: var(--soft); }
svg .bar { fill: var(--bar); } svg .held { fill: var(--held); } svg .grid { stroke: var(--line); }
svg .missing, svg .lost { fill: var(--bad); } svg .unknown, svg .expired { fill: var(--warn); } svg .in_flight { fill: var(--way); } svg .deleted, svg .filtered { fill: var(--quiet); }
.meter { display: inline-block; width: 3.5rem; height: 0.5rem; border-radius: 3px; background: var(--line); margin-right: 0.4rem; overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--bar); }
"""


def write_report(spark: SparkSession, config: Config, path: str) -> None:
    """Write the page from the tables as they are."""
    Path(path).write_text(render(collect(spark, config)), encoding="utf-8")


def collect(spark: SparkSession, config: Config) -> dict[str, Any]:
    """Everything that the page shows."""
    bronze = bronze_table(config).files()
    per_day: Counter[str] = Counter()
    for file in bronze:
        per_day[str(file.partition["date"])] += file.rows
    return {
        "tables": [
            {"table": "bronze", "rows": sum(file.rows for file in bronze), "files": len(bronze)},
            *[_size(f"silver/{one.name}", silver_table(config, one).files()) for one in config.silver],
            *[_size(f"gold/{one.name}", gold_table(config, one).files()) for one in config.gold],
            _size("quarantine", quarantine_table(config).files()),
        ],
        "per_day": sorted(per_day.items()),
        "origins": origins_table(config)
        .dataframe(spark)
        .orderBy("kind", "domain", "stream", "epoch")
        .toArrow()
        .to_pylist(),
        "gaps": gaps_table(config)
        .dataframe(spark)
        .orderBy("kind", "domain", "stream", "epoch", "first_sequence")
        .limit(ROWS_MAX)
        .toArrow()
        .to_pylist(),
        "fleet": Fleet(spark, config).table.dataframe(spark).orderBy("device").limit(ROWS_MAX).toArrow().to_pylist(),
    }


def render(found: dict[str, Any]) -> str:
    """The page."""
    gaps, fleet, origins = found["gaps"], found["fleet"], found["origins"]
    counts: Counter[str] = Counter()
    for gap in gaps:
        counts[gap["status"]] += gap["count"]
    slow = sorted(((row["device"], row["delay_s_p95"] or 0.0) for row in fleet), key=lambda one: -one[1])
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Eyot hub</title><style>{_STYLE}</style><h1>Eyot hub</h1>",
        f"<p class=note>As of {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC</p>",
        verdict(counts, fleet),
        _cards(found["tables"][0]["rows"], origins, counts, fleet),
        "<h2>Messages stored, by day</h2>",
        columns(every_day(found["per_day"]), "messages"),
        "<h2>What is in the table, by origin</h2>",
        strips(coverage(origins, gaps)),
        "<h2>Gaps</h2>",
        table(
            gaps,
            ["domain", "stream", "epoch", "first_sequence", "last_sequence", "count", "status", "after", "before"],
        )
        if gaps
        else "<p class=note>None.</p>",
        "<h2>Fleet</h2>",
        table(fleet, _fleet_columns(fleet)),
        "<h2>Delay from reading to hub, 95th percentile</h2>",
        lag_bars(slow[:PICTURED_MAX]),
        "<h2>Origins</h2>",
        table(
            origins,
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
        "<h2>Tables</h2>",
        table(found["tables"], ["table", "rows", "files"]),
    ]
    return "\n".join(parts)


def verdict(counts: Counter[str], fleet: Sequence[dict[str, Any]]) -> str:
    """The answer in a sentence."""
    bad = [f"{counts[status]:,} {status}" for status in ("missing", "lost") if counts[status]]
    silent = [row["device"] for row in fleet if row.get("state") == "silent"]
    open_ = [f"{counts[status]:,} {status.replace('_', ' ')}" for status in ("in_flight", "unknown") if counts[status]]
    told = f" {len(silent)} of {len(fleet)} devices are silent." if silent else ""
    if bad:
        return f"<p class='verdict bad'><b>{escape(' and '.join(bad))}.</b>{told}</p>"
    if open_:
        return f"<p class='verdict warn'>Nothing is missing as far as is known; {escape(', '.join(open_))}.{told}</p>"
    return f"<p class=verdict>Everything that the origins hold is in the table.{told}</p>"


def every_day(per_day: Sequence[tuple[str, int]]) -> list[tuple[str, float]]:
    """The last days, those on which nothing was stored included."""
    if not per_day:
        return []
    counts, last = dict(per_day), date.fromisoformat(per_day[-1][0])
    first = max(date.fromisoformat(per_day[0][0]), last - timedelta(days=DAYS_MAX - 1))
    days = [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
    return [(day, float(counts.get(day, 0))) for day in days]


def coverage(origins: Sequence[dict[str, Any]], gaps: Sequence[dict[str, Any]]) -> list[tuple[str, int, list[Piece]]]:
    """For each epoch of each origin its name, its last sequence and what is not in the table."""
    pieces: dict[tuple[Any, ...], list[Piece]] = defaultdict(list)
    for gap in gaps:
        pieces[_epoch(gap)].append(Piece(gap["first_sequence"], gap["last_sequence"], gap["status"]))
    lives = Counter((row["kind"], row["domain"], row["stream"]) for row in origins)
    lines = []
    for row in origins[:PICTURED_MAX]:
        missing = pieces[_epoch(row)]
        last = max([row["last_sequence"] or 0, row["last_in_table"] or 0, *(piece.last for piece in missing)])
        name = "/".join(filter(None, (row["domain"], row["stream"])))
        if lives[row["kind"], row["domain"], row["stream"]] > 1:
            name += f" ({row['epoch']})"
        lines.append((name, last, missing))
    return lines


def table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """An HTML table; numbers to the right."""
    if not rows:
        return "<p class=note>Nothing yet.</p>"
    numeric = {
        name
        for name in names
        if any(isinstance(row.get(name), int | float) and not isinstance(row.get(name), bool) for row in rows)
    }

    def attribute(name: str) -> str:
        return " class=number" if name in numeric else ""

    head = "".join(f"<th{attribute(name)}>{escape(_title(name))}" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td{attribute(name)}>{_cell(name, row.get(name))}" for name in names) for row in rows
    )
    return f"<div class=scroll><table><tr>{head}{body}</table></div>"


def _cards(rows: int, origins: Sequence[Any], counts: Counter[str], fleet: Sequence[dict[str, Any]]) -> str:
    cards = [("", amount(rows), "rows in bronze"), ("", f"{len(origins):,}", "origins and streams")]
    if fleet:
        cards.append(("", f"{len(fleet):,}", "devices"))
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
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"<time title='{value.isoformat()}'>{value:%Y-%m-%d %H:%M}</time>"
    if name.startswith("delay_s"):
        return duration(value)
    if name == "rtt_ms_p50":
        return duration(value / 1000)
    if name == "link_up_share":
        return f"<span class=meter><i style='width:{value:.0%}'></i></span>{value:.0%}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}"
    text = escape(str(value))
    return f"<span class='chip {text}'>{text.replace('_', ' ')}</span>" if name in ("status", "state") else text
