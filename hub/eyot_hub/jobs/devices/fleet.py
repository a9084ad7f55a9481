"""The job `fleet`: per device the last contact, the delay of its readings, and its own status.

Delay is the time from a reading's event time to its storage at the hub. The hub's view of the backlog comes from the
table `origins` of the job `gaps`, for devices with a JetStream domain of their own. The device's view (`reported_...`,
its link) comes from the status messages that its daemon publishes, if configured (`device_statuses.py`); they also give
the time offline.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError
from eyot_hub.jobs.bronze.bronze import bronze_table, row_ids, table_position
from eyot_hub.jobs.bronze.coverage import ORIGIN
from eyot_hub.jobs.bronze.gaps import QUESTION_S, origins_table
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.device_statuses import StatusSummaries
from eyot_hub.jobs.devices.file_summaries import FileSummaries, by_device
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.removals.erasures import named
from eyot_hub.jobs.tables.increments import streams_in
from eyot_hub.planning import Planner

log = logging.getLogger(__name__)

FLEET_SCHEMA: Final = pa.schema(
    [
        ("device", pa.string()),
        ("readings", pa.int64()),
        ("first_event_at", TIMESTAMP),
        ("last_event_at", TIMESTAMP),
        ("last_stored_at", TIMESTAMP),
        ("delay_s_p50", pa.float64()),
        ("delay_s_p95", pa.float64()),
        ("delay_s_max", pa.float64()),
        ("late_readings", pa.int64()),  # stored more than a minute after the event
        ("backlog", pa.int64()),  # messages; null when the device's origin did not answer
        ("computed_at", TIMESTAMP),
        ("state", pa.string()),  # synced, behind or silent; null without status messages
        ("statuses", pa.int64()),
        ("status_at", TIMESTAMP),  # by the device's clock
        ("status_stored_at", TIMESTAMP),
        ("version", pa.string()),
        ("uptime_s", pa.float64()),
        ("linked", pa.bool_()),
        ("link_up_share", pa.float64()),  # of the statuses, 0 to 1
        ("rtt_ms_p50", pa.float64()),
        ("reported_backlog", pa.int64()),
        ("reported_backlog_bytes", pa.int64()),
        ("reported_oldest_s", pa.float64()),
        ("reported_error", pa.string()),
    ]
)
_TIMES: Final = ("first_event", "last_event", "last_stored")


class Fleet:
    """The fleet job: call `run` again and again; a later run adds what is new to the sums of the one before."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self.table = open_table(config.lake, "fleet", FLEET_SCHEMA)
        self._summaries: FileSummaries | None = None
        self._statuses: StatusSummaries | None = None

    def run(self) -> list[dict[str, Any]]:
        """Replace the table with the present fleet; return its rows by device.

        Raises Fenced where a device was erased meanwhile, which the rows may still name.
        """
        self.table.refresh()
        erased = named(self.table)
        backlogs, computed = self._backlogs(), {"computed_at": datetime.now(UTC)}
        found = {one["device"]: {**one, "backlog": backlogs.get(one["device"])} for one in self._readings()}
        for device, figures in self._reported().items():
            found[device] = {**found.get(device, {}), **figures}
        empty = dict.fromkeys(FLEET_SCHEMA.names)
        made = [{**empty, **found[device], **computed, "device": device} for device in sorted(found)]
        rows: list[dict[str, Any]] = pa.Table.from_pylist(made, FLEET_SCHEMA).to_pylist()
        self.table.replace(rows, erased)
        return rows

    def _readings(self) -> list[dict[str, Any]]:
        """Return the devices' figures from silver."""
        self._summaries = self._summaries or FileSummaries(self._spark, self._config)
        found = self._summaries.found()
        if not found.num_rows:
            return []
        rows = by_device(found, (0.5, 0.95))
        figures = {
            "device": rows.column("device"),
            "readings": rows.column("readings"),
            **{f"{name}_at": rows.column(f"{name}_us").cast(TIMESTAMP) for name in _TIMES},
            "delay_s_p50": rows.column("delay_p0"),
            "delay_s_p95": rows.column("delay_p1"),
            "delay_s_max": pc.divide(rows.column("delay_max_us").cast(pa.float64()), 1e6),
            "late_readings": rows.column("late_readings"),
        }
        made: list[dict[str, Any]] = pa.table(figures).to_pylist()
        return made

    def _reported(self) -> dict[str, dict[str, Any]]:
        """Return the devices' figures from their own statuses."""
        if not self._config.fleet.subjects:
            return {}
        self._statuses = self._statuses or StatusSummaries(self._spark, self._config)
        return self._statuses.figures(self._known_until())

    def _known_until(self) -> dict[str, int]:
        """Return for each stream that bronze lags behind the stored time of its last message in bronze.

        A hub that cannot be reached counts as ahead.
        """
        bronze = bronze_table(self._config)
        found: dict[str, int] = {}
        for name, epoch_ns in streams_in(self._spark, bronze):  # ascending: the last epoch of a stream wins
            stored_ns = bronze.position(row_ids(name, epoch_ns)[1])
            if stored_ns is not None:
                found[name] = stored_ns // 1000
        options = self._config.source()
        connect = replace(options.read.connect, retry_s=0.0, timeout_s=QUESTION_S)
        planner = Planner(replace(options, read=replace(options.read, connect=connect)))
        try:
            for info in planner.streams(must_exist=False).values():
                at, _ = table_position(bronze, info)
                if at is not None and at.sequence >= info.state.last_seq:
                    found.pop(info.name, None)
        except HubError as error:
            log.warning("cannot request how far the table is behind the hub: %s", error)
        finally:
            planner.close()
        return found

    def _backlogs(self) -> dict[str, int]:
        """Return by device how many messages of its origin's newest epochs are not in the table."""
        newest: dict[tuple[str, str], tuple[int, int]] = {}
        for row in origins_table(self._config).to_pylist():
            if row["kind"] == ORIGIN and row["last_sequence"] is not None:
                left = max(row["last_sequence"] - row["last_in_table"], 0) if row["last_in_table"] is not None else 0
                place = row["domain"], row["stream"]
                newest[place] = max(newest.get(place, (-1, 0)), (row["epoch"], left))
        found: dict[str, int] = {}
        for (domain, _), (_, left) in newest.items():
            found[domain] = found.get(domain, 0) + left
        return found
