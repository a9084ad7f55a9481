"""The table function `jetstream(...)` in Spark SQL."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eyot_hub import columns, table_function
from support.hub.streams import Streams, numbered


@pytest.fixture
def function(spark: SparkSession) -> str:
    table_function.register(spark)
    return "jetstream"


def test_a_select_without_a_table(spark: SparkSession, streams: Streams, function: str) -> None:
    streams.create("S", ["s"])
    streams.create("T", ["t"])
    streams.publish([*numbered("s", 300), ("t", b"1000", {"Trace": "x"})])
    whole = spark.sql(f"SELECT * FROM {function}(servers => '{streams.url}', stream => 'S,T')")
    assert whole.columns == columns.ARROW_SCHEMA.names
    assert sorted(int(bytes(row["payload"])) for row in whole.collect()) == [*range(300), 1000]
    (row,) = spark.sql(
        f"SELECT headers['Trace'] AS trace FROM {function}(servers => '{streams.url}', stream => 'T')"
    ).collect()
    assert row["trace"] == "x"
    counted = spark.sql(
        f"SELECT count(*) AS n, min(sequence) AS first FROM {function}(servers => '{streams.url}', stream => 'S', "
        "startingOffsets => '{\"S\": 101}', failOnDataLoss => true)"
    ).collect()
    assert [tuple(row) for row in counted] == [(200, 101)]
    assert streams.consumers("S") == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("stream => 'S', password => 'geheim', user => 'u'", "option 'password' cannot be given in a query's text"),
        ("stream => 'S', headerColumns => 'Trace'", "option 'headerColumns' cannot be given: the function has fixed"),
        ("strean => 'S'", "option 'strean' is not known"),
        ("stream => 'NONE'", "names a stream that does not exist: 'NONE'"),
    ],
)
def test_mistakes(spark: SparkSession, streams: Streams, function: str, arguments: str, problem: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"SELECT * FROM {function}(servers => '{streams.url}', {arguments})").collect()
    assert problem in str(caught.value)
