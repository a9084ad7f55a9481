"""Every key of hub.toml with values that it cannot have: each is refused in one line that names file and key, and no value breaks the check."""

from __future__ import annotations

import copy
import datetime
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from eyot_hub.jobs.config.config import ConfigError
from eyot_hub.jobs.config.config_file import convert, load
from eyot_hub.jobs.config.settings_check import by_keys

Key = tuple[str | int, ...]
SECRET: Final = "geheim"
RULES: Final = [
    {"rule": "range", "column": "value", "min": -40, "max": 125.5, "name": "n", "severity": "error", "allow": 0.1},
    {"rule": "regex", "column": "metric", "pattern": "a"},
    {"rule": "unique", "columns": ["metric"]},
    {"rule": "freshness", "max_age": "1h", "column": "event_time", "forget": "2h"},
    {"rule": "rate", "per": "1m", "min": 1, "max": 3},
]
CATALOG: Final = {"type": "sql", "name": "n", "namespace": "a.b", "uri": "sqlite:////x", "properties": {"a": "b"}}
TEXTS: Final = [
    "", " ", "\n", "x\0y", "é", "²", "subject:²", "subject:0", "subject:99999", "-1s", "0s", "9999999999999999h", "%", "$", "$..", "$[",
    "*", ">", "a..b", "::", "http://", "{", "[1]", "null", '{"A": []}', "9" * 30, "1" * 5000, "latest",
]  # fmt: skip
NUMBERS: Final = [-1, 0, 2**63, 2**70, 1.5, math.nan, math.inf, True]
OTHERS: Final = [
    [], [""], [1], {"a": 1}, {"env": 1}, {"file": 1}, {"env": "NOPE"}, {"env": "a\nb"}, {"file": ""}, {"file": "\0"}, {"env": "A", "file": "B"},
    datetime.datetime(2026, 1, 1), datetime.date(2026, 1, 1), datetime.time(1),
]  # fmt: skip
#: More types that a value may have than that of the documented one.
EITHER: Final[dict[str, tuple[type, ...]]] = {
    "nats.servers": (str,),
    "nats.timeout": (int, float),
    "bronze.fetch_bytes": (int,),
    "silver.columns.calibrated": (str,),
    "silver.quality.min": (int, float),
    "silver.quality.max": (int, float),
    "silver.quality.allow": (int, float),
    "spark.spark.master": (bool, int, float, dict),  # a table: the name goes on
}


def whole() -> dict[str, Any]:
    """The configuration of docs/hub/jobs.md, with what it only mentions."""
    text = (Path(__file__).parents[3] / "docs" / "hub" / "jobs.md").read_text().partition("## Configuration\n")[2]
    shown = text.partition("```toml\n")[2].partition("```")[0]
    parsed = tomllib.loads(re.sub(r"\{ file = [^}]*\}", f'"{SECRET}"', shown))
    parsed["nats"] |= {"timeout": "10s", "tls": False}
    parsed["lake"] |= {"format": "iceberg", "catalog": copy.deepcopy(CATALOG), "storage_options": {"A": "b"}}
    parsed["silver"][0] |= {
        "quality": copy.deepcopy(RULES),
        "schema": {"registry": "http://127.0.0.1:1", "user": "u", "password": "p"},
    }
    parsed["silver"][0]["columns"]["calibrated"] = {"type": "timestamp", "path": "$.x", "unit": "s"}
    return parsed


def keys(value: Any, before: Key = ()) -> Iterator[Key]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, content in inside:
        yield (*before, key)
        yield from keys(content, (*before, key))


def changed(key: Key, value: Any) -> dict[str, Any]:
    parsed = whole()
    section: Any = parsed
    for part in key[:-1]:
        section = section[part]
    section[key[-1]] = copy.deepcopy(value)
    return parsed


def fits(key: Key, known: Any, value: Any) -> bool:
    """Whether a value has the type of the documented one, or another that the key takes."""
    named = ".".join(part for part in key if isinstance(part, str))
    return type(value) in (type(known), *EITHER.get(named, ()))


@pytest.mark.parametrize("key", list(keys(whole())), ids=lambda key: ".".join(map(str, key)))
def test_a_wrong_value_is_told_by_file_and_key(key: Key) -> None:
    known: Any = whole()
    for part in key:
        known = known[part]
    for value in [*TEXTS, *NUMBERS, *OTHERS]:
        told = refusal(changed(key, value))
        if told is None:
            assert fits(key, known, value), value
            continue
        place = told.split(": ")[1]
        named = [part for part in key if isinstance(part, str)]
        # A value is named by its own key, or by its table where several go together; gold by what it needs of silver.
        assert told.startswith("hub.toml: "), value
        assert place.startswith((str(key[0]), "gold[0]")), (told, value)
        assert any(name in place for name in named[-2:]) or place.startswith("gold[0]"), (told, value)
        assert SECRET not in told
        assert "$" not in place
        assert "[...]" not in place


def refusal(parsed: dict[str, Any]) -> str | None:
    """What is said about a configuration; None: it is taken."""
    try:
        convert(parsed, "hub.toml")
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (("nats", "stream"), "A", "nats.stream: does not belong here: the key is bronze.streams"),
        (("nats", "failOnDataLoss"), "false", "nats.failOnDataLoss: does not belong here: the key is bronze.fail_on_data_loss"),
        (("nats", "usr"), "x", r"nats.usr: there is no such key, did you mean user\?"),
        (("nats", "api_prefix"), 1, "nats.api_prefix: must be a text"),
        (("nats", "tls"), "yes", "nats.tls: must be true or false"),
        (("nats", "creds"), "a\0b", "nats.creds: must not hold control characters"),
        (("nats", "Timeout"), "3s", "nats.Timeout: is given twice: 'timeout' is the same"),
        (("lake", "path"), "", "lake.path: must not be empty"),
        (("lake", "path"), "/a\nb", "lake.path: must not hold control characters"),
        (("lake", "storage_options"), {"A": "b", "B": 1}, r"lake.storage_options.B: expected `str`, got `int`"),
        (("lake", "catalog", "properties"), {"A": "b", "B": 1}, r"lake.catalog.properties.B: expected `str`, got `int`"),
        (("bronze", "start"), "latest", r"bronze.start: must not be latest: give a time"),
        (("bronze", "poll"), "0s", "bronze.poll: must be longer than 0s"),
        (("bronze", "fetch_bytes"), "2g", "bronze.fetch_bytes: must be at least 65536 and at most 1073741824 bytes"),
        (("silver", 0, "subjects"), [], r"silver\[0\].subjects: must name a subject"),
        (("silver", 0, "columns", "a b"), "double", r"silver\[0\].columns.a b: "),
        (("silver", 0, "columns", "Device"), "string", r"silver\[0\].columns.Device: is one of the table's own"),
        (("silver", 0, "columns", "Value"), "double", r"silver\[0\].columns.Value: is one name with value"),
        (("silver", 0, "columns", "calibrated", "units"), "s", r"silver\[0\].columns.calibrated.units: .* did you mean unit\?"),
        (("silver", 0, "schema", "regstry"), "x", r"silver\[0\].schema.regstry: .* did you mean registry\?"),
        (("gold", 0, "percentiles"), [0.5, 0.5], r"gold\[0\].percentiles: makes the column p50 twice"),
        (("fleet", "streams"), ["EDGE_*"], r"fleet.streams: 'EDGE_\*' is no name of a stream"),
        (("run", "retry_max"), "0s", "run.retry_max: must be longer than 0s"),
        (("run", "report_path"), "/", "run.report_path: / is a folder"),
        (("spark", "master"), "local", "spark.master: is no setting of Spark"),
        (("spark", "spark.master"), ["local"], "spark.spark.master: must be a text, a number, true or false"),
    ],
)  # fmt: skip
def test_what_is_said(key: Key, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^hub.toml: {problem}"):
        convert(changed(key, value), "hub.toml")


def test_a_catalog_without_its_format() -> None:
    parsed = changed(("lake", "format"), "delta")
    with pytest.raises(ConfigError, match="is of use to"):
        convert(parsed, "hub.toml")


def test_settings_of_spark_need_no_quotes() -> None:
    plain = tomllib.loads('[spark]\nspark.master = "local[1]"\nspark.ui.enabled = false\n')
    assert convert({**whole(), **plain}, "hub.toml").spark_settings() == {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
    }


def test_files_from_other_editors(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    text = '[nats]\nservers = "nats://a"\n[lake]\npath = "/größe"\n[bronze]\nstreams = ["S"]\n'
    path.write_text("\ufeff" + text.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert load(path).lake.path == "/größe"
    path.write_text(text + "a = " + "[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(path)
    path.write_text(text.replace('"S"', '"S"]\nstreams = ["T"'))
    with pytest.raises(ConfigError, match=r"Cannot overwrite a value \(at line 7"):
        load(path)


def test_a_secret_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=f"nats.password: {path}: is not UTF-8 text"):
        convert(changed(("nats", "password"), {"file": str(path)}), "hub.toml")


def test_errors_of_the_reader_name_keys() -> None:
    """The options of the data source are no keys of hub.toml, where most of them would be unknown."""
    lost = "messages 1 to 5 of stream R are gone; with the option failOnDataLoss=false reading goes on behind them"
    assert by_keys(lost).endswith("with bronze.fail_on_data_loss = false reading goes on behind them")
    assert by_keys("option 'stream' names a stream that does not exist: 'R'").startswith("bronze.streams names")
    assert by_keys("option 'tlsCa' names a file") == "nats.tlsCa names a file"
