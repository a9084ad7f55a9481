"""Backups and restores over the network, as the `nats` tool does them, and what a stream holds, to compare."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

CHUNK = 128 << 10


@dataclass
class Backup:
    """The answer to STREAM.SNAPSHOT, the archive, and the header of the message that ended it."""

    answer: dict[str, Any]
    data: bytes = b""
    status: dict[str, str] = field(default_factory=dict)
    chunks: int = 0

    @property
    def error(self) -> int:
        return int(self.answer.get("error", {}).get("err_code", 0))


async def api(nc: Client, words: str, body: Any = None) -> dict[str, Any]:
    """One request of the JetStream API, its answer decoded."""
    payload = b"" if body is None else json.dumps(body).encode()
    found: dict[str, Any] = json.loads((await nc.request(f"$JS.API.{words}", payload, timeout=20)).data)
    return found


async def backup(nc: Client, stream: str, **options: Any) -> Backup:
    """Take a backup, answering every chunk."""
    inbox = nc.new_inbox()
    pieces: list[bytes] = []
    end: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()

    async def take(msg: Msg) -> None:
        if not msg.data:
            end.set_result(msg)
            return
        pieces.append(msg.data)
        if msg.reply:
            await nc.publish(msg.reply)

    sub = await nc.subscribe(inbox, cb=take)
    answer = await api(nc, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **options})
    if "error" in answer:
        await sub.unsubscribe()
        return Backup(answer)
    last = await asyncio.wait_for(end, 30)
    await sub.unsubscribe()
    return Backup(answer, b"".join(pieces), dict(last.headers or {}), len(pieces))


async def begin_restore(nc: Client, stream: str, taken: Backup, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to STREAM.RESTORE."""
    body = {"config": config or taken.answer["config"], "state": taken.answer["state"]}
    return await api(nc, f"STREAM.RESTORE.{stream}", body)


async def restore(
    nc: Client, stream: str, taken: Backup, *, chunk: int = CHUNK, config: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Restore a backup; the last answer, be it that of a chunk that was refused."""
    answer = await begin_restore(nc, stream, taken, config)
    if "error" in answer:
        return answer
    return await send(nc, answer["deliver_subject"], taken.data, chunk=chunk)


async def send(nc: Client, subject: str, data: bytes, *, chunk: int = CHUNK) -> dict[str, Any]:
    """Send an archive in chunks, each when the one before is answered; the last answer."""
    for at in range(0, len(data), chunk):
        said = await nc.request(subject, data[at : at + chunk], timeout=20)
        if said.data:
            return json.loads(said.data)  # type: ignore[no-any-return]
    return json.loads((await nc.request(subject, b"", timeout=30)).data)  # type: ignore[no-any-return]


async def state(nc: Client, stream: str) -> dict[str, Any]:
    """A stream's state with its deleted sequences."""
    found = await api(nc, f"STREAM.INFO.{stream}", {"deleted_details": True})
    assert "error" not in found, found
    held: dict[str, Any] = found["state"]
    return {**held, "created": found["created"]}


async def contents(nc: Client, stream: str) -> list[tuple[int, int, str, dict[str, str], bytes]]:
    """(sequence, time in ns, subject, headers, payload) of every message."""
    expected = (await state(nc, stream))["messages"]
    if not expected:
        return []
    found: list[tuple[int, int, str, dict[str, str], bytes]] = []
    complete = asyncio.Event()

    async def take(msg: Msg) -> None:
        tokens = msg.reply.split(".")
        seq, ts_ns = (int(tokens[5]), int(tokens[7])) if len(tokens) == 9 else (int(tokens[7]), int(tokens[9]))
        found.append((seq, ts_ns, msg.subject, dict(msg.headers or {}), msg.data))
        if len(found) == expected:
            complete.set()

    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
    config = {"deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant"}
    made = await api(nc, f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    assert "error" not in made, made
    await asyncio.wait_for(complete.wait(), 30)
    await sub.unsubscribe()
    await api(nc, f"CONSUMER.DELETE.{stream}.{made['name']}")
    return found


async def consumers(nc: Client, stream: str) -> dict[str, dict[str, Any]]:
    """Where the stream's durable consumers stand, by name."""
    listed = (await api(nc, f"CONSUMER.LIST.{stream}")).get("consumers") or []
    members = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")
    return {each["name"]: {name: _stripped(each[name]) for name in members} for each in listed}


def _stripped(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "last_active"} if isinstance(value, dict) else value
