"""The monitoring pages over HTTP and the control socket, and their twins on the system account."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio
from msgspec import Struct

from eyot_daemon.auth.login import UserToken
from eyot_daemon.config.accounts import AccountOptions, ExportOptions, ImportOptions
from eyot_daemon.config.jetstream import EyotOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.monitor.pages import Monitoring
from eyot_daemon.monitor.process import redacted
from eyot_daemon.monitor.system_services import SystemServices
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, LeafzQuery
from eyot_daemon.turn.slices import Slices
from eyot_wire.status import LinkStatus, StreamStatus
from support.servers.broker import Raw, Running, running

ACCOUNTS = (
    AccountOptions(name="A", exports=(ExportOptions(kind="service", subject=b"svc"),)),
    AccountOptions(name="B", imports=(ImportOptions(kind="service", account="A", subject=b"svc"),)),
)
OPTIONS = Options(host="127.0.0.1", port=-1, server_name="edge", accounts=ACCOUNTS, server_tags=("site:1",))


class Found(Struct, frozen=True):
    account: str
    user: str
    permissions: Permissions | None = None
    external: bool = False
    expires_in_s: float = 0.0
    token: UserToken | None = None


class Door:
    """User u of account u; everybody may in."""

    auth_required = True
    wants_nonce = False

    def client(self, connect: Any, nonce: str, peer: Any, applicant: object = None) -> Found | None:
        permissions = Permissions(publish=SubjectPermission(deny=(b"no",))) if connect.user == "B" else None
        return Found(connect.user, connect.user.lower(), permissions)

    def anonymous(self, peer: Any) -> Found | None:
        return None


@pytest.fixture
async def up() -> AsyncIterator[Running]:
    async with running(OPTIONS, Door()) as running_broker:
        SystemServices(running_broker.clients).start()
        yield running_broker


@pytest.fixture
async def http(up: Running) -> AsyncIterator[httpx.AsyncClient]:
    monitoring = Monitoring(up.clients)
    host, port = monitoring.listen("127.0.0.1", -1)
    up.nursery.start_soon(monitoring.run)
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=30) as client:
        yield client


def connect(user: str) -> bytes:
    return (
        b'CONNECT {"verbose":false,"headers":true,"name":"app","lang":"py","version":"1","user":"%b"}\r\n'
        % user.encode()
    )


async def page(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def test_varz(up: Running, http: httpx.AsyncClient) -> None:
    client = await up.raw(connect("A"))
    await client.ask(b"SUB a 1\r\nPUB a 3\r\nabc\r\n")
    varz = await page(http, "/varz")
    assert varz["server_name"] == "edge"
    assert varz["server_id"] == up.broker.server_id
    assert varz["port"] == up.port
    assert varz["auth_required"] is True
    assert varz["connections"] == varz["total_connections"] == 1
    assert (varz["in_msgs"], varz["out_msgs"], varz["in_bytes"], varz["out_bytes"]) == (1, 1, 3, 3)
    assert varz["mem"] > 1_000_000
    assert varz["tags"] == ["site:1"]
    assert varz["system_account"] == "$SYS"
    assert varz["http_req_stats"] == {"/varz": 1}
    assert varz["ping_interval"] == 120_000_000_000
    assert (varz["in_client_msgs"], varz["out_client_bytes"], varz["stalled_clients"]) == (1, 3, 0)
    await client.send(b"BAD\r\n")
    await client.until_closed()
    later = await page(http, "/varz")
    assert (later["connections"], later["in_client_msgs"], later["out_client_bytes"]) == (0, 1, 3)


async def test_connz(up: Running, http: httpx.AsyncClient) -> None:
    first = await up.raw(connect("A"))
    await first.ask(b"SUB a.* q 7\r\nSUB b 8\r\nUNSUB 8 5\r\nPUB b 1\r\nx\r\n")
    second = await up.raw(connect("B"))
    await second.ask(b"PUB b 1\r\nx\r\n" * 3)
    connz = await page(http, "/connz?subs=detail&auth=1")
    assert (connz["num_connections"], connz["total"], connz["offset"], connz["limit"]) == (2, 2, 0, 1024)
    row = connz["connections"][0]
    assert (row["cid"], row["kind"], row["type"], row["ip"]) == (1, "Client", "nats", "127.0.0.1")
    assert (row["name"], row["lang"], row["version"]) == ("app", "py", "1")
    assert (row["authorized_user"], row["account"], row["subscriptions"]) == ("a", "A", 2)
    assert row["subscriptions_list_detail"] == [
        {"subject": "a.*", "qgroup": "q", "sid": "7", "msgs": 0, "cid": 1},
        {"subject": "b", "sid": "8", "msgs": 1, "max": 5, "cid": 1},
    ]
    assert [row["cid"] for row in (await page(http, "/connz?sort=msgs_from"))["connections"]] == [2, 1]
    assert [row["cid"] for row in (await page(http, "/connz?limit=1&offset=1"))["connections"]] == [2]
    assert [row["cid"] for row in (await page(http, "/connz?acc=B"))["connections"]] == [2]
    assert [row["cid"] for row in (await page(http, "/connz?acc=A&filter_subject=a.b"))["connections"]] == [1]
    assert (await page(http, "/connz?cid=1&subs=1"))["connections"][0]["subscriptions_list"] == ["a.*", "b"]
    assert (await http.get("/connz?filter_subject=a.b")).status_code == 400
    # `>` filters nothing: it needs no account, and the second connection has no subscription.
    assert [row["cid"] for row in (await page(http, "/connz?filter_subject=%3E"))["connections"]] == [1, 2]
    assert [row["cid"] for row in (await page(http, "/connz?acc=B&filter_subject=%3E"))["connections"]] == [2]
    assert (await http.get("/connz?sort=nonsense")).status_code == 400
    assert (await http.get("/connz?limit=%2B1&auth=TRUE")).status_code == 200
    for query in ("limit=x", f"offset={2**63}", f"limit={'9' * 5000}", "auth=tRue", "subs=2"):
        assert (await http.get(f"/connz?{query}")).status_code == 400, query
    await second.send(b"BAD\r\n")
    await second.until_closed()
    while len(up.clients.connections) > 1:
        await trio.sleep(0.005)
    closed = (await page(http, "/connz?state=closed&auth=1"))["connections"]
    assert [(row["cid"], row["reason"], row["in_msgs"]) for row in closed] == [(2, "Protocol Violation", 3)]
    assert (await page(http, "/connz?state=closed&filter_subject=%3E"))["total"] == 1
    assert (await page(http, "/connz?state=all&sort=stop"))["total"] == 2


async def test_the_other_pages(up: Running, http: httpx.AsyncClient) -> None:
    client = await up.raw(connect("A"))
    await client.ask(b"SUB svc 1\r\n")
    subsz = await page(http, "/subsz?subs=1&acc=A&test=svc")
    assert [row["subject"] for row in subsz["subscriptions_list"]] == ["svc"]
    assert subsz["num_subscriptions"] == len(up.broker.accounts["A"].sublist)
    assert (await page(http, "/accountz"))["accounts"] == ["$G", "$SYS", "A", "B"]
    detail = (await page(http, "/accountz?acc=B"))["account_detail"]
    assert detail["imports"][0]["subject"] == "svc"
    assert (await http.get("/accountz?acc=X")).status_code == 400
    accstatz = await page(http, "/accstatz")
    assert [row["acc"] for row in accstatz["account_statz"]] == ["A"]
    assert len((await page(http, "/accstatz?unused=1"))["account_statz"]) == 4
    assert (await page(http, "/leafz"))["leafnodes"] == 0
    assert (await page(http, "/jsz"))["disabled"] is True
    assert (await page(http, "/routez"))["num_routes"] == 0
    assert (await page(http, "/gatewayz"))["outbound_gateways"] == {}
    raftz = await http.get("/raftz")
    assert (raftz.status_code, raftz.text) == (404, "No Raft nodes registered")
    assert (await page(http, "/debug/vars"))["memstats"]["Alloc"] > 1_000_000
    stacks = (await http.get("/stacksz")).text
    assert "thread " in stacks
    assert "task eyot_daemon.turn.timers.Timers.run:" in stacks
    assert (await http.get("/varz?callback=show")).json()["server_id"], "a page for any web site to read is asked for"
    assert "/varz" in (await http.get("/")).text


async def test_healthz_asks_everybody(up: Running, http: httpx.AsyncClient) -> None:
    assert await page(http, "/healthz") == {"status": "ok"}
    asked: list[HealthzQuery] = []

    def check(query: HealthzQuery) -> tuple[int, str] | None:
        asked.append(query)
        return (503, "store is fenced") if not query.stream else (404, "stream not found")

    up.broker.providers.health_checks.append(check)
    answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable", "error": "store is fenced"})
    answer = await http.get("/healthz?account=A&stream=S")
    assert (answer.status_code, answer.json()) == (404, {"status": "unavailable", "error": "stream not found"})
    assert (asked[-1].account, asked[-1].stream) == ("A", "S")


def _whole(page: dict[str, object]) -> Slices[dict[str, object]]:
    """A page of one slice."""
    yield
    return page


async def test_other_rooms_provide_their_share(up: Running, http: httpx.AsyncClient) -> None:
    providers = up.broker.providers
    providers.links = lambda: [LinkStatus(name="hub", account="A", role="spoke", state="up")]
    providers.streams = lambda: [
        StreamStatus(account="A", name="S", messages=1, bytes=2, first_seq=1, last_seq=1, committed_seq=1)
    ]
    providers.leafz = lambda query: [{"name": "hub", "account": query.account}]
    providers.jsz = lambda query: _whole({"streams": 1, "limit": query.limit})
    status = await page(http, "/eyot/status")
    assert status["server_name"] == "edge"
    assert status["links"][0]["state"] == "up"
    assert status["streams"][0]["committed_seq"] == 1
    assert (await page(http, "/leafz?acc=A"))["leafs"] == [{"name": "hub", "account": "A"}]
    assert (await page(http, "/jsz?limit=7"))["limit"] == 7
    assert up.broker.providers.leafz(LeafzQuery(account="x"))


async def test_the_control_socket_replaces_a_stale_one_and_is_private(up: Running, tmp_path: Path) -> None:
    path = tmp_path / "run" / "control.sock"
    for _ in range(2):
        monitoring = Monitoring(up.clients)
        monitoring.listen_control(path)
        monitoring._control = None  # a killed daemon leaves its socket behind
        monitoring.close()
    monitoring = Monitoring(up.clients)
    monitoring.listen_control(path)
    assert path.stat().st_mode & 0o777 == 0o660
    async with trio.open_nursery() as nursery:
        nursery.start_soon(monitoring.run)
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path)), timeout=30) as client:
            assert (await client.get("http://eyot/eyot/status")).json()["server_name"] == "edge"
        nursery.cancel_scope.cancel()
    assert not path.exists()


@pytest.mark.parametrize(
    ("path", "status", "location"),
    [
        ("//varz", 307, "/varz"),
        ("/./varz", 307, "/varz"),
        ("/a/../varz", 307, "/varz"),
        ("//connz?limit=1&offset=2", 307, "/connz?limit=1&offset=2"),
        ("//", 307, "/"),
        ("//evil.example/varz", 307, "/evil.example/varz"),
        ("/varz//", 307, "/varz/"),
        ("/varz/", 404, None),
        ("/varz", 200, None),
        ("/", 200, None),
    ],
)
async def test_paths_that_are_not_clean_are_redirected(
    http: httpx.AsyncClient, path: str, status: int, location: str | None
) -> None:
    """As nats-server 2.14 answers the same paths."""
    stream = await trio.open_tcp_stream(http.base_url.host, http.base_url.port or 0)
    async with stream:
        await stream.send_all(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
        answer = b""
        async for data in stream:
            answer += data
    head = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in head[1:])
    assert (int(head[0].split()[1]), fields.get("location")) == (status, location and location.lower())


async def test_pages_are_the_same_whatever_they_are_asked_with(http: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = await http.request(method, "/connz?limit=7", content=b"limit=3")
        assert (answer.status_code, answer.json()["limit"]) == (200, 7)


async def test_the_global_account_beside_others(http: httpx.AsyncClient) -> None:
    detail = (await page(http, "/accountz?acc=$G"))["account_detail"]
    assert detail["jetstream_enabled"] is False
    assert detail["name_tag"] == "$G"  # as nats-server 2.14.6 shows it


async def test_a_base_path() -> None:
    async with running(Options(host="127.0.0.1", port=-1, http_base_path="/eyot/edge")) as up:
        monitoring = Monitoring(up.clients)
        host, port = monitoring.listen("127.0.0.1", -1)
        up.nursery.start_soon(monitoring.run)
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=30) as client:
            assert (await client.get("/eyot/edge/varz")).status_code == 200
            assert (await client.get("/varz")).status_code == 404


async def request(client: Raw, subject: str, body: str = "") -> Any:
    """The JSON answer to one request, None for a 503."""
    await client.send(f"SUB _INBOX.1 9\r\nUNSUB 9 1\r\nPUB {subject} _INBOX.1 {len(body)}\r\n{body}\r\n".encode())
    got = await client.ask()
    line, _, payload = got.partition(b"\r\n")
    assert line.startswith(b"MSG _INBOX.1 9 "), got
    return json.loads(payload)


async def test_system_requests(up: Running) -> None:
    system = await up.raw(connect("$SYS"))
    ping = await request(system, "$SYS.REQ.SERVER.PING")
    assert ping["server"]["name"] == "edge"
    assert ping["statsz"]["connections"] == 1
    varz = await request(system, f"$SYS.REQ.SERVER.{up.broker.server_id}.VARZ")
    assert varz["data"]["server_name"] == "edge"
    idz = await request(system, "$SYS.REQ.SERVER.PING.IDZ")
    assert idz == {"name": "edge", "host": "127.0.0.1", "id": up.broker.server_id}
    connz = await request(system, "$SYS.REQ.SERVER.PING.CONNZ", '{"auth":true,"subscriptions_detail":true}')
    assert connz["data"]["connections"][0]["authorized_user"] == "$sys"
    for what in ("SUBSZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "STATSZ", "EXPVARZ", "RAFTZ"):
        assert await request(system, f"$SYS.REQ.SERVER.PING.{what}")
    assert (await request(system, "$SYS.REQ.ACCOUNT.A.INFO"))["data"]["account_name"] == "A"
    statz = await request(system, "$SYS.REQ.ACCOUNT.A.STATZ", '{"include_unused":true}')
    assert statz["data"]["account_statz"][0]["acc"] == "A"
    assert (await request(system, "$SYS.REQ.ACCOUNT.$SYS.CONNS"))["conns"] == 1
    for odd in (
        "[1]",
        '{"tags":1}',
        '{"server_name":1}',
        '{"limit":' + "9" * 5000 + "}",
        '{"x":' + "[" * 5000,
        '{"state":"closed"}',
    ):
        assert (await request(system, "$SYS.REQ.SERVER.PING.CONNZ", odd))["error"]["code"] == 400
    assert (await request(system, "$SYS.REQ.SERVER.PING.CONNZ", '{"sort":"x"}'))["error"]["code"] == 500
    assert "data" in await request(system, "$SYS.REQ.SERVER.PING.CONNZ", '{"tags":null,"server_name":null}')


async def test_requests_for_other_servers_are_left_alone(up: Running) -> None:
    system = await up.raw(connect("$SYS"))
    for body in (
        '{"server_name":"other"}',
        '{"tags":["site:2"]}',
        '{"domain":"x"}',
        '{"server_name":"edg","exact_match":true}',
    ):
        await system.send(f"SUB _I 9\r\nPUB $SYS.REQ.SERVER.PING.VARZ _I {len(body)}\r\n{body}\r\n".encode())
        assert await system.ask(b"UNSUB 9\r\n") == b""
    assert await request(system, "$SYS.REQ.SERVER.PING.VARZ", '{"server_name":"edg","tags":["site:1"]}')
    await system.send(b"SUB _I 9\r\nPUB $SYS.REQ.SERVER.PING.NOSUCHZ _I 0\r\n\r\n")
    assert b" 503" not in await system.ask(b"UNSUB 9\r\n")  # asked without `no_responders`
    assert not up.broker.accounts["$SYS"].has_interest(b"$SYS.REQ.SERVER.PING.NOSUCHZ")


async def test_every_account_may_ask_about_itself(up: Running) -> None:
    other = await up.raw(connect("A"))
    client = await up.raw(connect("B"))
    await other.ask()
    info = (await request(client, "$SYS.REQ.USER.INFO"))["data"]
    permissions = {"publish": {"deny": ["no"]}}
    assert info == {"user": "b", "account": "B", "account_name": "B", "permissions": permissions}
    connz = await request(client, "$SYS.REQ.ACCOUNT.PING.CONNZ")
    assert [row["cid"] for row in connz["data"]["connections"]] == [2]
    statz = await request(client, "$SYS.REQ.ACCOUNT.PING.STATZ")
    assert [row["acc"] for row in statz["data"]["account_statz"]] == ["B"]
    assert await client.ask(b"PUB $SYS.REQ.SERVER.PING.VARZ _INBOX.x 0\r\n\r\n") == b""


def test_accounts_made_later_have_the_services() -> None:
    from eyot_daemon.client.clients import Clients
    from support.servers.open_door import OpenDoor

    broker = Broker(Options())
    SystemServices(Clients(broker, OpenDoor())).start()
    assert broker.add_account("LATE").has_interest(b"$SYS.REQ.USER.INFO")


async def test_a_control_socket_that_somebody_listens_on_is_left_alone(up: Running, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
        first.bind(str(path))
        first.listen()
        with pytest.raises(OSError, match="another daemon answers there"):
            Monitoring(up.clients).listen_control(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))


async def test_pages_for_other_web_sites_and_hostile_names() -> None:
    options = msgspec.structs.replace(OPTIONS, server_name="<script>", eyot=EyotOptions(monitoring_jsonp=True))
    async with running(options, Door()) as up:
        monitoring = Monitoring(up.clients)
        host, port = monitoring.listen("127.0.0.1", -1)
        up.nursery.start_soon(monitoring.run)
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=30) as client:
            assert (await client.get("/varz?callback=a.show")).text.startswith("a.show({")
            assert (await client.get("/varz?callback=alert(1)//")).status_code == 400
            assert "<script>" not in (await client.get("/")).text
        up.nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["eyotd", "--pass", "s", "-p", "1"], ["eyotd", "--pass", "[REDACTED]", "-p", "1"]),
        (["eyotd", "-auth=s", "--pass=s"], ["eyotd", "-auth=[REDACTED]", "--pass=[REDACTED]"]),
        (["eyotd", "--user", "u", "--auth", "--pass"], ["eyotd", "--user", "u", "--auth", "[REDACTED]"]),
        (["eyotd", "--remote_syslog", "udp://u:s@h:1"], ["eyotd", "--remote_syslog", "udp://[REDACTED]@h:1"]),
    ],
)
def test_a_command_line_without_its_secrets(given: list[str], shown: list[str]) -> None:
    assert redacted(given) == shown


@pytest.mark.parametrize("path", ["//varz", "/./varz", "/connz/../varz"])
async def test_a_path_that_is_not_clean_is_redirected(http: httpx.AsyncClient, path: str) -> None:
    """The Prometheus exporter joins a base address that ends in a slash with `/varz`."""
    async with await trio.open_tcp_stream(str(http.base_url.host), http.base_url.port or 0) as stream:
        await stream.send_all(f"GET {path}?x=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        head = b"".join([data async for data in stream]).lower()
    assert head.startswith(b"http/1.1 307 ")
    assert b"\r\nlocation: /varz?x=1\r\n" in head


async def test_any_method_asks_for_the_page(http: httpx.AsyncClient) -> None:
    assert (await http.post("/healthz", content=b"ignored")).json() == {"status": "ok"}
    missing = await http.get("/nothing")
    assert (missing.status_code, missing.text) == (404, "404 page not found\n")
