"""Clients of nats-server 2.14 may publish `Nats-Stream-Source` themselves: no claim of theirs counts, from bronze to `explain`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.gaps import Gaps
from support.hub.jobs_config import jobs_config
from support.hub.streams import Message, Streams
from support.hub.truth import NEW_YEAR_MS, Hub, message, series
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer

CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""
READINGS = 20
#: A sequence that the origin has, one that it may reach some day, an origin that is not configured, one that was, and no claim.
CLAIMS = ("ORIGIN 3 > > readings.d1", "ORIGIN 1000000", "OTHER 5 > > readings.d1", "GONE:abcdefgh 2", "nonsense")


def claims() -> list[Message]:
    """Readings for the hub's own subject, each with a claim; the first repeats the content of a reading of the origin."""
    made = []
    for claim, one in zip(CLAIMS, series("d1", NEW_YEAR_MS, len(CLAIMS)), strict=True):
        _, payload, *_ = message(one)
        made.append(("readings.own.x", payload, {"Nats-Stream-Source": claim}))
    return made


def sourced(streams: Streams) -> None:
    """Make the origin and the hub's stream, which also takes messages from clients; wait until the readings are sourced."""
    streams.create("ORIGIN", ["readings.d1.>"])
    streams.create("HUB", ["readings.own.>"], sources=[{"name": "ORIGIN"}])
    streams.publish(map(message, series("d1", NEW_YEAR_MS, READINGS)))
    deadline = time.monotonic() + 60
    while streams.state("HUB")["messages"] < READINGS:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kind", [NewerNatsServer, Eyotd])
def test_claims_of_clients_count_for_nothing(
    spark: SparkSession, tmp_path: Path, kind: type[NewerNatsServer | Eyotd]
) -> None:
    (tmp_path / "server").mkdir()
    with kind(CONFIG, tmp_path / "server") as server:
        streams = Streams(server.client_port)
        sourced(streams)
        if kind is NewerNatsServer:
            assert streams.publish(claims()) == len(CLAIMS)
        else:
            # Eyot refuses the header, from whatever client.
            for one in claims():
                with pytest.raises(Exception, match="10227"):
                    streams.publish([one])
            streams.publish((subject, payload) for subject, payload, *_ in claims())
        config = jobs_config(streams.url, tmp_path, streams=["HUB", "ORIGIN"])
        silver = structs.replace(config.silver[0], device="origin_stream")
        config = structs.replace(config, silver=[silver], gold=[])
        hub = Hub(spark, config)
        hub.round()
        bronze = hub.ingest.table.dataframe(spark).where("stream = 'HUB'").collect()
        told = {(row["subject"].split(".")[1], row["origin_stream"], row["origin_sequence"]) for row in bronze}
        assert told == {("d1", "ORIGIN", number) for number in range(1, READINGS + 1)} | {("own", None, None)}
        rows = hub.aggregate.silver["readings"].table.dataframe(spark).collect()
        found = sorted((row["device"], row["origin_sequence"]) for row in rows)
        own = [("HUB", READINGS + number) for number in range(1, len(CLAIMS) + 1)]
        assert found == own + [("ORIGIN", number) for number in range(1, READINGS + 1)]
        report = Gaps(spark, config).run()
        assert report.gaps == []
        assert {(epoch_of.kind, epoch_of.name): len(epochs) for epoch_of, epochs in report.coverage.epochs.items()} == {
            ("origin", "ORIGIN"): 1,
            ("stream", "ORIGIN"): 1,
            ("stream", "HUB"): 1,
        }
