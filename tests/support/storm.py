"""Storms: a hub and a leaf node of any two kinds, a link that is cut inside frames, frozen, half-open and flapping, and ends that are killed.

    python tests/support/storm.py [--runs 1] [--faults 100] [--seed N] [--pairs HUB:LEAF,...]

KIND of HUB and LEAF: eyotd, nats-server (Debian's 2.9.10) or a version. Clients publish at both ends all the time. Mirrors and sources
copy in both directions, with filters and (from 2.10 on) subject transforms. At each lull an Eyot end must come to say that it is synced,
and everything that it says is confirmed is looked at there. In the end the identity of every message is compared: what was acknowledged
is in its stream, a mirror is its origin message by message, a source has what it should, once and in order. Exit status 0 when all holds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from support.eyotd import Eyotd
from support.leaf_pair import HUB, LEAF, server
from support.link import Link
from support.nats_server import NatsServer
from support.newer_nats_server import NewerNatsServer
from support.server_process import ServerProcess

ACCOUNTS = "accounts { ACC: { users: [{user: acc, password: acc}], jetstream: enabled } }\n"
PAIRS = tuple(
    (hub, leaf)
    for hub, leaf in (
        ("eyotd", "eyotd"), ("nats-server", "eyotd"), ("2.14.6", "eyotd"), ("2.15.0", "eyotd"),
        ("eyotd", "nats-server"), ("eyotd", "2.14.6"), ("eyotd", "2.15.0"),
    )
)  # fmt: skip
PATIENCE_S = 240.0
LULL_EVERY = 25
FAULTS = {
    "torn": 18,
    "cut": 12,
    "half-open": 8,
    "frozen": 10,
    "flapping": 8,
    "leaf killed": 14,
    "hub killed": 12,
    "both killed": 4,
}


class Stopped(NatsServer):
    """Debian's nats-server flushes what it acknowledged later than it says so: killed, it loses that. It is stopped instead."""

    def kill(self) -> None:
        self.stop()


class Storm:
    """One pair. `what` counts the faults, `wrong` says in words what does not hold."""

    def __init__(self, folder: Path, hub: str, leaf: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kinds = {"hub": hub, "leaf": leaf}
        hub_config = HUB + ACCOUNTS
        leaf_config = re.sub(r"\{ urls: \[\"nats-leaf://admin.*\n", "", LEAF) + ACCOUNTS
        self.hub = _server(hub, hub_config, folder / "hub")
        self.link = Link(self.hub.leaf_port)
        self.hub = _server(
            hub, hub_config.replace("no_advertise: true", f'advertise: "127.0.0.1:{self.link.port}"'), folder / "hub"
        )
        self.link.target_port = self.hub.leaf_port
        self.leaf = _server(leaf, leaf_config.replace("HUB_PORT", str(self.link.port)), folder / "leaf")
        self.acked: dict[str, list[str]] = {"UP": [], "DOWN": []}
        self.sent = 0
        self.what: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._publishing = asyncio.Event()
        transforms = all(kind != "nats-server" for kind in self.kinds.values())
        #: target: (server that has it, its origin, configuration, what it takes)
        self.copies: dict[str, tuple[ServerProcess, str, dict[str, Any], Callable[[str], str | None]]] = {}
        for origin, where, domain in (("UP", self.hub, "leaf"), ("DOWN", self.leaf, "hub")):
            lower = origin.lower()
            external = {"name": origin, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
            self.copies[f"{origin}_MIRROR"] = where, origin, {"mirror": external}, lambda subject: subject
            self.copies[f"{origin}_SOURCE"] = where, origin, {"sources": [external]}, lambda subject: subject
            narrow = {**external, "filter_subject": f"{lower}.a.>"}
            self.copies[f"{origin}_FILTER"] = (
                where, origin, {"sources": [narrow]}, lambda subject: subject if ".a." in subject else None,
            )  # fmt: skip
            if transforms:
                moved = {**external, "subject_transforms": [{"src": f"{lower}.b.>", "dest": f"{lower}.moved.>"}]}
                self.copies[f"{origin}_MOVED"] = (
                    where, origin, {"sources": [moved]},
                    lambda subject: subject.replace(".b.", ".moved.") if ".b." in subject else None,
                )  # fmt: skip

    # -- the storm -------------------------------------------------------------------------------------------------

    def run(self, faults: int, tell: Callable[[str], None]) -> list[str]:
        """Play so many faults and judge; returns what is wrong."""
        try:
            self.hub.start()
            self.leaf.start()
            asyncio.run(self._play(faults, tell))
        finally:
            self.leaf.kill()
            self.hub.kill()
            self.link.close()
        return self.wrong

    async def _play(self, faults: int, tell: Callable[[str], None]) -> None:
        for name, where in (("UP", self.leaf), ("DOWN", self.hub)):
            await self._api(
                where, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "file"}
            )
        for target, (where, _, config, _) in self.copies.items():
            await self._api(where, f"STREAM.CREATE.{target}", {"name": target, "storage": "file", **config})
        self._publishing.set()
        publishers = [
            asyncio.create_task(self._publish(name, where)) for name, where in (("UP", self.leaf), ("DOWN", self.hub))
        ]
        try:
            for number in range(1, faults + 1):
                await asyncio.to_thread(self._harm)
                if number % LULL_EVERY == 0 or number == faults:
                    await self._lull()
                    tell(f"{number} of {faults}: {dict(self.what)}, {self.sent} published, {len(self.wrong)} wrong")
                    if self.wrong:
                        return
        finally:
            for each in publishers:
                each.cancel()

    async def _publish(self, name: str, where: ServerProcess) -> None:
        """Bursts of messages; each is sent once, and is somebody's when it is acknowledged."""
        while True:
            with contextlib.suppress(NatsError, OSError, JetStreamError, asyncio.TimeoutError):
                client = await nats.connect(
                    where.client_url("acc"), allow_reconnect=False, connect_timeout=2, error_cb=_unheard
                )
                try:
                    while client.is_connected:
                        await self._publishing.wait()
                        await asyncio.gather(*(self._one(client, name) for _ in range(self.chance.randint(1, 60))))
                        await asyncio.sleep(self.chance.uniform(0, 0.05))
                finally:
                    await client.close()
            await asyncio.sleep(0.05)

    async def _one(self, client: Client, name: str) -> None:
        self.sent += 1
        mark = f"{name}-{self.sent}"
        subject = f"{name.lower()}.{self.chance.choice('ab')}.{self.sent % 7}"
        await client.jetstream(timeout=10).publish(subject, mark.encode().ljust(self.chance.choice((16, 200, 4000))))
        self.acked[name].append(mark)

    def _harm(self) -> None:
        chance, link = self.chance, self.link
        time.sleep(chance.uniform(0.02, 0.6))
        name = chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.what[name] += 1
        if name == "torn":
            link.tear(chance.random())
            time.sleep(chance.uniform(0.05, 0.8))
            link.cut()
            link.restore()
        elif name == "flapping":
            for _ in range(chance.randint(2, 5)):
                link.cut()
                time.sleep(chance.uniform(0, 0.2))
                link.restore()
                time.sleep(chance.uniform(0, 0.4))
        elif "killed" in name:
            self._kill(name)
        else:
            if name != "cut":
                link.stall()
                time.sleep(chance.uniform(0.05, 2.0))
                link.flow()
            if name != "frozen":
                link.cut()
                time.sleep(chance.uniform(0.0, 1.0))
                link.restore()

    def _kill(self, name: str) -> None:
        victims = [each for what, each in (("leaf", self.leaf), ("hub", self.hub)) if what in name or "both" in name]
        for each in victims:
            each.kill()
        time.sleep(self.chance.uniform(0.0, 0.5))
        for each in victims:
            each.start(wait=False)
        for each in victims:
            each.wait_ready()

    # -- judging ---------------------------------------------------------------------------------------------------

    async def _lull(self) -> None:
        """Nobody publishes: all must arrive, and who says synced before it has is wrong."""
        self._publishing.clear()
        await asyncio.sleep(0.5)
        deadline = time.monotonic() + PATIENCE_S
        ends = [each for each in (self.leaf, self.hub) if isinstance(each, Eyotd)]
        while time.monotonic() < deadline:
            said = [await asyncio.to_thread(each.monitor, "/eyot/syncz") for each in ends]
            if all(each["synced"] for each in said):
                break
            done = await self._differences(quick=True)
            if not done and time.monotonic() > deadline - PATIENCE_S / 2:
                break
            await asyncio.sleep(0.2)
        else:
            said = []
        found = await self._differences(quick=False)
        if found and said and all(each["synced"] for each in said):
            found = [f"synced was said, but {each}" for each in found]
        elif not found and not (said and all(each["synced"] for each in said)):
            found = [f"all is there, and {self._unsynced(said)}"]
        self.wrong += found
        self._publishing.set()

    def _unsynced(self, said: list[Any]) -> str:
        lines = [
            f"{each['stream']} > {each['target'] or each['peer']}: {each['confirmed_seq']} of {each['last_seq']}, {each['error']}"
            for one in said for each in one["out"] if each["confirmed_seq"] < each["last_seq"]
        ]  # fmt: skip
        return f"never was synced: {'; '.join(lines)}"

    async def _differences(self, *, quick: bool) -> list[str]:
        """What any stream holds against what it should; `quick`: only how far each is."""
        found: list[str] = []
        origins: dict[str, list[tuple[int, str, str]]] = {}
        for name, where in (("UP", self.leaf), ("DOWN", self.hub)):
            if quick:
                continue
            origins[name] = await self._held(where, name)
            marks = {mark for _, _, mark in origins[name]}
            lost = [mark for mark in self.acked[name] if mark not in marks]
            if lost:
                found.append(f"{name}: {len(lost)} acknowledged messages lost, {lost[0]} and on")
        for target, (where, origin, config, takes) in self.copies.items():
            if quick:
                info = await self._api(where, f"STREAM.INFO.{target}")
                source = info.get("mirror") or info["sources"][0]
                if source["lag"] or source["active"] < 0:
                    found.append(target)
                continue
            want = [(seq, takes(subject), mark) for seq, subject, mark in origins[origin] if takes(subject) is not None]
            have = await self._held(where, target)
            if "mirror" not in config:
                want, have = ([(0, subject, mark) for _, subject, mark in which] for which in (want, have))
            if want != have:
                missing = [mark for _, _, mark in want if mark not in {each for _, _, each in have}]
                doubled = [mark for mark, times in Counter(mark for _, _, mark in have).items() if times > 1]
                found.append(
                    f"{target}: {len(missing)} of {len(want)} missing {missing[:3]}, {len(doubled)} doubled {doubled[:3]}, {len(have)} held"
                )
        return found

    async def _held(self, where: ServerProcess, stream: str) -> list[tuple[int, str, str]]:
        """Sequence, subject and mark of every message."""
        client = await nats.connect(where.client_url("acc"), error_cb=_unheard)
        try:
            js = client.jetstream(timeout=20)
            count = (await js.stream_info(stream)).state.messages
            reader = await js.subscribe(">", stream=stream, ordered_consumer=True)
            found = []
            for _ in range(count):
                message = await reader.next_msg(timeout=20)
                found.append((message.metadata.sequence.stream, message.subject, message.data.decode().strip()))
            return found
        finally:
            await client.close()

    async def _api(self, where: ServerProcess, words: str, body: Any = None) -> Any:
        import json

        for _ in range(20):
            with contextlib.suppress(NatsError, OSError):
                client = await nats.connect(where.client_url("acc"), allow_reconnect=False, error_cb=_unheard)
                try:
                    reply = await client.request(
                        f"$JS.API.{words}", b"" if body is None else json.dumps(body).encode(), timeout=10
                    )
                    answer = json.loads(reply.data)
                    assert "error" not in answer, (words, answer)
                    return answer
                finally:
                    await client.close()
            await asyncio.sleep(0.5)
        raise AssertionError(f"no answer to {words}")


async def _unheard(error: Exception) -> None:
    """Connections end all the time."""


def _server(kind: str, config: str, workdir: Path) -> ServerProcess:
    if kind == "nats-server":
        return Stopped(config, workdir)
    if kind != "eyotd":
        config = config.replace('/store"', '/store", sync_interval: always')
    found = server(kind, config, workdir)
    assert isinstance(found, Eyotd | NewerNatsServer)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=len(PAIRS), help="how many, taking the pairs in turn")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--pairs", default=",".join(f"{hub}:{leaf}" for hub, leaf in PAIRS))
    parser.add_argument("--keep", help="a folder for stores and logs")
    options = parser.parse_args()
    pairs = [pair.split(":") for pair in options.pairs.split(",")]
    failed = 0
    for number in range(options.runs):
        hub, leaf = pairs[number % len(pairs)]
        seed = options.seed + number
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            folder = options.keep or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="eyot-storm-", dir="/var/tmp")
            )
            storm = Storm(Path(folder) / str(seed), hub, leaf, seed)
            wrong = storm.run(options.faults, lambda text: print(f"  {text}", flush=True))
        acked = sum(len(marks) for marks in storm.acked.values())
        took = f"{time.monotonic() - begun:.0f} s, {acked} acknowledged, {dict(storm.what)}"
        print(
            f"seed {seed}, hub {hub}, leaf node {leaf}: {took}: {'; '.join(wrong) or 'all as it must be'}", flush=True
        )
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
