"""A client of a Spark Connect server, without a JVM: reads a stream, writes to it, and prints what it got as JSON.

`connect_client.py SPARK_URL NATS_URL FOLDER`; the stream S holds numbers on s.in, and takes s.out.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from eyot_hub import table_function
from support.hub import streaming_queries


def main(url: str, servers: str, folder: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    found: dict[str, object] = {"connect": isinstance(spark, ConnectSession)}
    options = {"servers": servers, "stream": "S", "startingOffsets": "earliest"}
    frame = spark.read.format("jetstream").options(**options, subjects="s.in").load()
    found["columns"] = frame.columns
    found["batch"] = sorted(int(row["text"]) for row in frame.selectExpr("CAST(payload AS STRING) text").collect())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING jetstream OPTIONS (servers '{servers}', stream 'S')")
    found["view"] = spark.sql("SELECT count(*) FROM v").collect()[0][0]
    table_function.register(spark)
    query = f"SELECT max(sequence) FROM jetstream(servers => '{servers}', stream => 'S')"
    found["function"] = spark.sql(query).collect()[0][0]
    streaming = spark.readStream.format("jetstream").options(**options, maxOffsetsPerTrigger="20").load()
    rows = streaming.selectExpr("'s.out' AS subject", "payload")
    writer = rows.writeStream.format("jetstream").option("servers", servers).option("checkpointLocation", folder)
    running = streaming_queries.catch_up(writer.trigger(availableNow=True).start)
    last = running.lastProgress
    found["behind"] = json.loads(last["sources"][0]["latestOffset"])["S"]["behind"] if last else None
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
