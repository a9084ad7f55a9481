"""What stands before MQTT's protocol, at eyotd and nats-server 2.14: start, logins, TLS, WebSocket, pages, events, reload."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from wsproto.events import TextMessage

from support.clients.raw_client import RawClient
from support.clients.websocket_client import Refused, WebSocketClient
from support.mqtt.login import ACCEPTED, CLOSED, NOT_AUTHORIZED, MqttSocket, connect_packet
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess, free_port
from support.trust.callout_service import CalloutService
from support.trust.certificates import Authority
from support.trust.claims import ALPHA, OTHER, SYSTEM, USER, operator_conf
from support.trust.claims import OPERATOR as OPERATOR_KEY

BASE = 'jetstream { store_dir: "%WORKDIR%/js" }\n'
SERVERS: tuple[type[Eyotd] | type[NewerNatsServer], ...] = (Eyotd, NewerNatsServer)


@contextmanager
def both(config: str, folder: Path, block: str = "", websocket: str = "") -> Iterator[list[Served]]:
    """Both servers, eyotd first; `block`: more of `mqtt { }`."""
    with ExitStack() as stack:
        yield [stack.enter_context(served(kind, config, folder, block, websocket)) for kind in SERVERS]


class Served:
    """One server, and the ports of its listeners."""

    def __init__(self, process: ServerProcess, mqtt_port: int, websocket_port: int) -> None:
        self.process = process
        self.mqtt_port = mqtt_port
        self.websocket_port = websocket_port

    def login(
        self,
        user: str | None = None,
        password: bytes | str | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> int:
        """The code of CONNACK, CLOSED without one."""
        code = self._login(user, password, tls)
        if code == CLOSED and isinstance(self.process, NewerNatsServer):
            time.sleep(1.1)  # it closes a client id that comes back within a second
            code = self._login(user, password, tls)
        return code

    def _login(self, user: str | None, password: bytes | str | None, tls: Callable[[], ssl.SSLContext] | None) -> int:
        try:
            with MqttSocket(self.mqtt_port, None if tls is None else tls()) as client:
                return client.login("sensor", user, password)
        except (ssl.SSLError, ConnectionError):
            return CLOSED

    def websocket(self, headers: dict[str, str] | None = None) -> WebSocketClient:
        subprotocols = ("mqtt",)
        return WebSocketClient(
            self.websocket_port, path="/mqtt", headers=headers, subprotocols=subprotocols, connect=None
        )


@contextmanager
def served(
    kind: type[Eyotd] | type[NewerNatsServer], config: str, folder: Path, block: str = "", websocket: str = ""
) -> Iterator[Served]:
    ports = free_port(), free_port()
    text = BASE + config + f'\nmqtt {{ listen: "127.0.0.1:{ports[0]}"; {block} }}\n'
    if websocket:
        text += f'websocket {{ listen: "127.0.0.1:{ports[1]}"; {websocket} }}\n'
    with kind(text, folder / kind.__name__) as process:
        yield Served(process, *ports)


# -- start -------------------------------------------------------------------------------------------------------------

AUTH = "authorization { users [ { user: a, password: b } ] }\n"


@pytest.mark.parametrize(
    ("config", "block"),
    [
        ("", 'ack_wait: "-1s"'),
        ("", 'js_api_timeout: "-1s"'),
        ("", "no_auth_user: z"),
        (AUTH, "no_auth_user: z"),
        (AUTH, "authorization { user: x, password: y }"),
        (AUTH, "authorization { token: y }"),
    ],
)
def test_neither_starts_and_both_say_why_in_the_same_words(config: str, block: str, tmp_path: Path) -> None:
    words = []
    for kind in SERVERS:
        with pytest.raises(RuntimeError) as failure, served(kind, config, tmp_path, block):
            pass
        words.append(_last_line(str(failure.value)))
    assert words[0] == words[1]


def test_mqtt_needs_jetstream(tmp_path: Path) -> None:
    words = []
    for kind in SERVERS:
        with pytest.raises(RuntimeError) as failure, kind("mqtt { port: -1 }", tmp_path / kind.__name__):
            pass
        words.append(_last_line(str(failure.value)))
    assert words == ["mqtt requires JetStream to be enabled if running in standalone mode"] * 2


def _last_line(log: str) -> str:
    """The server's last line without what stands before its text, and without what only systemd's users need."""
    line = log.strip().splitlines()[-1].removesuffix(". A restart does not mend this")
    return re.sub(r"^(nats-server|eyotd): |^\[\d+\] \S+ \S+ \[\w+\] ", "", line)


# -- logins ------------------------------------------------------------------------------------------------------------

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f"""authorization {{ users [
  {{ user: plain, password: pw }}
  {{ user: hashed, password: "{HASH}" }}
  {{ user: mqtt, password: pw, allowed_connection_types: [MQTT] }}
  {{ user: ws, password: pw, allowed_connection_types: [MQTT_WS] }}
  {{ user: nats, password: pw, allowed_connection_types: [STANDARD] }}
  {{ nkey: {USER.public} }}
] }}
"""
PAIRS: list[tuple[str | None, str | None]] = [
    (None, None),
    ("plain", "pw"),
    ("plain", "no"),
    ("plain", None),
    ("plain", ""),
    ("hashed", "secret"),
    ("hashed", "no"),
    ("mqtt", "pw"),
    ("ws", "pw"),
    ("nats", "pw"),
    (USER.public, "pw"),
    (USER.public, None),
    ("token", "tok"),
    ("any", "tok"),
    ("x", "y"),
]


@pytest.mark.parametrize(
    ("config", "block", "accepted"),
    [
        ("", "", len(PAIRS)),
        (USERS, "", 3),
        (USERS, "no_auth_user: plain", 4),
        (USERS + "no_auth_user: plain", "", 4),
        (USERS + "no_auth_user: plain", "no_auth_user: nats", 3),
        ("authorization { user: plain, password: pw }", "", 1),
        ("authorization { token: tok }", "", 2),
        ("authorization { token: other }", "authorization { user: x, password: y }", 1),
        ("authorization { user: plain, password: pw }", "authorization { token: tok }", 2),
        ("", "authorization { user: x, password: y }", 1),
        ("", "authorization { token: tok }", 2),
        ("authorization { user: x, password: y }", "authorization { timeout: 5 }", 1),
    ],
)
def test_the_same_users_log_in(config: str, block: str, accepted: int, tmp_path: Path) -> None:
    with both(config, tmp_path, block) as servers:
        codes = [{pair: server.login(*pair) for pair in PAIRS} for server in servers]
    assert codes[0] == codes[1]
    assert list(codes[0].values()).count(ACCEPTED) == accepted
    assert set(codes[0].values()) <= {ACCEPTED, NOT_AUTHORIZED}


def test_tokens_of_operator_mode(tmp_path: Path) -> None:
    """A bearer token in the password, within its types; whatever user name."""
    account = OPERATOR_KEY.account(ALPHA, limits={"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1})
    passwords = {
        "bearer": ALPHA.user(USER, bearer_token=True),
        "needs a signature": ALPHA.user(USER),
        "of MQTT": ALPHA.user(USER, bearer_token=True, allowed_connection_types=["MQTT"]),
        "of WebSockets": ALPHA.user(USER, bearer_token=True, allowed_connection_types=["MQTT_WS"]),
        "of a type that nobody knows": ALPHA.user(USER, bearer_token=True, allowed_connection_types=["PIGEON"]),
        "expired": ALPHA.user(USER, bearer_token=True, claims={"exp": int(time.time()) - 10}),
        "of another source": ALPHA.user(USER, bearer_token=True, src=["10.0.0.0/8"]),
        "of nobody's account": SYSTEM.user(OTHER, bearer_token=True)[:-4] + "AAAA",
        "no token": "pw",
    }
    with both(operator_conf(account) + f"system_account: {SYSTEM.public}\n", tmp_path) as servers:
        codes = [{name: server.login("anybody", text) for name, text in passwords.items()} for server in servers]
        for each, server in zip(codes, servers, strict=True):
            each["no password"] = server.login("anybody")
            each["nothing"] = server.login()
    assert codes[0] == codes[1]
    assert [name for name, code in codes[0].items() if code == ACCEPTED] == ["bearer", "of MQTT"]


CALLOUT = f"""
accounts {{ AUTH {{ users: [ {{ user: auth, password: auth }} ] }}, APP {{ jetstream: enabled }} }}
authorization {{ timeout: 5, auth_callout {{ issuer: {ALPHA.public}, account: AUTH, auth_users: [auth] }} }}
"""


def _decide(request: dict[str, Any]) -> dict[str, Any] | str | None:
    return {"aud": "APP"} if request["connect_opts"].get("user") == "good" else "who are you"


def test_auth_callout_sees_a_client_of_mqtt(tmp_path: Path) -> None:
    token = ALPHA.user(USER, bearer_token=True)
    asked = []
    with both(CALLOUT, tmp_path) as servers:
        for server in servers:
            with RawClient(server.process.client_port, headers=True, **{"user": "auth", "pass": "auth"}) as client:
                service = CalloutService(client, ALPHA.signer, _decide)
                codes = [server.login("good", "pw"), server.login("bad", "pw"), server.login("good", token)]
                asked.append((codes, [_seen(request) for request in service.requests]))
    assert asked[0] == asked[1]
    codes, requests = asked[0]
    assert codes == [ACCEPTED, NOT_AUTHORIZED, ACCEPTED]
    assert requests[0]["client_info"] == {
        "host": "127.0.0.1",
        "kind": "Client",
        "type": "mqtt",
        "mqtt_id": "sensor",
        "user": "good",
    }
    assert "jwt" not in requests[0]["connect_opts"]


def _seen(request: dict[str, Any]) -> dict[str, Any]:
    """What a service is told of a client, without what differs from time to time."""
    info = {name: value for name, value in request["client_info"].items() if name not in ("id", "nonce")}
    return {"client_info": info, "connect_opts": request["connect_opts"]}


def test_who_does_not_log_in_is_closed_in_time(tmp_path: Path) -> None:
    with both("", tmp_path, "authorization { user: a, password: b, timeout: 0.5 }") as servers:
        for server in servers:
            begun = time.monotonic()
            with MqttSocket(server.mqtt_port) as client:
                assert client.read(1) == b""
            assert 0.4 < time.monotonic() - begun < 30
            with MqttSocket(server.mqtt_port) as client:
                assert client.login("sensor", "a", "b") == ACCEPTED
                client.sock.settimeout(1.0)
                with pytest.raises(TimeoutError):
                    client.sock.recv(1)


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def context(authority: Authority, name: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.ca_file))
    if name:
        made.load_cert_chain(*authority.issue(name))
    return made


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("", [CLOSED, ACCEPTED, ACCEPTED]),
        ("verify: true", [CLOSED, CLOSED, ACCEPTED]),
        ('pinned_certs: ["7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069"]', [CLOSED] * 3),
    ],
)
def test_tls_comes_first(extra: str, expected: list[int], authority: Authority, tmp_path: Path) -> None:
    """In clear; over TLS without and with a certificate."""
    block = authority.block("server", extra)
    with both("", tmp_path, block.replace("tls {", "tls: {", 1)) as servers:
        for server in servers:
            found = [server.login()]
            found += [
                server.login(tls=lambda: context(authority)),
                server.login(tls=lambda: context(authority, "client")),
            ]
            assert found == expected, server.process.name


def test_a_certificate_names_the_user(authority: Authority, tmp_path: Path) -> None:
    users = 'authorization { users [ { user: "CN=sensor-7" }, { user: other, password: pw } ] }'
    with both(users, tmp_path, authority.block("server", "verify_and_map: true")) as servers:
        for server in servers:
            assert server.login(tls=lambda: context(authority, "sensor-7")) == ACCEPTED
            assert server.login(tls=lambda: context(authority, "sensor-8")) == NOT_AUTHORIZED
            assert server.login("other", "pw", tls=lambda: context(authority, "sensor-8")) == NOT_AUTHORIZED


def test_with_allow_non_tls_the_client_chooses(authority: Authority, tmp_path: Path) -> None:
    with both("allow_non_tls: true", tmp_path, authority.block("server")) as servers:
        for server in servers:
            assert server.login() == ACCEPTED
            assert server.login(tls=lambda: context(authority)) == ACCEPTED


def test_a_handshake_that_does_not_come_ends_in_time(authority: Authority, tmp_path: Path) -> None:
    with both("", tmp_path, authority.block("server", "timeout: 0.5")) as servers:
        for server in servers:
            with MqttSocket(server.mqtt_port) as client:
                begun = time.monotonic()
                assert client.read(1) == b""
                assert time.monotonic() - begun < 30


def test_a_flood_of_handshakes_is_throttled(authority: Authority, tmp_path: Path) -> None:
    with served(Eyotd, "", tmp_path, authority.block("server", "connection_rate_limit: 2")) as server:
        made = context(authority)
        codes = [server.login(tls=lambda: made) for _ in range(8)]
        assert ACCEPTED in codes
        assert CLOSED in codes
        server.process.wait_log("Connection throttling is active")


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_limit_of_connections_counts_them_and_closes_without_a_word(tmp_path: Path) -> None:
    with both("max_connections: 2", tmp_path) as servers:
        for server in servers:
            with ExitStack() as stack:
                for name in ("a", "b"):
                    client = stack.enter_context(MqttSocket(server.mqtt_port))
                    assert client.login(name) == ACCEPTED
                assert server.login() == CLOSED


# -- WebSocket ---------------------------------------------------------------------------------------------------------


def test_the_endpoint_is_missing_without_mqtt(tmp_path: Path) -> None:
    answers = []
    for kind in SERVERS:
        port = free_port()
        config = f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}'
        with kind(config, tmp_path / kind.__name__), socket.create_connection(("127.0.0.1", port), timeout=15) as sock:
            sock.sendall(
                b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            answer = b""
            while not answer.partition(b"\r\n\r\n")[2]:
                more = sock.recv(65536)
                assert more
                answer += more
        answers.append(answer)
    assert [answer.split(b" ")[1] for answer in answers] == [b"404", b"404"]
    assert answers[0].endswith(b"\r\n\r\nmqtt websocket endpoint not enabled")


@pytest.mark.parametrize("asked", ["", "mqtt", "mqttv3.1", "nonsense, mqtt"])
def test_the_subprotocol_is_mqtt_whatever_was_asked_for(asked: str, tmp_path: Path) -> None:
    headers = {"Sec-WebSocket-Protocol": asked} if asked else {}
    found = []
    for kind in SERVERS:
        with served(kind, "", tmp_path, websocket="no_tls: true") as server:
            found.append(_upgrade(server.websocket_port, headers))
    assert found == [("101", ["mqtt"])] * 2


def _upgrade(port: int, headers: dict[str, str]) -> tuple[str, list[str]]:
    """Status and subprotocols of the answer, by hand: libraries refuse one that was not asked for."""
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port), timeout=15) as sock:
        sock.sendall(
            b"GET /a/mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%b\r\n" % extra.encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = sock.recv(65536)
            assert more
            answer += more
    lines = answer.decode().split("\r\n")
    told = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("sec-websocket-protocol:")]
    return lines[0].split(" ")[1], told


@pytest.mark.parametrize("pieces", [1, 3])
def test_packets_need_not_align_with_frames(pieces: int, tmp_path: Path) -> None:
    with both("", tmp_path, websocket="no_tls: true") as servers:
        for server in servers:
            with server.websocket() as client:
                packet = connect_packet("sensor")
                client.send(packet[:5])
                client.send(packet[5:] + b"\xc0", pieces)
                client.send(b"\x00\xc0\x00")
                assert client.until(b"\xd0\x00\xd0\x00") == b"\x20\x02\x00\x00\xd0\x00\xd0\x00"


def test_text_frames_end_the_connection(tmp_path: Path) -> None:
    with both("", tmp_path, websocket="no_tls: true") as servers:
        for server in servers:
            with server.websocket() as client:
                client.sock.sendall(client.ws.send(TextMessage(data="x")))
                assert client.until(b"anything more before the end") == b""


def test_types_and_cookies_over_websocket(tmp_path: Path) -> None:
    config, block = USERS, "no_tls: true, user_cookie: u, pass_cookie: p"
    with both(config, tmp_path, websocket=block) as servers:
        for server in servers:
            for cookie, user, expected in (
                ("", "ws", ACCEPTED),
                ("", "plain", ACCEPTED),
                ("", "mqtt", NOT_AUTHORIZED),
                ("", "nats", NOT_AUTHORIZED),
                ("u=ws; p=no", None, NOT_AUTHORIZED),
            ):
                assert _login_over_websocket(server, cookie, user) == expected, (cookie, user)
        # nats-server 2.14 reads cookies only for its own protocol.
        assert [_login_over_websocket(server, "u=ws; p=pw", None) for server in servers] == [ACCEPTED, NOT_AUTHORIZED]


def _login_over_websocket(server: Served, cookie: str, user: str | None) -> int:
    with server.websocket({"Cookie": cookie} if cookie else None) as client:
        client.send(connect_packet("sensor", user, "pw" if user else None))
        assert client.until(b"\x20\x02\x00") == b"\x20\x02\x00"
        return client.buffer[0]  # CONNACK is one frame


def test_origins_count_for_mqtt_too(tmp_path: Path) -> None:
    with both("", tmp_path, websocket='no_tls: true, allowed_origins: ["http://good"]') as servers:
        for server in servers:
            with pytest.raises(Refused) as refusal:
                server.websocket({"Origin": "http://bad"})
            assert refusal.value.status == 403
            with server.websocket({"Origin": "http://good"}) as client:
                client.send(connect_packet("sensor"))
                assert client.until(b"\x00\x00") == b"\x20\x02\x00\x00"


# -- pages and events --------------------------------------------------------------------------------------------------

#: Members of `/connz` that one of them has and the other one has not, at one time or another.
UNSTEADY = {"rtt"}


def test_pages_show_mqtt_clients(tmp_path: Path) -> None:
    config = "accounts { A { jetstream: enabled, users [ { user: u, password: p } ] } }\n"
    pages: list[dict[str, Any]] = []
    with both(config, tmp_path, websocket="no_tls: true") as servers:
        for server in servers:
            told: dict[str, Any] = {}
            monitor = server.process.monitor
            with MqttSocket(server.mqtt_port) as client, server.websocket() as browser:
                assert client.login('x"y', "u", "p") == ACCEPTED
                browser.send(connect_packet("browser", "u", "p"))
                assert browser.until(b"\x00\x00") == b"\x20\x02\x00\x00"
                rows = sorted(monitor("/connz?auth=1")["connections"], key=lambda row: str(row["mqtt_client"]))
                told["open"] = [_known(row) for row in rows]
                told["members"] = [set(row) - UNSTEADY for row in rows]
                told["filter"] = [row["mqtt_client"] for row in monitor("/connz?mqtt_client=browser")["connections"]]
                told["nobody"] = monitor("/connz?mqtt_client=other")["connections"]
            _until(lambda monitor=monitor: monitor("/connz")["connections"] == [])  # type: ignore[misc]
            # nats-server lists a closed connection a little after it has left the open ones.
            page = "/connz?state=closed&auth=1&mqtt_client=browser"
            _until(lambda monitor=monitor, page=page: monitor(page)["connections"])  # type: ignore[misc]
            told["closed"] = [_known(row) for row in monitor(page)["connections"]]
            pages.append(told)
    assert pages[0] == pages[1]
    assert pages[0]["filter"] == ["browser"]


def _known(row: dict[str, Any]) -> dict[str, Any]:
    steady = ("kind", "type", "mqtt_client", "ip", "authorized_user", "account", "name", "lang", "version", "reason")
    return {name: row[name] for name in steady if name in row}


def _until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("config", "block"),
    [
        ("", ""),
        ("", 'ack_wait: "31s", max_ack_pending: 7, authorization { user: a, password: b, timeout: 7 }'),
        ("", "authorization { user: a, password: b }"),
        (AUTH, "no_auth_user: a"),
        ("", "TLS"),
    ],
)
def test_varz(config: str, block: str, authority: Authority, tmp_path: Path) -> None:
    if block == "TLS":
        block = authority.block("server", "verify_and_map: true, timeout: 5")
    with both(config, tmp_path, block) as servers:
        pages = [server.process.monitor("/varz")["mqtt"] | {"port": 0} for server in servers]
    assert pages[0] == pages[1]


def test_system_events_name_the_client(tmp_path: Path) -> None:
    config = """accounts { A { jetstream: enabled, users [ { user: u, password: p } ] }
      SYS { users [ { user: s, password: s } ] } }
    system_account: SYS
    """
    heard = []
    with both(config, tmp_path) as servers:
        for server in servers:
            with RawClient(server.process.client_port, **{"user": "s", "pass": "s"}) as listener:
                listener.send(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\nSUB $SYS.ACCOUNT.A.DISCONNECT 2\r\nPING\r\n")
                listener.until(b"PONG\r\n")
                with MqttSocket(server.mqtt_port) as client:
                    assert client.login("sensor", "u", "p") == ACCEPTED
                text = listener.until(b'"reason"') + listener.until(b"\r\n")
            events = [json.loads(found) for found in re.findall(rb"^\{.*\}\r?$", text, re.MULTILINE)]
            heard.append(
                [
                    (event["type"].rpartition(".")[2], event["client"]["client_type"], event["client"]["client_id"])
                    for event in events
                ]
            )
    assert heard[0] == heard[1] == [("client_connect", "mqtt", "sensor"), ("client_disconnect", "mqtt", "sensor")]


# -- eyotd alone -------------------------------------------------------------------------------------------------------


def test_js_domain_of_another_server_is_refused(tmp_path: Path) -> None:
    refusal = pytest.raises(RuntimeError, match='js_domain "hub" is not the domain of this server')
    with refusal, served(Eyotd, "", tmp_path, "js_domain: hub"):
        pass


def test_a_reload_changes_certificates_and_windows_and_nothing_else(authority: Authority, tmp_path: Path) -> None:
    with served(Eyotd, "", tmp_path, authority.block("server")) as server:
        eyotd = server.process
        first = server.login(tls=lambda: context(authority))
        before = eyotd.config_path.read_text()
        newer = Authority(tmp_path / "newer")
        text = re.sub(r"tls \{.*?\}", newer.block("server"), before)
        eyotd.config_path.write_text(text.replace("mqtt {", "mqtt { max_ack_pending: 7,"))
        eyotd.signal(signal.SIGHUP)
        eyotd.wait_log("Reloaded server configuration")
        assert [first, server.login(tls=lambda: context(authority))] == [ACCEPTED, CLOSED]
        assert server.login(tls=lambda: context(newer)) == ACCEPTED
        assert eyotd.monitor("/varz")["mqtt"]["max_ack_pending"] == 7
        eyotd.config_path.write_text(text.replace("mqtt {", "mqtt { reject_qos2_publish: true,"))
        eyotd.signal(signal.SIGHUP)
        eyotd.wait_log('not supported for MQTT: field "RejectQoS2Pub"')
        assert server.login(tls=lambda: context(newer)) == ACCEPTED


def test_the_ports_file_and_the_log_name_the_listener(tmp_path: Path) -> None:
    with served(Eyotd, 'ports_file_dir: "%WORKDIR%"\ndebug: true', tmp_path) as server:
        (ports,) = server.process.workdir.glob("*.ports")
        assert json.loads(ports.read_text())["mqtt"] == [f"mqtt://127.0.0.1:{server.mqtt_port}"]
        assert server.login() == ACCEPTED
        log = server.process.log()
        assert f"Listening for MQTT clients on mqtt://127.0.0.1:{server.mqtt_port}" in log
        server.process.wait_log(r'mid:\d+ - "sensor" - Client connection closed: Client Closed')


def test_a_client_id_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    with served(Eyotd, "debug: true", tmp_path) as server:
        with MqttSocket(server.mqtt_port) as client:
            assert client.login("a\n[1] forged\x1b[31m") == ACCEPTED
        server.process.wait_log(r"forged")
        assert "\n[1] forged" not in server.process.log()
        assert "\x1b[31m" not in server.process.log()


def test_lame_duck_ends_mqtt_clients_before_jetstream(tmp_path: Path) -> None:
    with served(Eyotd, "", tmp_path) as server, MqttSocket(server.mqtt_port) as client:
        assert client.login() == ACCEPTED
        server.process.signal(signal.SIGUSR2)
        assert client.read(1) == b""
        with pytest.raises(ConnectionRefusedError):
            MqttSocket(server.mqtt_port)
