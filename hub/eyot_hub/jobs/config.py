"""The jobs' configuration file, TOML; every error names file and key.

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
import os
import re
import tomllib
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import structs

from eyot_hub.errors import HubError, OptionError
from eyot_hub.jobs.files import PATIENCE
from eyot_hub.jobs.payload_records import RecordDecoder
from eyot_hub.jobs.payload_shape import US_PER_UNIT, Field, Shape, field_path
from eyot_hub.jobs.rules import QualitySettings, Rule, rules_problems
from eyot_hub.jobs.schema_payloads import schema_decoder
from eyot_hub.jobs.schemas import SUFFIXES, SchemaSettings
from eyot_hub.options import SourceOptions, source_options
from eyot_wire import subject
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.go.time import rfc3339_to_ns

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")]
Positive = Annotated[int, msgspec.Meta(ge=1)]
NS_PER_S: Final = 1_000_000_000
VACUUM_HOURS_MIN: Final = 1
RETENTION_MIN: Final = timedelta(hours=24)
PORT_MAX: Final = 65_535
NS_PER_DAY: Final = 86_400 * NS_PER_S
# Columns that every silver table has.
SILVER_OWN: Final = [
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
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_PATTERN_SIGNS: Final = frozenset("*?[]{}%\\")
SILVER_TYPES: Final = ("string", "double", "bigint", "boolean", "timestamp")


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
    compact_every: Annotated[int, msgspec.Meta(ge=0)] = 50  # commits, for every table; 0: never
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
        if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
            raise ValueError(f"{self.listen!r} is not HOST:PORT")
        return host.strip("[]"), int(port)


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


def load(path: str | Path) -> Config:
    """Read a configuration file. Raises ConfigError."""
    try:
        text = Path(path).read_text()
        parsed = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    return convert(parsed, str(path))


def convert(parsed: dict[str, Any], where: str) -> Config:
    """Convert parsed TOML to a configuration. Raises ConfigError, whose text begins with `where`."""
    parsed = _with_schema_secrets(_with_storage_secrets(parsed, where), where)
    try:
        config = msgspec.convert(parsed, Config)
    except msgspec.ValidationError as error:
        problem, _, key = str(error).partition(" - at `$")
        raise ConfigError(f"{where}: {_misfit(problem, key.strip('.`'))}") from None
    config.nats.update(_secrets(config.nats, where, "nats"))
    try:
        for key, problem in _problems(config):
            raise ConfigError(f"{where}: {key}: {problem}")
        config.source()
    except OptionError as error:
        key = {"stream": "bronze.streams", "startingOffsets": "bronze.start"}.get(error.option, f"nats.{error.option}")
        raise ConfigError(f"{where}: {key}: {error}") from None
    return config


def _misfit(problem: str, key: str) -> str:
    """Describe a mismatch, key first; for an unknown key, suggest a known one."""
    unknown = _UNKNOWN.fullmatch(problem)
    if unknown is None:
        return f"{key or 'file'}: {problem[0].lower()}{problem[1:]}"
    sections = {
        "": Config,
        "lake": Lake,
        "lake.catalog": IcebergCatalog,
        "bronze": Bronze,
        "gaps": Gaps,
        "fleet": FleetStatus,
        "run": Run,
        "retention": Retention,
    }
    section: Any = {**sections, "quality": QualitySettings}.get(key)
    if key.endswith("]") and ".quality[" in key:
        return f"{key}.{unknown[1]}: there is no such key of this rule"
    if key.startswith("retention.devices["):
        section = DeviceAge
    if section is None:
        section = Silver if key.startswith("silver") else Gold
    like = get_close_matches(unknown[1], section.__struct_fields__, n=1)
    return f"{key and f'{key}.'}{unknown[1]}: there is no such key{f', did you mean {like[0]}?' if like else ''}"


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 1s or 24h."""
    return parse_duration_ns(text) / NS_PER_S


def _with_storage_secrets(parsed: dict[str, Any], where: str) -> dict[str, Any]:
    """Resolve the secrets of the storage and the catalog. A section of another shape is left to the check of types."""
    lake = parsed.get("lake")
    if not isinstance(lake, dict):
        return parsed
    made, options = dict(lake), lake.get("storage_options")
    if isinstance(options, dict):
        made["storage_options"] = {**options, **_secrets(options, where, "lake.storage_options")}
    catalog = lake.get("catalog")
    if isinstance(catalog, dict):
        made["catalog"] = {
            **catalog,
            **_secrets({k: v for k, v in catalog.items() if k == "uri"}, where, "lake.catalog"),
        }
        properties = catalog.get("properties")
        if isinstance(properties, dict):
            found = _secrets(properties, where, "lake.catalog.properties")
            made["catalog"]["properties"] = {**properties, **found}
    return {**parsed, "lake": made}


def _with_schema_secrets(parsed: dict[str, Any], where: str) -> dict[str, Any]:
    """Resolve the secrets in the sections [silver.schema]."""
    tables = parsed.get("silver")
    if not isinstance(tables, list):
        return parsed
    found = []
    for index, silver in enumerate(tables):
        schema = silver.get("schema") if isinstance(silver, dict) else None
        if isinstance(silver, dict) and isinstance(schema, dict):
            secrets = _secrets(schema, where, f"silver[{index}].schema")
            silver = {**silver, "schema": {**schema, **secrets}}
        found.append(silver)
    return {**parsed, "silver": found}


def _secrets(section: dict[str, Any], where: str, name: str) -> dict[str, str]:
    """Resolve values given as `{ env = "NAME" }` or `{ file = "PATH" }`, which keep secrets out of the file."""
    found = {}
    for key, value in section.items():
        if isinstance(value, dict):
            place = f"{where}: {name}.{key}"
            if set(value) == {"env"}:
                if value["env"] not in os.environ:
                    raise ConfigError(f"{place}: the environment variable {value['env']} is not set")
                found[key] = os.environ[value["env"]]
            elif set(value) == {"file"}:
                try:
                    found[key] = Path(value["file"]).read_text().strip()
                except OSError as error:
                    raise ConfigError(f"{place}: {value['file']}: {error.strerror or error}") from None
            else:
                raise ConfigError(f"{place}: must be a text, {{ env = ... }} or {{ file = ... }}")
    return found


def _problems(config: Config) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    if set(config.lake.path) & _PATTERN_SIGNS:
        problems.append(
            ("lake.path", f"must not hold any of {' '.join(sorted(_PATTERN_SIGNS))}: Spark takes them for patterns")
        )
    problems += _lake_problems(config.lake)
    problems += _duration_problems("bronze.poll", config.bronze.poll)
    problems += _duration_problems("bronze.vacuum_after", config.bronze.vacuum_after)
    problems += _duration_problems("gaps.in_flight_max", config.gaps.in_flight_max)
    problems += _duration_problems("quality.period", config.quality.period)
    for kind in ("quarantine", "bronze", "silver", "gold"):
        problems += _age_problems(f"retention.{kind}", getattr(config.retention, kind))
    for number, rule in enumerate(config.retention.devices):
        problems += _age_problems(f"retention.devices[{number}].keep", rule.keep)
    if not problems and config.bronze.format == "parquet" and config.retention.age("bronze"):
        problems.append(("retention.bronze", "needs a table: bronze.format is parquet"))
    if config.bronze.format == "delta" and config.lake.format != "delta":
        problems.append(("bronze.format", 'delta is the format of lake.format = "delta": leave the key out'))
    if not problems and 0 < config.bronze.vacuum_hours < VACUUM_HOURS_MIN:
        problems.append(
            ("bronze.vacuum_after", "must be at least 1h: what a job has written and not committed yet is removed, too")
        )
    problems += [
        ("fleet.subjects", f"{pattern!r} is no subject")
        for pattern in config.fleet.subjects
        if not subject.is_valid(pattern.encode())
    ]
    if config.fleet.device not in ("device", "domain") and not _is_token(config.fleet.device):
        problems.append(("fleet.device", "must be device, domain or subject:N"))
    problems += _run_problems(config)
    names = [silver.name for silver in config.silver]
    for index, silver in enumerate(config.silver):
        problems += [(f"silver[{index}].{key}", problem) for key, problem in _silver_problems(silver)]
        if names.index(silver.name) != index:
            problems.append((f"silver[{index}].name", f"there is another silver table {silver.name!r}"))
    gold_names = [gold.name for gold in config.gold]
    for index, gold in enumerate(config.gold):
        found = next((silver for silver in config.silver if silver.name == gold.silver), None)
        problems += [(f"gold[{index}].{key}", problem) for key, problem in _gold_problems(gold, found)]
        if gold_names.index(gold.name) != index:
            problems.append((f"gold[{index}].name", f"there is another gold table {gold.name!r}"))
    return problems


def _lake_problems(lake: Lake) -> list[tuple[str, str]]:
    if lake.format != "iceberg":
        return []
    problems = []
    if "#" in lake.path:
        problems.append(("lake.path", "must not hold #: in Iceberg, places are URLs"))
    if not lake.catalog.uri and (lake.catalog.type == "rest" or "://" in lake.path):
        problems.append(("lake.catalog.uri", "is missing: the address of the REST catalog or of the database"))
    if not all(lake.catalog.namespace.split(".")) or not lake.catalog.name:
        problems.append(("lake.catalog", "namespace and name must not be empty"))
    return problems


def _run_problems(config: Config) -> list[tuple[str, str]]:
    run, problems = config.run, []
    for key in ("aggregate", "gaps", "fleet", "quality", "report", "maintain", "lag", "retry_max", "stop_after"):
        problems += _duration_problems(f"run.{key}", getattr(run, key))
    if run.ingest:
        problems += _duration_problems("run.ingest", run.ingest)
    try:
        _ = run.address
    except ValueError as error:
        problems.append(("run.listen", str(error)))
    if run.report_path and not Path(run.report_path).parent.is_dir():
        problems.append(("run.report_path", f"there is no folder {Path(run.report_path).parent}"))
    return problems


def _silver_problems(silver: Silver) -> list[tuple[str, str]]:
    problems = [
        ("subjects", f"{pattern!r} is no subject")
        for pattern in silver.subjects
        if not subject.is_valid(pattern.encode())
    ]
    problems += [
        ("columns", f"{name} is one of the table's own columns") for name in silver.columns if name in SILVER_OWN
    ]
    problems += [
        ("columns", f"{name} has type {one.type!r}; known are {', '.join(SILVER_TYPES)}")
        for name, one in silver.typed.items()
        if one.type not in SILVER_TYPES
    ]
    problems += [
        ("columns", f"{name} has the path {one.path!r}; it must be $.field, $.outer.inner or $['a.b']")
        for name, one in silver.typed.items()
        if not _is_field(one.path)
    ]
    for key, unit in [
        ("event_time_unit", silver.event_time_unit),
        *(("columns", one.unit) for one in silver.typed.values()),
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
        if window_ns < NS_PER_S or NS_PER_DAY % window_ns:
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
    return problems + _age_problems("keep", gold.keep or "0s")


_DEVICE_WORDS: Final = ("origin_domain", "origin_stream", "stream")


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
    head, _, number = text.partition(":")
    return head == "subject" and number.isdigit() and int(number) >= 1


def _duration_problems(key: str, text: str) -> list[tuple[str, str]]:
    try:
        if parse_duration_ns(text) < 0:
            return [(key, f"{text} is negative")]
    except ValueError:
        return [(key, f"{text!r} is not a duration (1s, 10m, 24h)")]
    return []


def _age_problems(key: str, text: str) -> list[tuple[str, str]]:
    problems = _duration_problems(key, text)
    if not problems and 0 < seconds(text) < RETENTION_MIN.total_seconds():
        problems.append((key, "must be at least 24h, or 0s: rows are removed by whole days"))
    return problems


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    return str(value)
