"""The table function `jetstream(...)` of Spark SQL: a batch read without a table in the catalog.

A Python UDTF plans and reads in one task, one range after the other. A table (`CREATE TABLE ... USING jetstream`) reads
with many tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from eyot_hub import columns
from eyot_hub.errors import OptionError
from eyot_hub.options import source_options
from eyot_hub.planning import Planner, read_spans
from eyot_hub.range_reader import RangeReader

#: A query's text and its plan show arguments; the options of a table are redacted.
_SECRETS: Final = frozenset({"password", "token"})
#: These change the columns, which are fixed.
_COLUMNS: Final = frozenset({"includeheaders", "headercolumns"})


class JetStreamFunction:
    """The handler: named arguments are the options of a batch read."""

    def eval(self, **arguments: pa.Array) -> Iterator[pa.Table]:
        options = source_options({name: _text(name, value) for name, value in arguments.items()})
        planner = Planner(options)
        try:
            spans = read_spans(planner)
        finally:
            planner.close()
        for span, labels in spans:
            for batch in RangeReader(options.read, span, labels).batches():
                yield pa.Table.from_batches([batch])


def register(spark: SparkSession, name: str = "jetstream") -> None:
    """Register the function, for `SELECT * FROM jetstream(servers => 'hub:4222', stream => 'READINGS')`."""
    function: Any = arrow_udtf(JetStreamFunction, returnType=columns.DDL)  # of another class over Spark Connect
    spark.udtf.register(name, function)


def _text(name: str, value: Any) -> str:
    """Return an argument as an option's text. Raises OptionError."""
    folded = name.lower().replace("_", "")
    if folded in _SECRETS:
        raise OptionError(name, "cannot be given in a query's text: use creds, nkey or a table's options")
    if folded in _COLUMNS:
        raise OptionError(name, "cannot be given: the function has fixed columns")
    given = value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else [value]
    if len(given) != 1 or given[0] is None:
        raise OptionError(name, "must be one value, the same for all rows")
    return str(given[0]).lower() if isinstance(given[0], bool) else str(given[0])
