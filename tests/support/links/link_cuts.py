"""Random cuts of a leaf link and SIGKILLs of its ends, while a client of the leaf publishes and one of the hub consumes.

    python tests/support/links/link_cuts.py [--cuts 200] [--seed N] [--hub KIND] [--leaf KIND]

KIND is eyotd, nats-server (Debian's) or a version. The leaf's stream is copied to the hub as a source and as a mirror. At the end
comes the line of truth: what the publisher was acknowledged, what the leaf holds, what each copy holds, what the consumer took.
Exit status 0 when nothing is lost, doubled or out of order anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "story")]

from nats.js.api import ConsumerConfig, ExternalStream, StreamSource
from nodes import Node
from observe import connect
from truth import Truth, stream_ids

from support.links.link import Link
from support.servers.newer_nats_server import binary
from support.termination import exit_at_sigterm

PATIENCE_S = 180.0
#: Long against any stall of this machine: what was sent again before an acknowledgement came proves nothing.
ACK_WAIT_S = 30


def kind_of(name: str) -> str:
    return name if name in ("eyotd", "nats-server") else binary(name)


class Cuts:
    """The two servers, the link, the two clients; `what` counts what was done to them."""

    def __init__(self, folder: Path, hub: str, leaf: str, seed: int) -> None:
        self._chance = random.Random(seed)
        self.hub = Node(kind_of(hub), "hub", folder)
        self.link = Link(self.hub.leaf_port)
        self.leaf = Node(kind_of(leaf), "leaf", folder, remote_port=self.link.port)
        # Else the leaf learns the hub's own address, and goes round the link.
        advertise = f'advertise: "127.0.0.1:{self.link.port}"'
        self.hub.set_config(self.hub.config_path.read_text().replace("no_advertise: true", advertise))
        self.acked, self.taken = folder / "acknowledged", folder / "taken"
        self.what: Counter[str] = Counter()
        self.confirmed: list[str] = []  # what the consumer acknowledged and was confirmed

    def run(self, cuts: int, tell: Callable[[str], None]) -> Truth:
        """Plays `cuts` of them and judges. The servers are stopped at the end."""
        try:
            self.hub.start()
            self.leaf.start()
            asyncio.run(self._set_up())
            clients = [self._client("publish", self.leaf, self.acked), self._client("consume", self.hub, self.taken)]
            try:
                for number in range(cuts):
                    self._harm()
                    if number % 20 == 19:
                        tell(f"{number + 1} of {cuts}: {dict(self.what)}")
                _ended(clients[0])
                return asyncio.run(self._authenticated(lambda: _ended(clients[1])))
            finally:
                for client in clients:
                    client.kill()
                    client.wait()
        finally:
            self.leaf.kill()
            self.hub.kill()
            self.link.close()

    def _client(self, what: str, server: Node, ledger: Path) -> subprocess.Popen[bytes]:
        ledger.touch()
        return subprocess.Popen([sys.executable, str(HERE / "cut_clients.py"), what, server.url, str(ledger)])

    async def _set_up(self) -> None:
        leaf, hub = await connect(self.leaf.url, "setup"), await connect(self.hub.url, "setup")
        await leaf.jetstream().add_stream(name="READINGS", subjects=["readings.>"])
        origin = StreamSource(name="READINGS", external=ExternalStream(api="$JS.leaf.API"))
        await hub.jetstream().add_stream(name="FLEET", sources=[origin])
        await hub.jetstream().add_stream(name="BACKUP", mirror=origin)
        await hub.jetstream().add_consumer(
            "FLEET", ConsumerConfig(durable_name="sink", ack_wait=ACK_WAIT_S, max_ack_pending=5000)
        )
        await leaf.close()
        await hub.close()

    # -- harm ----------------------------------------------------------------------------------------------------------

    def _harm(self) -> None:
        chance = self._chance
        time.sleep(chance.uniform(0.05, 1.5))
        names = ("cut", "half-open, then cut", "leaf killed", "hub killed", "both killed", "cut, leaf killed")
        name = chance.choices(names, (10, 3, 4, 3, 1, 2))[0]
        self.what[name] += 1
        if name.startswith("half-open"):
            self.link.stall()
            time.sleep(chance.uniform(0.05, 1.0))
        if "cut" in name:
            self.link.cut()
        if name == "half-open, then cut":
            self.link.flow()
        victims = [each for each in (self.leaf, self.hub) if f"{each.name} killed" in name or "both" in name]
        for victim in victims:
            victim.kill()
        time.sleep(chance.uniform(0.0, 1.5))
        for victim in victims:
            victim.start(wait=False)
        for victim in victims:
            victim.wait_ready(PATIENCE_S)
        if "cut" in name:
            self.link.restore()

    # -- judging -------------------------------------------------------------------------------------------------------

    async def _authenticated(self, end_consumer: Callable[[], None]) -> Truth:
        """Waits until all is copied and consumed, reads everything back."""
        leaf, hub = await connect(self.leaf.url, "judge"), await connect(self.hub.url, "judge")
        count = (await leaf.jetstream().stream_info("READINGS")).state.messages
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            copies = [(await hub.jetstream().stream_info(name)).state.messages for name in ("FLEET", "BACKUP")]
            consumer = await hub.jetstream().consumer_info("FLEET", "sink")
            if min(copies) >= count and not consumer.num_pending and not consumer.num_ack_pending:
                break
            await asyncio.sleep(0.1)
        await asyncio.to_thread(end_consumer)
        truth = Truth(self.acked.read_text().split())
        truth.places["on leaf"] = await stream_ids(leaf, "READINGS", count)
        for name, place in (("FLEET", "sourced"), ("BACKUP", "mirrored")):
            held = (await hub.jetstream().stream_info(name)).state.messages
            truth.places[place] = await stream_ids(hub, name, held)
        lines = self.taken.read_text().split()
        truth.places["consumed"] = list(dict.fromkeys(line[1:] for line in lines if line.startswith("+")))
        self.confirmed = [line for line in lines if not line.startswith("+")]
        await leaf.close()
        await hub.close()
        return truth


def _ended(client: subprocess.Popen[bytes]) -> None:
    """Lets a client finish what it has begun."""
    client.terminate()
    client.wait(PATIENCE_S)


def problems(cuts: Cuts, truth: Truth) -> list[str]:
    """What is wrong, in words. A message may come to the consumer again, but not after its acknowledgement was confirmed."""
    found = [f"{place}: {len(truth.lost(place))} lost" for place in truth.places if truth.lost(place)]
    found += [f"{place}: {len(doubled)} doubled" for place in truth.places if (doubled := truth.duplicated(place))]
    found += [
        f"{place}: not what the leaf holds" for place in ("sourced", "mirrored") if truth.disordered(place, "on leaf")
    ]
    again = [msg_id for msg_id, times in Counter(cuts.confirmed).items() if times > 1]
    strange = set(truth.places["consumed"]) ^ set(truth.places["on leaf"])
    found += [f"consumed: {len(again)} again after their acknowledgement was confirmed"] if again else []
    return found + ([f"consumed: {len(strange)} differ from what the leaf holds"] if strange else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--hub", default="eyotd")
    parser.add_argument("--leaf", default="eyotd")
    options = parser.parse_args()
    exit_at_sigterm()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eyot-cuts-", dir="/var/tmp") as folder:
        cuts = Cuts(Path(folder), options.hub, options.leaf, options.seed)
        truth = cuts.run(options.cuts, lambda text: print(text, flush=True))
    wrong = problems(cuts, truth)
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s: {dict(cuts.what)}")
    print(truth.line())
    print("\n".join(wrong) if wrong else "nothing lost, nothing doubled, everything in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
