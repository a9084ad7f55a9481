"""An origin and its copy at both ends of a link that is lost where a test says, and what the origin claims meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from support.links.leaf_pair import Clients, LeafPair, configs_behind
from support.links.watched_link import WatchedLink
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess


class OriginAndCopy:
    """The stream R at one end, and its mirror or source COPY at the other."""

    def __init__(self, pair: LeafPair, link: WatchedLink, origin_end: str) -> None:
        self.link = link
        self.origin: ServerProcess = pair.leaf if origin_end == "leaf" else pair.hub
        self.copy: ServerProcess = pair.hub if origin_end == "leaf" else pair.leaf
        self._domain = origin_end
        #: How many messages the origin has acknowledged.
        self.acknowledged = 0

    @property
    def at_eyotd(self) -> bool:
        """Whether the origin is an eyotd's, which knows what is confirmed."""
        return isinstance(self.origin, Eyotd)

    def ask(self, server: ServerProcess, subject: str, body: Any = None) -> Any:
        async def play() -> Any:
            async with Clients(server) as (client,):
                return await _ask(client, subject, body)

        return asyncio.run(play())

    def make_origin(self, **more: Any) -> None:
        self.ask(self.origin, "STREAM.CREATE.R", {"name": "R", "subjects": ["r.>"], "storage": "file", **more})

    def make_copy(self, kind: str) -> None:
        """`kind`: source, mirror, or mirror that skips."""
        origin = {"name": "R", "external": {"api": f"$JS.{self._domain}.API"}}
        config: dict[str, Any] = {"name": "COPY", "storage": "file"}
        config |= {"sources": [origin]} if kind == "source" else {"mirror": origin}
        if kind == "mirror that skips":
            config["metadata"] = {"eyot.origin_behind": "skip"}
        self.ask(self.copy, "STREAM.CREATE.COPY", config)

    def publish(self, word: str, count: int) -> None:
        """Stores `word`-0 and so on, one after the other."""

        async def play() -> None:
            async with Clients(self.origin) as (client,):
                js = client.jetstream(timeout=30)
                for number in range(count):
                    await js.publish("r.a", f"{word}-{number}".encode())
                    self.acknowledged += 1

        asyncio.run(play())

    def held(self) -> int:
        """How many messages the copy has."""
        pages = self.copy.monitor("/jsz?streams=1&accounts=1")["account_details"]
        streams = [each for page in pages for each in page.get("stream_detail") or () if each["name"] == "COPY"]
        return int(streams[0]["state"]["messages"]) if streams else 0

    def texts(self) -> list[str]:
        """What the copy has."""

        async def play() -> list[str]:
            async with Clients(self.copy) as (client,):
                state = (await _ask(client, "STREAM.INFO.COPY"))["state"]
                answers = [
                    await _ask(client, "STREAM.MSG.GET.COPY", {"seq": seq})
                    for seq in range(state["first_seq"], state["last_seq"] + 1)
                ]
                return [base64.b64decode(each["message"]["data"]).decode() for each in answers if "message" in each]

        return asyncio.run(play())

    def report(self) -> Any:
        """What an eyotd with the origin says of its downstream; `synced` is None from a nats-server."""
        if not self.at_eyotd:
            return {"synced": None}
        report = self.origin.monitor("/eyot/syncz")
        return {"backlog": 0, **(report["out"][0] if report["out"] else {}), "synced": report["synced"]}


@contextmanager
def origin_and_copy(hub: str, leaf: str, origin_end: str, workdir: Path) -> Iterator[OriginAndCopy]:
    """Servers of these kinds, linked without compression. `origin_end`: which of both has the origin, `hub` or `leaf`."""
    with WatchedLink(0) as link:
        configs = configs_behind(link.port)
        configs["hub_config"] = configs["hub_config"].replace("no_advertise", "compression: off, no_advertise")
        configs["hub_config"] = configs["hub_config"].replace("advertise:", "compression: off, advertise:")
        configs["leaf_config"] = configs["leaf_config"].replace('"], account', '"], compression: off, account')
        servers = LeafPair(hub, leaf, workdir, **configs)
        link.target_port = servers.hub.leaf_port
        with servers:
            yield OriginAndCopy(servers, link, origin_end)


async def _ask(client: Client, subject: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(f"$JS.API.{subject}", data, timeout=30)).data)


def until(holds: Callable[[], bool], what: str, within_s: float = 180.0) -> None:
    """Wait for it. After several requests in vain nats-server waits up to two minutes before it asks its origin again."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Claims:
    """Asks an eyotd with the origin, over and over, whether it is synced: a yes before the copy has `wanted()` messages is a lie.

    None: the copy never takes all that the origin has now.
    """

    def __init__(self, play: OriginAndCopy, wanted: Callable[[], int | None]) -> None:
        self.lies: list[Any] = []
        self._play = play
        self._wanted = wanted
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Claims:
        if self._play.at_eyotd:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.02):
            wanted = self._wanted()
            report = self._play.report()
            if report["synced"] and (wanted is None or self._play.held() < wanted):
                self.lies.append(report)
