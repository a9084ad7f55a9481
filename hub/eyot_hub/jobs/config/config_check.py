"""Checks the jobs' configuration beyond its types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from eyot_hub.columns import percentile_name
from eyot_hub.jobs.config.config import (
    NS_PER_S,
    Config,
    Gold,
    IcebergCatalog,
    Lake,
    Silver,
    seconds,
)
from eyot_hub.jobs.config.rules import rules_problems
from eyot_hub.jobs.config.settings_check import has_control, nats_problems, spark_problems
from eyot_hub.jobs.payloads.payload_records import RecordDecoder
from eyot_hub.jobs.payloads.payload_shape import US_PER_UNIT, field_path
from eyot_hub.jobs.payloads.schema_payloads import schema_decoder
from eyot_hub.jobs.payloads.schemas import SUFFIXES
from eyot_hub.options import is_stream_name
from eyot_wire import subject
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.go.time import rfc3339_to_ns

_VACUUM_HOURS_MIN: Final = 1
_RETENTION_MIN: Final = timedelta(hours=24)
_NS_PER_DAY: Final = 86_400 * NS_PER_S
# Columns that every silver table has.
_SILVER_OWN: Final = [
    "device",
    "event_time",
    "subject",
    "stored_at",
    "origin_domain",
    "origin_stream",
    "origin_sequence",
    "content_hash",
    "stream",
    "stream_created_ns",
    "sequence",
    "event_date",
    # and the quarantine's
    "silver",
    "date",
    "reason",
    "payload",
    "headers",
]
_SILVER_TYPES: Final = ("string", "double", "bigint", "boolean", "timestamp")
_PATTERN_SIGNS: Final = frozenset("*?[]{}%\\")
_DEVICE_WORDS: Final = ("origin_domain", "origin_stream", "stream")


def problems(config: Config) -> list[tuple[str, str]]:
    """Return what is wrong with a configuration beyond its types: keys, and what is wrong with them."""
    found = [*nats_problems(config.nats), *spark_problems(config.spark)]
    found += _lake_problems(config.lake)
    if config.bronze.start.strip().lower() == "latest":
        found.append(("bronze.start", "must not be latest: give a time (2026-01-31T00:00:00Z)"))
    found += _wait_problems("bronze.poll", config.bronze.poll)
    found += _duration_problems("bronze.vacuum_after", config.bronze.vacuum_after)
    found += _duration_problems("gaps.in_flight_max", config.gaps.in_flight_max)
    found += _duration_problems("quality.period", config.quality.period)
    for kind in ("quarantine", "bronze", "silver", "gold"):
        found += _age_problems(f"retention.{kind}", getattr(config.retention, kind))
    for number, rule in enumerate(config.retention.devices):
        found += _age_problems(f"retention.devices[{number}].keep", rule.keep)
    if not found and config.bronze.format == "parquet" and config.retention.age("bronze"):
        found.append(("retention.bronze", "needs a table: bronze.format is parquet"))
    if config.bronze.format == "delta" and config.lake.format != "delta":
        found.append(("bronze.format", 'delta is the format of lake.format = "delta": leave the key out'))
    if not found and 0 < config.bronze.vacuum_hours < _VACUUM_HOURS_MIN:
        found.append(
            ("bronze.vacuum_after", "must be at least 1h: what a job has written and not committed yet is removed, too")
        )
    found += [
        ("fleet.subjects", f"{pattern!r} is no subject")
        for pattern in config.fleet.subjects
        if not subject.is_valid(pattern.encode())
    ]
    found += [
        ("fleet.streams", f"{name!r} is no name of a stream")
        for name in config.fleet.streams
        if not is_stream_name(name)
    ]
    if config.fleet.device not in ("device", "domain") and not _is_token(config.fleet.device):
        found.append(("fleet.device", "must be device, domain or subject:N"))
    found += _run_problems(config)
    names = [silver.name for silver in config.silver]
    for index, silver in enumerate(config.silver):
        found += [(f"silver[{index}].{key}", problem) for key, problem in _silver_problems(silver)]
        if names.index(silver.name) != index:
            found.append((f"silver[{index}].name", f"there is another silver table {silver.name!r}"))
    gold_names = [gold.name for gold in config.gold]
    for index, gold in enumerate(config.gold):
        silver_of = next((silver for silver in config.silver if silver.name == gold.silver), None)
        found += [(f"gold[{index}].{key}", problem) for key, problem in _gold_problems(gold, silver_of)]
        if gold_names.index(gold.name) != index:
            found.append((f"gold[{index}].name", f"there is another gold table {gold.name!r}"))
    return found


def _lake_problems(lake: Lake) -> list[tuple[str, str]]:
    problems = []
    if not lake.path.strip():
        problems.append(("lake.path", "must not be empty"))
    if set(lake.path) & _PATTERN_SIGNS:
        problems.append(
            ("lake.path", f"must not hold any of {' '.join(sorted(_PATTERN_SIGNS))}: Spark takes them for patterns")
        )
    for key, path in (("lake.path", lake.path), ("lake.checkpoints", lake.checkpoints)):
        if problem := has_control(path):
            problems.append((key, problem))
    if lake.format != "iceberg":
        if lake.catalog != IcebergCatalog():
            problems.append(("lake.catalog", 'is of use to lake.format = "iceberg" only'))
        return problems
    if "#" in lake.path:
        problems.append(("lake.path", "must not hold #: in Iceberg, places are URLs"))
    if not lake.catalog.uri and (lake.catalog.type == "rest" or "://" in lake.path):
        problems.append(("lake.catalog.uri", "is missing: the address of the REST catalog or of the database"))
    if not all(lake.catalog.namespace.split(".")) or not lake.catalog.name:
        problems.append(("lake.catalog", "namespace and name must not be empty"))
    return problems


def _run_problems(config: Config) -> list[tuple[str, str]]:
    run, problems = config.run, []
    for key in ("aggregate", "gaps", "fleet", "quality", "report", "maintain", "lag", "stop_after"):
        problems += _duration_problems(f"run.{key}", getattr(run, key))
    problems += _wait_problems("run.retry_max", run.retry_max)
    if run.ingest:
        problems += _duration_problems("run.ingest", run.ingest)
    try:
        _ = run.address
    except ValueError as error:
        problems.append(("run.listen", str(error)))
    if run.report_path and (problem := page_problem(run.report_path)):
        problems.append(("run.report_path", problem))
    return problems


def page_problem(page: str) -> str:
    """Return why a report cannot be written there; empty: it can."""
    folder = Path(page).parent
    if not os.path.isdir(folder):  # no error for a name that is too long, unlike Path.is_dir
        return has_control(page) or f"there is no folder {folder}"
    return has_control(page) or (f"{page} is a folder" if os.path.isdir(page) else "")


def _silver_problems(silver: Silver) -> list[tuple[str, str]]:
    problems = [
        ("subjects", f"{pattern!r} is no subject")
        for pattern in silver.subjects
        if not subject.is_valid(pattern.encode())
    ]
    if not silver.subjects:
        problems.append(("subjects", "must name a subject"))
    problems += [
        (f"columns.{name}", "is one of the table's own columns")
        for name in silver.columns
        if name.lower() in _SILVER_OWN  # table formats and Spark compare names without their case
    ]
    problems += [
        (f"columns.{second}", f"is one name with {first} to Spark") for first, second in _same_names(silver.columns)
    ]
    problems += [
        (f"columns.{name}", f"has type {one.type!r}; known are {', '.join(_SILVER_TYPES)}")
        for name, one in silver.typed.items()
        if one.type not in _SILVER_TYPES
    ]
    problems += [
        (f"columns.{name}", f"has the path {one.path!r}; it must be $.field, $.outer.inner or $['a.b']")
        for name, one in silver.typed.items()
        if not _is_field(one.path)
    ]
    for key, unit in [
        ("event_time_unit", silver.event_time_unit),
        *((f"columns.{name}", one.unit) for name, one in silver.typed.items()),
    ]:
        if not _is_unit(unit):
            problems.append(
                (key, f"{unit!r} is neither iso, s, ms, us, ns nor a format with date and time of day (%Y-%m-%d %H:%M)")
            )
    problems += [("required", f"{name!r} is no column") for name in silver.required if name not in silver.columns]
    if not _is_field(silver.device) and not _is_token(silver.device) and silver.device not in _DEVICE_WORDS:
        problems.append(("device", f"must be $.field, subject:N or one of {', '.join(_DEVICE_WORDS)}"))
    if not _is_field(silver.event_time) and silver.event_time != "stored_at":
        problems.append(("event_time", "must be $.field or stored_at"))
    try:
        rfc3339_to_ns(silver.earliest)
    except ValueError:
        problems.append(("earliest", f"{silver.earliest!r} is no time (RFC 3339)"))
    problems += _duration_problems("ahead", silver.ahead)
    problems += _age_problems("keep", silver.keep or "0s")
    problems += rules_problems(silver.quality, {name: one.type for name, one in silver.typed.items()})
    problems += _schema_problems(silver)
    if not problems:
        try:
            RecordDecoder(silver.shape(by_month=False))
        except ValueError as error:
            problems.append(("columns", str(error)))
    return problems


def _schema_problems(silver: Silver) -> list[tuple[str, str]]:
    if silver.schema is None:
        return [("schema", f"is missing: {silver.format} needs one")] if silver.format in ("avro", "protobuf") else []
    if silver.format not in SUFFIXES:
        return [("schema", f"is of no use to {silver.format}")]
    paths = {key: getattr(silver.schema, key) for key in ("file", "folder", "ca")}
    if found := [(f"schema.{key}", problem) for key, path in paths.items() if (problem := has_control(path))]:
        return found
    try:
        schema_decoder(silver.format, silver.schema.source(silver.format))
    except OSError as error:
        return [("schema", f"{error.filename}: {error.strerror or error}")]
    except ValueError as error:
        return [("schema", str(error))]
    return []


def _gold_problems(gold: Gold, silver: Silver | None) -> list[tuple[str, str]]:
    if silver is None:
        return [("silver", f"there is no silver table {gold.silver!r}")]
    problems = _duration_problems("window", gold.window)
    if not problems:
        window_ns = parse_duration_ns(gold.window)
        if window_ns < NS_PER_S or _NS_PER_DAY % window_ns:
            problems.append(("window", f"{gold.window} does not divide a day into whole windows of at least 1s"))
    if bool(gold.metrics) == bool(gold.metric):
        problems.append(("metrics", "give either metrics = [columns], or metric and value"))
    if bool(gold.metric) != bool(gold.value):
        problems.append(("value", "metric and value go together"))
    for name in [*gold.metrics, gold.metric, gold.value]:
        if name and name not in silver.columns:
            problems.append(("metrics", f"{name!r} is no column of silver table {silver.name}"))
    for name in [*gold.metrics, gold.value]:
        if name in silver.columns and silver.typed[name].type not in ("double", "bigint"):
            problems.append(("metrics", f"{name!r} is not a number"))
    problems += [("metrics", f"names {name!r} twice") for name, _ in _same_names(gold.metrics)]
    shares = map(percentile_name, gold.percentiles)
    problems += [("percentiles", f"makes the column {name} twice") for name, _ in _same_names(shares)]
    return problems + _age_problems("keep", gold.keep or "0s")


def _is_field(text: str) -> bool:
    try:
        return bool(field_path(text))
    except ValueError:
        return False


def _is_unit(text: str) -> bool:
    """Return whether a text is a valid time unit; a format must contain day and time of day."""
    if "%" not in text:
        return text in ("iso", *US_PER_UNIT)
    signs = set(re.findall(r"%(.)", text))
    day = signs & set("yY") and (signs & set("jD") or (signs & set("mbB") and "d" in signs))
    return bool(day and signs & set("HI") and ("I" not in signs or "p" in signs))


def _is_token(text: str) -> bool:
    return re.fullmatch(r"subject:0*[1-9][0-9]{0,3}", text) is not None


def _same_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names that a table could not tell apart, each with the first one of its kind."""
    first: dict[str, str] = {}
    for name in names:
        if name.lower() in first:
            yield first[name.lower()], name
        first.setdefault(name.lower(), name)


def _duration_problems(key: str, text: str) -> list[tuple[str, str]]:
    try:
        if parse_duration_ns(text) < 0:
            return [(key, f"{text} is negative")]
    except ValueError:
        return [(key, f"{text!r} is not a duration (1s, 10m, 24h)")]
    return []


def _wait_problems(key: str, text: str) -> list[tuple[str, str]]:
    """Check a wait between two rounds; without one, a job would do nothing else."""
    problems = _duration_problems(key, text)
    return problems or ([] if seconds(text) else [(key, "must be longer than 0s")])


def _age_problems(key: str, text: str) -> list[tuple[str, str]]:
    problems = _duration_problems(key, text)
    if not problems and 0 < seconds(text) < _RETENTION_MIN.total_seconds():
        problems.append((key, "must be at least 24h, or 0s: rows are removed by whole days"))
    return problems
