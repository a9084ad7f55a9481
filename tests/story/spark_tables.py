"""The hub's tables of the story: bronze, silver, gold and gaps from the hub's stream, with the jobs that operators run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from readings import id_in
from rich.console import Console
from rich.table import Table

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest, Round
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import load
from eyot_hub.jobs.spark.session import session

CONFIG = """\
[nats]
servers = ["nats://127.0.0.1:{port}"]
user = "fleet"
password = "fleet"

[lake]
path = "{lake}"
partition = "month"

[bronze]
streams = ["FLEET"]

[[silver]]
name = "readings"
subjects = ["readings.>"]
device = "$.device"
event_time = "$.at"
columns = {{ metric = "string", value = "double" }}

[[gold]]
name = "readings_minute"
silver = "readings"
metric = "metric"
value = "value"

[spark]
"spark.master" = "local[2,4]"
"spark.ui.enabled" = false
"spark.sql.shuffle.partitions" = 4
"""


def tables(port: int, folder: Path, console: Console, tell: Callable[[str], None]) -> list[str]:
    """Runs the jobs; prints Spark's aggregates; returns the message ids in the bronze table, in stream order."""
    path = folder / "hub.toml"
    path.write_text(CONFIG.format(port=port, lake=folder / "lake"))
    config = load(path)
    tell("Spark starts")
    spark = session("eyot story", config.spark_settings())
    try:
        ingest = Ingest(spark, config)

        def ingested(done: Round) -> None:
            tell(f"bronze: {done.rows:,} rows committed in {done.seconds:.1f} s")

        ingest.run(once=True, report=ingested)
        ingest.run(once=True, report=ingested)
        ingest.close()
        aggregate = Aggregate(spark, config)
        aggregate.round()
        tell("silver and gold: computed")
        report = Gaps(spark, config).run()
        tell(f"gaps: {report.count('missing')} messages missing, {report.count('in_flight')} in flight")
        _show(config, console)
    finally:
        spark.stop()
    columns = ["sequence", "headers", "payload"]
    bronze = DeltaTable(config.folder("bronze")).to_pyarrow_table(columns=columns).sort_by("sequence")
    rows = zip(bronze.column("headers").to_pylist(), bronze.column("payload").to_pylist(), strict=True)
    return [dict(headers or ()).get("Nats-Msg-Id") or id_in(payload) for headers, payload in rows]


def _show(config: Config, console: Console) -> None:
    """Per device and metric: how many windows, what they hold."""
    gold = DeltaTable(config.folder("gold", "readings_minute")).to_pyarrow_table()
    grouped = gold.group_by(["device", "metric"]).aggregate(
        [("window_start", "count"), ("count", "sum"), ("min", "min"), ("max", "max"), ("revision", "max")]
    )
    table = Table(title="Gold: windows of one minute per device and metric", title_justify="left")
    for name in ("device", "metric"):
        table.add_column(name)
    for name in ("windows", "readings", "min", "max"):
        table.add_column(name, justify="right")
    for row in grouped.sort_by([("device", "ascending"), ("metric", "ascending")]).to_pylist():
        table.add_row(
            row["device"], row["metric"], f"{row['window_start_count']:,}", f"{row['count_sum']:,}",
            f"{row['min_min']:.1f}", f"{row['max_max']:.1f}",
        )  # fmt: skip
    console.print(table)
