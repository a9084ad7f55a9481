"""What tests of bridges share: `eyotd` with a bridge, streams, publishes, and what `eyot sync` says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import nats

from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess

WAIT_S = 60.0
CONFIG = """
server_name: gateway
jetstream {{ store_dir: "%WORKDIR%/js" }}
{more}
eyot {{
{eyot}
bridges {{
    cloud {{
        url: "{url}"
        reconnect: "200ms"
        client_id: gateway
        {bridge}
    }}
}} }}
"""
#: READINGS leaves slowly, so that a kill comes in the middle: two kilobytes of topics and payloads a second.
SLOW = "sync { streams { READINGS { bandwidth: 2K } } }"
_T = TypeVar("_T")


def config(url: str, bridge: str, *, more: str = "", eyot: str = "") -> str:
    return CONFIG.format(url=url, bridge=bridge, more=more, eyot=eyot)


def gateway(workdir: Path, port: int, bridge: str = "streams: READINGS", **more: str) -> Eyotd:
    """`eyotd` with the bridge `cloud` to a broker on this machine; not started."""
    return Eyotd(config(f"mqtt://127.0.0.1:{port}", bridge, **more), workdir)


def until(what: Callable[[], _T], wanted: str = "", timeout_s: float = WAIT_S) -> _T:
    """Wait until a function returns something true."""
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, wanted or what
        time.sleep(0.02)
    return found


class Nats:
    """A client of NATS, one call at a time."""

    def __init__(self, server: ServerProcess) -> None:
        self._url = server.client_url()

    def _run(self, play: Callable[[Any, Any], Any]) -> Any:
        async def main() -> Any:
            client = await nats.connect(self._url)
            try:
                return await play(client, client.jetstream(timeout=30))
            finally:
                await client.close()

        return asyncio.run(main())

    def stream(self, name: str, subjects: Sequence[str], **config: Any) -> None:
        async def play(client: Any, stream: Any) -> None:
            await stream.add_stream(name=name, subjects=list(subjects), **config)

        self._run(play)

    def publish(self, subject: str, payloads: Sequence[str], headers: dict[str, str] | None = None) -> None:
        """Publish into a stream; every message is on flash afterwards."""

        async def play(client: Any, stream: Any) -> None:
            for at in range(0, len(payloads), 100):
                some = payloads[at : at + 100]
                await asyncio.gather(*(stream.publish(subject, each.encode(), headers=headers) for each in some))

        self._run(play)

    def publish_core(self, subject: str, payload: str) -> None:
        """Publish without a stream."""

        async def play(client: Any, stream: Any) -> None:
            await client.publish(subject, payload.encode())
            await client.flush()

        self._run(play)

    def purge(self, name: str) -> None:
        async def play(client: Any, stream: Any) -> None:
            await stream.purge_stream(name)

        self._run(play)

    def messages(self, name: str) -> list[tuple[str, str]]:
        """All messages of a stream, as (subject, payload)."""

        async def play(client: Any, stream: Any) -> list[tuple[str, str]]:
            state = (await stream.stream_info(name)).state
            found = []
            if not state.messages:
                return []
            reader = await stream.subscribe("", stream=name, ordered_consumer=True)
            while len(found) < state.messages:
                message = await reader.next_msg(timeout=30)
                found.append((message.subject, message.data.decode()))
            return found

        return self._run(play)  # type: ignore[no-any-return]

    def count(self, name: str) -> int:
        async def play(client: Any, stream: Any) -> int:
            return int((await stream.stream_info(name)).state.messages)

        return int(self._run(play))


def status(server: Eyotd, stream: str = "READINGS") -> dict[str, Any]:
    """What `/eyot/syncz` says of a stream that the bridge forwards; empty before it knows the stream."""
    return next((each for each in server.monitor("/eyot/syncz")["out"] if each["stream"] == stream), {})


def link(server: Eyotd, name: str = "bridge:cloud") -> dict[str, Any]:
    """The bridge among the links of `/eyot/status`."""
    return next(each for each in server.monitor("/eyot/status")["links"] if each["name"] == name)


def is_confirmed(server: Eyotd, seq: int, stream: str = "READINGS") -> bool:
    found = status(server, stream)
    return bool(found) and found["confirmed_seq"] >= seq and not found["backlog"]


def first_seen(lines: Sequence[str]) -> list[str]:
    """The lines in the order in which each came first."""
    return list(dict.fromkeys(lines))
