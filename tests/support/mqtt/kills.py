"""SIGKILL of `eyotd` at random moments under MQTT load of QoS 1 and 2; then what streams and subscribers hold is judged.

python tests/support/mqtt/kills.py --kills 2000 [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

import nats
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig

from support.mqtt.load import CONSTANT, LoadClient, LoadPublisher, LoadReporter, LoadSubscriber, Server
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd
from support.servers.server_process import free_port
from support.termination import exit_at_sigterm

CONFIG = """
jetstream { store_dir: "%WORKDIR%/js" }
mqtt { listen: 127.0.0.1:MQTT_PORT }
"""
PATIENCE_S = 90.0
#: From a start to the next kill.
ALIVE_S = (0.02, 0.9)


class Trial:
    """One server, its clients, and the judgement. `problems`: one line for each promise that was broken."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self.server = Server(free_port())
        self.eyotd = Eyotd(CONFIG.replace("MQTT_PORT", str(self.server.port)), folder)
        self.publishers = [
            LoadPublisher(self.server, f"pub-{number}", level=4 + number % 2, seed=seed + number) for number in range(3)
        ]
        self.subscribers = [
            LoadSubscriber(self.server, "sub-0", level=4, seed=seed + 10),
            LoadSubscriber(self.server, "sub-1", level=5, seed=seed + 11),
            LoadSubscriber(self.server, "sub-2", level=5, seed=seed + 12, receive_maximum=3),
        ]
        self.server.subscribers = self.subscribers
        self.reporters = [LoadReporter(self.server, f"rep-{level}", level=level, seed=seed + 20) for level in (4, 5)]
        self.kills = 0
        self.problems: list[str] = []
        self.stored: Counter[tuple[str, bytes]] = Counter()

    @property
    def clients(self) -> list[LoadClient]:
        return [*self.publishers, *self.subscribers, *self.reporters]

    def run(self, kills: int, tell: Callable[[str], None] = lambda line: None) -> None:
        """Kill the server `kills` times under load, let everything arrive, and judge."""
        self.eyotd.start()
        try:
            asyncio.run(self._make_streams())
            self.server.up.set()
            for each in self.subscribers:
                each.start()
            for each in self.subscribers:
                assert each.subscribed.wait(PATIENCE_S), f"{each.client_id} could not subscribe"
            for client in [*self.publishers, *self.reporters]:
                client.start()
            for number in range(kills):
                self._kill()
                if number % 50 == 49:
                    tell(f"{number + 1} kills; {sum(len(each.acked) for each in self.publishers):,} acknowledged")
            self._finish()
        finally:
            self.server.up.clear()
            self.server.over.set()
            self.eyotd.kill()

    def _kill(self) -> None:
        time.sleep(self._chance.uniform(*ALIVE_S))
        self.server.up.clear()
        self.eyotd.kill()
        self.kills += 1
        self.eyotd.start()
        self._check_retained()
        self.server.up.set()

    def _check_retained(self) -> None:
        """The retained states are those of the last acknowledged publishes, or of one under way."""
        bounds = {f"state/{each.client_id}": (each.acked, each.sent) for each in self.reporters if each.acked}
        with RawMqtt(self.server.port) as client:
            client.connect("looker")
            client.subscribe("state/+", qos=1)
            for _ in bounds:
                got = client.message()
                low, high = bounds.get(got.topic, (0, 1 << 40))
                if not low <= int(got.payload) <= high:
                    self.problems.append(f"retained on {got.topic}: {got.payload!r}, acknowledged was {low}")
            client.disconnect()

    def _finish(self) -> None:
        self.server.over.set()
        until = time.monotonic() + PATIENCE_S
        for client in [*self.publishers, *self.reporters]:
            client.join(max(0.0, until - time.monotonic()))
            if client.is_alive():
                self.problems.append(f"{client.client_id} waits for {list(getattr(client, 'pending', ()))}")
        wills = asyncio.run(self._read_back())
        constant = sum(count for (_, payload), count in self.stored.items() if payload == CONSTANT)
        for each in self.subscribers:
            each.wanted = (len(self.stored), constant)
        for each in self.subscribers:
            each.join(max(0.0, until - time.monotonic()))
        self._check(wills)

    async def _make_streams(self) -> None:
        client = await nats.connect(self.eyotd.client_url())
        for name, subject in (("LOAD", "load.>"), ("WILLS", "wills.>")):
            await client.jetstream().add_stream(StreamConfig(name=name, subjects=[subject]))
        await client.close()

    async def _read_back(self) -> list[tuple[str, bytes]]:
        client = await nats.connect(self.eyotd.client_url())
        self._in_order = await _everything(client, "LOAD")
        self.stored = Counter(self._in_order)
        wills = await _everything(client, "WILLS")
        await client.close()
        return wills

    def _check(self, wills: list[tuple[str, bytes]]) -> None:
        for client in self.clients:
            self.problems += [f"{client.client_id}: {fault}" for fault in client.faults[:5]]
        for publisher in self.publishers:
            self._check_publisher(publisher)
        for subscriber in self.subscribers:
            self._check_subscriber(subscriber)
        for reporter in self.reporters:
            there = {payload for topic, payload in wills if topic.endswith(reporter.client_id)}
            missing = [will for will in reporter.wills if will not in there]
            if missing:
                self.problems.append(f"{reporter.client_id}: wills {missing[:5]} of {len(reporter.wills)} are missing")

    def _check_publisher(self, publisher: LoadPublisher) -> None:
        acked = Counter(publisher.acked)
        same = (f"load/{publisher.client_id}/same", CONSTANT)
        wanted, there = acked.pop(same, 0), self.stored[same]
        if wanted != there:
            self.problems.append(f"{publisher.client_id}: {there} stored of {wanted} with the same payload (QoS 2)")
        lost = [message for message in acked if not self.stored[message]]
        if lost:
            self.problems.append(f"{publisher.client_id}: {len(lost)} acknowledged are lost, as {lost[:3]}")
        doubled = [m for m in acked if m[0].endswith("/2") and self.stored[m] > 1]
        if doubled:
            self.problems.append(f"{publisher.client_id}: {len(doubled)} of QoS 2 are doubled, as {doubled[:3]}")
        for qos in "12":
            order = [int(p) for t, p in dict.fromkeys(self._in_order) if t == f"load/{publisher.client_id}/{qos}"]
            if order != sorted(order):
                self.problems.append(f"{publisher.client_id}: the stream has QoS {qos} out of order")

    def _check_subscriber(self, subscriber: LoadSubscriber) -> None:
        name = subscriber.client_id
        got = Counter((topic, payload) for topic, payload, _ in subscriber.got)
        lost = [message for message in self.stored if not got[message]]
        if lost:
            self.problems.append(f"{name}: {len(lost)} are missing, as {lost[:3]}")
        exact = {message: count for message, count in self.stored.items() if not message[0].endswith("/1")}
        wrong = [f"{got[m]} of {m}, stored {count}" for m, count in exact.items() if got[m] != count]
        if wrong:
            self.problems.append(f"{name}: of QoS 2 {len(wrong)} are doubled or missing, as {wrong[:3]}")
        for topic in {topic for topic, _ in self.stored if not topic.endswith("/same")}:
            order = [int(p) for t, p in dict.fromkeys((t, p) for t, p, _ in subscriber.got) if t == topic]
            if order != sorted(order):
                self.problems.append(f"{name}: {topic} out of order")

    def summary(self) -> str:
        acked = sum(len(each.acked) for each in self.publishers)
        resent = sum(each.resent for each in self.subscribers)
        wills = sum(len(each.wills) for each in self.reporters)
        connections = sum(each.connections for each in self.clients)
        return (
            f"{self.kills} kills, {connections} connections, {acked:,} acknowledged, {sum(self.stored.values()):,} stored, "
            f"{resent} checked when sent again, {wills} wills; lost 0, doubled 0"
            if not self.problems
            else "\n".join(self.problems)
        )


async def _everything(client: Client, stream: str) -> list[tuple[str, bytes]]:
    """Topic and payload of all messages of a stream, in its order."""
    js = client.jetstream(timeout=20)
    left = (await js.stream_info(stream)).state.messages
    found: list[tuple[str, bytes]] = []
    reader = await js.pull_subscribe("", stream=stream, config=ConsumerConfig(ack_policy="none"))  # type: ignore[arg-type]
    while len(found) < left:
        batch = await reader.fetch(min(1000, left - len(found)), timeout=20)
        found += [(message.subject.replace(".", "/"), message.data) for message in batch]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="SIGKILL under MQTT load; nothing lost, nothing doubled")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    exit_at_sigterm()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="eyot-mqtt-kills-") as folder:
        trial = Trial(Path(folder), options.seed)
        trial.run(options.kills, lambda line: print(line, flush=True))
        print(trial.summary())
        sys.exit(bool(trial.problems))


if __name__ == "__main__":
    main()
