"""The same conversation with two servers, step by step: what the one answers is held against what the other answers."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from support.jetstream.peer import DELIVERED, INBOX, REPUBLISHED, Message, Peer
from support.jetstream.schemas import complaints
from support.servers.server_process import ServerProcess

#: What both servers are configured with: the same name, for answers tell it.
CONFIG = 'server_name: TALKER\njetstream { store_dir: "%WORKDIR%/js" }'
#: How long an answer is waited for when the other server gave it, and when none of them did, in seconds.
PATIENCE_S, SILENCE_S = 10.0, 0.35
#: Steps that change nothing are asked again until both answer the same, so long, in seconds.
COMMIT_WITHIN_S = 3.0


@dataclass
class Operation:
    """One thing to say.

    `answers`: how many messages end the answer at most (a status ends it too); `reads`: it changes nothing; `certain`:
    there is an answer, however long it takes; `tail`: what the reply subject ends with.
    """

    subject: str
    payload: bytes = b""
    header: bytes = b""
    answers: int = 1
    reads: bool = False
    silent: bool = False
    certain: bool = False
    tail: str = ""


@dataclass
class Ack:
    """Acknowledge the delivery `which` (counted from the newest, whoever got it). `answers` as of a Operation; 0: no reply subject."""

    which: int
    payload: bytes
    answers: int = 0


@dataclass
class Quiet:
    """Wait until nothing more comes, and compare what was delivered and republished."""

    seconds: float = 0.12


@dataclass
class Delivered:
    """Wait until each server has delivered `count` more messages, and compare them."""

    count: int


@dataclass
class Heard:
    """Wait until both servers have announced something with `text` in it."""

    text: bytes


@dataclass
class Restart:
    """Stop both servers, or kill them, and start them again."""

    kill: bool


Step = Operation | Ack | Quiet | Delivered | Heard | Restart


@dataclass
class Difference:
    step: Step | str
    number: int
    paths: list[str]

    def __str__(self) -> str:
        return f"step {self.number}: {self.step}\n  " + "\n  ".join(self.paths)


@dataclass
class Conversation:
    """A conversation.

    Both sides are the first in `peers`, ours, and the reference. `servers`: theirs, for conversations in which they are
    started again.
    """

    peers: tuple[Peer, Peer]
    servers: tuple[ServerProcess, ServerProcess] | None = None
    inbox: int = 0
    deliveries: list[tuple[Message, Message]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def play(self, steps: list[Step]) -> Iterator[Difference]:
        """Every difference; go on after one as long as it makes sense."""
        for number, step in enumerate(steps):
            match step:
                case Operation():
                    paths = self._perform(step)
                case Ack():
                    paths = self._ack(step)
                case Quiet(seconds):
                    paths = self._quiet(seconds)
                case Delivered(count):
                    paths = self._delivered(count)
                case Heard(text):
                    self._wait_for(text)
                    paths = []
                case Restart(kill):
                    self._restart(kill)
                    paths = []
            if paths:
                yield Difference(step, number, paths)

    def end(self) -> Difference | None:
        """Compare what came of itself and what was announced; delete all streams."""
        paths = self._quiet(0.1) or self._settled_events()
        for peer in self.peers:
            listed = self._asked(peer, "$JS.API.STREAM.NAMES")
            for name in listed.get("streams") or []:
                self._asked(peer, f"$JS.API.STREAM.DELETE.{name}")
        for peer in self.peers:
            peer.heard.clear()
            peer.events.clear()
            peer.invented.clear()
        self.deliveries.clear()
        self.seen.clear()
        return Difference("the end", -1, paths) if paths else None

    def _asked(self, peer: Peer, subject: str, payload: bytes = b"") -> Any:
        inbox = self._inbox()
        peer.say(subject, payload, reply=inbox)
        while not peer.heard[inbox]:
            assert peer.listen(PATIENCE_S), subject
        return json.loads(peer.heard.pop(inbox)[0].payload)

    def _inbox(self) -> str:
        self.inbox += 1
        return f"{INBOX}.{self.inbox}"

    def _perform(self, step: Operation) -> list[str]:
        deadline = time.monotonic() + COMMIT_WITHIN_S
        while True:
            inbox = "" if step.silent else self._inbox() + step.tail
            for peer in self.peers:
                peer.say(
                    peer.called(step.subject),
                    peer.called(step.payload.decode("latin-1")).encode("latin-1"),
                    step.header,
                    inbox,
                )
            paths = [] if step.silent else self._compare(inbox, step.answers, step.certain)
            if not paths or not step.reads or time.monotonic() > deadline:
                return paths
            self.seen[inbox] = -1  # what else comes of it does not matter
            time.sleep(0.1)

    def _ack(self, step: Ack) -> list[str]:
        if not self.deliveries:
            return []
        pair = self.deliveries[-1 - step.which % len(self.deliveries)]
        inbox = self._inbox() if step.answers else ""
        for peer, message in zip(self.peers, pair, strict=True):
            peer.say(message.reply, step.payload, reply=inbox)
        return self._compare(inbox, step.answers) if step.answers else []

    def _compare(self, inbox: str, answers: int, certain: bool = False) -> list[str]:
        """Collect what comes on the inbox from both, and compare."""
        self._collect(inbox, answers, SILENCE_S if not certain else PATIENCE_S)
        ours, theirs = (peer.heard[inbox] for peer in self.peers)
        paths = differences(*self._shown(ours, theirs)) or _against_schemas(ours, theirs)
        if not paths:
            self._remember(ours, theirs)
        self.seen[inbox] = len(ours)
        return paths

    def _collect(self, inbox: str, answers: int, silence_s: float) -> None:
        start = time.monotonic()
        while True:
            done = [_ended(peer.heard[inbox], answers) for peer in self.peers]
            if all(done):
                return
            age = time.monotonic() - start
            if age > (PATIENCE_S if any(done) or any(peer.heard[inbox] for peer in self.peers) else silence_s):
                return
            if len(self.peers[0].heard[inbox]) == len(self.peers[1].heard[inbox]) > 0 and age > 0.6 + SILENCE_S:
                return
            for peer, over in zip(self.peers, done, strict=True):
                if not over:
                    peer.listen(0.05)

    def _shown(self, ours: list[Message], theirs: list[Message]) -> tuple[Any, Any]:
        return [self.peers[0].shown(each) for each in ours], [self.peers[1].shown(each) for each in theirs]

    def _remember(self, ours: list[Message], theirs: list[Message]) -> None:
        for pair in zip(ours, theirs, strict=False):
            if pair[0].reply.startswith("$JS.ACK.") and pair[1].reply.startswith("$JS.ACK."):
                self.deliveries.append(pair)

    def _delivered(self, count: int) -> list[str]:
        for peer in self.peers:
            while self._new_deliveries(peer) < count:
                assert peer.listen(PATIENCE_S), f"{self._new_deliveries(peer)} of {count} deliveries"
        return self._of_themselves()

    def _new_deliveries(self, peer: Peer) -> int:
        heard = [each for subject, all_ in peer.heard.items() for each in all_[max(0, self.seen.get(subject, 0)) :]]
        return sum(each.reply.startswith("$JS.ACK.") for each in heard)

    def _wait_for(self, text: bytes) -> None:
        for peer in self.peers:
            while not any(text in event.payload for event in peer.events):
                assert peer.listen(PATIENCE_S), text

    def _restart(self, kill: bool) -> None:
        assert self.servers is not None
        Peer.restarted = True
        for peer, server in zip(self.peers, self.servers, strict=True):
            if kill:
                server.kill()
            else:
                server.stop()
            server.start()
            peer.connect(server.client_port)

    def _quiet(self, seconds: float) -> list[str]:
        deadline = time.monotonic() + COMMIT_WITHIN_S
        while True:
            while any(peer.listen(seconds / 2) for peer in self.peers):
                pass
            paths = self._of_themselves()
            if not paths or time.monotonic() > deadline:
                return paths

    def _of_themselves(self) -> list[str]:
        """What came without being waited for, since it was last looked at."""
        paths: list[str] = []
        subjects = sorted({subject for peer in self.peers for subject in peer.heard})
        fresh = []
        for subject in subjects:
            at = self.seen.get(subject, 0)
            if at < 0:
                continue
            ours, theirs = (peer.heard[subject][at:] for peer in self.peers)
            where = subject if subject.startswith((DELIVERED, REPUBLISHED)) else "late"
            paths += [f"{where} {path}" for path in differences(*self._shown(ours, theirs))]
            fresh.append((subject, ours, theirs))
        if not paths:
            for subject, ours, theirs in fresh:
                self._remember(ours, theirs)
                self.seen[subject] = len(self.peers[0].heard[subject])
        return paths

    def _settled_events(self) -> list[str]:
        """The same after a while: nats-server announces some things after it has answered."""
        deadline = time.monotonic() + COMMIT_WITHIN_S
        while (paths := self._events()) and time.monotonic() < deadline:
            for peer in self.peers:
                peer.listen(0.05)
        return paths

    def _events(self) -> list[str]:
        ours, theirs = (sorted(json.dumps(peer.shown(each)) for each in peer.events) for peer in self.peers)
        rest = [_without(ours, theirs), _without(theirs, ours)]
        paths = [
            f"event {path}"
            for pair in zip(*rest, strict=False)
            for path in differences(*map(json.loads, pair), path=json.loads(pair[0])[0])
        ]
        for which, one, other in (("ours", *rest), ("theirs", *reversed(rest))):
            paths += [f"event only {which}: {each}" for each in one[len(other) :]]
        return paths or _against_schemas(self.peers[0].events, self.peers[1].events)


def _without(these: list[str], those: list[str]) -> list[str]:
    rest = list(these)
    for each in those:
        with contextlib.suppress(ValueError):
            rest.remove(each)
    return rest


def _against_schemas(ours: list[Message], theirs: list[Message]) -> list[str]:
    """What the published schemas say against our answers, and not against nats-server's."""
    said, also = ([each for message in peer for each in _complaints(message)] for peer in (ours, theirs))
    return [f"schema: {each}" for each in said if each not in also]


def _complaints(message: Message) -> list[str]:
    if not message.payload.startswith(b'{"type":"io.nats.jetstream.'):
        return []
    said = json.loads(message.payload)
    return [f"{said['type']} {each}" for each in complaints(said)]


def _ended(messages: list[Message], answers: int) -> bool:
    return len(messages) >= answers or bool(
        messages and messages[-1].status and not messages[-1].status.startswith(b"100")
    )


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two values differ, with both values there."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            found += differences(ours.get(key, "ABSENT"), theirs.get(key, "ABSENT"), f"{path}.{key}")
        return found or (
            [f"{path} order: {list(ours)} | {list(theirs)}"]
            if list(ours) != list(theirs) and not path.endswith(("metadata", "subjects"))
            else []
        )
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        return [
            each
            for at, pair in enumerate(zip(ours, theirs, strict=True))
            for each in differences(*pair, f"{path}[{at}]")
        ]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{path}: {ours!r} | {theirs!r}"]
