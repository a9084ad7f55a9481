"""The main job as a story in acts: offline leaf, power cut, link returns, hub complete.

Real processes, a real client, a link that is really cut. `play.py` shows it with Spark behind it; the interop tests play it
in small, with Debian's `nats-server` in either role.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nodes import Node
from observe import Observer, Timeline, connect
from truth import Truth, ledger_ids, stream_ids

from support.links.link import Link

LEAF_STREAM = "READINGS"
HUB_STREAM = "FLEET"
DRAIN_TIMEOUT_S = 180
POWER_OFF_S = 1.0
STUCK_AFTER_S = 60
#: Of all messages, so many come from the sensor.
SENSOR_MESSAGES = 1_000


@dataclass
class Story:
    """One run; `leaf_kind` and `hub_kind` name the executables: `eyotd` or `nats-server`."""

    folder: Path
    messages: int
    leaf_kind: str = "eyotd"
    hub_kind: str = "eyotd"
    window: int = 256
    tell: Callable[[str], None] = print
    progress: Callable[[int, int], None] = lambda _acked, _on_hub: None
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = self.folder / "acknowledged.tsv"
        self.ledger.touch()
        self.hub = Node(self.hub_kind, "hub", self.folder)
        self.link = Link(self.hub.leaf_port, up=False)
        self.leaf = Node(self.leaf_kind, "leaf", self.folder, remote_port=self.link.port)

    def close(self) -> None:
        for node in (self.leaf, self.hub):
            node.stop()
        self.link.close()

    async def play(self) -> Truth:
        """Runs all acts; the truth holds what was acknowledged, what the leaf holds and what the hub holds."""
        self.tell(f"hub   {self.hub_kind} ready in {self.hub.timed_start():.2f} s")
        self.tell(f"leaf  {self.leaf_kind} ready in {self.leaf.timed_start():.2f} s, the link to the hub is cut")
        leaf = await connect(self.leaf.url, "story")
        hub = await connect(self.hub.url, "story")
        await leaf.jetstream().add_stream(StreamConfig(name=LEAF_STREAM, subjects=["readings.>"]))
        source = StreamSource(name=LEAF_STREAM, external=ExternalStream(api="$JS.leaf.API", deliver=""))
        await hub.jetstream().add_stream(StreamConfig(name=HUB_STREAM, sources=[source]))
        observer = Observer(self.timeline, leaf, hub, LEAF_STREAM, HUB_STREAM)
        watching = asyncio.create_task(observer.run())
        try:
            await self._publish_through_a_power_cut()
            await self._drain(observer)
        finally:
            observer.stopped = True
            await asyncio.gather(watching, return_exceptions=True)
        truth = Truth(ledger_ids(self.ledger))
        state = (await leaf.jetstream().stream_info(LEAF_STREAM)).state
        truth.places["on leaf"] = await stream_ids(leaf, LEAF_STREAM, state.messages)
        state = (await hub.jetstream().stream_info(HUB_STREAM)).state
        truth.places["on hub"] = await stream_ids(hub, HUB_STREAM, state.messages)
        await leaf.close()
        await hub.close()
        return truth

    def _clients(self) -> list[subprocess.Popen[str]]:
        """Starts what publishes: an application that speaks NATS, and a sensor that speaks MQTT where the leaf node does."""
        here = Path(__file__)
        by_mqtt = min(SENSOR_MESSAGES, self.messages // 10) if self.leaf.speaks_mqtt else 0
        commands = [[here.with_name("publisher.py"), self.leaf.url, self.ledger, self.messages - by_mqtt, self.window]]
        if by_mqtt:
            commands.append([here.with_name("sensor.py"), self.leaf.leaf_port, self.ledger, by_mqtt])
            self.tell(f"a sensor publishes {by_mqtt} readings by MQTT, QoS 2")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return [subprocess.Popen([sys.executable, *map(str, each)], text=True, **pipes) for each in commands]

    async def _publish_through_a_power_cut(self) -> None:
        self.timeline.mark("publishing, link down")
        publisher, *sensors = self._clients()
        try:
            await self._until(publisher, self.messages // 2)
            acked = self._acked()
            self.leaf.kill()
            self.timeline.mark("power cut")
            self.tell(
                f"power cut: the leaf was killed (SIGKILL) after {acked} acknowledgements, with publishes in flight"
            )
            await asyncio.sleep(POWER_OFF_S)
            lasted_s = self.leaf.timed_start()
            self.timeline.mark("power back")
            self.tell(f"power back: the leaf was ready again in {lasted_s:.2f} s")
            for client in (publisher, *sensors):
                await self._until(client, self.messages + 1)
        finally:
            outputs = []
            for client in (publisher, *sensors):
                if client.poll() is None:
                    client.kill()
                outputs.append(client.communicate()[0])
        for client, output in zip((publisher, *sensors), outputs, strict=True):
            if client.returncode != 0:
                raise RuntimeError(f"the publishing client failed:\n{output}")
        output = outputs[0]
        self.tell(
            f"published: {self._acked()} acknowledged, {output.strip()} publishes that the power cut left unanswered"
        )

    async def _drain(self, observer: Observer) -> None:
        """Restores the link and waits until the hub holds as many messages as the leaf."""
        backlog = (await observer.sample()).backlog
        before = observer.on_hub
        returned = self.timeline.mark("link returns")
        self.tell(f"link returns: {backlog} messages of backlog")
        self.link.restore()
        first: float | None = None
        while True:
            sample = await observer.sample()
            self.progress(self._acked(), sample.on_hub)
            if first is None and sample.on_hub > before:
                first = sample.at_s
            if sample.on_hub >= sample.on_leaf:
                break
            if sample.at_s > returned + DRAIN_TIMEOUT_S:
                raise RuntimeError(f"the hub has {sample.on_hub} of {sample.on_leaf} after {DRAIN_TIMEOUT_S} s")
            await asyncio.sleep(0.02)
        drained = self.timeline.mark("hub complete")
        lasted = max(drained - (first or returned), 1e-3)
        self.tell(
            f"hub complete {drained - returned:.2f} s after the link's return: first message seen after "
            f"{(first or drained) - returned:.2f} s, then {backlog / lasted:,.0f} messages/s"
        )

    async def _until(self, publisher: subprocess.Popen[str], wanted: int) -> None:
        """Waits for `wanted` acknowledgements or the publisher's end. Raises RuntimeError when it makes no progress."""
        before, since = -1, time.monotonic()
        while publisher.poll() is None:
            acked = self._acked()
            self.progress(acked, 0)
            if acked >= wanted:
                return
            if acked != before:
                before, since = acked, time.monotonic()
            elif time.monotonic() > since + STUCK_AFTER_S:
                raise RuntimeError(
                    f"no acknowledgement for {STUCK_AFTER_S} s after {acked}; the leaf says:\n{self.leaf.log()[-4000:]}"
                )
            await asyncio.sleep(0.05)

    def _acked(self) -> int:
        with self.ledger.open("rb") as ledger:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: ledger.read(1 << 20), b""))
