"""`eyot stream`, `consumer`, `kv` and `object` against `eyotd` and nats-server, and against nats-py's view of the same."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext

from support.servers.eyot_tool import Tool
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
    server_name: device
    jetstream { store_dir: "%WORKDIR%/js", domain: device }
"""


@pytest.fixture(scope="module", params=[Eyotd, NewerNatsServer], ids=["eyotd", "nats-server"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Tool:
    return Tool(running, tmp_path)


def test_a_stream_from_its_beginning_to_its_end(eyot: Tool) -> None:
    assert eyot("stream", "add", "READINGS", "--subjects", "readings.>,more.*", "--max-age", "7d", "--max-bytes", "10M",
                "--dupe-window", "1m", "--description", "of the plant", "--allow-msg-ttl") == "stream READINGS is made\n"  # fmt: skip
    config = eyot.json("stream", "info", "READINGS")["config"]
    assert config["subjects"] == ["readings.>", "more.*"]
    assert (config["max_age"], config["max_bytes"], config["allow_msg_ttl"]) == (7 * 86_400 * 10**9, 10 << 20, True)
    assert (config["duplicate_window"], config["storage"], config["retention"]) == (60 * 10**9, "file", "limits")
    for number in range(5):
        eyot("pub", f"readings.{number % 2}", str(number), "--ack", "-H", "Unit: C")
    assert eyot.json("stream", "subjects", "READINGS") == {"readings.0": 3, "readings.1": 2}
    assert eyot.json("stream", "subjects", "READINGS", "readings.1") == {"readings.1": 2}
    one = eyot.json("stream", "get", "READINGS", "2")
    assert (one["seq"], one["subject"], one["payload"], one["headers"]) == (2, "readings.1", "1", {"Unit": "C"})
    assert eyot.json("stream", "get", "READINGS", "--last-for", "readings.0")["seq"] == 5
    shown = eyot("stream", "view", "READINGS", "--from", "3", "-n", "2")
    assert [line.split(" at ")[0] for line in shown.splitlines() if line.startswith("READINGS")] == [
        "READINGS 3 readings.0", "READINGS 4 readings.1"]  # fmt: skip
    assert eyot("stream", "view", "READINGS", "--subject", "more.*") == ""
    assert eyot("stream", "edit", "READINGS", "--max-bytes", "10M", "--force") == "stream READINGS is so already\n"
    assert (
        eyot("stream", "edit", "READINGS", "--max-msgs", "4", "--force")
        == "  max_msgs: -1 -> 4\nstream READINGS is changed\n"
    )
    assert eyot.json("stream", "info", "READINGS")["state"]["first_seq"] == 2
    assert "nobody can be asked" in eyot.fails("stream", "purge", "READINGS")
    assert eyot("stream", "purge", "READINGS", "--subject", "readings.1", "-f") == "2 messages deleted\n"
    assert eyot("stream", "rmm", "READINGS", "5", "-f") == "message 5 is deleted\n"
    assert eyot.fails("stream", "get", "READINGS", "5") == (
        "no message found (10037): eyot stream info shows the first and last sequence"
    )
    assert eyot("stream", "rm", "READINGS", "-f") == "stream READINGS is deleted\n"
    assert eyot.fails("stream", "rm", "READINGS", "-f").startswith("stream not found (10059): eyot stream ls")


def test_a_stream_from_another_ones_configuration(eyot: Tool, tmp_path: Path) -> None:
    eyot(
        "stream",
        "add",
        "FIRST",
        "--retention",
        "work",
        "--storage",
        "memory",
        "--metadata",
        "site=7",
        "--metadata",
        "row:3=4",
    )
    (tmp_path / "first.json").write_text(eyot("stream", "info", "FIRST", "--json"))
    eyot("stream", "add", "SECOND", "--config", "first.json", "--subjects", "second")
    config = eyot.json("stream", "info", "SECOND")["config"]
    assert (config["name"], config["retention"], config["storage"]) == ("SECOND", "workqueue", "memory")
    assert (config["metadata"]["site"], config["metadata"]["row"]) == ("7", "3=4")
    eyot("stream", "add", "COPY", "--mirror", "FIRST@device")
    assert eyot.json("stream", "info", "COPY")["config"]["mirror"]["external"]["api"] == "$JS.device.API"
    for name in ("COPY", "SECOND", "FIRST"):
        eyot("stream", "rm", name, "-f")


def test_what_users_of_the_nats_tool_type(eyot: Tool) -> None:
    eyot("s", "create", "TYPED", "--subjects=typed.*", "--storage=file", "--replicas=1", "--retention=limits",
         "--discard=old", "--max-msgs=-1", "--max-bytes=-1", "--max-age=1y", "--max-msg-size=-1", "--dupe-window=2m",
         "--no-allow-rollup", "--no-deny-delete", "--no-deny-purge", "--compression=s2", "--max-consumers=9",
         "--ack", "--defaults")  # fmt: skip
    config = eyot.json("str", "nfo", "TYPED")["config"]
    assert not any(config.get(each) for each in ("allow_rollup_hdrs", "deny_delete", "deny_purge", "no_ack"))
    assert (config["compression"], config["max_consumers"]) == ("s2", 9)
    assert eyot("pub", "typed.a", "one", "-J", "--count", "2", "--sleep", "1ms").count("stored in TYPED") == 2
    assert eyot("str", "view", "TYPED", "1", "--id", "2", "--raw") == "one\n"
    assert eyot("str", "get", "TYPED", "-S", "typed.a").startswith("TYPED 2 typed.a")
    assert "TYPED" in eyot("str", "list", "-n").splitlines()
    eyot("con", "new", "TYPED", "pulled", "--pull", "--defaults", "--deliver", "subject", "--filter", "typed.*", "--replay", "original",
         "--max-waiting", "7", "--sample", "50", "--memory")  # fmt: skip
    eyot("con", "create", "TYPED", "pushed", "--target", "typed-to", "--heartbeat", "5s", "--flow-control",
         "--deliver", "1h")  # fmt: skip
    pulled = eyot.json("con", "nfo", "TYPED", "pulled", "-j")["config"]
    assert (pulled["deliver_policy"], pulled["replay_policy"]) == ("last_per_subject", "original")
    assert (pulled["max_waiting"], pulled["mem_storage"], pulled["sample_freq"]) == (7, True, "50")
    pushed = eyot.json("con", "info", "TYPED", "pushed")["config"]
    assert (pushed["idle_heartbeat"], pushed["flow_control"], pushed["deliver_policy"]) == (
        5 * 10**9,
        True,
        "by_start_time",
    )
    assert {"pulled", "pushed"} <= set(eyot("con", "list", "TYPED", "--names").splitlines())  # that of `view` ends soon
    assert {"pulled", "pushed"} <= set(eyot.json("con", "list", "TYPED", "--names"))
    assert eyot("con", "next", "TYPED", "pulled", "-r") == "one\n"
    assert eyot("req", "$JS.API.STREAM.NAMES", "", "--raw").startswith('{"type":"io.nats.jetstream.api.v1.stream_names')
    eyot("str", "backup", "TYPED", "typed")
    eyot("str", "del", "TYPED", "-f")
    eyot("str", "restore", "typed")
    assert eyot.json("str", "info", "TYPED", "--js-domain", "device")["state"]["messages"] == 2
    eyot("str", "delete", "TYPED", "-f")


def test_a_consumer_from_its_beginning_to_its_end(eyot: Tool) -> None:
    eyot("stream", "add", "JOBS", "--subjects", "jobs.>")
    for number in range(4):
        eyot("pub", f"jobs.{number}", str(number), "--ack")
    eyot("consumer", "add", "JOBS", "worker", "--filter", "jobs.*", "--wait", "30s", "--max-deliver", "5")
    eyot("consumer", "add", "JOBS", "late", "--deliver", "3", "--ack", "none")
    assert [each["name"] for each in eyot.json("consumer", "ls", "JOBS")] == ["late", "worker"]
    assert "worker" in eyot("consumer", "ls", "JOBS")
    config = eyot.json("consumer", "info", "JOBS", "worker")["config"]
    assert (config["ack_wait"], config["max_deliver"], config["filter_subject"]) == (30 * 10**9, 5, "jobs.*")
    assert "Ack wait" in eyot("consumer", "info", "JOBS", "worker")
    assert eyot.json("consumer", "next", "JOBS", "worker")["payload"] == "0"
    assert eyot.json("consumer", "next", "JOBS", "worker", "--no-ack")["payload"] == "1"
    assert eyot.json("consumer", "next", "JOBS", "late", "--no-ack")["seq"] == 3
    info = eyot.json("consumer", "info", "JOBS", "worker")
    assert (info["num_ack_pending"], info["num_pending"], info["ack_floor"]["stream_seq"]) == (1, 2, 1)
    assert eyot("consumer", "pause", "JOBS", "worker", "1h").startswith("consumer worker of JOBS is paused until 2")
    assert eyot.fails("consumer", "next", "JOBS", "worker", "--wait", "1s") == "no message within 1.0s"
    eyot("consumer", "resume", "JOBS", "worker")
    eyot("consumer", "next", "JOBS", "worker", "-n", "2")
    eyot("consumer", "rm", "JOBS", "worker", "-f")
    assert (
        eyot.fails("consumer", "next", "JOBS", "worker")
        == "JOBS has no consumer worker: eyot consumer ls JOBS lists them"
    )
    assert eyot.fails("consumer", "info", "JOBS", "worker") == (
        "consumer not found (10014): eyot consumer ls STREAM lists those that there are"
    )
    eyot("stream", "rm", "JOBS", "-f")


def test_a_bucket_from_its_beginning_to_its_end(eyot: Tool) -> None:
    assert eyot("kv", "add", "settings", "--history", "3", "--max-value-size", "1K") == "bucket settings is made\n"
    assert eyot("kv", "put", "settings", "pump.1", "on") == "revision 1\n"
    assert eyot("kv", "put", "settings", "pump.1", data=b"off") == "revision 2\n"
    assert eyot("kv", "get", "settings", "pump.1", "--raw") == "off"
    assert eyot("kv", "get", "settings", "pump.1", "--revision", "1", "--raw") == "on"
    assert eyot.json("kv", "get", "settings", "pump.1")["revision"] == 2
    assert eyot.fails("kv", "create", "settings", "pump.1", "x").startswith("pump.1 has a value (revision 2): ")
    assert eyot("kv", "create", "settings", "pump.2", "x") == "revision 3\n"
    assert "wrong last sequence: 2" in eyot.fails("kv", "update", "settings", "pump.1", "y", "1")
    assert eyot("kv", "update", "settings", "pump.1", "y", "2") == "revision 4\n"
    assert eyot("kv", "ls", "settings") == "pump.1\npump.2\n"
    for command in (("put", "pump.*", "x"), ("del", "pump.>"), ("purge", "pump.*", "-f")):
        assert eyot.run("kv", command[0], "settings", *command[1:]).returncode == 2, "no wildcards"
    assert eyot.json("kv", "ls", "settings") == ["pump.1", "pump.2"]
    assert eyot("kv", "del", "settings", "pump.2") == "pump.2 is deleted (revision 5)\n"
    assert eyot.fails("kv", "get", "settings", "pump.2").startswith("pump.2 is deleted (revision 5): eyot kv hist")
    assert eyot("kv", "create", "settings", "pump.2", "again") == "revision 6\n"
    assert [each["operation"] for each in eyot.json("kv", "history", "settings", "pump.2")] == ["PUT", "DEL", "PUT"]
    eyot("kv", "purge", "settings", "pump.1", "-f")
    assert [each["operation"] for each in eyot.json("kv", "history", "settings", "pump.1")] == ["PURGE"]
    lines = eyot("kv", "watch", "settings", "-n", "2").splitlines()
    assert [line.split()[1:] for line in lines] == [["PUT", "pump.2", "6:", "again"], ["PURGE", "pump.1", "7:"]]
    assert "settings" in eyot("kv", "ls")
    assert "History" in eyot("kv", "info", "settings")

    async def seen(jetstream: JetStreamContext) -> Any:
        bucket = await jetstream.key_value("settings")
        status = await bucket.status()
        return status.history, await bucket.keys(), (await bucket.get("pump.2")).value

    assert eyot.nats_py(seen) == (3, ["pump.2"], b"again")
    assert "nobody can be asked" in eyot.fails("kv", "del", "settings")
    eyot("kv", "del", "settings", "-f")
    assert eyot.fails("kv", "put", "settings", "a", "b").startswith("there is no bucket settings: eyot kv ls lists")


def test_a_bucket_in_a_domain(eyot: Tool) -> None:
    eyot("kv", "add", "far", "--domain", "device")
    assert eyot("kv", "put", "far", "a", "1", "--domain", "device") == "revision 1\n"
    assert eyot("kv", "get", "far", "a", "--raw", "--domain", "device") == "1"
    assert eyot("kv", "ls", "far", "--domain", "device") == "a\n"
    assert "--domain" in eyot.fails("object", "put", "far", "x", "--domain", "device")
    eyot("kv", "del", "far", "-f")


def test_objects_from_their_beginning_to_their_end(eyot: Tool, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(700_000)
    (tmp_path / "image.bin").write_bytes(data)
    assert eyot("object", "add", "images") == "bucket images is made\n"
    assert eyot("object", "ls", "images").strip().endswith("none")
    assert eyot("object", "put", "images", "image.bin") == "image.bin: 683.6 KiB in 6 chunks\n"
    assert eyot("object", "put", "images", "-", "--name", "../evil", data=b"x") == "../evil: 1 B in 1 chunk\n"
    assert [each["name"] for each in eyot.json("object", "ls", "images")] == ["../evil", "image.bin"]
    assert eyot("object", "get", "images", "image.bin", "-O", "copy.bin") == "copy.bin: 683.6 KiB\n"
    assert (tmp_path / "copy.bin").read_bytes() == data
    assert eyot.json("object", "get", "images", "image.bin", "-O", "copy.bin", "-f") == {
        "file": "copy.bin", "size": len(data)}  # fmt: skip
    assert eyot.run("object", "get", "images", "image.bin", "-O", "-").stdout == data
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as readers:
        read = readers.submit((tmp_path / "pipe").read_bytes)
        eyot("object", "get", "images", "image.bin", "-O", str(tmp_path / "pipe"))
        assert read.result() == data
    assert (tmp_path / "pipe").is_fifo(), "a device or fifo is not replaced"
    assert "nobody can be asked" in eyot.fails("object", "get", "images", "image.bin", "-O", "copy.bin")
    assert eyot("object", "get", "images", "../evil") == "evil: 1 B\n"
    assert (tmp_path / "evil").read_bytes() == b"x"
    assert eyot.json("object", "info", "images", "image.bin")["size"] == len(data)
    assert "Digest" in eyot("object", "info", "images", "image.bin")

    async def seen(jetstream: JetStreamContext) -> Any:
        return (await (await jetstream.object_store("images")).get("image.bin")).data

    assert eyot.nats_py(seen) == data
    assert eyot("object", "del", "images", "image.bin", "-f") == "image.bin is deleted\n"
    assert "has no such object" in eyot.fails("object", "get", "images", "image.bin", "-O", "gone.bin")
    assert not list(tmp_path.glob("gone.bin*"))
    eyot("object", "seal", "images", "-f")
    assert eyot.json("object", "info", "images")["config"]["sealed"]
    eyot("object", "del", "images", "-f")
    assert "there is no bucket images" in eyot.fails("object", "ls", "images")


def test_an_object_that_has_another_digest(eyot: Tool, tmp_path: Path) -> None:
    eyot("object", "add", "forged")
    eyot("object", "put", "forged", "-", "--name", "image", data=b"right")
    nuid = eyot.json("object", "info", "forged", "image")["nuid"]
    eyot("pub", f"$O.forged.C.{nuid}", "wrong", "--ack")
    eyot("stream", "rmm", "OBJ_forged", "1", "-f")
    assert "do not have the digest" in eyot.fails("object", "get", "forged", "image", "-O", "image")
    assert eyot.run("object", "get", "forged", "image", "-O", "-").stdout == b""
    assert list(tmp_path.iterdir()) == []
    eyot("object", "del", "forged", "-f")


def test_the_account_and_the_way_to_the_server(eyot: Tool) -> None:
    found = eyot.json("account", "info")
    assert (found["user"]["account"], found["server"]["name"]) == ("$G", "device")
    before = found["jetstream"]["streams"]
    eyot("stream", "add", "COUNTED", "--subjects", "counted", "--defaults")
    eyot("pub", "counted", "x", "--ack")
    found = eyot.json("a", "info")["jetstream"]
    assert (found["streams"], found["domain"]) == (before + 1, "device")
    assert found["storage"] > 0
    shown = eyot("account", "info")
    assert "JetStream, domain device" in shown
    assert "May publish" in shown
    assert "everything" in shown
    eyot("stream", "rm", "COUNTED", "-f")
    assert "domain nowhere cannot be reached" in eyot.fails("--domain", "nowhere", "account", "info")
    trips = eyot.json("rtt", "3")
    assert trips["round_trips"] == 3
    assert 0 < trips["seconds"]["min"] <= trips["seconds"]["median"] <= trips["seconds"]["max"]
    assert eyot("rtt").startswith(trips["url"] + ": ")


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer], ids=["eyotd", "nats-server"])
def test_a_limited_login_and_an_account_without_jetstream(kind: type[ServerProcess], tmp_path: Path) -> None:
    config = """
        server_name: device
        jetstream { store_dir: "%WORKDIR%/js" }
        accounts {
          A { jetstream: { max_streams: 7 }, users: [ { user: a, password: a, permissions: {
                publish: { allow: ["a.>", "$JS.API.INFO", "$SYS.REQ.USER.INFO"], deny: "a.b" }, subscribe: "_INBOX.>" } } ] }
          B { users: [ { user: b, password: b }, { user: c, password: c, permissions: { publish: "c", subscribe: "_INBOX.>" } } ] }
        }
    """
    with kind(config, tmp_path / "server") as server:
        eyot = Tool(server, tmp_path)
        cells = table(eyot("--user", "a", "--password", "a", "account", "info"))
        allowed, denied = cells["May publish"][0].split(", but not ")
        assert set(allowed.split(", ")) == {"a.>", "$JS.API.INFO", "$SYS.REQ.USER.INFO"}
        assert (denied, cells["May subscribe"]) == ("a.b", ["_INBOX.>"])
        assert (cells["Streams"], cells["Consumers"]) == (["0", "7"], ["0", "unlimited"])
        none = eyot("--user", "b", "--password", "b", "account", "info")
        assert "JetStream is not enabled for this account" in none
        assert (table(none)["User"], table(none)["Account"]) == (["b"], ["B"])
        assert "$JS.API.INFO" in eyot.fails("--user", "c", "--password", "c", "account", "info")


def table(shown: str) -> dict[str, list[str]]:
    """The cells of each row behind the first one."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in rows}
