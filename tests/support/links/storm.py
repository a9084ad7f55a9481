"""Storms: a hub and a leaf node of any two kinds, a link that is cut inside frames, frozen, half-open and flapping, and ends that are killed.

    python tests/support/links/storm.py [--runs 8] [--faults 100] [--seed N] [--pairs HUB:LEAF,...] [--jobs 1] [--plant NAME]

KIND of HUB and LEAF: eyotd, nats-server (Debian's 2.9.10) or a version; HUB may be `cluster`, three of 2.14 with replicated streams.
Clients publish at both ends all the time. Mirrors and sources copy in both directions, with filters and (from 2.10 on) subject
transforms. Flash of ours is slow in every third run. After each fault, what an Eyot end calls confirmed is looked at in the mirrors and
sources. At each lull an Eyot end must come to say that it is synced, and the identity of every message is compared: what was
acknowledged is in its stream, a mirror is its origin message by message, a source has what it should, once and in order. Exit status 0
when all holds. `--plant` plants a bug of `offline_sync/planted.py` in ours and tries runs until one finds it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1])]

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from eyot_wire.quantities import counted
from offline_sync.planted import PLANTS
from support.links.link import Link
from support.links.storm_ends import CLUSTER, End, pair
from support.servers.eyotd import Eyotd

PAIRS = (
    ("eyotd", "eyotd"), ("nats-server", "eyotd"), ("2.14.6", "eyotd"), ("2.15.0", "eyotd"),
    ("eyotd", "nats-server"), ("eyotd", "2.14.6"), ("eyotd", "2.15.0"), (CLUSTER, "eyotd"),
)  # fmt: skip
PATIENCE_S = 240.0
LULL_EVERY = 25
#: Messages of each origin that are acknowledged before the next fault.
BEFORE_EACH_FAULT = 30
#: A reader that hears nothing for so long begins again.
READ_S = 20.0
SLOW_FLUSH_S = 0.03
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
#: What is told of a downstream of an end that never was synced.
TOLD = (
    "stream", "kind", "target", "filters", "peer", "confirmed_seq", "last_seq", "backlog", "never_arrived", "linked", "uncertain", "error",
)  # fmt: skip
#: Sequence, subject and mark of a message.
Held = tuple[int, str, str]


@dataclass(frozen=True)
class Target:
    """A mirror or source: who has it, its origin, its configuration, and what it makes of a subject (None: not taken)."""

    where: End
    origin: str
    config: dict[str, Any]
    takes: Callable[[str], str | None]

    @property
    def is_mirror(self) -> bool:
        return "mirror" in self.config

    @property
    def is_whole(self) -> bool:
        """Every message of the origin is one of it."""
        return all(set(each) <= {"name", "external"} for each in self.config.get("sources", ()))


class Storm:
    """One pair. `what` counts the faults, `wrong` says in words what does not hold."""

    def __init__(self, folder: Path, hub: str, leaf: str, seed: int, *, plant: str = "", slow: bool = False) -> None:
        self.chance = random.Random(seed)
        self.hub, self.leaf, self.links = pair(
            folder, hub, leaf, self.chance, plant=plant, flush_s=SLOW_FLUSH_S if slow else 0.0
        )
        self.acked: dict[str, list[str]] = {"UP": [], "DOWN": []}
        self.sent = 0
        self.what: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._publishing = asyncio.Event()
        self._under_way = 0
        self._read: dict[str, list[Held]] = {}
        self._origins = {"UP": self.leaf, "DOWN": self.hub}
        self.targets = self._targets(transforms="nats-server" not in (hub, leaf))

    def _targets(self, *, transforms: bool) -> dict[str, Target]:
        found = {}
        for origin, where, domain in (("UP", self.hub, "leaf"), ("DOWN", self.leaf, "hub")):
            lower = origin.lower()
            external = {"name": origin, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
            found[f"{origin}_MIRROR"] = Target(where, origin, {"mirror": external}, lambda subject: subject)
            found[f"{origin}_SOURCE"] = Target(where, origin, {"sources": [external]}, lambda subject: subject)
            narrow = {**external, "filter_subject": f"{lower}.a.>"}
            found[f"{origin}_FILTER"] = Target(
                where, origin, {"sources": [narrow]}, lambda subject: subject if ".a." in subject else None
            )
            if transforms:
                moved = {**external, "subject_transforms": [{"src": f"{lower}.b.>", "dest": f"{lower}.moved.>"}]}
                found[f"{origin}_MOVED"] = Target(
                    where, origin, {"sources": [moved]},
                    lambda subject: subject.replace(".b.", ".moved.") if ".b." in subject else None,
                )  # fmt: skip
        return found

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
            self.links.close()
        return self.wrong

    async def _play(self, faults: int, tell: Callable[[str], None]) -> None:
        for name, where in self._origins.items():
            await self._make(where, name, {"subjects": [f"{name.lower()}.>"]})
        for target, each in self.targets.items():
            await self._make(each.where, target, each.config)
        self._publishing.set()
        publishers = [asyncio.create_task(self._publish(name, where)) for name, where in self._origins.items()]
        try:
            for number in range(1, faults + 1):
                await self._acknowledged_more()
                await asyncio.to_thread(self._harm)
                await self._look_at_claims()
                if number % LULL_EVERY == 0 or number == faults:
                    await self._lull(last=number == faults)
                    tell(f"{number} of {faults}: {dict(self.what)}, {self.sent} published, {len(self.wrong)} wrong")
                if self.wrong:
                    return
        finally:
            for each in publishers:
                each.cancel()

    async def _acknowledged_more(self) -> None:
        """Wait until both clients heard of more messages than before: a fault without any proves nothing."""
        enough = {name: len(marks) + BEFORE_EACH_FAULT for name, marks in self.acked.items()}
        async with asyncio.timeout(PATIENCE_S):
            while any(len(marks) < enough[name] for name, marks in self.acked.items()):
                await asyncio.sleep(0.02)

    async def _make(self, where: End, name: str, config: dict[str, Any]) -> None:
        body = {"name": name, "storage": "file", "num_replicas": where.replicas, **config}
        await self._api(where, f"STREAM.CREATE.{name}", body)

    async def _publish(self, name: str, where: End) -> None:
        """Bursts of messages; each is sent once, and is somebody's when it is acknowledged."""
        while True:
            with contextlib.suppress(NatsError, OSError, JetStreamError, asyncio.TimeoutError):
                client = await nats.connect(
                    where.client_url(), allow_reconnect=False, connect_timeout=2, error_cb=_unheard
                )
                try:
                    while client.is_connected:
                        await self._publishing.wait()
                        await asyncio.gather(*(self._one(client, name) for _ in range(self.chance.randint(1, 60))))
                        await asyncio.sleep(self.chance.choice((0.0, 0.02, 0.1, 0.4)))
                finally:
                    await client.close()
            await asyncio.sleep(0.05)

    async def _one(self, client: Client, name: str) -> None:
        self.sent += 1
        mark = f"{name}-{self.sent}"
        subject = f"{name.lower()}.{self.chance.choice('ab')}.{self.sent % 7}"
        self._under_way += 1
        try:
            await client.jetstream(timeout=10).publish(
                subject, mark.encode().ljust(self.chance.choice((16, 200, 4000)))
            )
        finally:
            self._under_way -= 1
        self.acked[name].append(mark)

    def _harm(self) -> None:
        chance, links = self.chance, self.links
        time.sleep(chance.uniform(0.02, 0.6))
        name = chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.what[name] += 1
        if name == "torn":
            part = chance.random()
            links.do(lambda link: link.tear(part))
            time.sleep(chance.uniform(0.05, 0.8))
            links.do(Link.cut)
            links.do(Link.restore)
        elif name == "flapping":
            for _ in range(chance.randint(2, 5)):
                links.do(Link.cut)
                time.sleep(chance.uniform(0, 0.2))
                links.do(Link.restore)
                time.sleep(chance.uniform(0, 0.4))
        elif "killed" in name:
            self._kill(name)
        else:
            if name != "cut":
                links.do(Link.stall)
                time.sleep(chance.uniform(0.05, 2.0))
                links.do(Link.flow)
            if name != "frozen":
                links.do(Link.cut)
                time.sleep(chance.uniform(0.0, 1.0))
                links.do(Link.restore)

    def _kill(self, name: str) -> None:
        """Of a cluster one server is killed at a time."""
        ends = [each for what, each in (("leaf", self.leaf), ("hub", self.hub)) if what in name or "both" in name]
        victims = [each.any_server() for each in ends]
        for each in victims:
            each.kill()
        time.sleep(self.chance.uniform(0.0, 0.5))
        for each in victims:
            each.start(wait=False)
        for each in victims:
            each.wait_ready()

    # -- judging ---------------------------------------------------------------------------------------------------

    @property
    def _ours(self) -> list[Eyotd]:
        return [each.eyotd for each in (self.leaf, self.hub) if each.eyotd is not None]

    async def _syncz(self, ours: Eyotd) -> Any:
        """A machine that is very busy may let it wait."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return await asyncio.to_thread(ours.monitor, "/eyot/syncz")
            except TimeoutError:
                assert time.monotonic() < deadline, "/eyot/syncz is not answered"

    async def _arrived(self, target: Target, name: str, wanted: int) -> int:
        """How far a stream has come. In a cluster, a leader that was frozen answers for a moment as if it still led."""
        deadline = time.monotonic() + (READ_S if target.where.kind == CLUSTER else 0)
        while True:
            state = (await self._api(target.where, f"STREAM.INFO.{name}"))["state"]
            there = int(state["last_seq"] if target.is_mirror else state["messages"])
            if there >= wanted or time.monotonic() >= deadline:
                return there
            await asyncio.sleep(0.5)

    async def _look_at_claims(self) -> None:
        """What an end of ours says is confirmed by a mirror or source of the whole stream is there."""
        for ours in self._ours:
            said = await self._syncz(ours)
            for each in said["out"]:
                target = self.targets.get(each["target"])
                if target is None or not target.is_whole or not each["confirmed_seq"]:
                    continue
                there = await self._arrived(target, each["target"], each["confirmed_seq"])
                if there < each["confirmed_seq"]:
                    self.wrong.append(
                        f"{each['target']} is said to have confirmed {each['confirmed_seq']}, it has {there}"
                    )

    async def _lull(self, *, last: bool) -> None:
        """Nobody publishes: all must arrive, and who says synced before it has is wrong."""
        self._publishing.clear()
        while self._under_way:
            await asyncio.sleep(0.05)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = [await self._syncz(each) for each in self._ours]
            found = []
            synced = all(each["synced"] for each in said)
            if synced:
                found = await self._differences(whole=last)
            if (synced and not found) or time.monotonic() > deadline:
                break
            if found and await self._ends() == self._ends_read:  # else something was stored meanwhile
                found = [f"synced was said, but {each}" for each in found]
                break
            await asyncio.sleep(0.2)
        if not found and not synced:
            found = await self._differences(whole=True) or [f"all is there, and {self._unsynced(said)}"]
        self.wrong += found
        self._publishing.set()

    def _unsynced(self, said: list[Any]) -> str:
        """Tell what each end that does not say synced says instead; what is confirmed may still be uncertain."""
        lines = [
            ", ".join(f"{name} {each[name]!r}" for name in TOLD) for one in said if not one["synced"] for each in one["out"]
        ]  # fmt: skip
        lines += [f"nobody copies from {one['server_name']}" for one in said if not one["out"]]
        return f"never was synced: {'; '.join(lines)}"

    async def _ends(self) -> dict[str, int]:
        """Up to where each origin goes."""
        found = {}
        for name, where in self._origins.items():
            found[name] = (await self._api(where, f"STREAM.INFO.{name}"))["state"]["last_seq"]
        return found

    async def _differences(self, *, whole: bool) -> list[str]:
        """What any stream holds against what it should; `whole`: read all of it again, not only what is new."""
        if whole:
            self._read.clear()
        self._ends_read = await self._ends()
        found: list[str] = []
        origins: dict[str, list[Held]] = {}
        for name, where in self._origins.items():
            origins[name] = await self._read_messages(where, name)
            marks = {mark for _, _, mark in origins[name]}
            lost = [mark for mark in self.acked[name] if mark not in marks]
            if lost:
                found.append(f"{name}: {len(lost)} acknowledged messages lost, {lost[0]} and on")
        for name, target in self.targets.items():
            want = [
                (seq, there, mark) for seq, subject, mark in origins[target.origin] if (there := target.takes(subject))
            ]
            have = await self._read_messages(target.where, name)
            if not target.is_mirror:
                want, have = ([(0, subject, mark) for _, subject, mark in which] for which in (want, have))
            if want != have:
                there_are = Counter(mark for _, _, mark in have)
                missing = [mark for _, _, mark in want if mark not in there_are]
                doubled = [mark for mark, times in there_are.items() if times > 1]
                found.append(
                    f"{name}: {len(missing)} of {len(want)} missing {missing[:3]}, {len(doubled)} doubled {doubled[:3]}, {len(have)} held"
                )
        return found

    async def _read_messages(self, where: End, stream: str) -> list[Held]:
        """Sequence, subject and mark of every message; those that were read before are not read again.

        In a cluster it is a replica of the stream that is read, which may be behind the stream's leader.
        """
        held = self._read.setdefault(stream, [])
        refused: Exception | None = None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                upto = (await self._api(where, f"STREAM.INFO.{stream}"))["state"]["last_seq"]
                await self._read_on(where, stream, held)
                if where.kind != CLUSTER or (held[-1][0] if held else 0) >= upto:
                    return held
                refused = TimeoutError(f"the replica that was read ends at {held[-1:]}, the stream at {upto}")
            except (TimeoutError, NatsError, OSError) as error:
                refused = error
            await asyncio.sleep(0.5)
        raise AssertionError(f"{stream} cannot be read: {refused!r}")

    async def _read_on(self, where: End, stream: str, held: list[Held]) -> None:
        client = await nats.connect(where.client_url(), allow_reconnect=False, error_cb=_unheard)
        came = asyncio.Event()
        pending = 0

        async def take(message: Msg) -> None:
            nonlocal pending
            pending = message.metadata.num_pending
            held.append((message.metadata.sequence.stream, message.subject, message.data.decode().rstrip()))
            came.set()

        try:
            inbox = client.new_inbox()
            await client.subscribe(inbox, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
            begin = held[-1][0] + 1 if held else 1
            config = {
                "deliver_subject": inbox, "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": begin,
                "replay_policy": "instant",
            }  # fmt: skip
            body = json.dumps({"stream_name": stream, "config": config}).encode()
            reply = await client.request(f"$JS.API.CONSUMER.CREATE.{stream}", body, timeout=10)
            made = json.loads(reply.data)
            if "error" in made:
                raise NatsError(made["error"])
            if made["num_pending"] or made["delivered"]["consumer_seq"]:
                await asyncio.wait_for(came.wait(), READ_S)
            while pending:
                came.clear()
                await asyncio.wait_for(came.wait(), READ_S)
        finally:
            await client.close()

    async def _api(self, where: End, words: str, body: Any = None) -> Any:
        """The answer. A cluster without a leader refuses for a while."""
        refused: Any = None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(NatsError, OSError, asyncio.TimeoutError):
                client = await nats.connect(where.client_url(), allow_reconnect=False, error_cb=_unheard)
                try:
                    reply = await client.request(
                        f"$JS.API.{words}", b"" if body is None else json.dumps(body).encode(), timeout=10
                    )
                    answer = json.loads(reply.data)
                    if "error" not in answer:
                        return answer
                    refused = answer["error"]
                    assert where.kind == CLUSTER, (words, refused)
                finally:
                    await client.close()
            await asyncio.sleep(0.2)
        raise AssertionError(f"no answer to {words}: {refused}")


async def _unheard(error: Exception) -> None:
    """Connections end all the time."""


@dataclass
class Run:
    """What became of one pair and seed."""

    text: str
    wrong: list[str]


def run_one(options: argparse.Namespace, number: int, folder: Path) -> Run:
    pairs = [each.split(":") for each in options.pairs.split(",")]
    hub, leaf = pairs[number % len(pairs)]
    seed = options.seed + number
    slow = seed % 3 == 0 or bool(options.plant)
    begun = time.monotonic()
    storm = Storm(folder / str(seed), hub, leaf, seed, plant=options.plant, slow=slow)
    try:
        wrong = storm.run(options.faults, lambda text: print(f"  {seed}: {text}", flush=True))
    except Exception as error:
        wrong = [f"the storm itself failed: {error!r}"]
    if not wrong:
        shutil.rmtree(folder / str(seed))
    acked = sum(len(marks) for marks in storm.acked.values())
    lasted = (
        f"{time.monotonic() - begun:.0f} s, {sum(storm.what.values())} faults, {acked} acknowledged, {dict(storm.what)}"
    )
    named = f"seed {seed}, hub {hub}, leaf node {leaf}{', slow flash' if slow else ''}"
    return Run(f"{named}: {lasted}: {'; '.join(wrong) or 'all as it must be'}", wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=len(PAIRS), help="how many, taking the pairs in turn")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--pairs", default=",".join(f"{hub}:{leaf}" for hub, leaf in PAIRS))
    parser.add_argument("--keep", help="a folder for the stores and logs of runs that fail")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time: most of a run is waiting")
    parser.add_argument("--plant", default="", choices=("", *PLANTS), help="plant a known bug and find it")
    options = parser.parse_args()
    begun = time.monotonic()
    runs: list[Run] = []
    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="eyot-storm-", dir="/var/tmp"))
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        left = [pool.submit(run_one, options, number, Path(folder)) for number in range(options.runs)]
        for each in as_completed(left):
            if each.cancelled():
                continue
            runs.append(each.result())
            print(runs[-1].text, flush=True)
            if options.plant and runs[-1].wrong:
                for other in left:
                    other.cancel()
    failed = sum(bool(each.wrong) for each in runs)
    print(f"{counted(len(runs), 'run')}, {time.monotonic() - begun:.0f} s, {failed} with something wrong")
    return int(not failed) if options.plant else int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
