"""The options of `format("jetstream")`, modelled on Spark's Kafka source; every error names its option.

Names are case-insensitive, as everywhere in Spark; `api_prefix` and `apiPrefix` are the same.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from eyot_hub import columns
from eyot_hub.connection import ConnectOptions, split_server
from eyot_hub.errors import OptionError
from eyot_hub.jetstream import DEFAULT_PREFIX, NS_PER_S
from eyot_hub.range_reader import DEFAULT_FETCH_BYTES, ReadOptions
from eyot_wire import subject
from eyot_wire.digits import is_digits
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.go.time import ns_to_rfc3339, rfc3339_to_ns

CONNECT: Final = [
    "servers",
    "user",
    "password",
    "token",
    "creds",
    "nkey",
    "tls",
    "tlsFirst",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "timeout",
    "retryFor",
    "domain",
    "apiPrefix",
]
_READ: Final = [
    "stream",
    "subscribePattern",
    "subjects",
    "account",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "maxMsgsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "headerColumns",
    "fetchBytes",
    "packedReads",
]
_WRITE: Final = ["subject", "expectStream", "maxInFlight", "job"]
# Options that Spark itself adds to those of a source or sink.
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "mergeschema", "recursivefilelookup"})
_TABLE_OPTION: Final = "option."
_SIZES: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_STREAM: Final = re.compile(r"[^ .>/\\\x00-\x1f\x7f]+")  # or a pattern of names, with * and ?
MIN_FETCH_BYTES: Final = 64 * 1024
MAX_FETCH_BYTES: Final = 1024**3  # a task holds them in memory
_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19

Edge = Literal["earliest", "latest"]


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends: an edge, a time, or per stream a sequence, an edge or a time (for other streams: the edge)."""

    edge: Edge
    time: str | None = None  # RFC 3339
    sequences: Mapping[str, int | str] | None = None  # texts: earliest, latest, or RFC 3339


@dataclass(frozen=True)
class Limits:
    """How much one micro-batch reads."""

    max_messages: int | None = None
    max_bytes: int | None = None  # estimated by the mean size of each stream's messages
    min_messages: int | None = None  # wait for so many, but not longer than max_delay_s
    max_delay_s: float = 900.0


@dataclass(frozen=True)
class SourceOptions:
    """The options of a reader."""

    read: ReadOptions
    streams: tuple[str, ...]  # names and patterns with * and ?
    pattern: str | None  # instead of these: a regular expression for whole names
    domain: str | None
    account: str | None
    starting: Bound
    ending: Bound
    limits: Limits
    min_partitions: int | None
    max_per_partition: int | None


@dataclass(frozen=True)
class SinkOptions:
    """The options of a writer."""

    connect: ConnectOptions
    subject: str | None
    expect_stream: str | None
    max_in_flight: int
    job: str | None  # part of the ids of messages; None: each write has its own


class _Given:
    """The given options, with a record of those that were read."""

    def __init__(self, options: Mapping[str, str], known: list[str]) -> None:
        self._values: dict[str, str] = {}
        spelled = {name.lower(): name for name in known}
        for key, value in options.items():
            folded = folded_name(key)
            if folded in spelled:
                if spelled[folded] in self._values:
                    raise OptionError(key, f"is given twice: '{spelled[folded]}' is the same")
                self._values[spelled[folded]] = value
            elif key.lower() not in _SPARKS_OWN and not key.lower().startswith("spark."):
                near = difflib.get_close_matches(folded, spelled, n=1)
                hint = f" (did you mean '{spelled[near[0]]}'?)" if near else ""
                raise OptionError(key, f"is not known{hint}; known are: {', '.join(sorted(known))}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise OptionError(name, "is empty")
        return None if value is None else value.strip()

    def listed(self, name: str) -> tuple[str, ...]:
        """Return comma-separated values; a JSON array is accepted as well."""
        value = self.text(name)
        if value is None:
            return ()
        if value.startswith("["):
            try:
                parts = json.loads(value)
            except ValueError as error:
                raise OptionError(name, f"is not a JSON list: {error}") from None
            if not all(isinstance(part, str) for part in parts):
                raise OptionError(name, "must be a list of texts")
        else:
            parts = value.split(",")
        found = tuple(part.strip() for part in parts if part.strip())
        if not found:
            raise OptionError(name, "is empty")
        return found

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(name, f"must be true or false, not {value!r}")
        return value.lower() == "true"

    def count(self, name: str) -> int | None:
        """Return a positive integer."""
        value = self.text(name)
        if value is None:
            return None
        number = _integer(value)
        if number is None or not 1 <= number <= _INT64_MAX:
            raise OptionError(name, f"must be an integer of at least 1 and at most {_INT64_MAX}, not {value!r}")
        return number

    def size(self, name: str, default: int, least: int, most: int = _INT64_MAX) -> int:
        """Return a number of bytes, with an optional k, m or g."""
        value = self.text(name)
        if value is None:
            return default
        number = value.lower().rstrip("bkmg")
        unit = value.lower()[len(number) :].removesuffix("b")
        parsed = _integer(number)
        if parsed is None or unit not in _SIZES:
            raise OptionError(name, f"must be a number of bytes such as 4194304 or 4m, not {value!r}")
        if not least <= parsed * _SIZES[unit] <= most:
            raise OptionError(name, f"must be at least {least} and at most {most} bytes")
        return parsed * _SIZES[unit]

    def seconds(self, name: str, default: float) -> float:
        """Return a duration such as 10s, 500ms or 2m, in seconds; a bare number is seconds."""
        value = self.text(name)
        if value is None:
            return default
        try:
            seconds = parse_duration_ns(value + "s" if is_digits(value.replace(".", "", 1)) else value) / NS_PER_S
        except ValueError:
            raise OptionError(name, f"must be a duration such as 10s or 500ms, not {value!r}") from None
        if seconds <= 0:
            raise OptionError(name, "must be positive")
        return seconds


def folded_name(name: str) -> str:
    """Return an option's name as all its spellings have it: `api_prefix` and `apiPrefix` are one option."""
    return name.lower().replace("_", "")


def is_stream_name(name: str) -> bool:
    """Return whether a text can be the name of one stream: no pattern of names."""
    return bool(_STREAM.fullmatch(name)) and not set(name) & set("*?")


def _integer(text: str) -> int | None:
    """Return the value of decimal digits; None for another text, and for more digits than any option takes."""
    digits = text.lstrip("0") or text[:1]
    return int(digits) if is_digits(digits) and len(digits) <= _INT64_DIGITS else None


def table_options(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the OPTIONS clause of a `CREATE TABLE`, which a prefix marks among the table's properties; else None."""
    if "provider" not in properties:
        return None
    return {key[len(_TABLE_OPTION) :]: text for key, text in properties.items() if key.startswith(_TABLE_OPTION)}


def source_options(options: Mapping[str, str], *, streaming: bool | None = False) -> SourceOptions:
    """Parse a reader's options; `streaming` None: the kind is not known yet. Raises OptionError."""
    given = _Given(options, CONNECT + _READ)
    streams, pattern = given.listed("stream"), given.text("subscribePattern")
    if not streams and pattern is None:
        raise OptionError(
            "stream", "is missing: name a stream, several (a,b) or a pattern (EDGE_*), or give subscribePattern"
        )
    if pattern is not None:
        _check_pattern(pattern, streams)
    for name in streams:
        if not _STREAM.fullmatch(name):
            raise OptionError("stream", f"has an invalid stream name: {name!r}")
    subjects = given.listed("subjects")
    for each in subjects:
        if not subject.is_valid(each.encode()):
            raise OptionError("subjects", f"has an invalid subject: {each!r}")
    starting = _bound(given, "startingOffsets", "earliest" if streaming is False else "latest")
    ending = _bound(given, "endingOffsets", "latest")
    if streaming and given.text("endingOffsets") is not None:
        raise OptionError("endingOffsets", "is for batch reads only; use the trigger availableNow")
    if streaming is False:
        if starting.edge == "latest":
            raise OptionError("startingOffsets", "must not be latest in a batch read")
        if ending.edge == "earliest":
            raise OptionError("endingOffsets", "must not be earliest")
    domain = given.text("domain")
    read = ReadOptions(
        connect=_connect(given),
        api_prefix=_api_prefix(given, domain),
        subjects=subjects,
        fetch_bytes=given.size("fetchBytes", DEFAULT_FETCH_BYTES, MIN_FETCH_BYTES, MAX_FETCH_BYTES),
        include_headers=given.flag("includeHeaders", True),
        header_columns=_header_columns(given.listed("headerColumns")),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        packed=given.flag("packedReads", False),
    )
    return SourceOptions(
        read=read,
        streams=streams,
        pattern=pattern,
        domain=domain,
        account=given.text("account"),
        starting=starting,
        ending=ending,
        limits=_limits(given),
        min_partitions=given.count("minPartitions"),
        max_per_partition=given.count("maxRecordsPerPartition"),
    )


def _check_pattern(pattern: str, streams: tuple[str, ...]) -> None:
    if streams:
        raise OptionError("subscribePattern", "cannot be used together with 'stream'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError("subscribePattern", f"is not a regular expression: {error}") from None


def _limits(given: _Given) -> Limits:
    most, alias = given.count("maxOffsetsPerTrigger"), given.count("maxMsgsPerTrigger")
    if most is not None and alias is not None:
        raise OptionError("maxMsgsPerTrigger", "cannot be used together with 'maxOffsetsPerTrigger', its other name")
    most, least = most or alias, given.count("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"is {least}, more than the {most} of maxOffsetsPerTrigger")
    return Limits(
        max_messages=most,
        max_bytes=given.size("maxBytesPerTrigger", 0, 1) or None,
        min_messages=least,
        max_delay_s=given.seconds("maxTriggerDelay", Limits.max_delay_s),
    )


def _header_columns(texts: tuple[str, ...]) -> columns.HeaderColumns:
    """Parse `Header` and `column=Header`."""
    found: dict[str, str] = {}
    for text in texts:
        column, equals, header = (part.strip() for part in text.rpartition("="))
        column = column if equals else header
        if not column or not header or set(header) & set(": \r\n"):
            raise OptionError("headerColumns", f"holds {text!r}; it must name headers: Header or column=Header")
        taken = {name.lower() for name in (*columns.ARROW_SCHEMA.names, *found)}
        if column.lower() in taken:  # Spark compares names without their case
            raise OptionError("headerColumns", f"there is another column {column!r}; write column=Header")
        found[column] = header
    return tuple(found.items())


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse a writer's options. Raises OptionError."""
    given = _Given(options, CONNECT + _WRITE)
    target = given.text("subject")
    if target is not None and not subject.is_literal(target.encode()):
        raise OptionError("subject", f"must be a subject to publish to, not {target!r}")
    expected = given.text("expectStream")
    if expected is not None and not is_stream_name(expected):
        raise OptionError("expectStream", f"must be the name of a stream, not {expected!r}")
    return SinkOptions(
        connect=_connect(given),
        subject=target,
        expect_stream=expected,
        max_in_flight=given.count("maxInFlight") or 4096,
        job=given.text("job"),
    )


def _connect(given: _Given) -> ConnectOptions:
    servers = given.listed("servers")
    if not servers:
        raise OptionError("servers", "is missing: name one or more servers (nats://host:4222)")
    for server in servers:
        split_server(server)
    user, password, token = given.text("user"), given.text("password"), given.text("token")
    creds, nkey = given.text("creds"), given.text("nkey")
    ways = [name for name, value in (("user", user), ("token", token), ("creds", creds), ("nkey", nkey)) if value]
    if len(ways) > 1:
        raise OptionError(ways[1], f"cannot be used together with '{ways[0]}': one way to log in is enough")
    if (password is None) != (user is None):
        raise OptionError("password" if password is None else "user", "is missing: user and password go together")
    cert, key = given.text("tlsCert"), given.text("tlsKey")
    if (cert is None) != (key is None):
        raise OptionError("tlsCert" if cert is None else "tlsKey", "is missing: tlsCert and tlsKey go together")
    return ConnectOptions(
        servers=servers,
        user=user,
        password=password,
        token=token,
        creds=creds,
        nkey=nkey,
        # Certificates imply TLS: a server that does not offer TLS never receives the password.
        tls=given.flag("tls", any(given.text(name) for name in ("tlsCa", "tlsCert"))),
        tls_first=given.flag("tlsFirst", False),
        tls_ca=given.text("tlsCa"),
        tls_cert=cert,
        tls_key=key,
        timeout_s=given.seconds("timeout", 10.0),
        retry_s=given.seconds("retryFor", 120.0),
    )


def _api_prefix(given: _Given, domain: str | None) -> str:
    prefix = given.text("apiPrefix")
    if prefix and domain:
        raise OptionError("apiPrefix", "cannot be used together with 'domain'")
    if domain is not None:
        if not subject.is_literal(domain.encode()) or "." in domain:
            raise OptionError("domain", f"must be one token, not {domain!r}")
        return f"$JS.{domain}.API"
    if prefix is None:
        return DEFAULT_PREFIX
    prefix = prefix.removesuffix(".>").removesuffix(".")
    if not subject.is_literal(prefix.encode()):
        raise OptionError("apiPrefix", f"must be a subject, not {prefix!r}")
    return prefix


def _bound(given: _Given, name: str, default: Edge) -> Bound:
    value = given.text(name)
    if value is None:
        return Bound(default)
    if value.lower() == "earliest":
        return Bound("earliest")
    if value.lower() == "latest":
        return Bound("latest")
    if value.startswith("{"):
        return Bound("earliest" if name == "startingOffsets" else "latest", sequences=_sequences(name, value))
    when = _time(value)
    if when is None:
        raise OptionError(
            name,
            f"is {value!r}; it must be earliest, latest, a time (2026-01-31T00:00:00Z or milliseconds) or JSON "
            '({"STREAM": 17})',
        )
    return Bound("earliest" if name == "startingOffsets" else "latest", time=when)


def _time(value: str) -> str | None:
    """Return a time, or milliseconds since 1970, as RFC 3339; None for another text."""
    try:
        milliseconds = _integer(value)
        return ns_to_rfc3339(rfc3339_to_ns(value) if milliseconds is None else milliseconds * 1_000_000)
    except (ValueError, OverflowError):
        return None


def _sequences(name: str, value: str) -> dict[str, int | str]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise OptionError(name, f"is not JSON: {error}") from None
    found: dict[str, int | str] = {}
    for stream, sequence in parsed.items():
        if (
            sequence == "latest"
            or (sequence == "earliest" and name == "startingOffsets")
            or (isinstance(sequence, int) and not isinstance(sequence, bool) and 0 <= sequence < 2**63)
        ):
            found[stream] = sequence
        elif isinstance(sequence, str) and (when := _time(sequence)) is not None:
            found[stream] = when
        else:
            raise OptionError(
                name, f"has for stream {stream!r} neither a sequence nor earliest, latest or a time: {sequence!r}"
            )
    return found
