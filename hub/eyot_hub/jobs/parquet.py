"""Bronze as plain Parquet, the simple option: Spark's own streaming query with a checkpoint beside the files.

It is exactly once only for readers that know Spark's `_spark_metadata`; after a kill a plain listing of the folder shows files
that do not count. The Delta table has no such trap.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs.config import Config, seconds


def ingest_parquet(spark: SparkSession, config: Config, *, once: bool, stop: Callable[[], bool]) -> None:
    """Run the query until it has caught up (`once`), or until `stop` says so. Raises what the query fails with."""
    options = {**config.source_mapping(), "maxOffsetsPerTrigger": str(config.bronze.max_messages_per_commit)}
    rows = spark.readStream.format("jetstream").options(**options).load().withColumn("date", F.to_date("stored_at"))
    writer = (
        rows.writeStream.format("parquet")
        .partitionBy("stream", "date")
        .option("path", config.folder("bronze"))
        .option("checkpointLocation", config.folder("bronze-checkpoint"))
    )
    if once:
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.trigger(processingTime=f"{seconds(config.bronze.poll):g} seconds").start()
    while not stop() and query.isActive:
        time.sleep(0.5)
    query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure
