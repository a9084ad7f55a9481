"""The longest turn of each operation that concerns very many things: how long one client's doing keeps others waiting.

    chrt -r 1 python tests/bench/turns.py [--only WORD] [--many 100000] [--messages 1000000] [--directory DIR]

A client in a process of its own sends a PING a millisecond. Of each operation are told how long it took, the longest wait
for a PONG, and the most processor time of the daemon's main thread within one such wait: that is the longest turn,
however busy the machine is. `stalls.py` asks the questions about streams that read all of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import wire
from growth import Shape, build, subject_of
from table import machine

from support.links.raw_leaf import Peer as LeafPeer
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd

SETTLE_S = 1.0
FILTERS = 5_000
KNOWN = 1_000
STREAMS = 2_000
CONSUMERS = 5_000

CONFIG = """
server_name: bench
listen: "127.0.0.1:%CLIENT_PORT%"
http: "127.0.0.1:%MONITOR_PORT%"
max_subscriptions: 0
jetstream { store_dir: "%WORKDIR%/bench-store", domain: bench }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
mqtt { listen: "127.0.0.1:%MQTT_PORT%" }
accounts {
    FLEET { jetstream: enabled, users: [
        { user: fleet, password: fleet }
        { user: other, password: other }
        { user: some, password: some, permissions: { subscribe: { deny: ["%DENIED%"] } } }
    ] }
    SYS { users: [{user: admin, password: admin}] }
}
system_account: SYS
"""


class Lap(NamedTuple):
    waited_s: float
    computed_s: float


def main_thread_s(pid: int) -> float:
    """Processor time of the daemon's main thread so far."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def ping(port: int, pid: int, laps: Connection) -> None:
    """Until "end" comes: for whatever else comes, the longest lap since the last time."""
    peer, waited, computed = wire.Peer(port), 0.0, 0.0
    while True:
        sent, before = time.perf_counter(), main_thread_s(pid)
        peer.barrier()
        waited = max(waited, time.perf_counter() - sent)
        computed = max(computed, main_thread_s(pid) - before)
        if laps.poll(0.001):
            if laps.recv() == "end":
                return
            laps.send(Lap(waited, computed))
            waited = computed = 0.0


class Bench:
    """A daemon, and the sizes of what is asked of it."""

    def __init__(self, folder: Path, many: int, messages: int) -> None:
        self.many = many
        self.messages = messages
        self.node = Eyotd("", folder)
        self.mqtt_port = _free_port()
        self.configure("nothing.*")

    def configure(self, denied: str) -> None:
        """Write the configuration; a running daemon reads it at SIGHUP."""
        self.node.set_config(CONFIG.replace("%MQTT_PORT%", str(self.mqtt_port)).replace("%DENIED%", denied))

    def client(self, user: str = "fleet") -> wire.Peer:
        return wire.Peer(self.node.client_port, user)

    def subscribed(self, user: str = "fleet", prefix: str = "many") -> wire.Peer:
        """A client with many subscriptions."""
        peer = self.client(user)
        for start in range(0, self.many, 10_000):
            stop = min(start + 10_000, self.many)
            lines = (b"SUB %b.%d.x %d\r\n" % (prefix.encode(), n, n) for n in range(start, stop))
            peer.socket.sendall(b"".join(lines))
            peer.barrier()
        return peer

    def leaf(self, name: str) -> LeafPeer:
        return LeafPeer(self.node.leaf_port, user="fleet", name=name).linked()

    def gone(self, of: str) -> None:
        """Wait until no subscription of that prefix is left."""
        self.wait(lambda: self.page("/subsz")["num_subscriptions"] < self.many // 2, of)

    def page(self, path: str) -> dict[str, object]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.node.monitor_port}{path}", timeout=60) as got:
            return json.loads(got.read())

    @staticmethod
    def wait(done: Callable[[], bool], what: str, patience_s: float = 60.0) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            time.sleep(0.02)


def _free_port() -> int:
    from support.servers.server_process import free_port

    return free_port()


def swallow(leaf: LeafPeer, lines: int, prefix: bytes) -> None:
    """Read until so many lines of interest have come."""
    mark = b"\r\nLS+ " + prefix
    seen, rest = 0, leaf.heard[-(len(mark) - 1) :]
    leaf.sock.settimeout(60)
    while seen < lines:
        data = leaf.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the link ended")
        whole = rest + data
        seen += whole.count(mark)
        if b"\r\nPING\r\n" in whole:
            leaf.send(b"PONG\r\n")
        rest = whole[-(len(mark) - 1) :]


Act = Callable[[], object]
Prepared = Iterator[Act]

# -- interest -------------------------------------------------------------------------------------------------------------


def client_ends(bench: Bench) -> Prepared:
    peer = bench.subscribed()
    yield lambda: (peer.close(), bench.gone("client"))


def client_ends_beside_a_link(bench: Bench) -> Prepared:
    leaf = bench.leaf("a")
    peer = bench.subscribed()
    swallow(leaf, bench.many, b"many.")
    yield lambda: (peer.close(), bench.gone("client"))
    leaf.close()


def mqtt_client_ends(bench: Bench) -> Prepared:
    mqtt = RawMqtt(bench.mqtt_port)
    mqtt.connect("many", user="fleet", password=b"fleet")
    for start in range(0, bench.many, FILTERS):
        mqtt.subscribe(*(f"many/{n}/x" for n in range(start, start + FILTERS)))
    yield lambda: (mqtt.sock.close(), bench.gone("MQTT"))


def leaf_link_ends(bench: Bench) -> Prepared:
    other = bench.leaf("b")
    leaf = bench.leaf("a")
    for start in range(0, bench.many, 10_000):
        leaf.send(b"".join(b"LS+ many.%d.x\r\n" % n for n in range(start, start + 10_000)))
    swallow(other, bench.many, b"many.")
    yield lambda: (leaf.close(), bench.gone("leaf"))
    other.close()


def first_link(bench: Bench) -> Prepared:
    peer = bench.subscribed()

    def link() -> None:
        leaf = bench.leaf("first")
        swallow(leaf, bench.many - leaf.heard.count(b"\r\nLS+ many."), b"many.")
        leaf.close()

    yield link
    yield peer.close
    bench.gone("client")


def second_link(bench: Bench) -> Prepared:
    peer = bench.subscribed()
    first = bench.leaf("first")
    swallow(first, bench.many - first.heard.count(b"\r\nLS+ many."), b"many.")

    def link() -> None:
        leaf = bench.leaf("second")
        swallow(leaf, bench.many - leaf.heard.count(b"\r\nLS+ many."), b"many.")
        leaf.close()

    yield link
    first.close()
    peer.close()
    bench.gone("client")


def mqtt_filters(bench: Bench) -> Prepared:
    mqtt = RawMqtt(bench.mqtt_port)
    mqtt.connect("some", user="fleet", password=b"fleet")
    yield lambda: mqtt.subscribe(*(f"some/{n}/x" for n in range(FILTERS)))
    yield lambda: mqtt.unsubscribe(*(f"some/{n}/x" for n in range(FILTERS)))
    mqtt.disconnect()


def new_subjects(bench: Bench) -> Prepared:
    peer = bench.client()
    flood = b"".join(b"PUB flood.%d.x 1\r\nx\r\n" % n for n in range(bench.many))
    yield lambda: (peer.socket.sendall(flood), peer.barrier())
    listener = bench.client()
    listener.socket.sendall(b"SUB flood.> 1\r\nSUB flood.*.x 2\r\n")
    listener.barrier()
    yield lambda: (peer.socket.sendall(flood), peer.barrier())
    listener.close()
    peer.close()


def permissions_change(bench: Bench) -> Prepared:
    peer = bench.subscribed("some")
    bench.configure("other.*")
    yield lambda: (bench.node.signal(signal.SIGHUP), time.sleep(3))
    bench.configure("many.>")
    yield lambda: (bench.node.signal(signal.SIGHUP), bench.gone("denied"))
    peer.close()
    bench.configure("nothing.*")


def mqtt_permissions_change(bench: Bench) -> Prepared:
    mqtt = RawMqtt(bench.mqtt_port)
    mqtt.connect("many", user="some", password=b"some")
    for start in range(0, bench.many, FILTERS):
        mqtt.subscribe(*(f"many/{n}/x" for n in range(start, start + FILTERS)))
    bench.configure("other.*")
    yield lambda: (bench.node.signal(signal.SIGHUP), time.sleep(3))
    bench.configure("many.>")
    yield lambda: (bench.node.signal(signal.SIGHUP), bench.gone("denied"))
    mqtt.sock.close()
    bench.configure("nothing.*")


def pages_of_subscriptions(bench: Bench) -> Prepared:
    peer = bench.subscribed()
    for path in (
        "/connz?subs=1",
        "/connz?subs=detail",
        "/subsz?subs=1&limit=100000",
        "/subsz?test=many.5.x",
        "/accountz?acc=FLEET",
    ):
        yield lambda path=path: bench.page(path)
    peer.close()
    bench.gone("client")


# -- JetStream ------------------------------------------------------------------------------------------------------------


def stream(name: str, *subjects: str, **config: object) -> tuple[str, object]:
    return f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects), **config}


def many_streams(bench: Bench) -> Prepared:
    peer = bench.client()
    for n in range(STREAMS):
        peer.request(*stream(f"s{n}", f"few.{n}"))
    for n in range(CONSUMERS):
        body = {"stream_name": "s0", "config": {"durable_name": f"c{n}", "ack_policy": "explicit"}}
        peer.request(f"$JS.API.CONSUMER.CREATE.s0.c{n}", body)
    yield lambda: peer.request("$JS.API.STREAM.NAMES", {})
    yield lambda: peer.request("$JS.API.STREAM.LIST", {})
    yield lambda: peer.request("$JS.API.STREAM.NAMES", {"subject": "few.1999"})
    yield lambda: peer.request("$JS.API.CONSUMER.NAMES.s0", {})
    yield lambda: peer.request("$JS.API.CONSUMER.LIST.s0", {})
    yield lambda: bench.page("/jsz?streams=1&consumers=1&config=1&accounts=1")
    yield lambda: bench.page("/healthz")
    yield lambda: bench.page("/eyot/syncz")
    yield lambda: urllib.request.urlopen(f"http://127.0.0.1:{bench.node.monitor_port}/metrics", timeout=60).read()
    yield lambda: peer.request("$JS.API.STREAM.DELETE.s0")
    peer.close()


def large_stream(bench: Bench) -> Prepared:
    peer = bench.client()
    names = [subject_of(n).decode() for n in range(KNOWN)]
    yield lambda: peer.request("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"})
    yield lambda: peer.request("$JS.API.STREAM.INFO.S", {"subjects_filter": "plant.*.sensor-77"})
    filters = {"stream_name": "S", "config": {"durable_name": "f", "ack_policy": "explicit", "filter_subjects": names}}
    yield lambda: peer.request("$JS.API.CONSUMER.CREATE.S.f", filters)
    wide = {"durable_name": "w", "ack_policy": "explicit"}
    wide_filters = [f"plant.line-{n}.>" for n in range(100)]
    yield lambda: peer.request(
        "$JS.API.CONSUMER.CREATE.S.w", {"stream_name": "S", "config": wide | {"filter_subjects": wide_filters}}
    )
    yield lambda: peer.request(
        "$JS.API.CONSUMER.CREATE.S.w", {"stream_name": "S", "config": wide | {"filter_subjects": wide_filters[:50]}}
    )
    yield lambda: watch(bench)
    yield lambda: peer.last_direct("DIRECT.GET.S", {"batch": 100_000, "seq": 1, "next_by_subj": "plant.>"})
    yield lambda: peer.last_direct("DIRECT.GET.S", {"batch": 1000, "seq": 1, "next_by_subj": "plant.*.sensor-999999"})
    yield lambda: peer.request("$JS.API.STREAM.MSG.GET.S", {"seq": 1, "next_by_subj": "plant.*.sensor-999998"})
    yield lambda: peer.request("$JS.API.CONSUMER.DELETE.S.w")
    yield lambda: bench.page("/jsz?streams=1&consumers=1")
    yield lambda: peer.request("$JS.API.STREAM.PURGE.S", {"filter": "plant.line-7*"})
    yield lambda: peer.request("$JS.API.STREAM.PURGE.S", {"filter": "plant.*.sensor-77"})
    yield lambda: peer.request("$JS.API.STREAM.PURGE.S", {"filter": "plant.line-8.>", "keep": 10})
    yield lambda: peer.request("$JS.API.STREAM.PURGE.S", {"filter": "plant.line-9.>"})
    yield lambda: peer.request("$JS.API.STREAM.PURGE.S", {"seq": bench.messages // 2})
    yield lambda: update(peer, retention_of="interest")
    peer.close()


def update(peer: wire.Peer, retention_of: str) -> None:
    info = peer.request("$JS.API.STREAM.INFO.S")
    config = dict(info["config"])  # type: ignore[call-overload]
    config |= {"max_msgs": 1000}
    peer.request("$JS.API.STREAM.UPDATE.S", config)


def watch(bench: Bench) -> None:
    """As a KV watch of all keys: an ordered push consumer of the last message of each subject."""
    peer = bench.client()
    config = {
        "deliver_policy": "last_per_subject",
        "deliver_subject": "watch",
        "ack_policy": "none",
        "flow_control": True,
        "idle_heartbeat": 5_000_000_000,
        "headers_only": True,
        "filter_subject": "plant.>",
        "mem_storage": True,
        "num_replicas": 1,
    }
    peer.socket.sendall(b"SUB watch 3\r\n")
    body = json.dumps({"stream_name": "S", "config": config}).encode()
    peer.socket.sendall(b"PUB $JS.API.CONSUMER.CREATE.S ibx %d\r\n%b\r\n" % (len(body), body))
    seen, rest = 0, b""
    while seen < bench.messages:
        data = rest + peer.socket.recv(1 << 18)
        end = data.rfind(b"\r\n") + 2
        seen += data.count(b" 3 $JS.ACK.", 0, end)
        for asked in re.findall(rb" 3 (\$JS\.FC\.\S+) ", data[:end]):
            peer.socket.sendall(b"PUB %b 0\r\n\r\n" % asked)
        rest = data[end:]
    peer.close()


def deletion(bench: Bench) -> Prepared:
    peer = bench.client()
    yield lambda: peer.request("$JS.API.STREAM.PURGE.S")
    peer.close()


def deletion_whole(bench: Bench) -> Prepared:
    peer = bench.client()
    yield lambda: peer.request("$JS.API.STREAM.DELETE.S")
    peer.close()


OPERATIONS: list[tuple[str, Callable[[Bench], Prepared], list[str]]] = [
    ("client ends", client_ends, ["100k subscriptions end with their client"]),
    ("client ends beside a link", client_ends_beside_a_link, ["the same, and a leaf node knows them"]),
    ("MQTT client ends", mqtt_client_ends, ["100k filters end with their client"]),
    ("leaf link ends", leaf_link_ends, ["100k subjects end with their link; another knows them"]),
    ("first link", first_link, ["100k subjects are announced to the first leaf node", "then their client ends"]),
    ("second link", second_link, ["100k subjects are announced to a second leaf node"]),
    ("SUBSCRIBE", mqtt_filters, ["one SUBSCRIBE of 5,000 filters", "one UNSUBSCRIBE of 5,000 filters"]),
    ("new subjects", new_subjects, ["PUB on 100k new subjects, no interest", "the same, two subscriptions"]),
    ("permissions", permissions_change, ["reload: other permissions, 100k subscriptions", "reload: they are denied"]),
    (
        "MQTT permissions",
        mqtt_permissions_change,
        ["reload: other permissions, 100k filters of a client of MQTT", "reload: they are denied"],
    ),
    ("pages", pages_of_subscriptions, ["connz?subs=1", "connz?subs=detail", "subsz?subs=1", "subsz?test", "accountz"]),
    (
        "many streams",
        many_streams,
        [
            "STREAM.NAMES of 2,000",
            "STREAM.LIST",
            "STREAM.NAMES by subject",
            "CONSUMER.NAMES of 5,000",
            "CONSUMER.LIST",
            "jsz with all",
            "healthz",
            "syncz",
            "metrics",
            "deletion of a stream with 5,000 consumers",
        ],
    ),
    (
        "large stream",
        large_stream,
        [
            "STREAM.INFO, all subjects",
            "STREAM.INFO, *.literal",
            "consumer with 1,000 filters",
            "consumer with 100 filters of wildcards",
            "its update to 50",
            "watch of all keys",
            "direct get, a batch of 100,000",
            "direct get, next by a rare subject",
            "STREAM.MSG.GET, next by a rare subject",
            "deletion of a consumer",
            "jsz",
            "purge, filter of no subject",
            "purge, *.literal",
            "purge, 1 % but 10",
            "purge, 1 %",
            "purge by sequence, half",
            "update: max_msgs 1,000",
        ],
    ),
    ("whole purge", deletion, ["purge of all"]),
    ("deletion", deletion_whole, ["deletion of the stream"]),
]
NEED_MESSAGES = {"large stream", "whole purge", "deletion"}


def measure(bench: Bench, prepare: Callable[[Bench], Prepared], names: list[str], show: Callable[[str], None]) -> None:
    with bench.node as node:
        laps, theirs = multiprocessing.Pipe()
        pinging = multiprocessing.Process(target=ping, args=(node.client_port, node.pid, theirs), daemon=True)
        pinging.start()
        theirs.close()
        time.sleep(0.5)
        for name, act in zip(names, prepare(bench), strict=True):
            time.sleep(SETTLE_S)
            laps.send(None)
            laps.recv()
            begun = time.perf_counter()
            act()
            lasted = time.perf_counter() - begun
            time.sleep(SETTLE_S)
            laps.send(None)
            lap = laps.recv()
            show(f"| {name} | {lasted * 1e3:,.0f} | {lap.waited_s * 1e3:,.1f} | {lap.computed_s * 1e3:,.1f} |")
        laps.send("end")
        pinging.join(5)


def main() -> None:
    parser = argparse.ArgumentParser(description="How long everybody waits for what concerns very many things.")
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    options = parser.parse_args()
    print(f"{machine()}\n\n| operation | took, ms | longest PONG, ms | longest turn, ms |\n| --- | --- | --- | --- |")
    for word, prepare, names in OPERATIONS:
        if options.only not in word:
            continue
        with tempfile.TemporaryDirectory(prefix="eyot-turns-", dir=options.directory) as folder:
            bench = Bench(Path(folder), options.many, options.messages)
            if word in NEED_MESSAGES:
                many = options.messages
                build(Path(folder) / "bench-store" / "eyot", Shape(f"{many:,} subjects", many, 128, many))
            measure(bench, prepare, names, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
