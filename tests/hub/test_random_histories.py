"""Random histories of a stream (ends moved back, overtaken, purged, re-created) against a model in plain Python."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eyot_hub.errors import DataLoss
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.coverage import STREAM as OWN
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.history import History
from support.hub.jobs_config import jobs_config
from support.hub.lake_formats import FORMATS, VARIABLE
from support.hub.local_spark import LocalSpark
from support.hub.truth import Hub, rows_in

STEPS = 14
#: More with HUB_SEEDS=FIRST:COUNT.
FIRST, COUNT = map(int, os.environ.get("HUB_SEEDS", "1:3").split(":"))


def ingest(spark: SparkSession, config: Config) -> None:
    job = Ingest(spark, config)
    try:
        job.run(once=True, report=lambda _: None)
    finally:
        job.close()


def numbers(hub: Hub) -> tuple[list[int], list[int], list[int]]:
    """What bronze, silver and quarantine hold."""

    def named(table: LakeTable) -> list[int]:
        found = (re.search(rb'(value|n)": ([0-9]+)', row["payload"]) for row in rows_in(table))
        return sorted(int(one[2]) for one in found if one is not None)

    refiner = hub.aggregate.silver["readings"]
    silver = sorted(int(row["value"]) for row in rows_in(refiner.table))
    return named(hub.ingest.table), silver, named(refiner.quarantine)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_every_table_says_what_happened(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = (
        LocalSpark()
    )  # the jobs and their tasks in this process: a round of the history costs no round of Spark
    monkeypatch.setenv(VARIABLE, FORMATS[seed % 2])  # the formats in turn
    history = History(tmp_path / "server", seed)
    try:
        strict = jobs_config(history.streams.url, tmp_path)
        lenient = jobs_config(history.streams.url, tmp_path, fail_on_data_loss=False)
        hub = Hub(spark, lenient)
        for number in range(STEPS):
            for _ in range(history.chance.randint(1, 3)):
                history.step()
            if history.lost:
                with pytest.raises(DataLoss):
                    ingest(spark, strict)
                ingest(spark, lenient)
            else:
                ingest(spark, strict)
            history.ingested()
            if number % 5 == 4 or number == STEPS - 1:
                hub.ingest.table.refresh()
                hub.aggregate.round()
                bronze, silver, bad = numbers(hub)
                assert bronze == sorted(history.bronze), history.told
                assert silver == [one for one in bronze if one % 5 != 4], history.told
                assert bad == [one for one in bronze if one % 5 == 4], history.told
                check_gaps(spark, strict, history)
    finally:
        history.close()


def check_gaps(spark: SparkSession, config: Config, history: History) -> None:
    """Of what the stream holds nothing is missing; what it does not hold is expired or deleted, and what an earlier one held lost."""
    report = Gaps(spark, config).run()
    (source,) = [source for source in report.known if source.kind == OWN]
    epochs = report.coverage.epochs[source]
    current = report.known[source][-1].epoch
    said = {
        sequence: gap.status
        for gap in report.gaps
        if gap.epoch == current
        for sequence in range(gap.first, gap.last + 1)
    }
    state = history.state
    begin = report.known[source][-1].begins
    read = {
        sequence
        for epoch in epochs
        if epoch.number == current
        for island in epoch.islands
        for sequence in range(island.first, island.last + 1)
    }
    expected = {
        sequence: "expired" if sequence < state.first else "deleted"
        for sequence in range(begin, state.last + 1)
        if sequence not in state.messages and sequence not in read
    }
    assert said == expected, history.told
    assert all(gap.status == "lost" for gap in report.gaps if gap.epoch != current), history.told
