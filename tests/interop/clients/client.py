"""A driver of nats-py: reads one command a line on stdin, answers with one line each. See ../test_scenarios.py."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import nats
import nats.errors

HOST = sys.argv[1]
connections: dict[str, Any] = {}
subscriptions: dict[str, Any] = {}
last: dict[str, Any] = {}
violations: dict[str, str] = {}


def shown(msg: Any) -> str:
    headers = ";".join(f"{key}={value}" for key, value in sorted((msg.headers or {}).items()))
    return f"{msg.subject} {msg.reply or '-'} {msg.data.decode() or '-'} {headers or '-'}"


async def connect(name: str, user: str, options: str) -> str:
    async def on_error(error: Exception) -> None:
        found = re.search(r'permissions violation for (publish|subscription) to "([^"]+)"', str(error).lower())
        if found:
            violations[name] = " ".join(found.groups())

    wanted = options.split(",")
    kwargs: dict[str, Any] = {}
    if user.startswith("token:"):
        kwargs["token"] = user.removeprefix("token:")
    elif user != "-":
        kwargs["user"], _, kwargs["password"] = user.partition(":")
    try:
        connections[name] = await nats.connect(
            f"nats://{HOST}",
            allow_reconnect=False,
            max_reconnect_attempts=0,
            connect_timeout=5,
            error_cb=on_error,
            no_echo="no_echo" in wanted,
            verbose="verbose" in wanted,
            pedantic="pedantic" in wanted,
            name="scenario",
            **kwargs,
        )
    except nats.errors.Error as error:
        return "authorization" if "authorization violation" in str(error).lower() else f"error {error}"
    return "ok"


async def run(words: list[str]) -> str:
    command, *rest = words
    if command == "connect":
        return await connect(*rest)
    if command == "sub":
        name, connection, subject, queue = rest
        subscriptions[name] = await connections[connection].subscribe(subject, queue="" if queue == "-" else queue)
        return "ok"
    if command == "unsub":
        await subscriptions[rest[0]].unsubscribe(int(rest[1]))
        return "ok"
    if command in ("pub", "big"):
        connection, subject, reply, data, headers = rest
        payload = b"x" * int(data) if command == "big" else b"" if data == "-" else data.encode()
        pairs = None if headers == "-" else dict(pair.split("=") for pair in headers.split(";"))
        try:
            await connections[connection].publish(subject, payload, reply="" if reply == "-" else reply, headers=pairs)
        except nats.errors.MaxPayloadError:
            return "max_payload"
        return "ok"
    if command == "flush":
        await connections[rest[0]].flush()
        return "ok"
    if command == "next":
        try:
            msg = last[rest[0]] = await subscriptions[rest[0]].next_msg(timeout=int(rest[1]) / 1e3)
        except nats.errors.TimeoutError:
            return "none"
        return shown(msg)
    if command == "size":
        return str(len((await subscriptions[rest[0]].next_msg(timeout=int(rest[1]) / 1e3)).data))
    if command == "respond":
        await last[rest[0]].respond(rest[1].encode())
        return "ok"
    if command == "request":
        connection, subject, data, timeout = rest
        try:
            msg = await connections[connection].request(subject, data.encode(), timeout=int(timeout) / 1e3)
        except nats.errors.NoRespondersError:
            return "no_responders"
        except nats.errors.TimeoutError:
            return "timeout"
        return msg.data.decode() or "-"
    if command == "serve":
        name, connection, subject, queue, answer = rest

        async def reply(msg: Any) -> None:
            await msg.respond(msg.data + answer.encode())

        subscriptions[name] = await connections[connection].subscribe(
            subject, queue="" if queue == "-" else queue, cb=reply
        )
        return "ok"
    if command == "violation":
        for _ in range(50):
            if rest[0] in violations:
                return violations.pop(rest[0])
            await asyncio.sleep(0.02)
        return "none"
    if command == "max_payload":
        return str(connections[rest[0]].max_payload)
    if command == "close":
        await connections.pop(rest[0]).close()
        return "ok"
    if command == "reset":
        for connection in connections.values():
            await connection.close()
        connections.clear()
        subscriptions.clear()
        violations.clear()
        return "ok"
    return "unknown"


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer = await run(line.split())
        except Exception as error:
            answer = f"error {error!r}"  # the scenario fails, the others go on
        print(answer, flush=True)


asyncio.run(main())
