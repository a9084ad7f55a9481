"""Gaps: what an origin has and the table has not, and a story of three devices."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eyot_hub.job_texts import gaps_text
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.coverage import ORIGIN, Segment, segments
from eyot_hub.jobs.bronze.gaps import Gaps, Report
from eyot_hub.jobs.bronze.segments import Segments, joined
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.fleet import Fleet
from eyot_hub.jobs.reports.report import write_report
from eyot_hub.main import main
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams, numbered
from support.hub.truth import DAY_MS, NEW_YEAR_MS, Hub, message, series, truth


def run(spark: SparkSession, config: Config) -> Report:
    job = Ingest(spark, config)
    job.run(once=True, report=lambda _: None)
    job.close()
    return Gaps(spark, config).run()


def of_origin(report: Report, stream: str) -> list[tuple[int, int, int, str]]:
    return [
        (gap.epoch, gap.first, gap.last, gap.status)
        for gap in report.gaps
        if gap.source.kind == ORIGIN and gap.source.name == stream
    ]


def arrived(streams: Streams, name: str, count: int) -> None:
    deadline = time.monotonic() + 20
    while streams.state(name)["messages"] < count:
        assert time.monotonic() < deadline, streams.state(name)
        time.sleep(0.01)


def test_what_is_missing_and_why(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("DEVICE", ["d.>"])
    streams.publish(numbered("d.x", 20))
    streams.remove("DEVICE", 5)
    streams.purge("DEVICE", below=3)
    streams.create("HUB", ["hub.x"], sources=[{"name": "DEVICE"}])
    arrived(streams, "HUB", 17)
    streams.publish(numbered("hub.x", 3))
    streams.remove("HUB", 7)  # a copy that is lost at the hub before it reaches the table
    config = jobs_config(streams.url, tmp_path, ["HUB"])
    report = run(spark, config)
    assert of_origin(report, "DEVICE") == [
        (1, 1, 2, "expired"),
        (1, 5, 5, "deleted"),
        (1, 10, 10, "missing"),
    ]
    assert [(gap.first, gap.last, gap.status) for gap in report.gaps if gap.source.kind != ORIGIN] == [
        (7, 7, "deleted")
    ]
    rows = Gaps(spark, config).gaps.dataframe(spark).where("kind = 'origin'").orderBy("first_sequence").collect()
    assert [(row["first_sequence"], row["count"]) for row in rows] == [(1, 2), (5, 1), (10, 1)]
    assert rows[2]["after"] <= rows[2]["before"]


def test_what_is_on_its_way(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("DEVICE", ["d.>"])
    streams.publish(numbered("d.x", 5))
    streams.create("HUB", sources=[{"name": "DEVICE"}])
    arrived(streams, "HUB", 5)
    config = jobs_config(streams.url, tmp_path, ["HUB"])
    assert of_origin(run(spark, config), "DEVICE") == []
    streams.publish(numbered("d.x", 5))
    arrived(streams, "HUB", 10)
    # Not ingested yet: seen at the origin, not in the table.
    assert of_origin(Gaps(spark, config).run(), "DEVICE") == [(1, 6, 10, "in_flight")]
    assert of_origin(run(spark, config), "DEVICE") == []


def test_only_what_is_new_is_read(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.create("DEVICE", ["d.>"])
    streams.create("HUB", ["hub.x"], sources=[{"name": "DEVICE"}])
    config = jobs_config(streams.url, tmp_path, ["HUB"])

    def look(published: int) -> Gaps:
        streams.publish(numbered("d.x", published))
        arrived(streams, "HUB", streams.state("DEVICE")["last_seq"])
        job = Ingest(spark, config)
        job.run(once=True, report=lambda _: None)
        gaps = Gaps(spark, config)
        gaps.run()
        everything = joined(segments(spark, job.table, job.table.files()))
        assert gaps.segments.found() == everything
        assert gaps.segments.rows_read == 0
        return gaps

    def read(published: int) -> int:
        counted: list[int] = []
        found = Segments.found

        def counting(self: Segments) -> list[Segment]:
            result = found(self)
            counted.append(self.rows_read)
            return result

        with monkeypatch.context() as patch:
            patch.setattr(Segments, "found", counting)
            look(published)
        return counted[0]

    assert [read(30), read(5), read(0)] == [30, 5, 0]
    monkeypatch.setattr("eyot_hub.jobs.bronze.segments.SLACK", -100)
    rewritten = look(7)
    assert rewritten.segments.table.rows() == 2  # the stream's and the origin's
    # The table is thrown away and filled again: what was found in the old one does not count.
    shutil.rmtree(tmp_path / "lake" / "bronze")
    assert read(1) == 43


def test_an_origin_that_does_not_answer(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("DEVICE", ["d.>"])
    streams.publish(numbered("d.x", 5))
    streams.create("HUB", sources=[{"name": "DEVICE"}])
    arrived(streams, "HUB", 5)
    streams.remove("HUB", 3)
    config = jobs_config(streams.url, tmp_path, ["HUB"])
    run(spark, config)
    streams.delete("DEVICE")
    found = run(spark, config)
    assert of_origin(found, "DEVICE") == [(1, 3, 3, "unknown")]
    assert gaps_text(found).endswith("1 unknown; what 1 of 2 holds now is not known")


def test_three_devices(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """One device on time, one three days late, one created again before all of it was copied."""
    on_time = series("ontime", NEW_YEAR_MS, 300)
    late = series("late", NEW_YEAR_MS - 3 * DAY_MS, 200)
    first_epoch, second_epoch = series("reimaged", NEW_YEAR_MS, 100), series("reimaged", NEW_YEAR_MS + DAY_MS, 30)
    for name in ("ontime", "late", "reimaged"):
        streams.create(f"DEV_{name}", [f"readings.{name}.>"])

    def hub_stream(*names: str, action: str = "UPDATE", **more: int | str) -> None:
        sources = [{"name": f"DEV_{name}"} for name in names]
        streams.api(f"STREAM.{action}.READINGS", {"name": "READINGS", "sources": sources, **more})

    # The hub takes 280 messages and then no more, so the third device's last 20 stay on the device.
    hub_stream("ontime", "late", "reimaged", action="CREATE", max_msgs=280, discard="new")
    streams.publish(map(message, on_time[:200]))
    arrived(streams, "READINGS", 200)
    streams.publish(map(message, first_epoch))
    arrived(streams, "READINGS", 280)
    config = jobs_config(streams.url, tmp_path)
    hub = Hub(spark, config)
    hub.round()
    assert of_origin(Gaps(spark, config).run(), "DEV_reimaged") == [(1, 81, 100, "in_flight")]
    assert hub.gold() == truth(on_time[:200] + first_epoch[:80])
    # It is re-imaged: its stream is made anew, and what lay on it is gone.
    hub_stream("ontime", "late", max_msgs=-1, discard="old")
    streams.delete("DEV_reimaged")
    streams.create("DEV_reimaged", ["readings.reimaged.>"])
    hub_stream("ontime", "late", "reimaged", max_msgs=-1, discard="old")
    attached(streams, "DEV_reimaged")
    streams.publish(map(message, [*second_epoch, *on_time[200:], *late]))
    arrived(streams, "READINGS", 280 + 30 + 100 + 200)
    hub.round()
    report = Gaps(spark, config).run()
    assert of_origin(report, "DEV_reimaged") == [(1, 81, 100, "lost")]
    assert of_origin(report, "DEV_ontime") == of_origin(report, "DEV_late") == []
    assert hub.gold() == truth(on_time + late + first_epoch[:80] + second_epoch)
    fleet = {row["device"]: row["readings"] for row in Fleet(spark, config).run()}
    assert fleet == {"late": 200, "ontime": 300, "reimaged": 110}
    write_report(spark, config, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "lost" in page
    assert "DEV_reimaged" in page


def attached(streams: Streams, origin: str) -> None:
    """Wait until the hub's stream has heard of its new source."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for source in streams.api("STREAM.INFO.READINGS")["sources"]:
            if source["name"] == origin and source["active"] >= 0 and "error" not in source:
                return
        time.sleep(0.05)
    raise AssertionError(streams.api("STREAM.INFO.READINGS")["sources"])


def test_the_commands(
    spark: SparkSession, streams: Streams, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """eyot-hub ingest, aggregate, gaps, fleet and report, from one configuration file."""
    streams.create("READINGS", ["readings.>"])
    streams.publish(map(message, series("d1", NEW_YEAR_MS, 30)))
    streams.remove("READINGS", 3)
    path = tmp_path / "hub.toml"
    path.write_text(
        f"""
        [nats]
        servers = "{streams.url}"
        [lake]
        path = "{tmp_path}/lake"
        [bronze]
        streams = ["READINGS"]
        [[silver]]
        name = "readings"
        subjects = ["readings.>"]
        device = "$.device"
        event_time = "$.at"
        event_time_unit = "ms"
        columns = {{ metric = "string", value = "double" }}
        [[gold]]
        name = "minute"
        silver = "readings"
        metric = "metric"
        value = "value"
        """
    )
    config = ["-c", str(path)]
    assert main(["ingest", *config, "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 29
    assert main(["aggregate", *config, "--once"]) == 0
    assert "silver readings: 29 rows added, 0 duplicates, 0 in quarantine" in capsys.readouterr().out
    assert main(["gaps", *config, "--check"]) == 0
    assert "1 deleted" in capsys.readouterr().out
    assert main(["fleet", *config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "d1"
    assert main(["report", *config, "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    streams.purge("READINGS", below=31)
    streams.publish(map(message, series("d1", NEW_YEAR_MS, 5)))
    streams.purge("READINGS", below=33)
    capsys.readouterr()
    assert main(["ingest", *config, "--once"]) == 1
    assert "messages 31 to 32 of stream READINGS are gone" in capsys.readouterr().err
    path.write_text(path.read_text().replace("[lake]", "[lakes]"))
    assert main(["ingest", *config]) == 2
    assert "lakes" in capsys.readouterr().err
