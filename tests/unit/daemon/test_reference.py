"""docs/reference.md against the code: what is documented is there, and what is there is documented."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from eyot_daemon.config.flags import _FLAGS
from eyot_daemon.config.read import load_options
from eyot_daemon.config.reader import Block
from eyot_daemon.config.usage import USAGE
from eyot_wire import status
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"
#: One block a line, so that a block is known by its line.
CONFIG = """eyot {
 store {
 }, status {
 subject: s }, mqtt {
 }, sync {
 streams {
 NAME {
 } }, remotes [ {
 url: "h:1", metered {
 budget: 1M } } ] }, bridges {
 NAME {
 url: "h:2", client_id: c, streams: S, credentials {
 }, topics {
 out: [ {
 } ], in: [ {
 } ] } } }, http {
 }, flash {
 }, device {
 } }
leafnodes { remotes [ { url: "nats-leaf://h:1" } ] }
"""
BLOCKS = {
    1: "",
    2: "store.",
    3: "status.",
    4: "mqtt.",
    5: "sync.",
    7: "sync.streams.NAME.",
    8: "sync.remotes.",
    9: "sync.remotes.metered.",
    11: "bridges.NAME.",
    12: "bridges.NAME.credentials.",
    13: "bridges.NAME.topics.",
    14: "bridges.NAME.topics.out.",
    15: "bridges.NAME.topics.in.",
    16: "http.",
    17: "flash.",
    18: "device.",
}
BLOCK_KEYS = {"store", "status", "mqtt", "sync", "sync.streams", "sync.remotes", "sync.remotes.metered"}
BLOCK_KEYS |= {"http", "flash", "device", "bridges", "bridges.NAME.credentials", "bridges.NAME.topics"}
OTHER_SPELLINGS = {"control", "status.interval", "sync.streams.NAME.window", "sync.remotes.window"}
OTHER_SPELLINGS |= {"bridges.NAME.stream", "bridges.NAME.credentials.username", "bridges.NAME.credentials.pass"}
OTHER_SPELLINGS |= {"bridges.NAME.topics.out.topic", "bridges.NAME.topics.in.topic"}
MEMBERS: dict[str, type[Struct]] = {
    "`/eyot/status`": status.StatusReport,
    "each of `links`, `links_down`": status.LinkStatus,
    "`metered` of a link": status.MeteredStatus,
    "each of `streams`": status.StreamStatus,
    "each of `copies`": status.SourcingStatus,
    "`store`": status.StoreStatus,
    "`flash`": status.FlashStatus,
    "`/eyot/reloadz`": status.ReloadReport,
    "`/eyot/syncz`": status.SyncReport,
    "each of `out`": status.SyncStatus,
    "each of `peers`": status.PeerTotals,
}


def rows(heading: str) -> list[list[str]]:
    """The table below a heading, without its head."""
    part = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("|")]
    assert lines, heading
    return [[cell.strip() for cell in line] for line in lines[2:]]


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[Block] = []
    made = Block.__init__

    def note(block: Block, *arguments: object) -> None:
        made(block, *arguments)  # type: ignore[arg-type]
        blocks.append(block)

    monkeypatch.setattr(Block, "__init__", note)
    file = tmp_path / "eyotd.conf"
    file.write_text(CONFIG)
    load_options(str(file))
    inner = [block for block in blocks if block.position.line in BLOCKS and "leafnodes" not in block.asked]
    known = {BLOCKS[block.position.line] + key for block in inner for key in block.asked}
    documented = {key for row in rows("Configuration: `eyot { }`") for key in re.findall(r"`([^`]+)`", row[0])}
    assert documented == known - BLOCK_KEYS - OTHER_SPELLINGS


def test_metrics(tmp_path: Path) -> None:
    with Eyotd('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path) as server, RawClient(server.client_port) as client:
        body = b'{"name":"S","subjects":["s"]}'
        client.send(b"SUB _I.* 1\r\nPUB $JS.API.STREAM.CREATE.S _I.1 %d\r\n%b\r\n" % (len(body), body))
        client.until(b"}\r\n")  # something was flushed
        with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics", timeout=15) as response:
            found = {
                family.name + {"counter": "_total", "info": "_info"}.get(family.type, ""): family.documentation
                for family in text_string_to_metric_families(response.read().decode())
            }
    documented = {re.findall(r"`([^`]+)`", row[0])[0]: row[2].replace("`", "") for row in rows("`/metrics`")}
    assert len(documented) == len(rows("`/metrics`"))
    assert documented.keys() == found.keys()
    # The page may add when a metric is absent.
    other = {name: text for name, text in found.items() if not documented[name].lower().startswith(text.lower())}
    assert other == {}


@pytest.mark.parametrize("where", MEMBERS)
def test_status_pages(where: str) -> None:
    told = {row[0]: re.findall(r"`([^`]+)`", row[1]) for row in rows("`/eyot/status` and `/eyot/syncz`")}
    assert sorted(told) == sorted(MEMBERS)
    assert told[where] == list(MEMBERS[where].__struct_fields__)


def test_flags_of_the_daemon() -> None:
    """`eyotd -h` names every flag but the one that is only passed over, and none that is not there."""
    told = set(re.findall(r"(?:^|[\s,])--?([A-Za-z]\w*)", USAGE))
    assert told == set(_FLAGS) - {"profile"}
