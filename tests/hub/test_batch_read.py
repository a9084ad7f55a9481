"""spark.read.format("jetstream") against a real nats-server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from support.hub.streams import Streams, numbered
from support.servers.nats_server import NatsServer


def read(spark: SparkSession, streams: Streams, stream: str, **options: Any) -> DataFrame:
    texts = {key: str(value) for key, value in options.items()}
    return spark.read.format("jetstream").options(servers=streams.url, stream=stream, **texts).load()


def numbers(frame: DataFrame) -> list[int]:
    rows = frame.selectExpr("cast(cast(payload as string) as bigint) as number").collect()
    return sorted(row["number"] for row in rows)


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.count()
    return str(caught.value)


def test_every_column(spark: SparkSession, streams: Streams) -> None:
    streams.create("ORIG", ["o.>"])
    streams.create("COPY", ["direct"], sources=[{"name": "ORIG"}])
    streams.publish([("o.a", b'{"x": 1}', {"Nats-Msg-Id": "m1", "Größe": "klein"}), ("o.b", b"\x00\xff")])
    streams.publish([("direct", b"")])
    while streams.state("COPY")["messages"] < 3:
        pass
    frame = read(spark, streams, "COPY", account="ACC")
    assert frame.columns == [
        "domain", "account", "stream", "sequence", "subject", "headers", "payload", "stored_at",
        "origin_domain", "origin_stream", "origin_sequence",
    ]  # fmt: skip
    rows = {row["subject"]: row for row in frame.collect()}
    sourced = rows["o.a"]
    assert (sourced["account"], sourced["stream"], bytes(sourced["payload"])) == ("ACC", "COPY", b'{"x": 1}')
    assert sourced["headers"]["Nats-Msg-Id"] == "m1"
    assert sourced["headers"]["Größe"] == "klein"
    assert (sourced["origin_stream"], sourced["origin_sequence"]) == ("ORIG", 1)
    assert bytes(rows["o.b"]["payload"]) == b"\x00\xff"
    assert (rows["o.b"]["origin_stream"], rows["o.b"]["origin_sequence"]) == ("ORIG", 2)
    direct = rows["direct"]
    assert (direct["headers"], bytes(direct["payload"]), direct["origin_stream"]) == (None, b"", None)
    assert sorted(row["sequence"] for row in rows.values()) == [1, 2, 3]


def test_partitions_ranges_and_subjects(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s.>"])
    streams.publish(message for number in range(500) for message in numbered(f"s.{number % 3}", 1, number))
    frame = read(spark, streams, "S", minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert numbers(frame) == list(range(500))
    assert read(spark, streams, "S", maxRecordsPerPartition=100).rdd.getNumPartitions() == 5
    only = read(spark, streams, "S", subjects="s.1", minPartitions=3)
    assert numbers(only) == list(range(1, 500, 3))
    # nats-server 2.9 takes one filter only; more are then applied by the reader.
    assert len(numbers(read(spark, streams, "S", subjects="s.1,s.2"))) == 333
    assert numbers(read(spark, streams, "S", subjects="other")) == []
    part = read(spark, streams, "S", startingOffsets='{"S": 11}', endingOffsets='{"S": 20}')
    assert numbers(part) == list(range(10, 20))
    assert streams.consumers("S") == 0


def test_counts_after_filters_are_right(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s.>"])
    streams.publish(numbered("s.a", 30) + numbered("s.b", 20))
    frame = read(spark, streams, "S")
    assert frame.where("subject = 's.a'").count() == 30
    assert frame.count() == 50
    assert frame.select("sequence").where("sequence > 45").count() == 5
    assert frame.limit(7).count() == 7


def test_a_time_as_start_and_end(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 10))
    middle = streams.api("STREAM.MSG.GET.S", {"seq": 6})["message"]["time"]
    assert numbers(read(spark, streams, "S", startingOffsets=middle)) == list(range(5, 10))
    assert numbers(read(spark, streams, "S", endingOffsets=middle)) == list(range(5))
    assert numbers(read(spark, streams, "S", startingOffsets="2099-01-01T00:00:00Z")) == []


def test_a_time_per_stream(spark: SparkSession, streams: Streams) -> None:
    for name in ("S", "T"):
        streams.create(name, [name.lower()])
        streams.publish(numbered(name.lower(), 10))
    middle = streams.api("STREAM.MSG.GET.S", {"seq": 6})["message"]["time"]

    def sequences(**bounds: dict[str, str | int]) -> dict[str, list[int]]:
        frame = read(spark, streams, "S,T", **{name: json.dumps(bound) for name, bound in bounds.items()})
        rows = frame.select("stream", "sequence").collect()
        return {name: sorted(row["sequence"] for row in rows if row["stream"] == name) for name in ("S", "T")}

    everything = list(range(1, 11))
    assert sequences(startingOffsets={"S": middle, "T": 9}) == {"S": [6, 7, 8, 9, 10], "T": [9, 10]}
    assert sequences(startingOffsets={"S": middle}) == {"S": [6, 7, 8, 9, 10], "T": everything}
    # An end by time excludes what was stored then; an end by sequence is the last message.
    assert sequences(endingOffsets={"S": middle, "T": 2}) == {"S": [1, 2, 3, 4, 5], "T": [1, 2]}
    assert sequences(endingOffsets={"S": "2000-01-01T00:00:00Z"}) == {"S": [], "T": everything}
    assert sequences(startingOffsets={"S": "2099-01-01T00:00:00Z"}) == {"S": [], "T": everything}
    # Times do not lose what limits removed before.
    streams.api("STREAM.PURGE.S", {"seq": 4})
    assert sequences(startingOffsets={"S": "2000-01-01T00:00:00Z"})["S"] == list(range(4, 11))


def test_several_streams_and_patterns(spark: SparkSession, streams: Streams) -> None:
    for name in ("EDGE_1", "EDGE_2", "OTHER"):
        streams.create(name, [f"{name}.>"])
        streams.publish(numbered(f"{name}.x", 5))
    streams.create("EDGE_EMPTY", ["empty"])
    counts = {row["stream"]: row["count"] for row in read(spark, streams, "EDGE_*").groupBy("stream").count().collect()}
    assert counts == {"EDGE_1": 5, "EDGE_2": 5}
    assert read(spark, streams, "EDGE_1,OTHER").count() == 10


def test_a_regular_expression_for_names(spark: SparkSession, streams: Streams) -> None:
    for name in ("EDGE_1", "EDGE_22", "EDGE_X", "MY_EDGE_1"):
        streams.create(name, [name])
        streams.publish([(name, b"1")])
    options = {"servers": streams.url, "subscribePattern": r"EDGE_\d+", "startingOffsets": '{"EDGE_1": 1}'}
    rows = spark.read.format("jetstream").options(**options).load().select("stream").collect()
    assert sorted(row["stream"] for row in rows) == ["EDGE_1", "EDGE_22"]


def test_deleted_messages_are_passed_over(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 20))
    for sequence in (1, 7, 8, 20):
        streams.remove("S", sequence)
    assert numbers(read(spark, streams, "S", minPartitions=5)) == [n for n in range(20) if n + 1 not in (1, 7, 8, 20)]
    streams.purge("S", below=21)
    assert numbers(read(spark, streams, "S")) == []


def test_large_messages_and_small_requests(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    sizes = [1_000_000, 5, 300_000, 0, 200_000, 700_000, 1]
    streams.publish([("s", bytes([65 + index]) * size) for index, size in enumerate(sizes)])
    rows = read(spark, streams, "S", fetchBytes="64k").orderBy("sequence").collect()
    assert [bytes(row["payload"]) for row in rows] == [bytes([65 + index]) * size for index, size in enumerate(sizes)]


def test_payloads_that_look_like_protocol(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    bodies = [b"\r\nMSG s d $JS.ACK.S.C.1.1.1.1.1 3\r\nabc\r\n", b"\nHMSG x\r\n", b"PING\r\n", b"\r\n", b"plain"]
    streams.publish([("s", body) for body in bodies * 10])
    rows = read(spark, streams, "S").orderBy("sequence").collect()
    assert [bytes(row["payload"]) for row in rows] == bodies * 10


def test_without_headers(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.publish([("s", b"1", {"A": "b"})])
    frame = read(spark, streams, "S", includeHeaders="false")
    assert "headers" not in frame.columns
    assert numbers(frame) == [1]


def test_headers_as_columns(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.publish([("s", b"1", {"Trace": "t1", "Nats-Msg-Id": "m1"}), ("s", b"2", {"trace": "other"})])
    streams.publish([("s", b"3")])
    frame = read(spark, streams, "S", includeHeaders="false", headerColumns="Trace, id=Nats-Msg-Id")
    assert frame.columns[-2:] == ["Trace", "id"]
    assert "headers" not in frame.columns
    rows = frame.orderBy("sequence").select("sequence", "Trace", "id").collect()
    assert [tuple(row) for row in rows] == [(1, "t1", "m1"), (2, None, None), (3, None, None)]
    both = read(spark, streams, "S", headerColumns="Trace").orderBy("sequence").first()
    assert both is not None
    assert (both["Trace"], both["headers"]["Trace"]) == ("t1", "t1")


def test_asked_for_sequences_that_are_gone(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 20))
    streams.purge("S", below=11)
    assert numbers(read(spark, streams, "S")) == list(range(10, 20))
    assert "messages 5 to 10 of stream S are gone" in failure(read(spark, streams, "S", startingOffsets='{"S": 5}'))
    kept = read(spark, streams, "S", startingOffsets='{"S": 5}', failOnDataLoss="false")
    assert numbers(kept) == list(range(10, 20))


def test_errors_name_what_is_wrong(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.create("WORK", ["w"], retention="workqueue")
    with pytest.raises(PySparkException, match=r"option 'fetchbites' is not known \(did you mean 'fetchBytes'"):
        read(spark, streams, "S", fetchBites="1m")
    assert "names a stream that does not exist: 'NONE'" in failure(read(spark, streams, "NONE"))
    assert "stream WORK has retention workqueue" in failure(read(spark, streams, "WORK"))
    assert "names streams that are not read: T" in failure(read(spark, streams, "S", startingOffsets='{"T": 1}'))
    prefixed = failure(read(spark, streams, "S", domain="nowhere", timeout="600ms", retryFor="1s"))
    assert "no responders on $JS.nowhere.API.STREAM.INFO.S" in prefixed
    nobody = failure(
        spark.read.format("jetstream").options(servers="127.0.0.1:1", stream="S", retryFor="600ms", timeout="1s").load()
    )
    assert "no server could be reached: 127.0.0.1:1" in nobody


def test_credentials_stay_out_of_plans_and_errors(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    config = """
    accounts { A { users: [{user: me, password: "rightone"}], jetstream: enabled } }
    jetstream { store_dir: "%WORKDIR%/js" }
    """
    with NatsServer(config, tmp_path_factory.mktemp("auth")) as guarded:
        url = f"nats://127.0.0.1:{guarded.client_port}"
        given = {"servers": url, "stream": "S", "user": "me", "timeout": "2s", "retryFor": "1s"}
        wrong = spark.read.format("jetstream").options(**given, password="wrongone").load()
        text = failure(wrong)
        assert "Authorization Violation" in text
        right = spark.read.format("jetstream").options(**given, password="rightone").load()
        assert "names a stream that does not exist" in failure(right)
        right.explain("formatted")
        assert "rightone" not in capsys.readouterr().out
        assert "wrongone" not in text


def test_a_table_of_the_catalog(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 5))
    spark.sql(
        f"CREATE TABLE of_s USING jetstream OPTIONS (servers '{streams.url}', stream 'S') TBLPROPERTIES ('of' = 'me')"
    )
    try:
        assert [row["sequence"] for row in spark.sql("SELECT sequence FROM of_s ORDER BY sequence").collect()] == [
            1,
            2,
            3,
            4,
            5,
        ]
        from_3 = spark.sql(
            """SELECT sequence FROM of_s WITH (startingOffsets = '{"S": 3}') ORDER BY sequence"""
        ).collect()
        assert [row["sequence"] for row in from_3] == [3, 4, 5]
        with pytest.raises(PySparkException, match="option 'streams' is not known"):
            spark.sql(f"CREATE TABLE wrong USING jetstream OPTIONS (servers '{streams.url}', streams 'S')")
    finally:
        spark.sql("DROP TABLE of_s")
    spark.sql("CREATE TABLE to_s (payload STRING) USING jetstream")
    try:
        spark.sql(f"INSERT INTO to_s WITH (servers = '{streams.url}', subject = 's') VALUES ('5'), ('6')")
        assert streams.state("S")["messages"] == 7
    finally:
        spark.sql("DROP TABLE to_s")
    spark.sql("CREATE TABLE commands (subject STRING, payload STRING) USING jetstream")
    try:
        spark.sql(f"INSERT INTO commands WITH (servers = '{streams.url}') VALUES ('s', '7')")
        assert streams.state("S")["messages"] == 8
    finally:
        spark.sql("DROP TABLE commands")


def test_a_temporary_view(spark: SparkSession, streams: Streams) -> None:
    """A view needs no catalog. Its range is planned once; a view that replaces it reads on."""
    streams.create("S", ["s.*"])
    streams.publish([*numbered("s.a", 3), *numbered("s.b", 2, 3)])
    view = f"""
        CREATE OR REPLACE TEMPORARY VIEW of_s USING jetstream
        OPTIONS (servers '{streams.url}', stream 'S', subjects '["s.b"]', startingOffsets '{{"S": 2}}')
    """
    query = "SELECT subject, sequence, CAST(payload AS STRING) AS text FROM of_s ORDER BY sequence"
    spark.sql(view)
    try:
        assert [tuple(row) for row in spark.sql(query).collect()] == [("s.b", 4, "3"), ("s.b", 5, "4")]
        streams.publish(numbered("s.b", 1, 5))
        spark.sql(view)
        assert [row["sequence"] for row in spark.sql(query).collect()] == [4, 5, 6]
    finally:
        spark.sql("DROP VIEW of_s")
    with pytest.raises(PySparkException, match="option 'streams' is not known"):
        spark.sql(f"CREATE TEMPORARY VIEW wrong USING jetstream OPTIONS (servers '{streams.url}', streams 'S')")
