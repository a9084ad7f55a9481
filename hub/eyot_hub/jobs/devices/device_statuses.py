"""The devices' status messages (`eyot_wire.status.DeviceStatus`) in bronze, and the table `fleet_statuses`.

A device is silent when no status has followed the last one for three of its intervals: it is off, or offline with data
still to come. The reference is the time of the last ingest, not the present: rows that are not ingested yet are not the
device's silence. Statuses are ordered by the device's own time, so that late ones fall into place.

The table holds what each file of bronze has of each device's statuses (`summary_table.py`), so that each file is read once.
A status that lies in several files counts once: a row names each of its statuses by the device's time. A process that
goes on remembers these times of the last statuses only, and adds up the whole table where older ones come.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from eyot_hub.jobs.bronze.bronze import bronze_table
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.summary_table import SummaryTable
from eyot_hub.jobs.silver import parsing
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.jobs.tables.table_format import TableFile

FLEET_STATUSES: Final = "fleet_statuses"
AHEAD_US: Final = 60_000_000  # how far clocks may lie apart
SILENT_INTERVALS: Final = 3
TAIL: Final = 64  # statuses of a device whose times are kept in memory
SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),  # of the file of bronze
        ("definition", pa.string()),  # by which statuses are found
        ("device", pa.string()),  # null: the file has been read, in a row of its own
        ("stream", pa.string()),  # of the status that was stored last
        ("last_stored_us", pa.int64()),
        ("said", pa.string()),  # the newest status, as JSON
        ("statuses", pa.binary()),  # of all statuses, by time: `_STATUS` each
    ]
)
#: One status: the device's time in microseconds; whether it was linked, -1 for unknown; the round trip in ms, or NaN.
_STATUS: Final = np.dtype([("at", "<i8"), ("linked", "i1"), ("rtt", "<f4")])
_READ: Final = ("subject", "stream", "stored_at", "payload")
_FIELDS: Final = (
    "device STRING, domain STRING, at STRING, every_s DOUBLE, version STRING, uptime_s DOUBLE, linked BOOLEAN, rtt_ms DOUBLE, "
    "synced BOOLEAN, backlog BIGINT, backlog_bytes BIGINT, oldest_s DOUBLE, store_error STRING, link_error STRING"
)
_RTT_WIDTH: Final = float(np.log(1.02))  # of the classes of round trips: each is 2 % wider than the one before
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
Statuses = npt.NDArray[Any]


@dataclass
class Device:
    """What the statuses of one device add up to."""

    stream: str = ""
    last_stored_us: int = -(1 << 63)
    said: str = "{}"
    last_at_us: int = -(1 << 63)
    statuses: int = 0
    linked_known: int = 0
    linked: int = 0
    rtt: dict[int, int] = field(default_factory=dict)  # how many round trips have a class
    rtt_least: float = math.inf
    rtt_most: float = -math.inf
    #: The newest statuses by time, at least TAIL of them or all.
    tail: Statuses = field(default_factory=lambda: np.empty(0, _STATUS))

    def add(self, row: Mapping[str, Any]) -> bool:
        """Add a row of the table, but no status twice; return False where that takes all rows of the device."""
        new = np.frombuffer(row["statuses"], _STATUS)
        if self.statuses > len(self.tail) and new["at"][0] < self.tail["at"][0]:
            return False
        _, first = np.unique(np.concatenate([self.tail["at"], new["at"]]), return_index=True)
        fresh = new[first[first >= len(self.tail)] - len(self.tail)]
        self.statuses += len(fresh)
        known = fresh["linked"][fresh["linked"] >= 0]
        self.linked_known += len(known)
        self.linked += int(known.sum())
        self._add_rtt(fresh["rtt"][np.isfinite(fresh["rtt"])].astype(np.float64))
        self.tail = np.concatenate([self.tail, new])[first]
        if len(self.tail) > 2 * TAIL:
            self.tail = self.tail[-TAIL:].copy()
        self.last_at_us, self.said = max((self.last_at_us, self.said), (int(new["at"][-1]), row["said"]))
        stored = max((self.last_stored_us, self.stream), (row["last_stored_us"], row["stream"]))
        self.last_stored_us, self.stream = stored
        return True

    def _add_rtt(self, rtt: npt.NDArray[np.float64]) -> None:
        if len(rtt):
            self.rtt_least, self.rtt_most = min(self.rtt_least, float(rtt.min())), max(self.rtt_most, float(rtt.max()))
            classes, counts = np.unique(np.floor(np.log(np.maximum(rtt, 1e-6)) / _RTT_WIDTH), return_counts=True)
            for one, count in zip(classes.astype(int).tolist(), counts.tolist(), strict=True):
                self.rtt[one] = self.rtt.get(one, 0) + count

    @property
    def rtt_median(self) -> float | None:
        """The median round trip in ms, within 1 %; None: none is known."""
        half, seen = sum(self.rtt.values()) / 2, 0
        for one, count in sorted(self.rtt.items()):
            seen += count
            if seen >= half:
                return float(np.clip(np.exp((one + 0.5) * _RTT_WIDTH), self.rtt_least, self.rtt_most))
        return None

    def figures(self, known_until: Mapping[str, int], now_us: int) -> dict[str, Any]:
        """Return the device's columns of the table `fleet`. `known_until`: as of `StatusSummaries.figures`."""
        # Spark writes NaN and infinities as texts.
        said = {name: None if value in _NO_NUMBERS else value for name, value in json.loads(self.said).items()}
        ahead = self.last_stored_us > now_us + AHEAD_US  # stored when the hub's clock was ahead: the device's says more
        heard_us = self.last_at_us if ahead else self.last_stored_us
        silent_s = (min(known_until.get(self.stream, now_us), now_us) - heard_us) / 1e6
        every_s = said.get("every_s")
        error = said.get("store_error")
        silent = every_s is not None and silent_s > SILENT_INTERVALS * every_s
        return {
            "state": "silent" if silent else "synced" if said.get("synced") else "behind",
            "statuses": self.statuses,
            "status_at": self.last_at_us,
            "status_stored_at": self.last_stored_us,
            "version": said.get("version"),
            "uptime_s": said.get("uptime_s"),
            "linked": said.get("linked"),
            "link_up_share": self.linked / self.linked_known if self.linked_known else None,
            "rtt_ms_p50": self.rtt_median,
            "reported_backlog": said.get("backlog"),
            "reported_backlog_bytes": said.get("backlog_bytes"),
            "reported_oldest_s": said.get("oldest_s"),
            "reported_error": error if error is not None else said.get("link_error"),
        }


class StatusSummaries(SummaryTable[dict[str, Device]]):
    """The statuses in bronze, by device."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        fleet = config.fleet
        definition = json.dumps({"subjects": sorted(fleet.subjects), "device": fleet.device})
        super().__init__(spark, config, FLEET_STATUSES, SCHEMA, definition)
        self._bronze = bronze_table(config)

    def figures(self, known_until: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """Return each device's columns of the table `fleet`.

        `known_until`: for each stream, up to when the table holds its messages (microseconds since 1970); others: up to
        now.
        """
        now_us = time.time_ns() // 1000
        return {name: device.figures(known_until, now_us) for name, device in self.found().items()}

    def _sources(self) -> list[tuple[LakeTable, list[TableFile]]]:
        self._bronze.refresh()
        streams = self._config.fleet.streams
        return [(self._bronze, self._bronze.files(stream=set(streams)) if streams else self._bronze.files())]

    def _summarised(self, table: LakeTable, files: Sequence[TableFile]) -> pa.Table:
        rows = table.dataframe(self._spark, files, _READ, with_path=True)
        rows = said(rows.where(parsing.matches(self._config.fleet.subjects)), self._config, ["path"])
        columns: list[str | Column] = ["path", "device", "stream", F.unix_micros("stored_at").alias("stored_us")]
        columns += [F.unix_micros("at").alias("at_us"), "said.linked", "said.rtt_ms", F.to_json("said").alias("said")]
        made = rows.select(*columns).mapInArrow(_summaries, from_arrow_schema(SCHEMA))
        read = pa.Table.from_pylist([{"path": file.path} for file in files], SCHEMA)
        found = pa.concat_tables([made.toArrow().cast(SCHEMA), read])
        definition = pa.repeat(pa.scalar(self._definition, pa.string()), found.num_rows)
        return found.set_column(SCHEMA.get_field_index("definition"), SCHEMA.field("definition"), definition)

    def _total(self, rows: pa.Table) -> dict[str, Device]:
        total: dict[str, Device] = {}
        for name, held in _by_device(rows).items():
            statuses = np.concatenate([np.frombuffer(row["statuses"], _STATUS) for row in held])
            newest = max(held, key=lambda row: (_last_at(row), row["said"]))
            stored = max(held, key=lambda row: (row["last_stored_us"], row["stream"]))
            total[name] = Device()
            total[name].add({**stored, "said": newest["said"], "statuses": _once(statuses).tobytes()})
        return total

    def _added(self, total: dict[str, Device], fresh: pa.Table) -> dict[str, Device] | None:
        for name, rows in _by_device(fresh).items():
            device = total.setdefault(name, Device())
            if not all(device.add(row) for row in rows):
                return None
        return total

    def _packed(self, total: dict[str, Device]) -> Iterator[tuple[str, bytes]]:
        for name, device in total.items():
            yield name, msgspec.msgpack.encode({**vars(device), "tail": device.tail.tobytes()})

    def _unpacked(self, packed: Iterable[tuple[str, bytes]]) -> dict[str, Device]:
        return {name: Device(**_device_fields(one)) for name, one in packed}


def _device_fields(packed: bytes) -> dict[str, Any]:
    held = msgspec.structs.asdict(_DECODER.decode(packed))
    return {**held, "tail": np.frombuffer(held["tail"], _STATUS)}


class _PackedDevice(msgspec.Struct):
    """A `Device` in a stored sum."""

    stream: str
    last_stored_us: int
    said: str
    last_at_us: int
    statuses: int
    linked_known: int
    linked: int
    rtt: dict[int, int]
    rtt_least: float
    rtt_most: float
    tail: bytes


_DECODER: Final = msgspec.msgpack.Decoder(_PackedDevice)


def _by_device(rows: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows.filter(pc.is_valid(rows.column("device"))).drop_columns(["path"]).to_pylist():
        found.setdefault(row["device"], []).append(row)
    return found


def _last_at(row: Mapping[str, Any]) -> int:
    return int(np.frombuffer(row["statuses"], _STATUS)["at"][-1])


def _once(statuses: Statuses) -> Statuses:
    """Return statuses by time, each time once."""
    _, first = np.unique(statuses["at"], return_index=True)
    return statuses[first]


def _summaries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return rows of the table for parsed statuses, in a task: one for each device and file of a batch."""
    for batch in batches:
        rows = pa.Table.from_batches([batch]).sort_by([(name, "ascending") for name in ("path", "device", "at_us")])
        statuses = np.empty(rows.num_rows, _STATUS)
        statuses["at"] = rows.column("at_us").to_numpy()
        statuses["linked"] = pc.fill_null(rows.column("linked").cast(pa.int8()), -1).to_numpy()
        statuses["rtt"] = pc.fill_null(rows.column("rtt_ms"), np.nan).to_numpy()
        keys = rows.select(["path", "device"]).to_pylist()
        starts = [number for number, key in enumerate(keys) if not number or key != keys[number - 1]]
        said, stored, stream = (rows.column(name) for name in ("said", "stored_us", "stream"))
        made = []
        for begin, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
            last = begin + int(np.argmax(stored.slice(begin, end - begin).to_numpy()))
            made.append(
                {
                    **keys[begin],
                    "stream": stream[last].as_py(),
                    "last_stored_us": stored[last].as_py(),
                    "said": said[end - 1].as_py(),
                    "statuses": _once(statuses[begin:end]).tobytes(),
                }
            )
        yield from pa.Table.from_pylist(made, SCHEMA).to_batches()


def said(rows: DataFrame, config: Config, kept: Sequence[str] = ()) -> DataFrame:
    """Return the statuses among rows of bronze or of the source, with the columns `kept`; other rows are left out."""
    rows = rows.select(
        *kept, "subject", "stream", "stored_at", F.from_json(F.col("payload").cast("string"), _FIELDS).alias("said")
    )
    rows = rows.select(
        *kept,
        _device(config.fleet.device).alias("device"),
        F.try_to_timestamp("said.at").alias("at"),
        "stored_at",
        "stream",
        "said",
    )
    return rows.where("device is not null and device != '' and at is not null")


def _device(named: str) -> Column:
    return parsing.subject_token(named) if named.startswith("subject:") else F.col(f"said.{named}")
