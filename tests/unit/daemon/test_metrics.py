"""`/metrics`, as Prometheus' own parser reads it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eyot_daemon.router.error_counts import ErrorCounts
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd


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


#: why -> the stream's configuration beside name and subjects, headers of the second message, its payload, the error code
REJECTED = {
    "full": ({"max_msgs": 1, "discard": "new"}, b"", b"x", 10077),
    "full of bytes": ({"max_bytes": 100, "discard": "new"}, b"", b"x" * 90, 10077),
    "full subject": (
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
        b"",
        b"x",
        10077,
    ),
    "too large": ({"max_msg_size": 10}, b"", b"x" * 11, 10054),
    "another sequence expected": ({}, b"Nats-Expected-Last-Sequence: 9\r\n", b"x", 10071),
    "another stream expected": ({}, b"Nats-Expected-Stream: other\r\n", b"x", 10060),
    "no lifetimes": ({}, b"Nats-TTL: 1s\r\n", b"x", 10166),
    "no batches": ({}, b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n", b"x", 10174),
    "a batch with a message too large": (
        {"allow_atomic": True, "max_msg_size": 10},
        b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n",
        b"x" * 11,
        10054,
    ),
    "a batch that finds no room": (
        {"allow_atomic": True, "max_msgs": 1, "discard": "new"},
        b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n",
        b"x",
        10077,
    ),
}


@pytest.fixture(scope="module")
def jetstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    config = 'max_subscriptions: 3\njetstream { store_dir: "%WORKDIR%/js", max_memory_store: 1000 }\n'
    with Eyotd(config, tmp_path_factory.mktemp("metrics")) as server:
        yield server


def publish(client: RawClient, header: bytes, payload: bytes, reply: bytes = b"") -> None:
    block = b"NATS/1.0\r\n%b\r\n" % header if header else b""
    words = b" ".join(filter(None, (b"s", reply, b"%d" % len(block) if block else b"", b"%d" % len(block + payload))))
    client.send((b"HPUB " if block else b"PUB ") + words + b"\r\n" + block + payload + b"\r\n")


def counted(server: Eyotd, name: str, messages: int) -> bool:
    deadline = time.monotonic() + 60
    while scrape(server).get(name) != messages and time.monotonic() < deadline:
        time.sleep(0.05)
    found = scrape(server)
    return found.get(name) == messages and not found["eyot_stream_refused_total{account=$G,stream=S}"]


@pytest.mark.parametrize("why", REJECTED)
def test_what_a_stream_does_not_store_is_counted(jetstream: Eyotd, why: str) -> None:
    """Its publisher is told if it asked; the count does not depend on it."""
    config, header, payload, code = REJECTED[why]
    name = f"eyot_stream_rejected_total{{account=$G,err_code={code},stream=S}}"
    with RawClient(jetstream.client_port) as client:
        client.ask(b'CONNECT {"headers":true,"verbose":false}\r\nSUB _I.* 1\r\n')
        body = json.dumps({"name": "S", "subjects": ["s"], "storage": "memory", **config}).encode()
        client.send(b"PUB $JS.API.STREAM.CREATE.S _I.1 %d\r\n%b\r\n" % (len(body), body))
        assert b'"error"' not in client.until(b"}\r\n")
        publish(client, b"", b"1", b"_I.2")
        assert b'"seq":1' in client.until(b"}\r\n")
        assert not any(each.startswith("eyot_stream_rejected") for each in scrape(jetstream))
        publish(client, header, payload)
        assert counted(jetstream, name, 1)
        publish(client, header, payload, b"_I.3")
        assert b'"err_code":%d' % code in client.until(b"}\r\n")
        assert counted(jetstream, name, 2)
        client.send(b"PUB $JS.API.STREAM.DELETE.S _I.4 0\r\n\r\n")
        client.until(b"}\r\n")


def test_what_finds_no_memory_is_counted(jetstream: Eyotd) -> None:
    with RawClient(jetstream.client_port) as client:
        client.ask(b'CONNECT {"verbose":false}\r\nSUB _I.* 1\r\n')
        body = b'{"name":"S","subjects":["s"],"storage":"memory"}'
        client.send(b"PUB $JS.API.STREAM.CREATE.S _I.1 %d\r\n%b\r\n" % (len(body), body))
        client.until(b"}\r\n")
        for _ in range(3):
            publish(client, b"", b"x" * 800)
        assert counted(jetstream, "eyot_stream_rejected_total{account=$G,err_code=10023,stream=S}", 2)
        client.send(b"PUB $JS.API.STREAM.DELETE.S _I.4 0\r\n\r\n")
        client.until(b"}\r\n")


def test_errors_sent_to_clients_are_counted(jetstream: Eyotd) -> None:
    before = scrape(jetstream)
    with RawClient(jetstream.client_port) as client:
        client.ask(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nSUB b 2\r\nSUB c 3\r\n')
        client.ask(b"SUB d 4\r\nSUB e 5\r\n")
        after = scrape(jetstream)
    name = "eyot_client_errors_total{error=maximum subscriptions exceeded}"
    assert after[name] - before.get(name, 0) == 2


def test_errors_of_the_api_are_counted(jetstream: Eyotd) -> None:
    name = "eyot_jetstream_api_errors_total{account=$G,err_code=10059}"
    before = scrape(jetstream).get(name, 0)
    with RawClient(jetstream.client_port) as client:
        client.ask(b"SUB _I.* 1\r\n")
        client.send(b"PUB $JS.API.STREAM.INFO.NONE _I.1 0\r\n\r\n")
        client.until(b"}\r\n")
        assert scrape(jetstream)[name] - before == 1


def test_texts_of_errors_are_bounded() -> None:
    counts = ErrorCounts()
    for subject in range(1000):
        counts.sent(f'Permissions Violation for Publish to "s.{subject}"')
    assert counts.counts == {"Permissions Violation for Publish to": 1000}
    for text in range(1000):
        counts.sent(f"text {text}")
    assert len(counts.counts) == 65
    assert counts.counts.total() == 2000
