"""Steps of a conversation with JetStream as plain values, and a player that has them with a real server through nats-py."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.aio.client import Client

from support.clients.silence import next_unless_silent
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer

#: Members that say when, who, or which version.
_LEFT_OUT = {"created", "time", "ts", "first_ts", "last_ts", "metadata", "id", "timestamp", "active", "last_active"}


@dataclass
class Say:
    """A message with headers; `silent`: no answer is asked for."""

    subject: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    silent: bool = False


@dataclass
class Ask:
    words: str
    body: Any = None


@dataclass
class Wait:
    """Until the stream holds `messages`, or its last sequence is `last`."""

    stream: str
    messages: int = -1
    last: int = -1


@dataclass
class Pull:
    """A pull request of a consumer of stream S: subjects of acknowledgement and payloads of what comes."""

    consumer: str
    batch: int
    ack: bytes | None = None


@dataclass
class Push:
    """Answer what a push consumer's flow control asks, if `settled` says up to where, until nothing more comes."""

    subject: str
    settled: int = 0
    delivery: int = 0  # its number among the consumer's deliveries, where it is another


@dataclass
class Look:
    """Everything a stream holds."""

    stream: str


@dataclass
class Fast:
    """A message of a fast batch; the answers to it are collected until nothing more comes."""

    reply: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    subject: str = "s.a"


Step = Say | Ask | Wait | Look | Fast | Pull | Push


def pub(subject: str, body: bytes = b"", silent: bool = False, **headers: Any) -> Say:
    named = {f"Nats-{name.replace('_', '-')}": str(value) for name, value in headers.items()}
    return Say(subject, body, named, silent)


def create(name: str, **config: Any) -> Ask:
    if "mirror" not in config:
        config.setdefault("subjects", [f"{name.lower()}.>"])
    return Ask(f"STREAM.CREATE.{name}", {"name": name, **config})


def bat(batch: str, seq: int | str, body: bytes = b"", subject: str = "s.a", **more: Any) -> Say:
    return pub(subject, body, Batch_Id=batch, Batch_Sequence=seq, **more)


def consumer(name: str, **config: Any) -> Ask:
    body = {"stream_name": "S", "config": {"name": name, "durable_name": name, **config}}
    return Ask(f"CONSUMER.CREATE.S.{name}", body)


def info(name: str) -> Ask:
    return Ask(f"CONSUMER.INFO.S.{name}")


def reset(name: str, body: Any = None) -> Ask:
    return Ask(f"CONSUMER.RESET.S.{name}", body)


FLOW = {"ack_policy": "flow_control", "deliver_subject": "flow", "max_ack_pending": 100}


def fast(batch: str, flow: int, gap: str, seq: int, op: int, body: bytes = b"x", **more: Any) -> Fast:
    headers = {f"Nats-{name.replace('_', '-')}": str(value) for name, value in more.items()}
    return Fast(f"fast.{batch}.{flow}.{gap}.{seq}.{op}.$FI", body, headers)


def plan(pattern: str, target: str | None = "s.t", subject: str = "s.plan", **more: Any) -> Say:
    more |= {} if target is None else {"Schedule_Target": target}
    return pub(subject, b"body", Schedule=pattern, **more)


FAR = "@at 2036-01-01T00:00:00Z"


def comparable(answer: Any) -> Any:
    """`answer` without what cannot be the same (how far copies are among it)."""
    if isinstance(answer, dict):
        left_out = _LEFT_OUT | {"mirror", "sources"} if "config" in answer else _LEFT_OUT
        return {key: comparable(value) for key, value in answer.items() if key not in left_out}
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    return answer


def _ack_subject(reply: str) -> str:
    """Without the time."""
    tokens = reply.split(".")
    return ".".join(tokens[:7] + tokens[8:])


class Player:
    """One scenario on one server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.events: list[Any] = []

    async def play(self, steps: list[Step]) -> list[Any]:
        async def event(message: Any) -> None:
            self.events.append((message.subject, comparable(json.loads(message.data))))

        await self.client.subscribe("$JS.EVENT.ADVISORY.STREAM.>", cb=event)
        answers = [await self.step(step) for step in steps]
        await self.client.flush()
        for name in (await self.api("STREAM.NAMES"))["streams"] or []:
            await self.api(f"STREAM.DELETE.{name}")
        return [*answers, [each for each in self.events if "DELETED" not in each[0]]]

    async def step(self, step: Step) -> Any:
        match step:
            case Ask(words, body):
                return comparable(await self.api(words, body))
            case Look(stream):
                return await self.held(stream)
            case Wait():
                return await self.wait(step)
            case Pull():
                return await self.pull(step)
            case Push():
                return await self.push(step)
            case Fast():
                return await self.fast(step)
            case Say(subject, body, headers, True):
                await self.client.publish(subject, body, headers=headers or None)
                return None
            case Say(subject, body, headers):
                try:
                    answer = await self.client.request(subject, body, timeout=1, headers=headers or None)
                except (nats.errors.TimeoutError, nats.errors.NoRespondersError) as error:
                    return type(error).__name__
                return json.loads(answer.data) if answer.data else ""
        raise AssertionError(step)

    async def fast(self, step: Fast) -> Any:
        inbox = await self.client.subscribe("fast.>")
        await self.client.publish(step.subject, step.body, reply=step.reply, headers=step.headers or None)
        answers = []
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                message = await next_unless_silent(self.client, inbox, 0.15)
                assert message.subject == step.reply
                answers.append(json.loads(message.data))
        await inbox.unsubscribe()
        return answers

    async def pull(self, step: Pull) -> Any:
        inbox = await self.client.subscribe("pulled.*")
        body = json.dumps({"batch": step.batch, "no_wait": True}).encode()
        await self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{step.consumer}", body, reply="pulled.1")
        came: list[Any] = []
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                message = await next_unless_silent(self.client, inbox, 0.15)
                came.append((_ack_subject(message.reply), message.data, (message.headers or {}).get("Status")))
                if step.ack is not None and message.reply:
                    await self.client.publish(message.reply, step.ack)
        await inbox.unsubscribe()
        return came

    async def push(self, step: Push) -> Any:
        """Heartbeats come when they like: they are left out."""
        inbox = await self.client.subscribe(step.subject)
        came: list[Any] = []
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                message = await next_unless_silent(
                    self.client, inbox, 2.5 if step.settled and "asked" not in came else 0.3
                )
                if message.reply.startswith("$JS.FC."):
                    headers = {
                        "Nats-Last-Consumer": str(step.delivery or step.settled),
                        "Nats-Last-Stream": str(step.settled),
                    }
                    await self.client.publish(message.reply, headers=headers if step.settled else None)
                    came.append("asked")
                elif message.reply:
                    came.append((_ack_subject(message.reply), message.data))
        await inbox.unsubscribe()
        await self.client.flush()
        await asyncio.sleep(0.1)
        return came if not step.settled else sorted(set(map(str, came)))

    async def api(self, words: str, body: Any = None) -> Any:
        payload = b"" if body is None else json.dumps(body).encode()
        return json.loads((await self.client.request(f"$JS.API.{words}", payload, timeout=30)).data)

    async def wait(self, step: Wait) -> Any:
        for _ in range(200):
            state = (await self.api(f"STREAM.INFO.{step.stream}"))["state"]
            if state["last_seq"] >= step.last and (step.messages < 0 or state["messages"] == step.messages):
                return "there"
            await asyncio.sleep(0.05)
        return state

    async def held(self, stream: str) -> list[Any]:
        state = (await self.api(f"STREAM.INFO.{stream}"))["state"]
        found: list[Any] = [state["messages"], state["bytes"]]
        for seq in range(state["first_seq"], state["last_seq"] + 1):
            answer = await self.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
            if "error" in answer:
                found.append((seq, answer["error"]["err_code"]))
                continue
            message = answer["message"]
            header = base64.b64decode(message.get("hdrs", "")).decode()
            header = re.sub(r"(Nats-Schedule-Next: )\d.*?\r", r"\1<time>\r", header)
            found.append((seq, message["subject"], header, base64.b64decode(message.get("data", ""))))
        return found


async def played(server: Eyotd | NatsServer, steps: list[Step]) -> list[Any]:
    client = await nats.connect(server.client_url(), allow_reconnect=False)
    try:
        return await Player(client).play(steps)
    finally:
        await client.close()
