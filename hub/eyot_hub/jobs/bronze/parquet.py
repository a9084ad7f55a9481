"""Bronze as plain Parquet, the simple option: Spark's own streaming query with a checkpoint beside the files.

It is exactly once only for readers that honour Spark's `_spark_metadata`: after a kill, a plain listing of the folder
shows files that do not count. The Delta table has no such trap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.spark.session import register_source
from eyot_hub.jobs.spark.streaming import run_query
from eyot_hub.progress import BatchProgress

# The day in UTC, in any time zone of the session.
_UTC_DATE: Final = "date_from_unix_date(cast(floor(unix_micros(stored_at) / 86400000000) as int))"


def ingest_parquet(
    spark: SparkSession,
    config: Config,
    *,
    once: bool,
    stop: Callable[[], bool],
    report: Callable[[BatchProgress], None] = lambda _: None,
) -> None:
    """Run the query until it has caught up (`once`), or until `stop` returns True. Raises the query's failure."""
    options = {**config.source_mapping(), "maxOffsetsPerTrigger": str(config.bronze.max_messages_per_commit)}
    register_source(spark)
    rows = spark.readStream.format("jetstream").options(**options).load().withColumn("date", F.expr(_UTC_DATE))
    writer = (
        rows.writeStream.format("parquet")
        .partitionBy("stream", "date")
        .option("path", config.folder("bronze"))
        .option("checkpointLocation", config.checkpoint("bronze"))
    )
    run_query(writer, config, once=once, stop=stop, report=report)
