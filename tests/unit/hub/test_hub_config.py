"""The jobs' configuration file: what it comes to, and mistakes that name file and key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from eyot_hub.errors import HubError
from eyot_hub.jobs.config.config import Bronze, Config, ConfigError, FleetStatus, Gaps, Gold, Lake, Silver
from eyot_hub.jobs.config.config_file import convert, load
from eyot_hub.jobs.payloads.schemas import SchemaSettings
from eyot_hub.main import main
from eyot_hub.show import Show

GOOD = """
[nats]
servers = ["nats://a:4222", "nats://b:4222"]
user = "spark"
password = { env = "HUB_PASSWORD" }
domain = "hub"

[lake]
path = "/tmp/lake/"
partition = "month"

[bronze]
streams = ["READINGS", "EDGE_*"]
subjects = ["readings.>"]
partitions = 3

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
percentiles = [0.5]

[spark]
"spark.sql.shuffle.partitions" = 8
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hub.toml"
    path.write_text(text)
    return path


def test_what_a_file_comes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_PASSWORD", "geheim")
    config = load(written(tmp_path, GOOD))
    source = config.source()
    assert source.streams == ("READINGS", "EDGE_*")
    assert source.read.connect.servers == ("nats://a:4222", "nats://b:4222")
    assert source.read.connect.password == "geheim"
    assert source.read.api_prefix == "$JS.hub.API"
    assert source.min_partitions == 3
    assert config.folder("gold", "x") == "/tmp/lake/gold/x"
    assert config.spark_settings() == {"spark.sql.shuffle.partitions": "8"}


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("geheim\n")
    config = load(written(tmp_path, GOOD.replace('{ env = "HUB_PASSWORD" }', f'{{ file = "{secret}" }}')))
    assert config.source().read.connect.password == "geheim"


def test_secrets_of_object_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_PASSWORD", "geheim")
    monkeypatch.setenv("STORAGE_KEY", "me")
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t\n")
    keys = f'AWS_REGION = "eu", AWS_ACCESS_KEY_ID = {{ env = "STORAGE_KEY" }}, AWS_SECRET_ACCESS_KEY = {{ file = "{secret}" }}'
    text = GOOD.replace("[lake]", f"[lake]\nstorage_options = {{ {keys} }}")
    expected = {"AWS_REGION": "eu", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
    assert load(written(tmp_path, text)).lake.storage_options == expected
    for new, words in (
        ('{ file = "/none" }', "AWS_SECRET_ACCESS_KEY: /none: No such file or directory"),
        ('{ env = "HUB_NONE" }', "AWS_SECRET_ACCESS_KEY: the environment variable HUB_NONE is not set"),
        ('{ key = "x" }', "AWS_SECRET_ACCESS_KEY: must be a text, "),
    ):
        with pytest.raises(ConfigError, match=f"hub.toml: lake.storage_options.{words}"):
            load(written(tmp_path, text.replace(f'{{ file = "{secret}" }}', new)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[lake]", "[lakes]", "lakes: there is no such key, did you mean lake\\?"),
        ("partitions = 3", "partition = 3", r"bronze.partition: there is no such key, did you mean partitions\?"),
        ("partitions = 3", "other = 3", "bronze.other: there is no such key$"),
        ('event_time = "$.at"', 'evnt_time = "$.at"', r"silver\[0\].evnt_time: .* did you mean event_time\?"),
        (
            '{ env = "HUB_PASSWORD" }',
            '{ env = "HUB_NONE" }',
            "nats.password: the environment variable HUB_NONE is not set",
        ),
        ('{ env = "HUB_PASSWORD" }', '{ file = "/none" }', "nats.password: /none: No such file or directory"),
        ('partition = "month"', 'partition = "week"', "lake.partition"),
        ("partitions = 3", 'partitions = "3"', "bronze.partitions"),
        ('servers = ["nats://a:4222", "nats://b:4222"]', "", "nats.servers"),
        ('domain = "hub"', 'domian = "hub"', "nats.domian"),
        ('streams = ["READINGS", "EDGE_*"]', "streams = []", "bronze.streams"),
        ('device = "$.device"', 'device = "the device"', r"silver\[0\].device"),
        ('device = "$.device"', 'device = "subject:x"', r"silver\[0\].device"),
        ('event_time = "$.at"', 'event_time = "at"', r"silver\[0\].event_time"),
        ('value = "double" }', 'value = "float" }', r"silver\[0\].columns.value: has type"),
        ('value = "double" }', 'stream = "double" }', r"silver\[0\].columns.stream: is one of"),
        ('name = "readings"', 'name = "a/b"', "name"),
        ('silver = "readings"', 'silver = "other"', r"gold\[0\].silver: there is no silver table 'other'"),
        ('value = "value"', 'value = "metric"', r"gold\[0\].metrics: 'metric' is not a number"),
        ('value = "value"', 'value = "value"\nwindow = "7m"', r"gold\[0\].window: 7m does not divide a day"),
        ('value = "value"', 'value = "value"\nwindow = "soon"', r"gold\[0\].window"),
        ("percentiles = [0.5]", "percentiles = [50]", "percentiles"),
        ("partitions = 3", 'vacuum_after = "59m"', "bronze.vacuum_after: must be at least 1h"),
        ("partitions = 3", "compact_every = -1", "bronze.compact_every"),
        ('metric = "metric"\nvalue = "value"', "", "give either metrics"),
    ],
)
def test_a_mistake_names_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, words: str
) -> None:
    monkeypatch.setenv("HUB_PASSWORD", "geheim")
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=words) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert "geheim" not in str(caught.value)


def test_no_toml_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        load(written(tmp_path, "nats {"))
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "missing.toml")


def test_two_tables_of_one_name() -> None:
    silver = {"name": "a", "subjects": ["x"], "device": "stream", "event_time": "stored_at", "columns": {}}
    parsed: dict[str, Any] = {
        "nats": {"servers": "a"},
        "lake": {"path": "/x"},
        "bronze": {"streams": ["S"]},
        "silver": [silver, silver],
    }
    with pytest.raises(ConfigError, match="another silver table 'a'"):
        convert(parsed, "hub.toml")


def test_what_is_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each job says so in a line, before Spark is started."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), (binary, "not UTF-8 text")):
        assert main(["ingest", "-c", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"eyot-hub: {path}: ")
        assert why in said
        assert said.count("\n") == 1
    with pytest.raises(SystemExit, match="2"):
        main(["aggregate", "-c", "hub.toml", "--every", "5x"])
    assert "'5x' is not a duration (1s, 10m, 24h)" in capsys.readouterr().err


def test_the_page_names_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration in docs/hub/jobs.md is one, and leaves out no key."""
    text = (Path(__file__).parents[3] / "docs" / "hub" / "jobs.md").read_text().partition("## Configuration\n")[2]
    shown = text.partition("```toml\n")[2].partition("```")[0]
    secret = "{ file = "
    assert secret in shown
    monkeypatch.setenv("NAME", "geheim")
    parsed = tomllib.loads(re.sub(r"\{ file = [^}]*\}", '{ env = "NAME" }', shown))
    config = convert(parsed, "docs/hub/jobs.md")
    assert set(parsed) == set(Config.__struct_fields__)
    for section, kind in (
        (parsed["lake"], Lake),
        (parsed["bronze"], Bronze),
        (parsed["silver"][0], Silver),
        (parsed["gold"][0] | {"metrics": []}, Gold),
        (parsed["gaps"], Gaps),
        (parsed["fleet"], FleetStatus),
    ):
        keys = set(kind.__struct_fields__) - {"schema"}  # a section of its own, below
        assert set(section) == keys, kind
    schemas = text.partition("## Schemas\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^(?:# )?(\w+) = ", schemas, re.MULTILINE)) == set(SchemaSettings.__struct_fields__)
    assert '# metrics = ["temperature"]' in shown
    assert config.gold[0].value == "value"


def test_tables_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"device": "d1", "delay": 28112181.5, "share": 0.98765}, {"device": "d2", "delay": 0.123456, "share": None}]
    Show(as_json=False).table(rows, ["device", "delay", "share"])
    assert capsys.readouterr().out.splitlines() == [
        "DEVICE  DELAY     SHARE",
        "d1      28112182  0.988",
        "d2      0.123     -",
    ]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HubError("the stream is gone"), "the stream is gone"),
        (HubError(""), "HubError"),
        (PySparkException("Job aborted\n\nTraceback\neyot_hub.errors.DataLoss: 5 to 7 are gone\n\n"), "5 to 7 are gone"),
        (PySparkException("[STREAM_FAILED] it ended\neyot_hub.errors.DataLoss\n"), "[STREAM_FAILED] it ended"),
        (Py4JError("An error occurred while calling o65.collect.\n: java.lang.StackOverflowError\n\tat a.b\n"), "java.lang.StackOverflowError"),
        (Py4JError("Answer from Java side is empty"), "Answer from Java side is empty"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("\n\n"), "RuntimeError"),
    ],
)  # fmt: skip
def test_the_last_line_of_an_error_says_what_it_is(
    error: Exception, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("eyot_hub.main.load", fails)
    assert main(["gaps", "-c", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"eyot-hub: {line}"


def test_requests_to_object_storage_are_repeated_for_minutes() -> None:
    """An outage of some seconds is no failure of the job; who wants another patience says so."""
    assert Lake(path="/srv/lake", storage_options={"a": "b"}).storage == {"a": "b"}
    patient = Lake(path="s3://lake/hub", storage_options={"a": "b"}).storage
    assert patient == {"a": "b", "max_retries": "10000", "retry_timeout": "180s"}
    hasty = Lake(path="s3://lake/hub", storage_options={"max_retries": "1"}).storage
    assert hasty == {"max_retries": "1", "retry_timeout": "180s"}
