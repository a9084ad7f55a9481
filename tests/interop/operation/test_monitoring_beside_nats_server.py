"""Every monitoring page with every parameter, of eyotd and of a real nats-server 2.14 under the same load: the same fields.

Compared are key trees: which members there are and of which JSON type, lists by the union of their elements. What nats-top and the
Prometheus exporter read is among the pages. Explained differences stand in `EXPLAINED`.
"""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import (
    ConsumerConfig,
    ExternalStream,
    RePublish,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

HUB = """
server_name: hub-1
server_tags: ["site:a", "kind:b"]
server_metadata: { a: b }
accounts {
  ACC: {
    users: [ { user: acc, password: acc }, { user: limited, password: limited, permissions: { publish: "p.>" } } ]
    jetstream: { max_memory: 100MB, max_store: 200MB, max_streams: 20, max_consumers: 50 }
    exports: [
      { stream: "exp.>" }, { service: "svcs", response_type: stream, threshold: "2s" }, { service: "svc", latency: { sampling: 10%, subject: lat } }
      { service: "private", accounts: [OTHER] }
    ]
    mappings: { "m.a": [ { destination: "m.b", weight: 40% }, { destination: "m.c", weight: 60% } ] }
    limits: { max_connections: 100 }
    msg_trace: { dest: "traces", sampling: 10 }
  }
  OTHER: {
    users: [ { user: other, password: other } ]
    imports: [
      { stream: { account: ACC, subject: "exp.>" }, prefix: "from" }
      { service: { account: ACC, subject: "svc" }, to: "their.svc" }
      { service: { account: ACC, subject: "private" }, share: true }
    ]
  }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
no_auth_user: acc
jetstream { store_dir: "%WORKDIR%/js", domain: HUB, max_mem: 1GB, max_file: 1GB, limits { max_ack_pending: 100 } }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
websocket { host: "127.0.0.1", port: -1, no_tls: true, same_origin: true, allowed_origins: ["http://a"], compression: true }
"""
LEAF = """
server_name: leaf-1
accounts { ACC: { users: [ { user: acc, password: acc } ], jetstream: enabled }, SYS: { users: [ { user: sys, password: sys } ] } }
system_account: SYS
jetstream { store_dir: "%WORKDIR%/js", domain: LEAF }
leafnodes { remotes: [ { url: "nats://acc:acc@127.0.0.1:HUB_PORT", account: ACC, deny_imports: "no.>" } ] }
"""
PAGES = [
    *("/varz", "/routez", "/routez?subs=1", "/gatewayz", "/gatewayz?accs=1", "/accountz", "/accountz?acc=ACC"),
    *("/accountz?acc=OTHER", "/accountz?acc=SYS", "/accountz?acc=nobody", "/accstatz", "/accstatz?unused=1", "/raftz"),
    *("/connz", "/connz?subs=1", "/connz?subs=detail", "/connz?auth=1", "/connz?auth=1&subs=detail&state=any"),
    *(
        "/connz?state=closed",
        "/connz?state=closed&auth=1&subs=1",
        "/connz?state=all&limit=100",
        "/connz?acc=ACC",
    ),
    *(f"/connz?limit=1024&sort={key}" for key in ("cid", "start", "subs", "pending", "msgs_to", "msgs_from")),
    *(f"/connz?limit=1024&sort={key}&subs=1" for key in ("bytes_to", "bytes_from", "last", "idle", "uptime", "rtt")),
    *("/connz?sort=stop&state=closed", "/connz?sort=reason&state=closed", "/connz?sort=stop", "/connz?sort=nonsense"),
    *("/connz?user=acc&auth=1", "/connz?acc=ACC&filter_subject=a.b&subs=1", "/connz?cid=CID", "/connz?cid=9999"),
    *("/connz?limit=x", "/connz?subs=detail&cid=CID&auth=1", "/connz?mqtt_client=x", "/connz?state=nonsense"),
    *(
        "/subsz",
        "/subsz?subs=1",
        "/subsz?subs=1&limit=1000&offset=0",
        "/subsz?subs=1&test=a.b",
        "/subsz?subs=1&acc=ACC",
    ),
    *("/subsz?test=a..b", "/leafz", "/leafz?subs=1", "/leafz?acc=ACC", "/leafz?acc=OTHER", "/leafz?subs=1&acc=ACC"),
    *(
        "/jsz",
        "/jsz?accounts=1",
        "/jsz?streams=1",
        "/jsz?consumers=1",
        "/jsz?config=1",
        "/jsz?accs=1",
        "/jsz?acc=nobody",
    ),
    *(
        "/jsz?accs=1&streams=1&consumers=1&config=1&raft=1",
        "/jsz?acc=ACC",
        "/jsz?acc=ACC&streams=1&consumers=1&config=1",
    ),
    *(
        "/jsz?accounts=1&limit=1&offset=0",
        "/jsz?acc=ACC&consumers=1&direct-consumers=1",
        "/jsz?consumers=true&config=true",
    ),
    *(
        "/jsz?leader-only=1",
        "/jsz?acc=ACC&streams=1&stream-leader-only=1",
        "/jsz?accounts=1&streams=1&limit=1&offset=1",
    ),
    *(
        "/healthz",
        "/healthz?js-enabled-only=1",
        "/healthz?js-server-only=1",
        "/healthz?js-meta-only=1",
        "/healthz?details=1",
    ),
    *("/healthz?account=ACC", "/healthz?account=ACC&stream=S", "/healthz?account=ACC&stream=S&consumer=PULL"),
    *("/healthz?account=ACC&stream=none", "/healthz?account=nobody", "/healthz?stream=S", "/healthz?consumer=C"),
    *("/healthz?account=ACC&stream=none&details=1", "/healthz?account=ACC&stream=S&consumer=none&details=true"),
]
#: Members of one side only, or of another type, and why.
EXPLAINED = {
    "/varz lacks .git_commit": "of a package only",
    "/varz adds .eyot": "Eyot's own member: wear of the flash",
    ".held_back: number": "Eyot's own figure: publishes that waited for the disk",
    ".refused: number": "Eyot's own figure: publishes that were refused while the disk was behind",
    "leaf /connz?subs=1 adds .connections[].name": "the hub's name, which nats-server does not show for links that it dialled",
}


async def load(server: ServerProcess, leaf: ServerProcess) -> int:
    """Clients, subscriptions, streams and consumers of all kinds, and some that are gone; returns a connection's id."""
    acc = await nats.connect(server.client_url("acc"), name="first")
    other = await nats.connect(server.client_url("other"), name="second")
    at_leaf = await nats.connect(leaf.client_url("acc"))
    for subject, queue in (("a.b", ""), ("a.*", "q"), ("svc", ""), ("private", "q"), ("m.>", "")):
        await acc.subscribe(subject, queue=queue, cb=_answer)
    await other.subscribe("from.exp.>")
    await at_leaf.subscribe("from.hub")
    await acc.flush()
    await other.flush()
    await other.request("their.svc", b"x", timeout=10)
    await other.request("private", b"x", timeout=10)
    for subject in ("a.b", "m.a", "exp.x", "from.hub"):
        await acc.publish(subject, b"hello", headers={"A": "b"})
    await _streams(acc)
    await _streams_at_leaf(at_leaf)
    gone = await nats.connect(server.client_url("acc"), name="gone")
    await gone.subscribe("gone.>")
    await gone.publish("gone.x", b"y")
    await gone.flush()
    await gone.close()
    try:
        await nats.connect(server.client_url("acc", "wrong"), allow_reconnect=False, connect_timeout=5)
    except nats.errors.Error:
        pass
    await acc.flush()
    await at_leaf.flush()
    server.kept = (acc, other, at_leaf)  # type: ignore[attr-defined]
    return acc.client_id


async def _answer(msg: Any) -> None:
    if msg.reply:
        await msg.respond(b"y")


async def _streams(nc: Client) -> None:
    js = nc.jetstream()
    await js.add_stream(
        StreamConfig(
            name="S",
            subjects=["s.>"],
            description="d",
            max_msgs=100,
            max_bytes=1_000_000,
            metadata={"a": "b"},
            republish=RePublish(src="s.>", dest="again.>"),
            subject_transform=SubjectTransform(src="s.x", dest="s.y"),
            allow_direct=True,
        )
    )
    await js.add_stream(StreamConfig(name="MEM", subjects=["mem.>"], storage="memory", retention="workqueue"))
    for number in range(5):
        await js.publish(f"s.{number}", b"x" * number)
        await js.publish("mem.a", b"x")
    await js.delete_msg("S", 2)
    await js.add_stream(StreamConfig(name="MIRROR", mirror=StreamSource(name="S", filter_subject="s.2")))
    sources = [
        StreamSource(name="S", opt_start_seq=1, subject_transforms=[SubjectTransform(src="s.>", dest="t.>")]),
        StreamSource(name="FAR", external=ExternalStream(api="$JS.LEAF.API")),
    ]
    await js.add_stream(StreamConfig(name="SOURCED", sources=sources))
    await js.create_key_value(bucket="B")
    pull = await js.pull_subscribe("s.>", durable="PULL", stream="S", config=ConsumerConfig(metadata={"c": "d"}))
    messages = await pull.fetch(2, timeout=10)
    await messages[0].ack_sync()
    await messages[1].nak()
    await js.subscribe("s.>", durable="PUSH", stream="S", config=ConsumerConfig(sample_freq="100"))
    await js.subscribe("mem.a", queue="work", durable="work", stream="MEM")
    await nc.request("$JS.API.STREAM.INFO.NONE", b"", timeout=10)


async def _streams_at_leaf(nc: Client) -> None:
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name="FAR", subjects=["far"]))
    await js.publish("far", b"x")


class Observed:
    """Two servers, a hub and its leaf, under load; the pages of the hub and of the leaf."""

    def __init__(self, kind: type[ServerProcess], folder: Path) -> None:
        self.hub = kind(HUB, folder / "hub")
        self.leaf = kind(LEAF.replace("HUB_PORT", str(self.hub.leaf_port)), folder / "leaf")

    def __enter__(self) -> Observed:
        try:
            self.hub.start()
            self.leaf.start()
            self.pages = asyncio.run(self._observe())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.leaf.kill()
        self.hub.kill()

    async def _observe(self) -> dict[str, Any]:
        cid = await load(self.hub, self.leaf)
        deadline = asyncio.get_running_loop().time() + 60
        while not await self._settled():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.1)
        pages = {path: await asyncio.to_thread(read, self.hub, path.replace("CID", str(cid))) for path in PAGES}
        for path in ("/varz", "/leafz?subs=1", "/connz?subs=1", "/jsz?accs=1&streams=1&config=1"):
            pages[f"leaf {path}"] = await asyncio.to_thread(read, self.leaf, path)
        for client in self.hub.kept:  # type: ignore[attr-defined]
            await client.close()
        return pages

    async def _settled(self) -> bool:
        """The source over the link has its message, the mirror its own, and PINGs have been answered."""
        page = await asyncio.to_thread(self.hub.monitor, "/jsz?acc=ACC&streams=1")
        streams = {stream["name"]: stream["state"] for stream in page["account_details"][0]["stream_detail"]}
        leaf_links = (await asyncio.to_thread(self.hub.monitor, "/leafz"))["leafs"]
        clients = (await asyncio.to_thread(self.hub.monitor, "/connz"))["connections"]
        return (
            streams["SOURCED"]["messages"] == 5
            and streams["MIRROR"]["messages"] == 1
            and all("rtt" in one for one in (*leaf_links, *clients))
        )


def read(server: ServerProcess, path: str) -> Any:
    """A page's status and content."""
    try:
        return [200, server.monitor(path)]
    except urllib.error.HTTPError as error:
        return [error.code]
    except ValueError:
        return ["no JSON"]


#: Maps whose keys are names of things.
NAMES = ("metadata", "http_req_stats", "mappings", "server_metadata", "subjects", "feature_flags")


def tree(value: Any, at: str = "") -> set[str]:
    """`a.b[]: number` for every member; lists by the union of their elements."""
    if isinstance(value, dict):
        found = {f"{at}: map"}
        for key, member in value.items():
            found |= tree(member, f"{at}.{'*' if at.rpartition('.')[2] in NAMES else key}")
        return found
    if isinstance(value, list):
        return {f"{at}: list"}.union(*(tree(member, f"{at}[]") for member in value))
    kind = (
        "boolean" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else type(value).__name__
    )
    return {f"{at}: {kind}"}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Observed, Observed]]:
    folder = tmp_path_factory.mktemp("monitoring")
    with Observed(NewerNatsServer, folder / "theirs") as theirs, Observed(Eyotd, folder / "ours") as ours:
        yield theirs, ours


def test_the_pages_have_the_same_fields(observed: tuple[Observed, Observed]) -> None:
    theirs, ours = observed
    differences = []
    for path, page in theirs.pages.items():
        expected = {f"status: {page[0]}"} | {line for part in page[1:] for line in tree(part)}
        got = {f"status: {ours.pages[path][0]}"} | {line for part in ours.pages[path][1:] for line in tree(part)}
        differences += [f"{path} lacks {line}" for line in sorted(expected - got)]
        differences += [f"{path} adds {line}" for line in sorted(got - expected)]
    unexplained = [one for one in differences if not any(words in one for words in EXPLAINED)]
    assert unexplained == [], "\n".join(unexplained)
