"""The floor that Spark leaves a source in Python: rows like those of a stream that nobody has to read or parse.

A task makes one batch and hands it over again and again. What is left is Spark's own: from Arrow into its rows, and into Parquet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eyot_hub.columns import ARROW_SCHEMA, DDL

NAME = "floor"
BATCH_ROWS = 16_384  # as the source makes them of 4 MB


class Floor(DataSource):
    """Options: `rows`, and `tasks`, which share them."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(dict(self.options))


class FloorReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        whole = _batch(BATCH_ROWS)
        left = self._rows // self._tasks
        while left > 0:
            yield whole.slice(0, min(left, whole.num_rows))
            left -= whole.num_rows


def _batch(count: int) -> pa.RecordBatch:
    """As many rows as a stream has them: a stream's name, a subject, 200 bytes of JSON, a time."""
    numbers = range(count)
    payload = (
        b'{"device": "device-%04d", "metric": "temperature", "number": %d, "at": %d, "value": %.2f, "unit": "celsius", '
    )
    rest = b'"status": "ok", "site": "plant-17/hall-3/line-2", "firmware": "2.14.5-eyot"}'
    values = {
        "stream": pa.repeat("READINGS", count),
        "sequence": pa.array(numbers, pa.int64()),
        "subject": pa.array([f"readings.device-{number % 50:04}" for number in numbers]),
        "payload": pa.array([payload % (n % 50, n, 1767225600000 + n * 100, n % 997 / 4) + rest for n in numbers]),
        "stored_at": pa.array([1767225600000000 + number for number in numbers]).cast(pa.timestamp("us", "UTC")),
        "origin_stream": pa.repeat("READINGS", count),
        "origin_sequence": pa.array(numbers, pa.int64()),
    }
    columns = [values.get(field.name, pa.nulls(count, field.type)) for field in ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)], schema=ARROW_SCHEMA
    )


def register(spark: SparkSession) -> None:
    """Make the format known; tasks get this module by value, since they cannot import it."""
    register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(Floor)


def load(spark: SparkSession, rows: int) -> DataFrame:
    return spark.read.format(NAME).options(rows=rows, tasks=spark.sparkContext.defaultParallelism).load()
