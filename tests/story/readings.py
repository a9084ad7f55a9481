"""What the devices of the story measure: this machine's own live metrics, and a public weather data set replayed.

Weather comes from the package `vega_datasets` (its files lie in the package, nothing is fetched): hourly temperatures of
San Francisco and daily weather of Seattle. Each series is replayed as several devices, each with a fixed offset of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import psutil
from vega_datasets import local_data

STATIONS = 5
SEATTLE_METRICS = ("precipitation", "temp_max", "temp_min", "wind")


class Reading(NamedTuple):
    """One message to publish: `id` is unique in the whole story and goes out as `Nats-Msg-Id`."""

    id: str
    subject: str
    payload: bytes


def reading_of(device: str, metric: str, number: int, at: str, value: float) -> Reading:
    """Return one reading; its id follows from its payload, too: see `id_in`."""
    body = {"device": device, "metric": metric, "number": number, "at": at, "value": round(value, 3)}
    return Reading(f"{device}/{metric}/{number}", f"readings.{device}.{metric}", json.dumps(body).encode())


def id_in(payload: bytes) -> str:
    """Return the id of a reading from its payload: that of a client of MQTT has no `Nats-Msg-Id`."""
    body = json.loads(payload)
    return f"{body['device']}/{body['metric']}/{body['number']}"


def weather() -> Iterator[Reading]:
    """49,639 readings of seven devices, in the order in which they would have been measured."""
    temperatures = [(row.date.isoformat() + "Z", float(row.temp)) for row in local_data.sf_temps().itertuples()]
    for number, (at, temperature) in enumerate(temperatures):
        for station in range(STATIONS):
            yield reading_of(f"sf-{station}", "temperature", number, at, temperature + 0.1 * station)
    for number, row in enumerate(local_data.seattle_weather().itertuples()):
        at = row.date.isoformat() + "Z"
        for metric in SEATTLE_METRICS:
            yield reading_of("seattle", metric, number, at, float(getattr(row, metric)))


def machine(now_iso: str, number: int) -> Iterator[Reading]:
    """This machine's load, memory, disk and network counters, measured now."""
    network = psutil.net_io_counters()
    values = {
        "cpu_percent": psutil.cpu_percent(interval=None),
        "memory_percent": psutil.virtual_memory().percent,
        "load_1m": psutil.getloadavg()[0],
        "disk_percent": psutil.disk_usage("/").percent,
        "net_bytes_sent": float(network.bytes_sent if network else 0),
    }
    for metric, value in values.items():
        yield reading_of("gateway", metric, number, now_iso, value)
