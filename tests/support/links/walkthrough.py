"""The walk-through of NATS' documentation of JetStream on leaf nodes, played against a hub and a leaf of any kind.

Streams of one name in two domains, a mirror and a source across domains, the reports; then the same across accounts: a mirror
through `external.api` and `external.deliver`, and a pull consumer of the hub's used by a client of another account at the leaf.

    python tests/support/links/walkthrough.py                     four pairs, each one's tables
    python tests/support/links/walkthrough.py eyotd nats-server   hub and leaf: eyotd, nats-server (Debian's) or a version
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

import nats
from nats.aio.client import Client
from rich.console import Console
from rich.table import Table

from support.links.leaf_pair import Clients, LeafPair, linked

PAIRS = [("eyotd", "eyotd"), ("2.14.6", "eyotd"), ("eyotd", "2.14.6"), ("2.14.6", "2.14.6")]
ACCOUNTS = """
accounts {
    SYS: {
        users: [{user: admin, password: admin}]
    },
    ACC: {
        users: [{user: acc, password: acc}],
        jetstream: enabled
        exports: [
            {service: "$JS.hub.API.CONSUMER.CREATE.*", response_type: "stream"}
            {stream: "deliver.acc.hub.>"}
            {service: "$JS.hub.API.CONSUMER.MSG.NEXT.aggregate-test-leaf.dur", response_type: "stream"}
            {service: "$JS.ACK.aggregate-test-leaf.dur.>"}
            {service: "$JS.FC.aggregate-test-leaf.dur.>"}
        ]
    }
    IMPORT_MIRROR: {
        users: [{user: import_mirror, password: import_mirror}],
        jetstream: enabled
        imports: [
            {service: {account: ACC, subject: "$JS.hub.API.CONSUMER.CREATE.*"}, to: "JS.acc@hub.API.CONSUMER.CREATE.*" }
            {service: {account: ACC, subject: "$JS.FC.aggregate-test-leaf.dur.>"}}
            {stream: {account: ACC, subject: deliver.acc.hub.import_mirror.>}}
        ]
    }
    IMPORT_CLIENT: {
        users: [{user: import_client, password: import_client}],
        jetstream: enabled
        imports: [
            {service: {account: ACC, subject: "$JS.hub.API.CONSUMER.MSG.NEXT.aggregate-test-leaf.dur"},
             to: "JS.acc@hub.API.CONSUMER.MSG.NEXT.aggregate-test-leaf.dur" }
            {service: {account: ACC, subject: "$JS.ACK.aggregate-test-leaf.dur.>"}}
        ]
    }
}
system_account: SYS
"""
WAIT_S = 30.0
#: Columns that tell when, not what; left out of comparisons.
TIMES = ("Active",)


@dataclass
class Report:
    """One table as the documentation shows it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def comparable(self) -> tuple[object, ...]:
        kept = [index for index, column in enumerate(self.columns) if column not in TIMES]
        return self.title, tuple(tuple(row[index] for index in kept) for row in self.rows)

    def shown(self) -> Table:
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        return table


class WalkThrough:
    """Plays the steps; `reports` gathers their tables."""

    def __init__(self, pair: LeafPair) -> None:
        self.pair = pair
        self.reports: list[Report] = []

    async def play(self) -> list[Report]:
        async with Clients(self.pair.hub, self.pair.leaf) as (hub, leaf):
            await linked(hub, leaf)
            await self._domains(hub)
            await self._check_sourcing(hub)
            await self._mirror_of_another_account()
            await self._client_of_another_account(hub)
        return self.reports

    async def _domains(self, hub: Client) -> None:
        """Streams of one name in two domains, made and filled through a client of the hub."""
        for domain in ("hub", "leaf"):
            await _create(hub, f"$JS.{domain}.API", {"name": "test", "subjects": ["test"]})
        await hub.publish("test", b"hello world")
        for domain in ("leaf", "hub"):
            await _until(lambda domain=domain: _messages(hub, f"$JS.{domain}.API", "test", 1))
            await self._streams(f"Stream Report, domain {domain}", hub, f"$JS.{domain}.API")

    async def _check_sourcing(self, hub: Client) -> None:
        origin = {"name": "test", "external": {"api": "$JS.leaf.API", "deliver": ""}}
        await _create(hub, "$JS.hub.API", {"name": "backup-test-leaf", "mirror": origin})
        await _create(hub, "$JS.hub.API", {"name": "aggregate-test-leaf", "sources": [origin]})
        for name in ("backup-test-leaf", "aggregate-test-leaf"):
            await _until(lambda name=name: _messages(hub, "$JS.hub.API", name, 1))
        await self._streams("Stream Report, domain hub, with copies", hub, "$JS.hub.API")
        await self._replication("Replication Report, domain hub", hub, "$JS.hub.API")

    async def _mirror_of_another_account(self) -> None:
        async with Clients(self.pair.hub, user="import_mirror") as (importer,):
            name = "aggregate-test-leaf-from-acc"
            deliver = f"deliver.acc.hub.import_mirror.hub.{name}"
            external = {"api": "JS.acc@hub.API", "deliver": deliver}
            mirror = {"name": "aggregate-test-leaf", "external": external}
            await _create(importer, "$JS.hub.API", {"name": name, "mirror": mirror})
            await _until(lambda: _messages(importer, "$JS.hub.API", name, 1))
            await self._streams("Stream Report, account IMPORT_MIRROR", importer, "$JS.hub.API")
            await self._replication("Replication Report, account IMPORT_MIRROR", importer, "$JS.hub.API")

    async def _client_of_another_account(self, hub: Client) -> None:
        config = {"durable_name": "dur", "ack_policy": "explicit", "deliver_policy": "all", "max_deliver": -1}
        body = {"stream_name": "aggregate-test-leaf", "config": config}
        await _ask(hub, "$JS.hub.API.CONSUMER.DURABLE.CREATE.aggregate-test-leaf.dur", body)
        await self._consumers("Consumer report, before", hub)
        got = Report("Received at the leaf", ("Subject", "Data", "Source", "Consumer Sequence", "Stream Sequence"))
        self.reports.append(got)
        async with Clients(self.pair.leaf, user="import_client") as (client,):
            bound = await client.jetstream(prefix="JS.acc@hub.API").pull_subscribe_bind("dur", "aggregate-test-leaf")
            await self._receive(bound, got)
            await _until(lambda: _settled(hub))
            await self._consumers("Consumer report, after the acknowledgement", hub)
            await hub.publish("test", b"hello world 2")
            await self._receive(bound, got)

    async def _receive(self, bound: Any, got: Report) -> None:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while True:
            try:
                (message,) = await bound.fetch(1, timeout=2)
                break
            except nats.errors.TimeoutError:
                assert asyncio.get_running_loop().time() < deadline, "nothing to fetch across accounts and domains"
        await message.ack()
        at = message.metadata.sequence
        source = (message.headers or {}).get("Nats-Stream-Source", "")
        got.rows.append((message.subject, message.data.decode(), source, str(at.consumer), str(at.stream)))

    # -- tables --------------------------------------------------------------------------------------------------------

    async def _streams(self, title: str, client: Client, api: str) -> None:
        columns = ("Stream", "Storage", "Consumers", "Messages", "Bytes", "Lost", "Deleted")
        report = Report(title, columns)
        for info in await _stream_infos(client, api):
            state, config = info["state"], info["config"]
            lost = state.get("lost") or {}
            row = [config["name"], config["storage"].title(), state["consumer_count"], state["messages"]]
            row += [f"{state['bytes']} B", len(lost.get("msgs") or []), state.get("num_deleted", 0)]
            report.rows.append(tuple(map(str, row)))
        self.reports.append(report)

    async def _replication(self, title: str, client: Client, api: str) -> None:
        columns = ("Stream", "Kind", "API Prefix", "Source Stream", "Active", "Lag", "Error")
        report = Report(title, columns)
        # The lag stands at 0 once the copy has heard that nothing is left.
        await _until(lambda: _caught_up(client, api))
        for info in await _stream_infos(client, api):
            copies = [("Mirror", info["mirror"])] if info.get("mirror") else []
            copies += [("Source", source) for source in info.get("sources") or []]
            for kind, copy in copies:
                prefix = copy["external"]["api"]
                active = f"{copy['active'] / 1e9:.2f}s" if copy["active"] >= 0 else "never"
                error = (copy.get("error") or {}).get("description", "")
                row = (info["config"]["name"], kind, prefix, copy["name"], active, str(copy["lag"]), error)
                report.rows.append(row)
        self.reports.append(report)

    async def _consumers(self, title: str, client: Client) -> None:
        columns = (
            "Consumer",
            "Mode",
            "Ack Policy",
            "Ack Wait",
            "Ack Pending",
            "Redelivered",
            "Unprocessed",
            "Ack Floor",
        )
        report = Report(title, columns)
        for info in (await _ask(client, "$JS.hub.API.CONSUMER.LIST.aggregate-test-leaf"))["consumers"]:
            config = info["config"]
            mode = "Push" if config.get("deliver_subject") else "Pull"
            row = [info["name"], mode, config["ack_policy"].title(), f"{config['ack_wait'] / 1e9:.2f}s"]
            row += [
                info["num_ack_pending"],
                info["num_redelivered"],
                info["num_pending"],
                info["ack_floor"]["stream_seq"],
            ]
            report.rows.append(tuple(map(str, row)))
        self.reports.append(report)


async def _ask(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await client.request(subject, payload, timeout=10)).data)
    assert "error" not in answer, f"{subject}: {answer['error']}"
    return answer


async def _create(client: Client, api: str, config: dict[str, object]) -> None:
    config = {"storage": "file", "retention": "limits", "num_replicas": 1, **config}
    await _ask(client, f"{api}.STREAM.CREATE.{config['name']}", config)


async def _stream_infos(client: Client, api: str) -> list[dict[str, Any]]:
    return sorted((await _ask(client, f"{api}.STREAM.LIST"))["streams"], key=lambda info: str(info["config"]["name"]))


async def _messages(client: Client, api: str, stream: str, count: int) -> bool:
    return bool((await _ask(client, f"{api}.STREAM.INFO.{stream}"))["state"]["messages"] == count)


async def _caught_up(client: Client, api: str) -> bool:
    copies = []
    for info in await _stream_infos(client, api):
        copies += [info["mirror"]] if info.get("mirror") else info.get("sources") or []
    return all(copy["active"] >= 0 and copy["lag"] == 0 for copy in copies)


async def _settled(client: Client) -> bool:
    info = await _ask(client, "$JS.hub.API.CONSUMER.INFO.aggregate-test-leaf.dur")
    return bool(info["num_ack_pending"] == 0 and info["ack_floor"]["stream_seq"] == 1)


async def _until(holds: Callable[[], Any]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen"
        await asyncio.sleep(0.05)


def walk(hub: str, leaf: str, folder: Path) -> list[Report]:
    """Plays it against a new pair; returns its tables."""
    with LeafPair(hub, leaf, folder, accounts=ACCOUNTS) as pair:
        return asyncio.run(WalkThrough(pair).play())


def main() -> int:
    console = Console(highlight=False)
    pairs = [(sys.argv[1], sys.argv[2])] if len(sys.argv) == 3 else PAIRS
    reference: list[object] | None = None
    same = True
    for hub, leaf in reversed(pairs):
        with tempfile.TemporaryDirectory(prefix="eyot-walk-") as folder:
            reports = walk(hub, leaf, Path(folder))
        console.rule(f"hub {hub}, leaf {leaf}")
        for report in reports:
            console.print(report.shown())
        told: list[object] = [report.comparable() for report in reports]
        reference = reference or told
        same = same and told == reference
        console.print("[green]the same tables[/]" if told == reference else "[red]other tables than the first pair[/]")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
