"""Bridges to a real mosquitto: what waited on flash arrives in order, what comes in is on flash, and `eyot sync` tells the truth."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from support.links.bridge_fixture import SLOW, Nats, config, first_seen, gateway, is_confirmed, link, status, until
from support.servers.eyotd import Eyotd
from support.servers.mosquitto import Mosquitto, Subscriber, publish
from support.trust.certificates import Authority


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"{number:05d}" for number in range(first, first + count)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_waited_on_flash_arrives_in_order(qos: int, tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mosquitto")
    with gateway(tmp_path, broker.port, f"streams: READINGS, qos: {qos}") as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        client.publish("r.a", numbered(500))
        found = until(lambda: status(server))
        assert (found["peer"], found["kind"], found["linked"], found["confirmed_seq"]) == ("cloud", "bridge", False, 0)
        assert found["backlog"] == 500
        assert found["oldest_s"] > 0
        assert not server.monitor("/eyot/syncz")["synced"]
        assert until(lambda: link(server)["last_error"]) == "Connection refused"
        server.kill()
        server.start()
        with broker:
            subscriber = Subscriber(broker.port, tmp_path / "got", "r/#")
            try:
                until(lambda: link(server)["state"] == "up")
                until(lambda: is_confirmed(server, 500))
                subscriber.wait_subscribed(broker.port, "r/probe")
                client.publish("r.a", numbered(50, 500))
                until(lambda: is_confirmed(server, 550))
                assert server.monitor("/eyot/syncz")["synced"] == (qos > 0)
                assert status(server)["uncertain"] == (qos == 0)
                # The subscriber may have come after the first messages.
                found_lines = subscriber.wait(50)
                until(lambda: subscriber.lines()[-1] == "r/a 00549")
                found_lines = [line for line in subscriber.lines() if line.startswith("r/a")]
                assert found_lines == sorted(found_lines)
                assert len(found_lines) == len(set(found_lines))
            finally:
                subscriber.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_kills_of_eyotd_under_load(qos: int, tmp_path: Path) -> None:
    """QoS 1: everything at least once, in order. QoS 2: exactly once."""
    total = 800
    with (
        Mosquitto(tmp_path / "mosquitto") as broker,
        gateway(tmp_path, broker.port, f"streams: READINGS, qos: {qos}, max_inflight: 20", eyot=SLOW) as server,
    ):
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        subscriber = Subscriber(broker.port, tmp_path / "got", "r/#")
        try:
            subscriber.wait_subscribed(broker.port, "r/probe")
            client.publish("r.a", numbered(total))
            for part in (1, 2):
                until(lambda part=part: len(subscriber.lines()) >= part * total // 4)  # type: ignore[misc]
                server.kill()
                server.start()
            until(lambda: is_confirmed(server, total))
            lines = subscriber.wait(total)
            wanted = [f"r/a {number}" for number in numbered(total)]
            assert first_seen(lines) == wanted
            if qos == 2:
                assert len(lines) == total, "some came twice"
        finally:
            subscriber.close()


def test_a_kill_of_mosquitto(tmp_path: Path) -> None:
    """What mosquitto had not acknowledged arrives after its restart; what it had is its own to lose."""
    total = 1000
    with (
        Mosquitto(tmp_path / "mosquitto") as broker,
        gateway(tmp_path, broker.port, "streams: READINGS, max_inflight: 20", eyot=SLOW) as server,
    ):
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        subscriber = Subscriber(broker.port, tmp_path / "got", "r/#")
        try:
            subscriber.wait_subscribed(broker.port, "r/probe")
            client.publish("r.a", numbered(total))
            until(lambda: len(subscriber.lines()) > 200)
            broker.kill()
            until(lambda: link(server)["state"] != "up")
            acknowledged = _at_rest(server)
            server.signal(signal.SIGSTOP)  # until the subscriber is back, whose session is lost
            broker.start()
            subscriber.wait_subscribed(broker.port, "r/probe")
            server.signal(signal.SIGCONT)
            until(lambda: is_confirmed(server, total))
            until(lambda: f"r/a {numbered(total)[-1]}" in subscriber.lines()[-1:])
            lines = [line for line in subscriber.lines() if line.startswith("r/a")]
            missing = {f"r/a {number}" for number in numbered(total)} - set(lines)
            assert all(int(line.split()[1]) < acknowledged for line in missing)
            assert first_seen(lines) == sorted(set(lines))
        finally:
            subscriber.close()


def _at_rest(server: Eyotd) -> int:
    """The position of a bridge that is not linked, when everything that was acknowledged is recorded."""
    last = [0]
    while len(last) < 8 or len(set(last[-8:])) > 1 or not last[-1]:
        last.append(status(server)["confirmed_seq"])
        time.sleep(0.2)
    return last[-1]


@pytest.mark.parametrize("qos", [1, 2])
def test_topics_are_taken_in_onto_flash(qos: int, tmp_path: Path) -> None:
    """What is published while the gateway is away waits at the broker; nothing is lost or doubled by kills."""
    bridge = f'topics {{ in: {{ filter: "cmd/#", local_prefix: "from/", qos: {qos} }} }}'
    with Mosquitto(tmp_path / "mosquitto") as broker, gateway(tmp_path, broker.port, bridge) as server:
        client = Nats(server)
        client.stream("COMMANDS", ["from.cmd.>"])
        until(lambda: link(server)["state"] == "up")
        until(lambda: _publish_until_stored(broker, client))
        for turn in range(2):
            server.kill()
            _publish_commands(broker, turn, range(10), qos)
            server.start()
            _publish_commands(broker, turn, range(10, 20), qos)
        _check_commands(client, qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_bridge_follows_jetstream_of_its_account(qos: int, tmp_path: Path) -> None:
    """While JetStream is off, the broker keeps what it has for the bridge; when it is on again, all of it is taken in."""
    bridge = f'account: A, topics {{ in: {{ filter: "cmd/#", local_prefix: "from/", qos: {qos} }} }}'
    with Mosquitto(tmp_path / "mosquitto") as broker:
        accounts = "accounts { A { jetstream: enabled, users: [ { user: a, password: a } ] } }\nno_auth_user: a"
        on = config(f"mqtt://127.0.0.1:{broker.port}", bridge, more=accounts)
        off = on.replace("A { jetstream: enabled", "A { jetstream: disabled")
        with Eyotd(on, tmp_path) as server:
            client = Nats(server)
            client.stream("COMMANDS", ["from.cmd.>"])
            until(lambda: link(server)["state"] == "up")
            until(lambda: _publish_until_stored(broker, client))
            for turn in range(2):
                reload(server, off)
                until(lambda: "MQTT needs JetStream" in (link(server)["last_error"] or ""))
                _publish_commands(broker, turn, range(10), qos)
                reload(server, on)
                _publish_commands(broker, turn, range(10, 20), qos)
            _check_commands(client, qos)


def _publish_commands(broker: Mosquitto, turn: int, numbers: range, qos: int) -> None:
    for number in numbers:
        publish(broker.port, "cmd/x", f"{turn}-{number:02d}", qos)


def _check_commands(client: Nats, qos: int) -> None:
    """All commands of two turns came in, in order; with QoS 2 none of them twice."""
    wanted = [("from.cmd.x", f"{turn}-{number:02d}") for turn in range(2) for number in range(20)]
    until(lambda: len(_without_first(client)) >= len(wanted))
    found = _without_first(client)
    assert list(dict.fromkeys(found)) == wanted
    if qos == 2:
        assert found == wanted


def _without_first(client: Nats) -> list[tuple[str, str]]:
    return [each for each in client.messages("COMMANDS") if each[1] != "begin"]


def _publish_until_stored(broker: Mosquitto, client: Nats) -> bool:
    """The broker knows the subscription once something arrives."""
    publish(broker.port, "cmd/x", "begin")
    return client.count("COMMANDS") > 0


def test_nothing_goes_round(tmp_path: Path) -> None:
    """The same topics go out and come in: neither side sends back what it got."""
    bridge = 'streams: READINGS, topics { out: "r/#", in: "r/#" }'
    with Mosquitto(tmp_path / "mosquitto") as broker, gateway(tmp_path, broker.port, bridge) as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        subscriber = Subscriber(broker.port, tmp_path / "got", "r/#")
        try:
            until(lambda: link(server)["state"] == "up")
            publish(broker.port, "r/there", "0", 1, "-r")
            subscriber.wait(1)
            until(lambda: client.count("READINGS") == 1)
            client.publish("r.here", numbered(10))
            until(lambda: is_confirmed(server, 11))
            for number in range(1, 11):
                publish(broker.port, "r/there", str(number))
            until(lambda: is_confirmed(server, 21))
            subscriber.wait(21)
            assert sorted(subscriber.lines()) == sorted(
                [f"r/here {number}" for number in numbered(10)] + [f"r/there {number}" for number in range(11)]
            )
            assert client.count("READINGS") == 21
            assert not any(link(server)["dropped"].values())
            assert status(server)["never_arrived"] == 0
        finally:
            subscriber.close()


def test_passwords_come_from_private_files(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mosquitto", f"password_file {tmp_path}/mosquitto/passwords\n")
    passwords = tmp_path / "mosquitto" / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "gw", "right"], check=True)
    passwords.chmod(0o644)
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    secret.chmod(0o644)
    bridge = f'streams: READINGS, credentials {{ user: gw, password_file: "{secret}" }}'
    with broker, gateway(tmp_path, broker.port, bridge) as server:
        assert until(lambda: status(server))["error"] == "no stream READINGS"
        assert not server.monitor("/eyot/syncz")["synced"]
        Nats(server).stream("READINGS", ["r.>"])
        Nats(server).publish("r.a", ["1"])
        until(lambda: "others may read it" in (link(server)["last_error"] or ""))
        secret.chmod(0o600)
        until(lambda: "refuses the connection" in (link(server)["last_error"] or ""))
        assert "refuses the connection" in until(lambda: status(server).get("error"))
        assert "credentials { user, password }" in link(server)["remedy"]
        assert "wrong" not in server.log()
        assert not server.monitor("/eyot/syncz")["synced"]
        secret.write_text("right\n")
        until(lambda: is_confirmed(server, 1))
        assert server.monitor("/eyot/syncz")["synced"]


def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker")
    own, own_key = authority.issue("gateway")
    own_key.chmod(0o600)
    tls = f"cafile {authority.ca_file}\ncertfile {certificate}\nkeyfile {key}\nrequire_certificate true\n"
    broker = Mosquitto(tmp_path / "mosquitto", listener=tls)
    text = config(
        f"mqtts://localhost:{broker.port}",
        f'streams: READINGS, tls {{ ca_file: "{authority.ca_file}", cert_file: "{own}", key_file: "{own_key}" }}',
    )
    with broker, Eyotd(text, tmp_path) as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        client.publish("r.a", numbered(100))
        until(lambda: is_confirmed(server, 100))
        other = Authority(tmp_path / "other")
        server.set_config(text.replace(str(authority.ca_file), str(other.ca_file)))
        server.signal(signal.SIGHUP)
        server.wait_log("bridge cloud changed")
        assert "certificate verify failed" in until(lambda: link(server)["last_error"])


def test_a_message_that_is_too_large_waits_or_is_passed_over(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mosquitto", "allow_anonymous true\nmax_packet_size 1000\n")
    with broker, gateway(tmp_path, broker.port, 'streams: READINGS, retry: "200ms"') as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        client.publish("r.a", ["1", "x" * 2000, "3"])
        until(lambda: "larger than the remote takes" in (status(server).get("error") or ""))
        until(lambda: status(server)["confirmed_seq"] == 1)
        assert not server.monitor("/eyot/syncz")["synced"]
        server.set_config(config(f"mqtt://127.0.0.1:{broker.port}", "streams: READINGS, refused: skip"))
        server.signal(signal.SIGHUP)
        until(lambda: is_confirmed(server, 3))
        found = status(server)
        assert [(each["reason"], each["sequences"]) for each in found["lost"]] == [("too_large", ["2"])]
        assert link(server)["dropped"]["too_large"] == 1
        server.kill()
        server.start()
        assert until(lambda: status(server))["never_arrived"] == 1


def test_a_reload_adds_changes_and_removes_bridges(tmp_path: Path) -> None:
    with Mosquitto(tmp_path / "a") as a, Mosquitto(tmp_path / "b") as b:
        none = 'server_name: gateway\njetstream { store_dir: "%WORKDIR%/js" }\n'
        with Eyotd(none, tmp_path) as server:
            client = Nats(server)
            client.stream("READINGS", ["r.>"])
            client.publish("r.a", numbered(10))
            assert status(server) == {}
            reload(server, config(f"mqtt://127.0.0.1:{a.port}", "streams: READINGS"))
            until(lambda: is_confirmed(server, 10))
            subscriber = Subscriber(b.port, tmp_path / "got", "#")
            try:
                subscriber.wait_subscribed(b.port, "probe")
                reload(
                    server,
                    config(
                        f"mqtt://127.0.0.1:{b.port}",
                        'streams: READINGS, topics { out: { filter: "#", remote_prefix: "x/" } }',
                    ),
                )
                client.publish("r.a", numbered(10, 10))
                until(lambda: is_confirmed(server, 20))
                assert subscriber.wait(10) == [f"x/r/a {number}" for number in numbered(10, 10)]
            finally:
                subscriber.close()
            bad = config(f"mqtt://127.0.0.1:{b.port}", "streams: READINGS, qos: 3")
            server.set_config(bad)
            server.signal(signal.SIGHUP)
            server.wait_log(r'eyotd\.conf:\d+:\d+: key "qos": must be at most 2')
            assert link(server)["state"] == "up"
            reload(server, none)
            client.publish("r.a", ["more"])
            found = status(server)
            assert (found["linked"], found["confirmed_seq"], found["backlog"]) == (False, 20, 1)
            assert "no bridge cloud forwards READINGS" in found["error"]
            assert server.monitor("/eyot/status")["links"] == []


def reload(server: Eyotd, text: str) -> None:
    count = server.monitor("/eyot/reloadz")["count"]
    server.set_config(text)
    server.signal(signal.SIGHUP)
    until(lambda: server.monitor("/eyot/reloadz")["count"] > count)
    assert server.monitor("/eyot/reloadz")["error"] == ""


def test_a_work_queue_is_emptied_by_acknowledgements(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mosquitto")
    with gateway(tmp_path, broker.port, 'streams: READINGS, topics { out: "r/#" }') as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>", "other"], retention="workqueue")
        client.publish("r.a", numbered(50))
        client.publish("other", ["stays"])
        assert until(lambda: status(server))["backlog"] == 50
        assert client.count("READINGS") == 51
        with broker:
            until(lambda: is_confirmed(server, 50))
            until(lambda: client.count("READINGS") == 1)


POLICIES = """sync {{
    streams {{ ALARMS {{ priority: 9 }} }}
    remotes [ {{ url: "127.0.0.1:{port}", {policy} }} ]
}}
"""


def test_policies_of_links_hold_for_bridges(tmp_path: Path) -> None:
    """Priorities decide who goes first, a budget that is used up ends the link, and says so."""
    broker = Mosquitto(tmp_path / "mosquitto")

    def text(policy: str) -> str:
        eyot = POLICIES.format(port=broker.port, policy=policy)
        bridge = "streams: [READINGS, ALARMS], max_inflight: 10"
        return config(f"mqtt://127.0.0.1:{broker.port}", bridge, eyot=eyot)

    with broker, Eyotd(text(f'windows: ["{_never()}"]'), tmp_path) as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        client.stream("ALARMS", ["alarm"])
        client.publish("r.a", numbered(2000))
        client.publish("alarm", numbered(5))
        until(lambda: "outside its windows" in (status(server).get("waiting") or ""))
        assert "outside its windows" in link(server)["waiting"]
        subscriber = Subscriber(broker.port, tmp_path / "got", "#")
        try:
            subscriber.wait_subscribed(broker.port, "probe")
            reload(server, text('metered { budget: "10M" }'))
            until(lambda: is_confirmed(server, 2000))
            lines = subscriber.wait(2005)
            assert max(lines.index(f"alarm {number}") for number in numbered(5)) < 50
            found = link(server)["metered"]
            assert found["budget_bytes"] == 10 << 20
            assert found["spent_bytes"] > 2000 * 20
            reload(server, text('metered { budget: "64K" }'))
            until(lambda: "budget used up" in (link(server).get("waiting") or ""))
        finally:
            subscriber.close()


def _never() -> str:
    """A window that is neither open now nor within the next hours."""
    import datetime

    day = (datetime.datetime.now() + datetime.timedelta(days=3)).strftime("%a").lower()
    return f"{day} 12:00-12:01"


def test_metrics_show_bridges(tmp_path: Path) -> None:
    with Mosquitto(tmp_path / "mosquitto") as broker, gateway(tmp_path, broker.port) as server:
        client = Nats(server)
        client.stream("READINGS", ["r.>"])
        client.publish("r.a", numbered(10))
        until(lambda: is_confirmed(server, 10))
        with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics", timeout=30) as response:
            text = response.read().decode()
        assert 'eyot_link_up{account="$G",link="bridge:cloud",role="bridge"} 1.0' in text
        assert (
            'eyot_sync_confirmed_sequence{account="$G",filters="",kind="bridge",peer="cloud",stream="READINGS",target=""} 10.0'
            in text
        )
        assert json.dumps(server.monitor("/healthz")) == '{"status": "ok"}'
