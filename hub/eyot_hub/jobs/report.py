"""One HTML page about fleet and gaps: tables, and plots as inline SVG; no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze import bronze_table
from eyot_hub.jobs.config import Config
from eyot_hub.jobs.fleet import Fleet
from eyot_hub.jobs.gaps import gaps_table, origins_table
from eyot_hub.jobs.gold import gold_table
from eyot_hub.jobs.silver import quarantine_table, silver_table

BAR_HEIGHT: Final = 18
CHART_WIDTH: Final = 760
LABEL_WIDTH: Final = 200
ROWS_MAX: Final = 500  # a page, not a data dump
_COLOURS: Final = {
    "missing": "#b3261e",
    "lost": "#b3261e",
    "unknown": "#8a6d1a",
    "expired": "#8a6d1a",
    "in_flight": "#2f6fb0",
    "deleted": "#666",
    "filtered": "#666",
}
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1b1f23; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #d0d7de; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid #e5e9ed; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.cards { display: flex; gap: 1rem; flex-wrap: wrap; } .card { border: 1px solid #d0d7de; border-radius: 6px; padding: 0.6rem 1rem; }
.card b { display: block; font-size: 1.4rem; } .scroll { overflow-x: auto; } p.note { color: #57606a; }
svg text { font: 12px system-ui, sans-serif; }
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
    statuses: Counter[str] = Counter()
    for gap in found["gaps"]:
        statuses[gap["status"]] += gap["count"]
    cards = [("rows in bronze", found["tables"][0]["rows"]), ("origins and streams", len(found["origins"]))]
    cards += [(status.replace("_", " "), count) for status, count in sorted(statuses.items())]
    fleet = found["fleet"]
    delays = [(row["device"], row["delay_s_p95"] or 0.0) for row in fleet]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Eyot hub</title><style>{_STYLE}</style><h1>Eyot hub</h1>",
        f"<p class=note>As of {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC</p>",
        "<div class=cards>"
        + "".join(f"<div class=card><b>{value:,}</b>{escape(name)}</div>" for name, value in cards)
        + "</div>",
        "<h2>Messages stored, by day</h2>",
        bars(found["per_day"][-60:], "messages"),
        "<h2>Origins</h2>",
        table(
            found["origins"],
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
        "<h2>Gaps</h2>",
        table(
            found["gaps"],
            ["domain", "stream", "epoch", "first_sequence", "last_sequence", "count", "status", "after", "before"],
        )
        if found["gaps"]
        else "<p>None: everything that the origins hold is in the table.</p>",
        "<h2>Fleet</h2>",
        table(
            fleet,
            [
                "device",
                "readings",
                "last_event_at",
                "last_stored_at",
                "delay_s_p50",
                "delay_s_p95",
                "late_readings",
                "backlog",
            ],
        ),
        "<h2>Delay from reading to hub, 95th percentile, seconds</h2>",
        bars(delays[:60], "seconds"),
        "<h2>Tables</h2>",
        table(found["tables"], ["table", "rows", "files"]),
    ]
    return "\n".join(parts)


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """An HTML table; numbers to the right."""
    if not rows:
        return "<p class=note>Nothing yet.</p>"
    numeric = {name for name in columns if any(isinstance(row.get(name), int | float) for row in rows)}

    def attribute(name: str) -> str:
        return " class=number" if name in numeric else ""

    head = "".join(f"<th{attribute(name)}>{escape(name.replace('_', ' '))}" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{attribute(name)}>{_cell(name, row.get(name))}" for name in columns) for row in rows
    )
    return f"<div class=scroll><table><tr>{head}{body}</table></div>"


def bars(values: Sequence[tuple[str, float]], unit: str) -> str:
    """A horizontal bar chart as SVG."""
    if not values:
        return "<p class=note>Nothing yet.</p>"
    most = max(value for _, value in values) or 1
    room = CHART_WIDTH - LABEL_WIDTH - 110
    lines = []
    for index, (label, value) in enumerate(values):
        y = index * BAR_HEIGHT
        width = max(1.0, room * value / most)
        lines.append(
            f"<text x={LABEL_WIDTH - 8} y={y + 13} text-anchor=end>{escape(label[:28])}</text>"
            f"<rect x={LABEL_WIDTH} y={y + 2} width={width:.1f} height={BAR_HEIGHT - 5} fill='#3a7fbf'></rect>"
            f"<text x={LABEL_WIDTH + width + 6:.1f} y={y + 13}>{value:,.6g}</text>"
        )
    height = len(values) * BAR_HEIGHT
    return f"<svg viewBox='0 0 {CHART_WIDTH} {height}' width={CHART_WIDTH} height={height} role=img aria-label={unit}>{''.join(lines)}</svg>"


def _size(name: str, files: Iterable[Any]) -> dict[str, Any]:
    listed = list(files)
    return {"table": name, "rows": sum(file.rows for file in listed), "files": len(listed)}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}"
    text = escape(str(value))
    if name == "status":
        return f"<span style='color:{_COLOURS.get(str(value), '#333')}'>{text.replace('_', ' ')}</span>"
    return text
