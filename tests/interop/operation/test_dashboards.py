"""Grafana's dashboards and Prometheus' alert rules against what real daemons export, and against the runbook.

`promtool`, of Debian's package `prometheus`, reads every expression and both pages of metrics.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from prometheus_client.parser import text_string_to_metric_families

from support.links.leaf_pair import LEAF, LeafPair, eventually
from support.servers.server_process import ServerProcess

TOP = Path(__file__).parents[3]
RULES = TOP / "packaging/prometheus/eyot.rules.yml"
DASHBOARDS = sorted((TOP / "packaging/grafana").glob("*.json"))
RUNBOOK = TOP / "docs/operate/alerts.md"
WAIT_S = 60.0
MQTT = 'mqtt { listen: "127.0.0.1:%LEAF_PORT%" }\n'
#: Without a sample in this test, at times or always, and their labels: on eMMC, after ten minutes, of metered links,
#: certificates and losses, of a backlog, and before a link's first PONG.
RARE = {
    "eyot_flash_life_used_ratio": set[str](),
    "eyot_flash_lifetime_seconds": set[str](),
    "eyot_link_budget_bytes": {"link", "account", "role"},
    "eyot_link_spent_bytes": {"link", "account", "role"},
    "eyot_link_dropped_total": {"link", "account", "role", "reason"},
    "eyot_link_rtt_seconds": {"link", "account", "role"},
    "eyot_copy_backlog": {"account", "stream", "kind", "origin"},
    "eyot_sync_oldest_seconds": {"account", "stream", "peer", "kind", "target", "filters"},
    "eyot_certificate_expiry_timestamp_seconds": {"file"},
    "eyot_credentials_expiry_timestamp_seconds": {"link", "account", "role"},
    "eyot_sync_never_arrived_total": {"account", "stream", "peer", "kind", "target", "filters", "reason"},
    "eyot_mqtt_dropped_total": {"account", "reason"},
}
#: Labels that Prometheus adds.
TARGET = {"instance", "job"}


class Expression(NamedTuple):
    where: str
    text: str
    #: what is shown beside it, with `{{label}}`
    shown: str

    @property
    def metrics(self) -> set[str]:
        return set(re.findall(r"\beyot_\w+", self.text))

    @property
    def labels(self) -> set[str]:
        grouped = re.findall(r"\bby \(([^)]*)\)", self.text)
        selected = re.findall(r"(\w+)\s*[!=]=?~?\"", self.text)
        return {
            *", ".join(grouped).split(", "),
            *selected,
            *re.findall(r"{{(?: ?\$labels\.)?(\w+) ?}}", self.shown),
        } - {""}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> Iterator[Expression]:
    for rule in rules():
        shown = rule["annotations"]["summary"].replace("{{ $value", "")
        yield Expression(rule["alert"], rule["expr"], shown)
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield Expression(f"{file.name}: {panel['title']}", target["expr"], target["legendFormat"])


def scraped(server: ServerProcess) -> str:
    """The page of metrics."""
    with urllib.request.urlopen(f"http://{server.host}:{server.monitor_port}/metrics", timeout=WAIT_S) as response:
        text: str = response.read().decode()
    return text


def families(text: str) -> dict[str, set[str]]:
    """Labels by metric, as a sample is named."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        found.setdefault(family.name + ending, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The metrics of a hub and of a device whose stream the hub sources; MQTT is on."""
    folder, found = tmp_path_factory.mktemp("dashboards"), list[str]()
    with LeafPair("eyotd", "eyotd", folder, leaf_config=LEAF + MQTT) as pair:

        async def replicated(hub: Client, leaf: Client) -> None:
            await leaf.jetstream(timeout=WAIT_S).add_stream(name="R", subjects=["r.>"])
            source = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API", deliver=""))
            await hub.jetstream(timeout=WAIT_S).add_stream(StreamConfig(name="ALL", sources=[source]))
            await leaf.jetstream(timeout=WAIT_S).publish("r.a", b"x")
            await eventually(lambda: "peer" in families(scraped(pair.leaf)).get("eyot_sync_backlog", set()), WAIT_S)
            await eventually(
                lambda: "origin" in families(scraped(pair.hub)).get("eyot_copy_messages_total", set()), WAIT_S
            )
            found.extend(scraped(server) for server in (pair.hub, pair.leaf))

        pair.play(replicated)
    return found


@pytest.fixture(scope="module")
def exported(pages: list[str]) -> dict[str, set[str]]:
    """Labels by metric, of all pages."""
    found: dict[str, set[str]] = {}
    for page in pages:
        for metric, labels in families(page).items():
            found.setdefault(metric, set()).update(labels)
    return found


def promtool(*words: str | Path, given: str = "") -> None:
    """Run promtool; it must have nothing to say. Raises AssertionError."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: packaging/ensure-packages test"
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, input=given)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_names_and_units_follow_the_conventions_of_prometheus(pages: list[str]) -> None:
    for page in pages:
        promtool("check", "metrics", given=page)


def test_every_metric_exists(exported: dict[str, set[str]]) -> None:
    every = list(expressions())
    assert len(every) > 60
    missing = [f"{each.where}: {name}" for each in every for name in each.metrics - set(exported)]
    assert missing == []
    without = [each.where for each in every if not each.metrics and "up{" not in each.text]
    assert without == []


def test_every_label_exists(exported: dict[str, set[str]]) -> None:
    wrong = []
    for each in expressions():
        told: set[str] = set().union(*(exported[name] | RARE.get(name, set()) for name in each.metrics))
        wrong += [f"{each.where}: {label}" for label in sorted(each.labels - told - TARGET)]
    assert wrong == []


def test_every_alert_has_its_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (Eyot\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert [rule["alert"] for rule in rules()] == sections
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "file:///usr/share/doc/eyot/docs/operate/alerts.md"
        assert anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]


def test_the_dashboards_ask_for_nothing_but_the_data_source() -> None:
    assert [file.name for file in DASHBOARDS] == ["eyot-device.json", "eyot-fleet.json"]
    for file in DASHBOARDS:
        board = json.loads(file.read_text())
        assert board["uid"] == file.stem
        panels = board["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        assert {panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"} == {"${datasource}"}
        taken = [(x, y) for panel in panels for x, y in cells(panel["gridPos"])]
        assert len(set(taken)) == len(taken), "panels overlap"
        assert max(x for x, _ in taken) < 24
        variables = {f"${variable['name']}" for variable in board["templating"]["list"]} | {"$__rate_interval"}
        used = {
            word
            for each in expressions()
            if each.where.startswith(file.name)
            for word in re.findall(r"\$\w+", each.text)
        }
        assert used <= variables


def cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_every_expression_is_promql(tmp_path: Path) -> None:
    names = {f"r{number}": each for number, each in enumerate(expressions())}
    for each in names.values():
        outside = re.sub(r'"[^"]*"', "", each.text)
        assert all(outside.count(a) == outside.count(b) for a, b in ("()", "[]", "{}")), each
    recorded = [{"record": name, "expr": each.text.replace("$__rate_interval", "5m")} for name, each in names.items()]
    queries = tmp_path / "queries.yml"
    queries.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": recorded}]}))
    for file in (RULES, queries):
        promtool("check", "rules", file)
