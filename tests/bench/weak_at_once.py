"""A weak machine with all its work at once: catch-up of a hub, MQTT and the local page, under `eyot { profile: small }`; as root.

    .venv/bin/python tests/bench/weak_at_once.py [--messages 150000] [--clients 20]

The device has 10 % of one core and 256 MB, hub and clients have the machine. The device stores while the hub is away. Then the
hub's source copies everything, while MQTT clients publish with QoS 1 and browsers read the page. It passes when every acknowledged
message is at the hub, and the kernel killed nothing for memory.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.client import JetStreamContext

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from small import resident
from weak_groups import groups, within

from support.servers.eyotd import Eyotd
from support.servers.server_process import free_port

DEVICE = """
jetstream { domain: device, store_dir: "%WORKDIR%/js" }
mqtt { listen: "127.0.0.1:MQTT" }
leafnodes { remotes: [ { url: "nats-leaf://127.0.0.1:HUB" } ] }
server_name: device
eyot { profile: small, http { page: true } }
"""
HUB = """
jetstream { domain: hub, store_dir: "%WORKDIR%/js" }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
server_name: hub
"""
PAYLOAD = bytes(200)
WAIT_S = 120.0
PAGES = ("/eyot/page.json", "/eyot/page.json", "/eyot/page.json", "/eyot/history.json")


class WeakEyotd(Eyotd):
    """eyotd in control groups."""

    def __init__(self, config: str, workdir: Path, limited: list[Path]) -> None:
        super().__init__(config, workdir)
        self._limited = limited

    def command(self) -> list[str]:
        return [*within(self._limited), *super().command()]


class Load:
    """What clients saw: seconds from a PUBLISH to its PUBACK, and of a page."""

    def __init__(self) -> None:
        self.acks_s: list[float] = []
        self.pages_s: list[float] = []
        self.over = asyncio.Event()

    async def publish(self, port: int, number: int) -> None:
        """Publish one message of QoS 1 a second."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        name = b"c%d" % number
        head = b"\0\4MQTT\4\2\0\x3c" + len(name).to_bytes(2, "big") + name
        writer.write(bytes([0x10, len(head)]) + head)
        await reader.readexactly(4)
        topic = b"mqtt/%d" % number
        packet = 0
        while not self.over.is_set():
            packet = packet % 60_000 + 1
            body = len(topic).to_bytes(2, "big") + topic + packet.to_bytes(2, "big") + bytes(100)
            began = time.perf_counter()
            writer.write(bytes([0x32, len(body)]) + body)
            await reader.readexactly(4)
            self.acks_s.append(time.perf_counter() - began)
            await asyncio.sleep(1)
        writer.close()

    async def look(self, port: int, path: str) -> None:
        """Read the page as a browser does, every two seconds."""
        while not self.over.is_set():
            began = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read(-1)
            assert b" 200 " in answer[:20], answer[:200]
            self.pages_s.append(time.perf_counter() - began)
            writer.close()
            await asyncio.sleep(2)


async def connected(server: Eyotd) -> Client:
    return await nats.connect(server.client_url(), connect_timeout=int(WAIT_S))


async def store(jetstream: JetStreamContext, messages: int) -> float:
    """Publish, 200 in flight; return messages a second."""
    for name in ("CORE", "MQTT"):
        await jetstream.add_stream(name=name, subjects=[f"{name.lower()}.>"])
    room = asyncio.Semaphore(200)

    async def one(number: int) -> None:
        async with room:
            await jetstream.publish(f"core.{number % 50}", PAYLOAD, timeout=WAIT_S)

    began = time.perf_counter()
    for start in range(0, messages, 2000):
        await asyncio.gather(*(one(start + each) for each in range(min(2000, messages - start))))
    return messages / (time.perf_counter() - began)


async def held(jetstream: JetStreamContext, stream: str) -> int:
    return int((await jetstream.stream_info(stream)).state.messages)


async def reached(jetstream: JetStreamContext, stream: str, wanted: int) -> None:
    """Wait until the stream holds so many messages."""
    while await held(jetstream, stream) < wanted:
        await asyncio.sleep(0.1)


def quantile(seconds: list[float], share: float) -> str:
    return f"{sorted(seconds)[int((len(seconds) - 1) * share)] * 1e3:.0f} ms"


async def run(device: WeakEyotd, hub: Eyotd, mqtt_port: int, messages: int, clients: int) -> None:
    """Do all of it, and print the table's rows."""
    client = await connected(device)
    jetstream = client.jetstream(timeout=WAIT_S)
    print(f"| stored, 200 B, 200 in flight | {await store(jetstream, messages):,.0f} msgs/s |", flush=True)
    load = Load()
    work = [load.publish(mqtt_port, number) for number in range(clients)]
    work += [load.look(device.monitor_port, path) for path in PAGES]
    tasks = [asyncio.create_task(each) for each in work]
    hub.start()
    hub_client = await connected(hub)
    fleet = hub_client.jetstream(timeout=WAIT_S)
    external = ExternalStream(api="$JS.device.API", deliver="")
    sources = [StreamSource(name=name, external=external) for name in ("CORE", "MQTT")]
    began = time.perf_counter()
    await fleet.add_stream(StreamConfig(name="FLEET", sources=sources))
    await reached(fleet, "FLEET", messages)
    print(f"| the hub has {messages:,} messages | {time.perf_counter() - began:.1f} s |")
    await asyncio.sleep(20)
    load.over.set()
    await asyncio.gather(*tasks)
    published = await held(jetstream, "MQTT")
    assert published >= len(load.acks_s)
    await reached(fleet, "FLEET", messages + published)
    assert await held(fleet, "FLEET") == messages + published
    print(
        f"| {len(load.acks_s):,} PUBACKs: median; 99 % | {quantile(load.acks_s, 0.5)}; {quantile(load.acks_s, 0.99)} |"
    )
    print(
        f"| {len(load.pages_s):,} pages: median; 99 % | {quantile(load.pages_s, 0.5)}; {quantile(load.pages_s, 0.99)} |"
    )
    await client.close()
    await hub_client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=150_000)
    parser.add_argument("--clients", type=int, default=20)
    options = parser.parse_args()
    mqtt_port = free_port()
    with groups() as limited, tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as folder:
        places = [Path(folder) / name for name in ("hub", "device")]
        for place in places:
            place.mkdir()
        hub = Eyotd(HUB, places[0])
        device = WeakEyotd(
            DEVICE.replace("MQTT", str(mqtt_port), 1).replace("HUB", str(hub.leaf_port)), places[1], limited
        )
        began = time.perf_counter()
        with device:
            print("| what | measured |\n| --- | --- |")
            print(f"| start, with an empty store | {time.perf_counter() - began:.1f} s |", flush=True)
            try:
                asyncio.run(run(device, hub, mqtt_port, options.messages, options.clients))
            finally:
                hub.kill()
            print(f"| most resident; of it private at the end | {resident(device.pid, 'VmHWM'):.0f} MiB; "
                  f"{resident(device.pid, 'RssAnon'):.0f} MiB |")  # fmt: skip
            kills = [
                line.split()[1]
                for group in limited
                for name in ("memory.events", "memory.oom_control")
                if (group / name).exists()
                for line in (group / name).read_text().splitlines()
                if line.startswith("oom_kill ")
            ]
            print(f"| killed for memory | {', '.join(kills)} |")
            assert set(kills) == {"0"}, kills


if __name__ == "__main__":
    main()
