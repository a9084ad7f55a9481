"""`eyot mqtt import`: mosquitto's configurations become such as `eyotd` takes, and behave as before or say where not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eyot_wire.mqtt.packets import SubscriptionRequest
from support.links.bridge_fixture import Nats, until
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd
from support.servers.mosquitto import Mosquitto, Subscriber
from support.servers.server_process import executable, free_port
from support.trust.certificates import Authority

#: Written by mosquitto_passwd 2.0.11: `secret`, `away`, and with -H sha512 `pässword`.
PASSWORDS = """\
roger:$7$101$Gk26Va8HG/JIUDFs$WKzPSCu29kM0qQnpglZ0YYq6xZcWBr5+7cBjEJkB//YPhuMU3cvNAw/MzP6O/cAvn1YHb7JSidlTy7KSHU32uQ==
gone:$7$101$R3ayTjWA44jDwwiI$staT4PsQMNwzzBNR9oRizpyfdFUkPJiZFMzfZUU/5pIeoGNvhx+1RwBHlwEUMecjsoiCgKiaH5bRtn/sjck3Kw==
anna:$6$qp33LYz49409yFjw$lWmF0ZKhhoZjswoujhXQzswNrcYHZvdJ/SH8IuU/dXdPwM2GQRqRIJxWkW6a93PpdhJPVP61rmfgQpM53wjYoQ==
plain:in "clear" \\ text
"""
ACL = """\
# anonymous clients
topic read public/#

user roger
topic readwrite plant/+/temp
topic deny plant/secret/temp
topic write #
user anna
topic read #
topic read v1.5/x
topic read two words
user nobody-has-a-password
topic a
pattern readwrite users/%u/#
pattern write state/%c
"""
#: Debian's mosquitto 2.0.11 (`/etc/mosquitto/mosquitto.conf`, without comments)
DEBIAN = """\
pid_file /run/mosquitto/mosquitto.pid

persistence true
persistence_location /var/lib/mosquitto/

log_dest file /var/log/mosquitto/mosquitto.log

include_dir {folder}
"""


def convert(path: Path, *more: str) -> tuple[int, str, list[dict[str, object]]]:
    """Exit status, configuration and notes."""
    command = [sys.executable, "-m", "eyot_cli.main", "--json", "mqtt", "import", str(path), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    return done.returncode, found["config"], found["notes"]


def accepted(config: str, folder: Path) -> None:
    path = folder / "eyotd.conf"
    path.write_text(config)
    done = subprocess.run(
        [executable("eyotd"), "-t", "-c", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr + config


def test_debians_own(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    source = tmp_path / "mosquitto.conf"
    source.write_text(DEBIAN.format(folder=tmp_path / "conf.d"))
    status, config, notes = convert(source)
    assert status == 0
    accepted(config, tmp_path)
    assert 'listen: "127.0.0.1:1883"' in config
    assert "users" not in config  # without listeners mosquitto serves everybody on this machine
    assert not any(note["lost"] for note in notes)
    assert notes[0]["where"] == f"{source}:1"
    # A listener without users lets nobody in.
    (tmp_path / "conf.d" / "b.conf").write_text("listener 1883\n")
    (tmp_path / "conf.d" / "not-read").write_text("bogus\n")
    status, config, _ = convert(source)
    accepted(config, tmp_path)
    assert (status, '"nobody"' in config, 'listen: "0.0.0.0:1883"' in config) == (0, True, True)
    (tmp_path / "conf.d" / "c.conf").write_text("allow_anonymous true\n")
    assert "users" not in convert(source)[1]


RICH = """\
per_listener_settings false
listener {port} 127.0.0.1
cafile {ca}
certfile {cert}
keyfile {key}
max_connections 50
max_topic_alias 5
listener {ws}
protocol websockets
listener 8884
psk_hint x
allow_anonymous true
password_file pw
acl_file acl
max_keepalive 600
max_queued_messages 500
max_queued_bytes 0
max_inflight_messages 20
message_size_limit 200000
persistent_client_expiration 2w
autosave_interval 1800
sys_interval 10
bogus_setting 1
plugin /usr/lib/x.so
connection cloud
address cloud.example:8883
topic # out 1
remote_password hunter2
"""


def rich(folder: Path) -> tuple[Path, int, int]:
    authority = Authority(folder)
    cert, key = authority.issue("server")
    (folder / "pw").write_text(PASSWORDS)
    (folder / "acl").write_text(ACL)
    port, ws = free_port(), free_port()
    source = folder / "mosquitto.conf"
    source.write_text(RICH.format(port=port, ws=ws, ca=authority.ca_file, cert=cert, key=key))
    return source, port, ws


def test_no_limit_of_connections_stays_none(tmp_path: Path) -> None:
    """It is 0 or -1 to mosquitto; an eyotd with 0 lets nobody in."""
    source = tmp_path / "mosquitto.conf"
    for value in ("0", "-1"):
        source.write_text(f"listener 1883\nallow_anonymous true\nmax_connections {value}\n")
        status, config, _ = convert(source)
        assert (status, "max_connections" in config) == (0, False)


def test_a_rich_configuration(tmp_path: Path) -> None:
    source, port, ws = rich(tmp_path)
    status, config, notes = convert(source)
    assert status == 3
    accepted(config, tmp_path)
    for part in (f'listen: "127.0.0.1:{port}"', f'listen: "0.0.0.0:{ws}"', "no_tls: true", "max_connections: 50"):
        assert part in config
    for part in ("max_topic_alias: 5", "max_keepalive: 600", "session_queue_msgs: 500", "max_ack_pending: 20"):
        assert part in config
    assert "max_payload: 200000" in config
    assert "sys_interval: 10" in config
    assert '"two/20words"' in config, "a space has a form of its own in subjects"
    assert f"session_expiry_max: {14 * 86_400}" in config
    lost = {
        (str(note["where"]).removeprefix(f"{tmp_path}/"), str(note["line"]).split()[0])
        for note in notes
        if note["lost"]
    }
    assert lost == {
        ("acl:13", "topic"),
        ("acl:15", "pattern"),
        ("mosquitto.conf:10", "listener"),
        ("mosquitto.conf:17", "max_queued_bytes"),
        ("mosquitto.conf:23", "bogus_setting"),
        ("mosquitto.conf:24", "plugin"),
        ("mosquitto.conf:25", "connection"),
        ("pw:1", "user"),
        ("pw:2", "user"),
        ("pw:3", "user"),
    }
    assert all(note["text"] for note in notes)
    assert "hunter2" not in str(notes)


BRIDGES = """\
connection site/a
address 127.0.0.1:{port} backup.example
remote_clientid gw7
remote_username gw
remote_password hunter2
cleansession false
notifications true
try_private true
keepalive_interval 30
topic plant/# out 1 "" sites/7/
topic cmd/+ in 2 from/ sites/7/
topic shared/# both 0
topic "" out 0 a b
start_type lazy
connection cloud
address [2001:db8::1]:8883
bridge_cafile ca.pem
bridge_insecure true
bridge_protocol_version mqttv50
topic # in
connection nothing
address 10.0.0.1
"""


def test_bridges(tmp_path: Path) -> None:
    source = tmp_path / "mosquitto.conf"
    with Mosquitto(tmp_path / "broker") as broker:
        source.write_text(BRIDGES.format(port=broker.port))
        (tmp_path / "ca.pem").write_text(Path(Authority(tmp_path).ca_file).read_text())
        status, config, notes = convert(source, "--store-dir", "%WORKDIR%/js")
        accepted(config.replace("%WORKDIR%", str(tmp_path)), tmp_path)
        lost = [(str(note["where"]).rpartition(":")[2], str(note["line"]).split()[0]) for note in notes if note["lost"]]
        assert status == 3
        assert sorted(lost) == [
            ("1", "connection"),
            ("13", "topic"),
            ("14", "start_type"),
            ("18", "bridge_insecure"),
            ("21", "connection"),
        ]
        assert "BRIDGE_site-a, with the subjects plant plant.> shared shared.>" in str(notes)
        assert 'urls: ["mqtts://[2001:db8::1]:8883"]' in config
        assert "hunter2" not in str(notes)
        # The first one works: a publish here arrives there under the other topic.
        config = config.replace('"127.0.0.1:4222"', '"127.0.0.1:%CLIENT_PORT%"').replace(
            ', "mqtt://backup.example:1883"', ""
        )
        config = config.replace('"127.0.0.1:1883"', '"127.0.0.1:%LEAF_PORT%"')
        with Eyotd(config, tmp_path / "eyot") as server:
            Nats(server).stream("BRIDGE_site-a", ["plant.>", "plant", "shared.>", "shared"])
            subscriber = Subscriber(broker.port, tmp_path / "got", "sites/#")
            try:
                subscriber.wait_subscribed(broker.port, "sites/probe")

                def arrived() -> bool:
                    Nats(server).publish("plant.a", ["20"])
                    return "sites/7/plant/a 20" in subscriber.lines()

                until(arrived)
            finally:
                subscriber.close()


def test_the_converted_server_serves_the_same_users(tmp_path: Path) -> None:
    source, port, _ = rich(tmp_path)
    source.write_text(
        "".join(
            line
            for line in source.read_text().splitlines(True)
            if not line.startswith(("cafile", "certfile", "keyfile"))
        )
    )
    known = tmp_path / "known"
    known.write_text("roger:secret\nanna:pässword\ngone:wrong\n")
    _, config, notes = convert(source, "--passwords", str(known), "--store-dir", "%WORKDIR%/js")
    users = [note for note in notes if str(note["where"]).startswith(f"{tmp_path}/pw")]
    assert [(note["line"], "the given password is another one" in str(note["text"])) for note in users] == [
        ("user gone", True)
    ]
    config = config.replace('"127.0.0.1:4222"', '"127.0.0.1:%CLIENT_PORT%"')
    with Eyotd(config, tmp_path / "eyot"):

        def client(user: str | None, password: str) -> RawMqtt:
            made = RawMqtt(port)
            assert made.connect("", user=user, password=None if user is None else password.encode()).reason == 0
            return made

        with client("roger", "secret") as roger, client("anna", "pässword") as anna, client(None, "") as anyone:
            assert roger.subscribe("plant/1/temp", "plant/secret/temp", "other", "users/roger/x", "users/anna/x").codes == [
                0, 0x80, 0x80, 0, 0x80,
            ]  # fmt: skip
            assert anna.subscribe("#", "v1.5/x", "users/anna/#").codes == [0, 0, 0]
            assert anyone.subscribe("public/#", "plant/1/temp", SubscriptionRequest("#")).codes == [0, 0x80, 0x80]
            # 3.1.1 acknowledges what is not permitted, and drops it.
            for topic in ("plant/secret/temp", "$JS/API/INFO", "plant/1/temp"):
                roger.publish_acked(topic, topic.encode(), qos=1)
            assert anna.message().topic == "plant/1/temp"
            assert roger.message().topic == "plant/1/temp"
            anna.publish_acked("public/x", b"not hers", qos=1)
            anyone.publish_acked("public/x", b"not theirs", qos=1)
            roger.publish_acked("public/x", b"his", qos=1)
            assert anyone.message().payload == b"his"
        with client("plain", 'in "clear" \\ text') as plain:
            assert plain.subscribe("a").codes == [0x80]
        for user, password in (("gone", "away"), ("anonymous", ""), ("nobody-has-a-password", "")):
            with RawMqtt(port) as mqtt:
                assert mqtt.connect("x", user=user, password=password.encode()).reason == 5


def test_users_by_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    (tmp_path / "acl").write_text("user pump\ntopic pumps/#\n")
    source = tmp_path / "m.conf"
    source.write_text(
        f"listener 8883\ncafile {authority.ca_file}\ncertfile {cert}\nkeyfile {key}\nrequire_certificate true\n"
        "use_identity_as_username true\nacl_file acl\n"
    )
    status, config, notes = convert(source)
    assert (status, notes) == (0, [])
    accepted(config, tmp_path)
    assert "verify_and_map: true" in config
    assert '"CN=pump"' in config


def test_output(tmp_path: Path) -> None:
    source = tmp_path / "m.conf"
    source.write_text("listener 1883\nallow_anonymous true\nmax_qos 0\n")
    output = tmp_path / "eyotd.conf"
    command = [sys.executable, "-m", "eyot_cli.main", "mqtt", "import", str(source), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"{source}:3: max_qos 0: not converted: ")
    assert output.stat().st_mode & 0o777 == 0o640
    accepted(output.read_text(), tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("include_dir none\n", "include_dir none: no such directory"),
        ("password_file none\n", "No such file or directory"),
    ],
)
def test_files_that_are_not_there(tmp_path: Path, text: str, words: str) -> None:
    source = tmp_path / "m.conf"
    source.write_text(text)
    command = [sys.executable, "-m", "eyot_cli.main", "mqtt", "import", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert words in done.stderr
