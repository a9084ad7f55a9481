"""The same requests to eyotd and to Debian's nats-server 2.9.10, answers compared member by member.

Times are left out, members that 2.9 does not know yet too, and error 10025 is compared without the reason that later
versions add. Where 2.12, whose rules eyotd keeps, answers otherwise than 2.9, the step says so (`now`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from support.clients.silence import next_unless_silent
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer

CONFIG = 'jetstream { store_dir: "%WORKDIR%/js", domain: D }'
SILENCE = "no answer"


@dataclass
class Step:
    """One request. `now`: what eyotd answers where 2.9 answered something else."""

    subject: str
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    now: Any = None


def api(words: str, body: Any = b"", **more: Any) -> Step:
    return Step(f"$JS.API.{words}", body, **more)


def create(**config: Any) -> Step:
    return api(f"STREAM.CREATE.{config['name']}", config)


def pub(subject: str, body: bytes = b"x", now: Any = None, **headers: str) -> Step:
    return Step(subject, body, {f"Nats-{name.replace('_', '-')}": value for name, value in headers.items()}, now)


def refused(code: int, err_code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": err_code, "description": description}, "stream": "S", "seq": 0}


def invalid(description: str) -> dict[str, Any]:
    return {
        "type": "io.nats.jetstream.api.v1.stream_create_response",
        "error": {"code": 500, "err_code": 10052, "description": description},
    }


SCENARIOS: dict[str, list[Step]] = {
    "creating": [
        create(name="S", subjects=["s.>"]),
        create(name="S", subjects=["s.>"]),
        create(name="S", subjects=["t"]),
        create(name="T", subjects=["s.x"]),
        create(name="T", subjects=["t.*", "t.b"]),
        create(name="T", subjects=["t..b"]),
        api(
            "STREAM.CREATE.T",
            {"name": "T", "subjects": ["t", "t"]},
            now=invalid('subject "t" overlaps with "t"'),
        ),
        api(
            "STREAM.CREATE.T",
            {"name": "T", "subjects": ["$JS.API.>"]},
            now=invalid("subjects that overlap with jetstream api require no-ack to be true"),
        ),
        api(
            "STREAM.CREATE.T",
            {"name": "T", "subjects": [">"]},
            now=invalid("capturing all subjects requires no-ack to be true"),
        ),
        create(name="T", max_age=1),
        create(name="T", duplicate_window=10_000_000_000, max_age=1_000_000_000),
        create(name="T", num_replicas=3),
        create(name="T", num_replicas=-1),
        create(name="T", num_replicas=9),
        create(name="T", deny_purge=True, allow_rollup_hdrs=True),
        create(name="T", sealed=True),
        create(name="T", discard_new_per_subject=True, discard="old"),
        create(name="T", mirror={"name": "S"}, subjects=["t"]),
        create(name="T", mirror={"name": "S"}, sources=[{"name": "S"}]),
        create(name="T", sources=[{"name": "S", "external": {"api": "$JS.API", "deliver": ""}}]),
        create(name="T", sources=[{"name": "S", "external": {"api": "$JS.x.API", "deliver": "d.*"}}]),
        create(name="T", republish={"src": ">", "dest": "T"}),
        create(name="T", description="d" * 5000),
        api("STREAM.CREATE.S/x", {"name": "S/x"}),
        api("STREAM.CREATE.S", {"name": "T"}),
        api("STREAM.CREATE.S", b"{bad"),
        api("STREAM.CREATE.S", {"name": "S", "retention": "sometimes"}),
    ],
    "defaults": [
        create(name="A"),
        create(name="B", max_age=60_000_000_000),
        create(name="C", max_bytes=0, storage="memory", retention="interest"),
        create(name="D", mirror={"name": "A"}),
        create(name="E", description="e", no_ack=True, allow_direct=True, max_msgs_per_subject=3),
        create(name="F", republish={"dest": "f.>"}),
        api("STREAM.INFO.A"),
    ],
    "updating": [
        create(name="S", subjects=["s.>"]),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "max_msgs": 10}),
        api("STREAM.UPDATE.S", {"name": "S", "storage": "memory"}),
        api("STREAM.UPDATE.S", {"name": "T"}),
        api("STREAM.UPDATE.T", {"name": "T"}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "deny_delete": True, "deny_purge": True}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "deny_purge": True}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "deny_delete": True}),
        api("STREAM.PURGE.S"),
        api("STREAM.MSG.DELETE.S", {"seq": 1}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "sealed": True}),
        api(
            "STREAM.UPDATE.S",
            {
                "name": "S",
                "subjects": ["s.*"],
                "sealed": True,
                "deny_delete": True,
                "deny_purge": True,
                "max_age": 10**9,
            },
        ),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"]}),
        pub("s.a"),
        api("STREAM.PURGE.S"),
        api("STREAM.MSG.DELETE.S", {"seq": 1}),
    ],
    "publishing": [
        create(name="S", subjects=["s.>"], max_msg_size=100),
        pub("s.a", Msg_Id="one"),
        pub("s.a", Msg_Id="one"),
        pub("s.a", b"x" * 101),
        pub("s.b", Expected_Stream="T"),
        pub("s.b", Expected_Last_Sequence="1"),
        pub("s.b", Expected_Last_Sequence="1"),
        pub("s.b", Expected_Last_Subject_Sequence="2"),
        pub("s.b", Expected_Last_Subject_Sequence="9"),
        pub("s.c", Expected_Last_Subject_Sequence="0"),
        pub("s.c", Expected_Last_Subject_Sequence="0"),
        pub("s.c", Expected_Last_Msg_Id="two"),
        pub("s.c", Rollup="sub"),
        pub("s.c", Rollup="nonsense", now=refused(500, 10111, "rollup not permitted")),
        pub(
            "s.a",
            Msg_Id="one",
            Expected_Last_Sequence="99",
            now=refused(400, 10071, "wrong last sequence: 4"),
        ),
        api("STREAM.INFO.S"),
    ],
    "limits": [
        create(name="S", subjects=["s.>"], max_msgs=2, discard="new"),
        pub("s.a"),
        pub("s.b"),
        pub("s.c"),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 2, "discard": "old"}),
        pub("s.c"),
        api("STREAM.INFO.S", {"subjects_filter": ">"}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_bytes": 40}),
        api("STREAM.INFO.S", {"subjects_filter": ">"}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1}),
        pub("s.c"),
        pub("s.d"),
        api("STREAM.INFO.S", {"subjects_filter": "s.*", "deleted_details": True}),
    ],
    "rolling up": [
        create(name="S", subjects=["s.>"], allow_rollup_hdrs=True),
        pub("s.a"),
        pub("s.b"),
        pub("s.a", Rollup="sub"),
        api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}),
        pub("s.a", Rollup="all"),
        api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}),
    ],
    "removing": [
        create(name="S", subjects=["s.>"]),
        *[pub(f"s.{number % 3}", b"%d" % number) for number in range(12)],
        api("STREAM.MSG.DELETE.S", {"seq": 3}),
        api("STREAM.MSG.DELETE.S", {"seq": 3}),
        api("STREAM.MSG.DELETE.S", {"seq": 99}),
        api("STREAM.MSG.DELETE.S", {"seq": 0}),
        api("STREAM.MSG.DELETE.S"),
        api("STREAM.MSG.DELETE.T", {"seq": 1}),
        api("STREAM.PURGE.S", {"seq": 5}),
        api("STREAM.INFO.S", {"deleted_details": True}),
        api("STREAM.PURGE.S", {"filter": "s.1", "keep": 1}),
        api("STREAM.PURGE.S", {"filter": "s.2", "seq": 8}),
        api("STREAM.PURGE.S", {"filter": "nobody"}),
        api("STREAM.PURGE.S", {"seq": 1, "keep": 1}),
        api("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"}),
        api("STREAM.PURGE.S", {"keep": 2}),
        api("STREAM.PURGE.S"),
        api("STREAM.INFO.S"),
        pub("s.a"),
        api("STREAM.PURGE.S", {"seq": 100}),
        api("STREAM.INFO.S"),
        api("STREAM.PURGE.T"),
    ],
    "reading": [
        create(name="S", subjects=["s.>"], allow_direct=True),
        pub("s.a", b"1", Msg_Id="one"),
        pub("s.b", b"2"),
        pub("s.a", b"3"),
        *[
            api(f"{where}.S", asked)
            for where in ("STREAM.MSG.GET", "DIRECT.GET")
            for asked in (
                {"seq": 1},
                {"seq": 9},
                {"last_by_subj": "s.a"},
                {"last_by_subj": "s.*"},
                {"last_by_subj": "nobody"},
                {"next_by_subj": "s.a"},
                {"next_by_subj": "s.a", "seq": 2},
                {"next_by_subj": "s.*", "seq": 2},
            )
        ],
        api("STREAM.MSG.GET.S"),
        api("STREAM.MSG.GET.S", {}),
        api("STREAM.MSG.GET.S", {"seq": 1, "last_by_subj": "s.a"}),
        api("STREAM.MSG.GET.T", {"seq": 1}),
        api("DIRECT.GET.S"),
        api("DIRECT.GET.S", {}),
        api("DIRECT.GET.S", b"nonsense"),
        api("DIRECT.GET.S.s.a"),
        api("DIRECT.GET.S.nobody"),
        api("DIRECT.GET.T", {"seq": 1}, now={"status": "503"}),
    ],
    "listing": [
        *[create(name=f"S{number}", subjects=[f"s.{number}"]) for number in range(5)],
        api("STREAM.NAMES"),
        api("STREAM.NAMES", {"offset": 3}),
        api("STREAM.NAMES", {"offset": 99}),
        api("STREAM.NAMES", {"subject": "s.2"}),
        api("STREAM.NAMES", {"subject": "s.*"}),
        api("STREAM.NAMES", {"subject": "nobody"}),
        api("STREAM.LIST", {"offset": 4}),
        api("STREAM.LIST", {"subject": "s.1"}),
        api("STREAM.INFO.NOBODY"),
        api("STREAM.INFO.S1", b"{nonsense"),
        api("STREAM.DELETE.S1", b"nonsense"),
        api("STREAM.DELETE.S1", {}),
        api("STREAM.DELETE.S1"),
        api("STREAM.LEADER.STEPDOWN.S2"),
        api("STREAM.TEMPLATE.NAMES", now=SILENCE),
        api("STREAM.TEMPLATE.INFO.X", now=SILENCE),
        api("NONSENSE"),
        api("STREAM.NONSENSE.S2"),
    ],
    "in the domain": [
        Step("$JS.D.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}),
        pub("s"),
        Step("$JS.D.API.STREAM.INFO.S"),
        Step("$JS.D.API.STREAM.MSG.GET.S", {"seq": 1}),
        Step("$JS.X.API.STREAM.INFO.S"),
    ],
}

#: Members that 2.9 does not have, and those that tell times.
_LATER = {"metadata", "compression", "consumer_limits", "allow_msg_ttl", "ts", "cluster"}
_TIMES = {"created", "time", "first_ts", "last_ts"}


def comparable(answer: Any) -> Any:
    """`answer` without what cannot be the same."""
    if isinstance(answer, dict):
        if answer.get("err_code") == 10025:
            return {"err_code": 10025}
        return {
            key: comparable(value)
            for key, value in answer.items()
            if key not in _LATER | _TIMES and not (key in ("mirror", "sources") and "config" in answer)
        }
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    return answer


async def ask(client: Client, step: Step) -> Any:
    body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
    inbox = await client.subscribe("answers.*")
    try:
        await client.publish(step.subject, body, reply="answers.1", headers=step.headers or None)
        try:
            message = await next_unless_silent(client, inbox, 0.5)
        except nats.errors.TimeoutError:
            return SILENCE
    finally:
        await inbox.unsubscribe()
    headers = dict(message.headers or {})
    if "Status" in headers:
        description = next((value for key, value in headers.items() if "escription" in str(key)), None)
        return {"status": headers["Status"]} | ({"description": description} if description else {})
    if step.subject.startswith("$JS.API.DIRECT"):
        headers.pop("Nats-Time-Stamp", None)
        return {"headers": headers, "data": message.data.decode()}
    return comparable(json.loads(message.data))


async def play(server: Eyotd | NatsServer, steps: list[Step]) -> list[Any]:
    client = await nats.connect(server.client_url(), allow_reconnect=False)
    try:
        answers = [await ask(client, step) for step in steps]
        names = await ask(client, api("STREAM.NAMES"))
        for name in names["streams"] or []:
            await ask(client, api(f"STREAM.DELETE.{name}"))
        return answers
    finally:
        await client.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Eyotd, NatsServer]]:
    with (
        Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as eyotd,
        NatsServer(CONFIG, tmp_path_factory.mktemp("nats")) as reference,
    ):
        reference.hold_directories()
        yield eyotd, reference


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_answers(servers: tuple[Eyotd, NatsServer], name: str) -> None:
    eyotd, reference = servers
    steps = SCENARIOS[name]
    ours = asyncio.run(play(eyotd, steps))
    theirs = asyncio.run(play(reference, steps))
    differences = [
        f"{step.subject} {step.body!r} {step.headers}\n  eyotd:       {mine}\n  nats-server: {their}"
        for step, mine, their in zip(steps, ours, theirs, strict=True)
        if mine != (step.now if step.now is not None else their)
    ]
    assert not differences, "\n".join(differences)
