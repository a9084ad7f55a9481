"""`eyot mqtt` against a running `eyotd`, as a terminal shows it; where mosquitto has the command, against mosquitto too."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_cli.main import main
from eyot_wire.mqtt.packets import Will
from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd
from support.trust.certificates import Authority

CONFIG = """
    listen: 127.0.0.1:%CLIENT_PORT%
    server_name: gateway
    jetstream {{ store_dir: "%WORKDIR%/js" }}
    mqtt {{ listen: "127.0.0.1:%LEAF_PORT%", {tls} }}
    accounts {{
        PLANT {{ jetstream: enabled, users: [
            {{user: app, password: secret}}
            {{user: sensor, password: s, permissions: {{ publish: "sensors.>", subscribe: "sensors.>" }}}}
            {{user: viewer, password: v, permissions: {{ publish: "$JS.API.EYOT_MQTT.*.LIST", subscribe: "_INBOX.>" }}}}
        ]}}
        OTHER {{ jetstream: enabled, users: [ {{user: other, password: o}} ] }}
    }}
"""


class Tool:
    """`eyot` as user `app` of a daemon, in this process."""

    def __init__(
        self,
        daemon: Eyotd,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        scheme: str = "mqtt",
    ) -> None:
        self.daemon = daemon
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.url = f"{scheme}://127.0.0.1:{daemon.leaf_port}"
        monkeypatch.setenv("EYOT_MQTT_URL", self.url)

    def arguments(self, *arguments: str, user: str = "app", password: str = "secret") -> list[str]:
        return ["-s", self.daemon.client_url(), "--user", user, "--password", password, "mqtt", *arguments]

    def __call__(
        self, *arguments: str, user: str = "app", password: str = "secret", typed: str = ""
    ) -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.argv", ["eyot", *self.arguments(*arguments, user=user, password=password)])
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        self._capsys.readouterr()
        status = main()
        out, err = self._capsys.readouterr()
        return status, out, err


@pytest.fixture
def eyot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    with Eyotd(CONFIG.format(tls=""), tmp_path) as daemon:
        yield Tool(daemon, monkeypatch, capsys)


def sensor(eyot: Tool, client_id: str, **more: object) -> RawMqtt:
    made = RawMqtt(eyot.daemon.leaf_port, level=5)
    assert made.connect(client_id, user="sensor", password=b"s", **more).reason == 0  # type: ignore[arg-type]
    return made


def test_publish_and_subscribe(eyot: Tool) -> None:
    assert eyot("sub", "-t", "sensors/#", "-q", "2", "-c", "-i", "panel", "-E") == (0, "", "")
    where = ("--url", "mqtt://host.invalid:1", "--host", "127.0.0.1", "-p", str(eyot.daemon.leaf_port))
    assert eyot("pub", *where, "-t", "sensors/a", "-m", "21.5", "-q", "2", "-H", "unit:C") == (0, "", "")
    command = [sys.executable, "-m", "eyot_cli.main", *eyot.arguments("pub", "-t", "sensors/b", "-l", "-q", "1")]
    done = subprocess.run(command, input=b"one\r\ntwo\nthree", capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert eyot("pub", "-t", "sensors/c", "-q", "1", typed="two\nlines") == (0, "", "")
    status, out, _ = eyot("pub", "-t", "sensors/d", "-n", "-q", "1", "--json")
    assert (status, json.loads(out)) == (0, {"topic": "sensors/d", "qos": 1, "retain": False, "messages": 1})
    listening = ("sub", "-t", "sensors/#", "-q", "2", "-c", "-i", "panel", "-W", "60")
    assert eyot(*listening, "-v", "-C", "3") == (0, "sensors/a 21.5\nsensors/b one\nsensors/b two\n", "")
    # What was not printed was not acknowledged.
    status, out, _ = eyot(*listening, "-C", "1", "--json")
    assert status == 0
    assert {key: json.loads(out)[key] for key in ("topic", "qos", "payload")} == {
        "topic": "sensors/b",
        "qos": 1,
        "payload": "three",
    }
    assert eyot(*listening, "-C", "2") == (0, "two\nlines\n\n", "")


def test_retained_messages(eyot: Tool) -> None:
    for name in ("a", "b"):
        assert eyot("pub", "-t", f"sensors/{name}", "-m", name * 3, "-q", "1", "-r", "-i", f"pub-{name}")[0] == 0
    assert eyot("pub", "-t", "sensors/e", "-m", "e", "-r", "-q", "1", "--expiry", "1000")[0] == 0
    status, out, err = eyot("retained", "--json")
    found = json.loads(out)
    assert (status, err, found["msgs"]) == (0, "", 3)
    assert [(each["topic"], each["qos"], each["size"], each["publisher"]) for each in found["retained"][:2]] == [
        ("sensors/a", 1, 3, "pub-a"),
        ("sensors/b", 1, 3, "pub-b"),
    ]
    assert 0 < found["retained"][2]["expires_in_s"] <= 1000
    assert found["retained"][0]["expires_in_s"] is None
    status, out, _ = eyot("retained", "-t", "sensors/a")
    assert status == 0
    assert "sensors/a" in out
    assert "sensors/b" not in out
    # Retained messages alone, without waiting for others
    assert eyot("sub", "-t", "sensors/a", "-C", "1", "-W", "60") == (0, "aaa\n", "")
    assert eyot("sub", "-t", "sensors/a", "-R", "-W", "100ms", "-C", "1") == (27, "", "")
    assert eyot("retained", "clear", "sensors/a") == (0, "Deleted: 1 retained\n", "")
    status, out, err = eyot("retained", "clear", "sensors/a")
    assert (status, out) == (1, "")
    assert err.startswith("eyot: no retained message of sensors/a")
    assert eyot("retained", "clear", "sensors/#")[0] == 130  # it asks, and nobody answers
    assert eyot("retained", "clear", "sensors/#", "--yes") == (0, "Deleted: 2 retained\n", "")
    assert eyot("sub", "-t", "sensors/#", "-W", "100ms", "-C", "1")[0] == 27
    assert eyot("retained", "clear", "a#b", "--yes")[2] == "eyot: 'a#b' is not a topic filter (10051)\n"
    assert json.loads(eyot("retained", "--json", user="other", password="o")[1])["retained"] == []


def test_many_retained_messages(eyot: Tool) -> None:
    with sensor(eyot, "s") as mqtt:
        for number in range(600):
            mqtt.publish(f"sensors/n/{number}", b"x", qos=0, retain=True)
        mqtt.publish_acked("sensors/last", b"x", qos=1, retain=True)
    found = json.loads(eyot("retained", "--json", "-t", "sensors/n/+")[1])
    assert [each["topic"] for each in found["retained"]] == [f"sensors/n/{number}" for number in range(600)]
    _, out, _ = eyot("retained", "--limit", "10")
    assert "601 in the account" in out
    assert "There may be more than these 10" in out
    assert eyot("retained", "clear", "sensors/#", "--yes") == (0, "Deleted: 601 retained\n", "")
    assert json.loads(eyot("retained", "--json")[1]) == {"msgs": 0, "bytes": 0, "retained": []}


def test_sessions(eyot: Tool) -> None:
    will = Will("sensors/gone", b"gone", 1, False)
    mqtt = sensor(eyot, "pump\n1", clean=False, will=will, props=Properties(session_expiry_interval=3600))
    with mqtt:
        mqtt.subscribe("sensors/+/t", "sensors/x", qos=1)
        assert eyot("pub", "-t", "sensors/x", "-m", "1", "-q", "1")[0] == 0
        assert mqtt.next_publish().payload == b"1"  # and does not acknowledge it
        status, out, err = eyot("sessions", "--json")
        (session,) = json.loads(out)
        assert (status, err) == (0, "")
        assert (session["client_id"], session["user"], session["level"]) == ("pump\n1", "sensor", 5)
        assert (session["connected"], session["persistent"], session["expiry_s"]) == (True, True, 3600)
        assert (session["subscriptions"], session["queued_msgs"], session["inflight"]) == (2, 1, 1)
        assert session["will"] == "sensors/gone"
        assert session["address"].startswith("127.0.0.1:")
        _, out, _ = eyot("sessions")
        assert "pump\\n1" in out  # a client id cannot forge lines
        _, out, _ = eyot("sessions", "info", "pump\n1")
        assert "sensors/+/t" in out
        assert "1h00m" in out
        assert json.loads(eyot("sessions", "--of", "app", "--json")[1]) == []
        assert json.loads(eyot("sessions", "--json", user="other", password="o")[1]) == []
        assert eyot("sub", "-t", "sensors/gone", "-q", "1", "-c", "-i", "panel", "-E")[0] == 0
        status, out, err = eyot("sessions", "delete", "pump\n1")
        assert (status, out, err) == (0, "Deleted: session pump\\n1, its connection is closed\n", "")
        assert mqtt.packet().reason == 0x98
    listening = ("sub", "-t", "sensors/gone", "-q", "1", "-c", "-i", "panel", "-C", "1", "-W", "60")
    assert eyot(*listening) == (0, "gone\n", "")
    assert [each["client_id"] for each in json.loads(eyot("sessions", "--json")[1])] == ["panel"]
    status, _, err = eyot("sessions", "delete", "pump\n1")
    assert (status, err.count("\n")) == (1, 1)
    assert "no session of client id" in err
    with sensor(eyot, "pump\n1", clean=False) as mqtt:
        assert mqtt.is_quiet()  # nothing of the old session came back
    # A session that is away is deleted from flash, too.
    assert eyot("sessions", "delete", "panel") == (0, "Deleted: session panel\n", "")
    eyot.daemon.kill()
    eyot.daemon.start()
    assert json.loads(eyot("sessions", "--json")[1]) == []


def test_rights(eyot: Tool) -> None:
    """The requests are those of the JetStream API: permissions on their subjects decide."""
    with sensor(eyot, "s", clean=False, props=Properties(session_expiry_interval=60)):
        assert [
            each["client_id"] for each in json.loads(eyot("sessions", "--json", user="viewer", password="v")[1])
        ] == ["s"]
        status, out, err = eyot("sessions", "delete", "s", user="viewer", password="v")
        assert (status, out) == (1, "")
        assert err.startswith('eyot: Permissions Violation for Publish to "$JS.API.EYOT_MQTT.SESSION.DELETE')


def test_what_is_refused(eyot: Tool) -> None:
    port = eyot.daemon.leaf_port
    status, out, err = eyot("pub", "-t", "a", "-m", "x", password="wrong")
    assert (status, out) == (1, "")
    assert err.startswith(f"eyot: mqtt://127.0.0.1:{port} refuses the connection: not authorized (0x87): check user")
    status, _, err = eyot("pub", "-t", "a/" * 300, "-m", "x", "-q", "1")
    assert (status, err) == (
        1,
        f"eyot: {'a/' * 300} is refused: topic name invalid (0x90): too long, or too many levels, for a subject\n",
    )
    status, _, err = eyot("pub", "-t", "other", "-m", "x", "-q", "1", user="sensor", password="s")
    assert (status, err) == (1, "eyot: other is refused: not authorized (0x87): no permission to publish\n")
    status, _, err = eyot("pub", "-t", "a/" * 300, "-m", "x", "-V", "311")  # QoS 0: the server closes
    assert (status, err) == (1, f"eyot: mqtt://127.0.0.1:{port} closed the connection: its log says why\n")
    for topic in ("a/+", "#", ""):
        status, _, err = eyot("pub", "-t", topic, "-m", "x")
        assert status == 2
        assert "is no topic: + and # are wildcards of filters" in err
    for topic_filter in ("a#", "a/#/b", "a+/b"):
        status, _, err = eyot("sub", "-t", topic_filter)
        assert status == 1
        assert err.endswith("topic filter invalid (0x8f): + and # stand alone between /, and # at the end\n")
    status, _, err = eyot("sub", "-t", "#", user="sensor", password="s")
    assert status == 1
    assert err.startswith("eyot: #: not authorized (0x87): ")
    status, _, err = eyot("sub", "-t", "a", "-V", "311", "-H", "a:b")
    assert status == 2
    assert "MQTT 5" in err
    assert eyot("sub", "-t", "a", "-c")[0] == 2
    assert eyot("pub", "-t", "a", "-m", "x", "-n")[0] == 2
    status, _, err = eyot("pub", "-t", "a", "-m", "x", "--url", "mqtt://127.0.0.1:1")
    assert err.startswith("eyot: cannot connect to mqtt://127.0.0.1:1: Connection refused: is `mqtt { listen }`")
    status, _, err = eyot("pub", "-t", "a", "-m", "x", "--url", eyot.daemon.client_url().replace("nats", "mqtt"))
    assert (status, err.count("\n")) == (1, 1)
    assert "does not speak MQTT" in err
    assert eyot("pub", "-t", "a", "-m", "x", "--url", "http://here")[2] == (
        "eyot: --url: expected mqtt://HOST:PORT or mqtts://HOST:PORT\n"
    )


def test_a_server_that_goes_away(eyot: Tool) -> None:
    command = [sys.executable, "-m", "eyot_cli.main", "--user", "app", "--password", "secret", "mqtt", "sub", "-t", "a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listening:
        while not eyot.daemon.monitor("/subsz?subs=1&test=a")["total"]:
            time.sleep(0.02)
        eyot.daemon.kill()
        _, err = listening.communicate(timeout=60)
    assert listening.returncode == 1
    assert b"mqtt://127.0.0.1" in err
    assert err.count(b"\n") == 1


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("127.0.0.1")
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'
    with Eyotd(CONFIG.format(tls=tls), tmp_path) as daemon:
        eyot = Tool(daemon, monkeypatch, capsys, "mqtts")
        ca = ("--cafile", str(authority.ca_file))
        assert eyot("pub", "-t", "a", "-m", "x" * 100_000, "-q", "1", "-r", *ca) == (0, "", "")
        assert eyot("sub", "-t", "a", "-C", "1", "-W", "60", *ca) == (0, "x" * 100_000 + "\n", "")
        status, _, err = eyot("pub", "-t", "a", "-m", "x")
        assert status == 1
        assert "certificate" in err
