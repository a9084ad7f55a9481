"""Requests of the system account, of eyotd and of a real nats-server 2.14: every member read as Go's types do.

Go callers (the `nats` tool, nats-top) marshal their option structs whole, so that every member arrives, numbers as numbers. Each
service is asked with each member and each kind of JSON value; the refusals have to be the same to the letter, the answers of the
same form.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
server_name: one
server_tags: ["site:a"]
accounts {
  ACC: { users: [ { user: acc, password: acc } ], jetstream: enabled }
  EMPTY: { users: [ { user: empty, password: empty } ] }
  SYS: { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
jetstream { store_dir: "%WORKDIR%/js", max_mem: 10MB, max_file: 100MB }
"""
FILTER = ("server_name", "cluster", "host", "exact_match", "tags", "domain")
SUBSCRIPTIONS = ("subscriptions", "subscriptions_detail")
#: nats-server's option structs (server/monitor.go), the filters of `EventFilterOptions` left out.
MEMBERS: dict[str, tuple[str, ...]] = {
    "STATSZ": (),
    "VARZ": (),
    "SUBSZ": ("offset", "limit", "subscriptions", "account", "test"),
    "CONNZ": (
        *("sort", "auth", *SUBSCRIPTIONS, "offset", "limit", "cid", "mqtt_client", "state"),
        *("user", "acc", "filter_subject"),
    ),
    "ROUTEZ": SUBSCRIPTIONS,
    "GATEWAYZ": ("name", "accounts", "account_name", *SUBSCRIPTIONS),
    "LEAFZ": ("subscriptions", "account"),
    "ACCOUNTZ": ("account",),
    "JSZ": (
        *("account", "accounts", "streams", "consumer", "direct_consumer", "config", "leader_only", "offset", "limit"),
        *("raft", "stream_leader_only"),
    ),
    "HEALTHZ": (
        *("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only", "account", "stream", "consumer"),
        "details",
    ),
    "EXPVARZ": (),
    "IPQUEUESZ": ("all", "filter"),
    "RAFTZ": ("account", "group"),
    "PROFILEZ": ("name", "debug", "duration"),
}
ACCOUNT_MEMBERS = {
    **{name: MEMBERS[name] for name in ("SUBSZ", "CONNZ", "LEAFZ", "JSZ")},
    "INFO": (),
    "STATZ": ("accounts", "include_unused"),
}
VALUES = (
    *("0", "1", "2", "3", "-1", "1.5", "1e2", "18446744073709551616", '""', '"1"', '"true"', '"x"', '"ACC"', '"S"'),
    *("true", "false", "null", "[]", '["x"]', '["site:a"]', "[1]", "{}"),
)
WHOLE = ("", " ", "null", "{}", "{", "[]", '"x"', "7", '{"x":1}', "{} {}", '{"CID":99}', '{"tags":["SITE:A"]}')
#: Names of what the members of an answer hold of one thing each; how many there are is compared.
LISTS = ("connections", "subscriptions_list", "account_statz", "leafs", "stream_detail", "account_details")


def requests() -> list[tuple[str, str]]:
    """All subjects and bodies."""
    asked = []
    for start, services in (
        ("$SYS.REQ.SERVER.PING", MEMBERS),
        ("$SYS.REQ.ACCOUNT.ACC", ACCOUNT_MEMBERS),
        ("$SYS.REQ.ACCOUNT.EMPTY", ACCOUNT_MEMBERS),
        ("$SYS.REQ.ACCOUNT.none", ACCOUNT_MEMBERS),
        ("$SYS.REQ.ACCOUNT.PING", {name: ACCOUNT_MEMBERS[name] for name in ("CONNZ", "STATZ")}),
    ):
        for service, members in services.items():
            subject = f"{start}.{service}"
            asked += [(subject, body) for body in WHOLE]
            for member in (*members, *FILTER):
                # The first numbers are taken by other connections on the one and on the other.
                values = (
                    (*VALUES, "99")
                    if member != "cid"
                    else ("99", *(value for value in VALUES if value not in ("1", "2", "3")))
                )
                asked += [(subject, f'{{"{member}":{value}}}') for value in values]
    asked += [("$SYS.REQ.SERVER.PING", body) for body in WHOLE]
    asked += [("$SYS.REQ.SERVER.PING.HEALTHZ", body) for body in healths()]
    asked += [("$SYS.REQ.ACCOUNT.ACC.CONNS", body) for body in ("", '{"acc":"ACC"}', '{"acc":"x"}', '{"acc":1}', "x")]
    asked += [("$SYS.REQ.ACCOUNT.EMPTY.CONNS", ""), ("$SYS.REQ.ACCOUNT.none.CONNS", "")]
    asked += [("$SYS.REQ.SERVER.PING.IDZ", body) for body in ("", "7", '{"server_name":"other"}')]
    return asked


def healths() -> list[str]:
    """Questions about health that name several things."""
    named = [
        {"account": account, "stream": stream, "consumer": consumer, "details": details}
        for account in ("ACC", "none")
        for stream in ("S", "none")
        for consumer in ("", "C", "none")
        for details in (False, True)
    ]
    return [json.dumps(one) for one in named] + ['{"stream":"S","details":true}', '{"consumer":"C","details":true}']


def shape(answer: Any) -> Any:
    """What is compared: refusals whole, of answers how many of each thing there are.

    None and no list at all are the same, and subscriptions of a server's own, and connections of the test's start, are
    many or few.
    """
    if not isinstance(answer, dict):
        return answer
    answer.pop("server", None)
    if "error" in answer:
        return answer
    data = answer.get("data")
    if isinstance(data, dict) and "status" in data:
        return data
    if isinstance(data, dict):
        lists = {name: len(data[name]) for name in LISTS if data.get(name) and isinstance(data[name], list)}
        lists |= {name: 1 for name in ("subscriptions_list", "connections") if name in lists}
        paging = {name: data[name] for name in ("offset", "limit") if name in data}
        return {"lists": lists, "paging": paging}
    return sorted(answer)


async def converse(port: int) -> list[Any]:
    """The shapes of all answers in their order; None where nothing came."""
    acc = await nats.connect(f"nats://127.0.0.1:{port}", user="acc", password="acc", name="a client")
    jetstream = acc.jetstream()
    await jetstream.add_stream(StreamConfig(name="S", subjects=["s"]))
    await jetstream.pull_subscribe("s", durable="C", stream="S")
    system = await nats.connect(f"nats://127.0.0.1:{port}", user="sys", password="sys")
    asked, got, end = requests(), {}, asyncio.Event()

    async def take(message: Msg) -> None:
        number = int(message.subject.rpartition(".")[2])
        got[number] = shape(json.loads(message.data))
        if number == len(asked):
            end.set()

    await system.subscribe("box.*", cb=take)
    for number, (subject, body) in enumerate(asked):
        await system.publish(subject, body.encode(), reply=f"box.{number}")
        if number % 200 == 0:
            await system.flush()
    await system.publish("$SYS.REQ.SERVER.PING.IDZ", b"", reply=f"box.{len(asked)}")
    await asyncio.wait_for(end.wait(), 120)
    # Profiles are taken beside the others, and answered after them.
    late = [number for number, (subject, _) in enumerate(asked) if subject.endswith("PROFILEZ") and number not in got]

    async def ask_again(number: int) -> None:
        try:
            answer = await system.request(asked[number][0], asked[number][1].encode(), timeout=1.0)
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
            return
        got[number] = shape(json.loads(answer.data))

    await asyncio.gather(*map(ask_again, late))
    await system.close()
    await acc.close()
    return [got.get(number) for number in range(len(asked))]


def ask(kind: Callable[[str, Path], ServerProcess], path: Path) -> list[Any]:
    path.mkdir()
    server = kind(CONFIG, path)
    server.start()
    try:
        return asyncio.run(converse(server.client_port))
    finally:
        server.kill()


def test_every_member_of_every_request_is_read_as_go_reads_it(tmp_path: Path) -> None:
    theirs, ours = ask(NewerNatsServer, tmp_path / "theirs"), ask(Eyotd, tmp_path / "ours")
    different = [
        f"{subject} {body}: nats-server {expected}, eyotd {seen}"
        for (subject, body), expected, seen in zip(requests(), theirs, ours, strict=True)
        if expected != seen
    ]
    assert not different, f"{len(different)} of {len(theirs)}:\n" + "\n".join(different)
