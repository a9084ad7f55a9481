"""Backups of single streams over the JetStream API: taken while a fleet runs, and restored later.

An archive is of one epoch, and of one course of it: when its server is set back meanwhile, it is of no use any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import trio

from eyot_daemon.router.subscription import Kind, Origin, Subscription
from offline_sync.journal import StreamEpoch, identify
from offline_sync.model import Model, all_messages
from offline_sync.node import EPOCH_NS, Node

_WITHIN_S = 10.0


@dataclass(frozen=True)
class Archive:
    """A backup: the chunks and the configuration that the server sent, and what is known of their content.

    `numbers`: messages; `last_seq`: the stream's end; `lost`: what the stream had lost by then; `offset_s`: how far the
    clock was ahead at least when they were stored.
    """

    epoch: StreamEpoch
    config: dict[str, object]
    state: dict[str, object]
    chunks: tuple[bytes, ...]
    numbers: frozenset[int]
    last_seq: int
    lost: frozenset[int]
    offset_s: float


@dataclass
class _Download:
    """Hears the chunks of one backup and acknowledges each."""

    node: Node
    chunks: list[bytes] = field(default_factory=list)
    ended: trio.Event = field(default_factory=trio.Event)
    kind = Kind.CLIENT

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        if not payload:
            self.ended.set()
            return True
        self.chunks.append(payload)
        if reply:
            self.node.account.publish(reply)
        return True

    def flush(self) -> None:
        """Nothing is sent anywhere."""


async def take(node: Node, name: str, model: Model) -> Archive | None:
    """Return a backup of a stream that is published to; None if none came."""
    stream, epoch = node.stream(name), model.epochs[node.name, name]
    if stream is None:
        return None
    # Nothing is published meanwhile, so the archive holds what is committed when all answers have come.
    await trio.sleep(1.0)
    download = _Download(node)
    deliver = f"_ARCHIVE.{node.boots}.{name}"
    node.account.subscribe(deliver.encode(), download).slow = True
    answer = await node.request(f"STREAM.SNAPSHOT.{name}", {"deliver_subject": deliver})
    if answer is None or "error" in answer:
        return None
    with trio.move_on_after(_WITHIN_S):
        await download.ended.wait()
    stream = node.stream(name)
    if not download.ended.is_set() or stream is None:
        return None
    journal, log = model.journals[epoch], stream.log
    seqs = {identify(payload)[1]: seq for seq, payload in all_messages(stream)}
    stored = {n: message.ts_ns for n, seq in seqs.items() if (message := log.get(seq)) is not None}
    return Archive(
        epoch,
        answer["config"],
        answer["state"],
        tuple(download.chunks),
        frozenset(seqs),
        log.committed_seq,
        frozenset(journal.lost),
        min([(ts_ns - EPOCH_NS) / 1e9 - journal.published_at[n] for n, ts_ns in stored.items()], default=0.0),
    )


async def put_back(node: Node, archive: Archive) -> object:
    """Restore a stream that is not there; return the server's last answer, None if it gave none."""
    name = archive.epoch.stream
    begun = await node.request(f"STREAM.RESTORE.{name}", {"config": archive.config, "state": archive.state})
    if begun is None or "error" in begun:
        return begun
    answer = b""
    for chunk in (*archive.chunks, b""):
        heard = await _send(node, begun["deliver_subject"], chunk)
        if heard is None:
            return None
        answer = heard
        if answer:
            break  # the end, or an error before it
    return msgspec.json.decode(answer) if answer else None


async def _send(node: Node, subject: str, chunk: bytes) -> bytes | None:
    if not node.running:
        return None
    answers: list[bytes] = []
    done = trio.Event()

    def heard(payload: bytes) -> None:
        answers.append(payload)
        done.set()

    node.client.ask(subject.encode(), chunk, heard)
    with trio.move_on_after(_WITHIN_S):
        await done.wait()
    return answers[0] if answers else None
