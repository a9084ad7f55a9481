"""`/metrics`, as Prometheus' own parser reads it."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from support.eyotd import Eyotd
from support.raw_client import RawClient


def scrape(server: Eyotd) -> dict[str, float]:
    """Samples by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics", timeout=15) as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = response.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        # Prometheus' conventions: only what never goes down is a counter, and units are written out.
        wrong = ("_total", "_rate", "_ms", "_count", "_kb", "_percent")
        assert family.type == "counter" or not family.name.endswith(wrong), family.name
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_what_prometheus_sees(tmp_path: Path) -> None:
    config = """
    jetstream { store_dir: "%WORKDIR%/js" }
    leafnodes { remotes: [ { url: "nats://127.0.0.1:1" } ] }
    """
    with Eyotd(config, tmp_path) as server, RawClient(server.client_port) as client:
        client.ask(b"SUB _I.* 1\r\nSUB a 2\r\n")
        body = b'{"name":"S","subjects":["s"]}'
        client.send(b"PUB $JS.API.STREAM.CREATE.S _I.1 %d\r\n%b\r\n" % (len(body), body))
        client.until(b"}\r\n")
        before = scrape(server)
        client.send(b"PUB a 3\r\nabc\r\nPUB s _I.2 5\r\nhello\r\n")
        client.until(b"}\r\n")
        after = scrape(server)
        assert after["eyot_connections"] == 1
        assert after["eyot_in_messages_total"] - before["eyot_in_messages_total"] == 2
        assert after["eyot_in_bytes_total"] - before["eyot_in_bytes_total"] == 8
        assert after["eyot_account_connections{account=$G}"] == 1
        assert after["eyot_stream_messages{account=$G,stream=S}"] == 1
        assert after["eyot_stream_committed_sequence{account=$G,stream=S}"] == 1
        link = next(name for name in after if name.startswith("eyot_link_up{"))
        assert after[link] == 0
        assert after["eyot_store_commits_total"] > 0
        assert any(name.startswith("eyot_server_info{") for name in after)


def test_without_jetstream(tmp_path: Path) -> None:
    with Eyotd("", tmp_path) as server:
        found = scrape(server)
        assert found["eyot_uptime_seconds"] > 0
        assert not any("store" in name for name in found)
