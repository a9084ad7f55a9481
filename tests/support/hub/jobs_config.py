"""A configuration of the jobs for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from support.hub.lake_formats import lake_format

SILVER = {
    "name": "readings",
    "subjects": ["readings.>"],
    "device": "$.device",
    "event_time": "$.at",
    "event_time_unit": "ms",
    "columns": {"metric": "string", "value": "double"},
    "required": ["metric"],
}
GOLD = {"name": "minute", "silver": "readings", "metric": "metric", "value": "value", "percentiles": [0.5]}


def jobs_config(url: str, folder: Path, streams: list[str] | None = None, **bronze: Any) -> Config:
    parsed: dict[str, Any] = {
        "nats": {"servers": url, "retryFor": "20s"},
        "lake": {"path": str(folder / "lake"), "format": lake_format()},
        "bronze": {"streams": streams or ["READINGS"], **bronze},
        "silver": [SILVER],
        "gold": [GOLD],
    }
    return convert(parsed, "tests")
