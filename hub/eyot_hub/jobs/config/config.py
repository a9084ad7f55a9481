"""The sections of the jobs' configuration file.

    [nats]                                  # the options of format("jetstream"): servers, user, creds, tls, domain, ...
    servers = ["nats://hub:4222"]

    [lake]
    path = "/var/lib/eyot/lake"

    [bronze]
    streams = ["READINGS"]

    [[silver]]
    name = "readings"
    subjects = ["readings.>"]
    device = "$.device"
    event_time = "$.at"
    columns = { metric = "string", value = "double" }

    [[gold]]
    name = "readings_minute"
    silver = "readings"
    metric = "metric"
    value = "value"

docs/hub/jobs.md explains each key.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import structs

from eyot_hub.errors import HubError
from eyot_hub.jobs.config.rules import QualitySettings, Rule
from eyot_hub.jobs.payloads.payload_shape import Field, Shape, field_path
from eyot_hub.jobs.payloads.schemas import SchemaSettings
from eyot_hub.jobs.tables.files import PATIENCE
from eyot_hub.options import SourceOptions, source_options
from eyot_wire.digits import parse_uint
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.go.time import rfc3339_to_ns

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")]
INT64_MAX: Final = 2**63 - 1
Positive = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]
NS_PER_S: Final = 1_000_000_000
PORT_MAX: Final = 65_535


class ConfigError(HubError):
    """An unusable configuration file; the text names file and key."""


class _Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class IcebergCatalog(_Section):
    """Where Iceberg tables are registered; `properties`: more of pyiceberg's, by its names.

    `places`: who says where a new table's files are: the lake (`lake.path` and the table's name) or the catalog.
    """

    type: Literal["sql", "rest"] = "sql"
    name: str = "eyot"
    namespace: str = "eyot"
    uri: str = ""  # default: a database of SQLite in `lake.path`
    warehouse: str = ""
    places: Literal["lake", "catalog"] = "lake"
    properties: dict[str, str] = {}


class Lake(_Section):
    """Where the tables are. `partition`: granularity of event time in the partitions of gold and silver."""

    path: str
    format: Literal["delta", "iceberg"] = "delta"
    catalog: IcebergCatalog = msgspec.field(default_factory=IcebergCatalog)
    partition: Literal["day", "month"] = "day"
    compression: Literal["zstd", "snappy", "none"] = "zstd"
    storage_options: dict[str, str] = {}
    checkpoints: str = ""  # Spark's checkpoints (devices, plain Parquet); default: `path`

    @property
    def storage(self) -> dict[str, str]:
        """delta-rs's options; requests to object storage are repeated for minutes, unless the configuration says otherwise."""
        return {**PATIENCE, **self.storage_options} if "://" in self.path else self.storage_options


class Bronze(_Section):
    """The ingested streams and the size of commits."""

    streams: list[str]
    format: Literal["table", "delta", "parquet"] = "table"  # `delta` is the older name of `table`
    subjects: list[str] = []
    start: str = "earliest"
    max_messages_per_commit: Positive = 1_000_000
    partitions: Positive | None = None
    poll: str = "1s"
    fail_on_data_loss: bool = True
    fetch_bytes: int | str = "4m"
    packed_reads: bool = False  # for an Eyot hub
    compact_every: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)] = 50  # commits, for every table; 0: never
    vacuum_after: str = "168h"  # "0s": never

    @property
    def vacuum_hours(self) -> float:
        return seconds(self.vacuum_after) / 3600


class Column(_Section):
    """A silver column: its type, and the path of its value in the payload (default: `$.` and the column's name).

    `unit` of a timestamp: iso, s, ms, us, ns, or a format of strptime.
    """

    type: str
    path: str = ""
    unit: str = "iso"


class Silver(_Section):
    """Payloads of some subjects as typed columns."""

    name: Name
    subjects: list[str]
    device: str
    event_time: str
    columns: dict[Name, str | Column]
    format: Literal["json", "msgpack", "cbor", "avro", "protobuf"] = "json"
    schema: SchemaSettings | None = None  # of avro, protobuf, and json where it is checked
    event_time_unit: str = "iso"  # or s, ms, us, ns, or a format of strptime
    non_finite: bool = False  # accept NaN and infinities
    required: list[str] = []
    earliest: str = "2000-01-01T00:00:00Z"
    ahead: str = "24h"  # the most that an event may lie after its storage at the hub
    quality: list[Rule] = []
    keep: str = ""  # default: retention.silver

    @property
    def typed(self) -> dict[str, Column]:
        """The columns with all defaults filled in."""
        columns = {name: one if isinstance(one, Column) else Column(type=one) for name, one in self.columns.items()}
        return {name: structs.replace(one, path=one.path or f"$['{name}']") for name, one in columns.items()}

    def shape(self, *, by_month: bool) -> Shape:
        """Return what tasks extract from payloads. Raises ValueError for an invalid path or schema, OSError for its file."""
        device: Field | str = self.device
        if self.device.startswith("$"):
            device = Field(self.device, field_path(self.device), "string")
        event_time = None
        if self.event_time != "stored_at":
            event_time = Field(self.event_time, field_path(self.event_time), "timestamp", self.event_time_unit)
        return Shape(
            format=self.format,
            columns=tuple(Field(name, field_path(one.path), one.type, one.unit) for name, one in self.typed.items()),
            device=device,
            event_time=event_time,
            required=tuple(self.required),
            earliest=self.earliest,
            earliest_us=rfc3339_to_ns(self.earliest) // 1000,
            ahead=self.ahead,
            ahead_us=int(seconds(self.ahead) * 1_000_000),
            by_month=by_month,
            non_finite=self.non_finite,
            schema=None if self.schema is None else self.schema.source(self.format),
        )


class Gold(_Section):
    """Windows over one silver table: either `metrics` (one column each) or `metric` and `value` (one row each)."""

    name: Name
    silver: str
    window: str = "1m"
    metrics: list[str] = []
    metric: str = ""
    value: str = ""
    percentiles: list[Annotated[float, msgspec.Meta(gt=0, lt=1)]] = []
    keep: str = ""  # default: retention.gold


class FleetStatus(_Section):
    """Subjects of the devices' status messages (`eyot { status { } }` of their daemons); no subjects: no statuses."""

    subjects: list[str] = []
    streams: list[str] = []  # only in these streams; none: in all of bronze
    device: str = "device"  # the device's identity: device (its server's name), domain, or subject:N


class Gaps(_Section):
    """Settings of the job `gaps`; `ask_origins`: request from the origins' domains what they still hold."""

    ask_origins: bool = True
    in_flight_max: str = (
        "24h"  # after this time without any later message of the origin, a message in flight counts as missing
    )

    @property
    def in_flight_us(self) -> int:
        return int(seconds(self.in_flight_max) * 1_000_000)


class DeviceAge(_Section):
    """How long silver and gold keep the rows of devices whose name fits a pattern (`*`, `?`, `[abc]`)."""

    devices: Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
    keep: str


class Retention(_Section):
    """How long tables keep rows; "0s": for ever. `keep` of a silver or gold table precedes.

    Bronze and quarantine count from the time when the hub stored the message, silver and gold from the event.
    """

    quarantine: str = "0s"
    bronze: str = "0s"
    silver: str = "0s"
    gold: str = "0s"
    devices: list[DeviceAge] = []  # the first pattern that fits a device counts

    @property
    def patterns(self) -> list[str]:
        """The patterns of devices, in order."""
        return [pattern for one in self.devices for pattern in one.devices]

    @property
    def device_ages(self) -> list[tuple[str, timedelta]]:
        """How long the rows of each pattern's devices are kept; 0: as long as the table keeps rows."""
        return [(pattern, timedelta(seconds=seconds(one.keep))) for one in self.devices for pattern in one.devices]

    def age(self, kind: Literal["bronze", "quarantine", "silver", "gold"], keep: str = "") -> timedelta:
        """Return how long a table of this kind keeps rows; 0: for ever. `keep`: the table's own setting."""
        return timedelta(seconds=seconds(keep or getattr(self, kind)))


class Run(_Section):
    """How long each job of `eyot-hub run` waits after a round; "0s": the job does not run."""

    ingest: str = ""  # default: bronze.poll
    aggregate: str = "5s"
    gaps: str = "10m"
    fleet: str = "1m"
    quality: str = "10m"
    report: str = "10m"
    report_path: str = ""  # no path: no report
    maintain: str = "1h"
    lag: str = "10s"
    listen: str = ""  # HOST:PORT of /healthz and /metrics; none: no endpoint
    retry_max: str = "5m"
    stop_after: str = "60s"  # how long rounds may take to end at a stop

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of `listen`. Raises ValueError."""
        if not self.listen:
            return None
        host, colon, port = self.listen.rpartition(":")
        number = parse_uint(port)
        if not colon or number is None or number > PORT_MAX:
            raise ValueError(f"{self.listen!r} is not HOST:PORT")
        return host.strip("[]"), number


class Config(_Section):
    nats: dict[str, Any]
    lake: Lake
    bronze: Bronze
    silver: list[Silver] = []
    gold: list[Gold] = []
    gaps: Gaps = msgspec.field(default_factory=Gaps)
    fleet: FleetStatus = msgspec.field(default_factory=FleetStatus)
    quality: QualitySettings = msgspec.field(default_factory=QualitySettings)
    retention: Retention = msgspec.field(default_factory=Retention)
    run: Run = msgspec.field(default_factory=Run)
    spark: dict[str, Any] = {}

    def source(self) -> SourceOptions:
        """Return the options of format("jetstream") that [nats] and [bronze] define."""
        return source_options(self.source_mapping())

    def source_mapping(self) -> dict[str, str]:
        """Return the same options as text, for `spark.read.format("jetstream").options(...)`."""
        options = {key: _option_text(value) for key, value in self.nats.items()}
        options["stream"] = json.dumps(self.bronze.streams)  # a name may contain a comma
        options["startingOffsets"] = self.bronze.start
        options["failOnDataLoss"] = str(self.bronze.fail_on_data_loss).lower()
        options["fetchBytes"] = str(self.bronze.fetch_bytes)
        options["packedReads"] = str(self.bronze.packed_reads).lower()
        if self.bronze.subjects:
            options["subjects"] = json.dumps(self.bronze.subjects)
        if self.bronze.partitions:
            options["minPartitions"] = str(self.bronze.partitions)
        return options

    def spark_settings(self) -> dict[str, str]:
        return {key: _option_text(value) for key, value in self.spark.items()}

    def checkpoint(self, name: str) -> str:
        """Return where a streaming query's checkpoint is. Raises ConfigError where Spark cannot reach it."""
        root = self.lake.checkpoints or self.lake.path
        if "://" in root and not self.lake.checkpoints:
            raise ConfigError(
                f"lake.checkpoints: must name a folder for Spark's checkpoints: Spark itself may be unable to reach {root}"
            )
        return f"{root.rstrip('/')}/{name}-checkpoint"

    def folder(self, *names: str) -> str:
        """Return where a table is."""
        return "/".join([self.lake.path.rstrip("/"), *names])


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 1s or 24h."""
    return parse_duration_ns(text) / NS_PER_S


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    return str(value)
