"""Every key and flag that nats-server 2.14 knows: accepted here too, or refused with a reason, never unknown."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from eyot_daemon.config.args import parse_args
from eyot_daemon.config.options import Options
from eyot_daemon.main import load
from eyot_wire.conf import ConfError
from support.clients.raw_client import RawClient
from support.links.leaf_pair import server
from support.servers.newer_nats_server import VERSION, binary
from support.servers.option_keys import MISTAKES, MQTT_MISTAKES, NOTHING, REFUSED, TAKEN, WITHOUT_EFFECT
from support.trust.certificates import Authority

ACCOUNT = "AAMRCQ5THMBHIH6W5ITYAFDMHLZNLY7DTDXELPVEICXBKOTOXQSSBDBZ"
USER = "UAIN5L4NXZDXOJ6BSWHCC6COB27LSG4E4UHSG7BX6G7BCECTDAVZTHIC"
CURVE = "XALDOQ43JAPQYV4KPA3PBRSL4ESVN6Y3RGYVRVUGPDIS5MUEWOVQBXXU"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
FORMS = {
    "": "%s",
    "leafnodes": "leafnodes: { port: 7422, %s }",
    "remotes": 'leafnodes: { remotes: [ { url: "nats://127.0.0.1:7422", %s } ] }',
    "jetstream": "jetstream: { %s }",
    "accounts": 'accounts: { A: { %s }, B: { exports: [ { stream: "s.>" }, { service: q } ] } }',
    "authorization": "authorization: { %s }",
    "tls": "tls: { %s }",
    "websocket": "websocket: { %s }",
    "mqtt": "mqtt: { %s }",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys")
    Authority(made).issue("server")
    (made / "a.creds").write_text("not read by -t")
    return made


def write(folder: Path, block: str, text: str) -> Path:
    words = {
        "CERT": folder / "server.pem",
        "KEY": folder / "server-key.pem",
        "CA": folder / "ca.pem",
        "TMP": folder,
        "ACCOUNT": ACCOUNT,
        "USER": USER,
        "CURVE": CURVE,
        "SEED": f'"{SEED}"',
    }
    for word, value in words.items():
        text = re.sub(rf"\b{word}\b", str(value), text)
    path = folder / "server.conf"
    path.write_text(FORMS[block] % text + "\n")
    return path


def theirs(path: Path) -> str:
    """What nats-server says against a file, "" if nothing."""
    done = subprocess.run([binary(VERSION), "-t", "-c", str(path)], capture_output=True, text=True, timeout=60)
    return done.stderr if done.returncode else ""


def ours(path: Path) -> str:
    try:
        return "; ".join(load(parse_args(["-c", str(path)])).reading.warnings)
    except ConfError as error:
        return str(error)


@pytest.mark.parametrize("block", TAKEN)
def test_both_servers_take_it(block: str, folder: Path) -> None:
    objections = []
    for text in TAKEN[block]:
        path = write(folder, block, text)
        said = [theirs(path), ours(path)]
        if any(said):
            objections.append((text, *said))
    assert objections == []


def options_of(folder: Path, block: str, text: str) -> Options:
    loaded = load(parse_args(["-c", str(write(folder, block, text))]))
    return msgspec.structs.replace(loaded.options, config_digest="")


@pytest.mark.parametrize("block", TAKEN)
def test_what_is_taken_changes_an_option(block: str, folder: Path) -> None:
    """No key is taken and forgotten, as the name of a cluster was. `test_keys_are_used.py` checks that options are used."""
    before = options_of(folder, block, 'cert_file: "CERT", key_file: "KEY"' if block == "tls" else "")
    idle = {key for name, keys, _ in WITHOUT_EFFECT if name == block for key in keys.split()}
    forgotten = []
    for text in TAKEN[block]:
        if options_of(folder, block, text) != before:
            continue
        if not idle & set(re.findall(r"(\w+):", text)) and text.rpartition(": ")[2] not in NOTHING:
            forgotten.append(text)
    assert forgotten == []


@pytest.mark.parametrize(("block", "text", "words", "own"), MISTAKES)
def test_mistakes_are_refused_by_both(block: str, text: str, words: str, own: str, folder: Path) -> None:
    path = write(folder, block, text)
    assert words in theirs(path)
    assert own in ours(path)


def test_what_is_not_offered_is_refused_with_the_reason(folder: Path) -> None:
    for block, text, reason in REFUSED:
        path = write(folder, block, text)
        assert theirs(path) == "", text
        assert reason in ours(path), text


@pytest.mark.parametrize(("text", "words"), MQTT_MISTAKES)
def test_mistakes_in_mqtt_are_refused_in_the_same_words(text: str, words: str, folder: Path) -> None:
    path = write(folder, "mqtt", text)
    assert words in theirs(path)
    assert words in ours(path)


@pytest.mark.parametrize("value", ["5", '"x"', "[]", "false", "1.5"])
def test_what_is_no_block_is_refused_in_the_same_words(value: str, folder: Path) -> None:
    path = folder / "server.conf"
    path.write_text(f"mqtt: {value}\n")
    said = re.search("Expected mqtt to be a map, got .*", theirs(path))
    assert said is not None
    assert said[0] in ours(path)


ZEROS = """
    max_control_line: 0, max_payload: 0, max_pending: 0, max_subscriptions: 0, ping_interval: "0s", ping_max: 0
    write_deadline: "0s", lame_duck_grace_period: "0s", max_closed_clients: 0, connect_error_reports: 0, reconnect_error_reports: 0
    authorization { timeout: 0, user: a, password: a }
    leafnodes { listen: "127.0.0.1:%LEAF_PORT%", authorization { timeout: 0 }, reconnect: "0s" }
    websocket { listen: "127.0.0.1:-1", no_tls: true, handshake_timeout: "0s", authorization { timeout: 0 } }
"""
#: What `/varz` tells of them.
TOLD = (
    *(
        "max_control_line",
        "max_payload",
        "max_pending",
        "max_connections",
        "max_subscriptions",
        "ping_interval",
        "ping_max",
    ),
    *("write_deadline", "auth_timeout", "tls_timeout"),
)


def test_zero_means_the_default_as_in_nats_server(tmp_path: Path) -> None:
    told = []
    for kind in ("eyotd", VERSION):
        process = server(kind, ZEROS, tmp_path / kind)
        process.start()
        try:
            varz = process.monitor("/varz")
            told.append({key: varz.get(key) for key in TOLD} | {"leaf": varz["leaf"]["auth_timeout"]})
            with RawClient(process.client_port, user="a", **{"pass": "a"}) as client:
                assert client.ask(b"SUB a 1\r\nPUB a 5\r\nhello\r\n") == b"MSG a 1 5\r\nhello\r\n"
        finally:
            process.kill()
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("max_pending: 1000", "max_pending"),
        ("max_payload: 100M", "max_payload"),
        ('lame_duck_duration: "40s", lame_duck_grace_period: "50s"', "lame_duck_grace_period"),
        ("eyot { device { answers: [status] } }", "answers"),
    ],
)
def test_what_contradicts_a_default_is_named_where_it_stands(text: str, key: str, folder: Path) -> None:
    """Not the option that the file does not have, and no flag that nobody gave."""
    path = write(folder, "", text)
    place, _, rest = ours(path).partition(": ")
    assert place.startswith(f"{path}:1:")
    assert rest.startswith(f'key "{key}": ')


def test_all_flags_are_known() -> None:
    usage = subprocess.run([binary(VERSION), "-h"], capture_output=True, text=True, timeout=60)
    names = set(re.findall(r"(?<![\w-])--?([A-Za-z_]+)\b", usage.stdout + usage.stderr))
    assert {"p", "port", "DVV", "cluster_name", "tlscacert", "ports_file_dir"} <= names
    unknown = [name for name in sorted(names) if not _is_known(name)]
    assert unknown == []


def _is_known(name: str) -> bool:
    for value in ("1", "true"):
        try:
            parse_args([f"-{name}={value}"])
        except Exception as error:
            if "not defined" in str(error):
                return False
        else:
            return True
    return False
