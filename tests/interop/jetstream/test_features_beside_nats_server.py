"""What 2.12 and 2.14 brought, the same requests to eyotd and to a real nats-server 2.14: every answer and every stored
message compared. Times and ids are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from support.jetstream.steps import (
    FAR,
    FLOW,
    Ask,
    Fast,
    Look,
    Pull,
    Push,
    Say,
    Step,
    Wait,
    bat,
    consumer,
    create,
    fast,
    info,
    plan,
    played,
    pub,
    reset,
)
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import NewerNatsServer

CONFIG = 'jetstream { store_dir: "%WORKDIR%/js" }'
#: Everybody who connects is a user of an account that reaches the streams of another one through imports.
IMPORTED_CONFIG = """
jetstream { store_dir: "%WORKDIR%/js" }
accounts {
    OWNER: {
        jetstream: enabled
        exports: [{service: "s.>", response_type: stream}, {service: "d.>"}, {service: "$JS.API.>"}]
    }
    ASKER: {
        users: [{user: asker, password: asker}]
        imports: [
            {service: {account: OWNER, subject: "s.>"}}
            {service: {account: OWNER, subject: "d.>"}}
            {service: {account: OWNER, subject: "$JS.API.>"}}
        ]
    }
}
no_auth_user: asker
"""


SCENARIOS: dict[str, list[Step]] = {
    "an atomic batch": [
        create("S", allow_atomic=True),
        bat("x", 1, b"1"),
        bat("x", 2, b"2", "s.b"),
        bat("x", 3, b"3", "s.c", Batch_Commit=1),
        bat("y", 1, b"alone", Batch_Commit=1),
        bat("e", 1, b"e1"),
        bat("e", 2, b"e2", Batch_Commit="eob"),
        pub("s.a", b"", Batch_Commit=1),
        pub("s.a", b"", Batch_Sequence=1),
        bat("", 1),
        pub("s.a", b"n1", silent=True, Batch_Id="quiet", Batch_Sequence=1),
        bat("quiet", 2, b"n2", Batch_Commit=1),
        Look("S"),
    ],
    "atomic batches that are refused": [
        create("D"),
        bat("x", 1, subject="d.a"),
        create("S", allow_atomic=True, allow_rollup_hdrs=True),
        bat("unknown", 5),
        pub("s.a", b"", Batch_Id="q"),
        bat("q", "abc"),
        bat("q", 0),
        bat("q" * 65, 1),
        bat("gap", 1),
        bat("gap", 3),
        bat("gap", 2),
        bat("twice", 1),
        bat("twice", 1),
        bat("twice", 2, Batch_Commit=1),
        bat("commit", 1),
        bat("commit", 2, Batch_Commit=2),
        bat("commit", 2, Batch_Commit=1),
        bat("eob", 1, Batch_Commit="eob"),
        bat("lastid", 1, Expected_Last_Msg_Id="a"),
        bat("lastid", 2, Batch_Commit=1),
        bat("lastseq", 1),
        bat("lastseq", 2, Expected_Last_Sequence=7, Batch_Commit=1),
        bat("lastseq2", 1),
        bat("lastseq2", 2, Expected_Last_Sequence=1, Batch_Commit=1),
        bat("id", 1, Msg_Id="i"),
        bat("id", 2, Msg_Id="i", Batch_Commit=1),
        pub("s.z", b"", Msg_Id="j"),
        bat("id2", 1, Msg_Id="j", Batch_Commit=1),
        bat("subject", 1, subject="s.es", Expected_Last_Subject_Sequence=0),
        bat("subject", 2, subject="s.es", Expected_Last_Subject_Sequence=0, Batch_Commit=1),
        bat("subject2", 1, subject="s.es"),
        bat("subject2", 2, subject="s.es", Expected_Last_Subject_Sequence=0, Batch_Commit=1),
        bat("rollup", 1),
        bat("rollup", 2, Rollup="sub", Batch_Commit=1),
        bat("rollup2", 1),
        bat("rollup2", 2, Rollup="all", Batch_Commit=1),
        bat("stream", 1, Expected_Stream="X", Batch_Commit=1),
        bat("ttl", 1, TTL="9s", Batch_Commit=1),
        bat("level", 1, Required_Api_Level=99),
        bat("ttl2", 1, TTL="x", Batch_Commit=1),
        bat("nobody", 1, Expected_Last_Msg_Id="", Batch_Commit=1),
        Look("S"),
    ],
    "a message is asked for with what direct gets know": [
        create("S", allow_direct=True),
        pub("s.a"),
        *[Ask("STREAM.MSG.GET.S", {"seq": 1} | more) for more in (
            {"batch": -1}, {"batch": 1}, {"max_bytes": -1}, {"max_bytes": 1}, {"multi_last": ["s.a"]}, {"up_to_seq": 1}, {"up_to_time": FAR[4:]},
        )],
    ],
    "atomic batches and their bounds": [
        create("S", allow_atomic=True),
        *[bat("big", seq) if seq > 999 else pub("s.a", silent=True, Batch_Id="big", Batch_Sequence=seq)
          for seq in range(1, 1002)],
        bat("big", 1002, Batch_Commit=1),
        *[bat(f"b{number}", 1) for number in range(52)],
        Ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]}),
        bat("b1", 2, Batch_Commit=1),
        create("T", allow_atomic=True, discard="new", max_msgs=1),
        bat("x", 1, subject="t.a"),
        bat("x", 2, subject="t.a", Batch_Commit=1),
        Look("T"),
    ],
    "counters": [
        create("C", allow_msg_counter=True),
        *[pub("c.a", Incr=value) for value in ("+1", "5", "-3", "0", "+0", "1.5", "abc", "", "9" * 40, "+-1", "2")],
        pub("c.a", b"x", Incr="1"),
        pub("c.a"),
        pub("c.a", b"x"),
        pub("c.a", Incr="1", Rollup="sub"),
        pub("c.a", Incr="1", Expected_Last_Sequence="4"),
        pub("c.a", Incr="1", Expected_Last_Subject_Sequence="4"),
        pub("c.a", Incr="1", Expected_Last_Msg_Id="4"),
        pub("c.a", Incr="1", Expected_Stream="C"),
        pub("c.a", Incr="1", Msg_Id="i"),
        pub("c.a", Incr="1", Msg_Id="i"),
        pub("c.b", Incr="1", Counter_Sources='{"X":{"y":"3"}}'),
        create("S"),
        pub("s.z", Incr="1"),
        create("D", allow_msg_counter=True, discard="new"),
        create("D", allow_msg_counter=True, retention="interest"),
        create("D", allow_msg_counter=True, allow_msg_ttl=True),
        create("D", allow_msg_counter=True, allow_msg_schedules=True),
        create("D", allow_msg_counter=True, mirror={"name": "S"}),
        Ask("STREAM.UPDATE.C", {"name": "C", "subjects": ["c.>"]}),
        create("B", allow_msg_counter=True, allow_atomic=True),
        bat("x", 1, subject="b.a", Incr=1),
        bat("x", 2, subject="b.a", Incr=2, Batch_Commit=1),
        bat("y", 1, subject="b.a", Incr=1),
        bat("y", 2, subject="b.a", Batch_Commit=1),
        Look("C"),
        Look("B"),
    ],
    "counters from several origins": [
        create("A", allow_msg_counter=True),
        create("B", allow_msg_counter=True),
        pub("a.x", Incr="5"),
        create(
            "SUM",
            allow_msg_counter=True,
            sources=[
                {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "sum.>"}]},
                {"name": "B", "subject_transforms": [{"src": "b.>", "dest": "sum.>"}]},
            ],
        ),
        Wait("SUM", last=1),
        pub("b.x", Incr="10"),
        Wait("SUM", last=2),
        pub("sum.x", Incr="100"),
        pub("a.x", Incr="-7"),
        Wait("SUM", last=4),
        pub("b.y", Incr="1"),
        Wait("SUM", last=5),
        *[pub("sum.x", Incr="1", Counter_Sources=said) for said in ('{"A":{"a.x":"100"}}', "junk", "{}")],
        pub("a.x", Incr="2"),
        Wait("SUM", last=9),
        *[pub("sum.z", Incr="1", Counter_Sources=said) for said in (' {"B":{},"A":{"a.z":"5"}}', "junk")],
        *[pub("sum.w", Incr="1", Counter_Sources=said) for said in ("junk", "{}")],
        Look("SUM"),
    ],
    "schedules": [
        create("S", allow_msg_schedules=True, allow_msg_ttl=True),
        plan(FAR, None),
        plan(FAR, "s.plan"),
        plan(FAR, "s.*"),
        plan(FAR, "x.y"),
        *[plan(pattern) for pattern in (
            "@foo", "", "@at nope", "@at 2036-01-01T00:00:00.5Z", "@at 2036-01-01T00:00:00+02:00", "@every", "@every 500ms",
            "@every 1h", "0 0 5 * * *", "0 5 * * *", "0 0 5 * * * 2027", "0 0 5 * jan-mar mon,WED", "0 0 5 * * 7", "*/5 * * * * ?",
            "0 0 0 30 2 *", "0 0 0 31 4,6,9,11 ?", "0 0 0 29 2 *", "@daily", "@hourly", "@reboot", "@midnight", "@yearly",
        )],
        *[plan("@daily", Schedule_Time_Zone=zone) for zone in ("Europe/Prague", "X/Y", "", "UTC")],
        plan("@every 1h", Schedule_Time_Zone="UTC"),
        plan(FAR, Schedule_Time_Zone="UTC"),
        *[plan(FAR, Schedule_TTL=ttl) for ttl in ("x", "1h", "never", "500ms")],
        *[plan(FAR, Rollup=rollup) for rollup in ("all", "sub")],
        *[plan(FAR, Schedule_Rollup=rollup) for rollup in ("all", "x", "sub")],
        *[plan(FAR, Schedule_Source=source) for source in ("s.src", "s.*", "s.plan", "s.t", "x.t")],
        plan(FAR, Scheduler="s.q"),
        plan(FAR, Expected_Last_Subject_Sequence="999"),
        plan(FAR, Msg_Id="i"),
        plan(FAR, Msg_Id="i"),
        pub("s.x", Scheduler="s.plan", Schedule_Next="2036-01-01T00:00:00Z"),
        pub("s.x", Scheduler="s.*", Schedule_Next="purge"),
        pub("s.x", Scheduler="s.x", Schedule_Next="purge"),
        pub("s.x", Schedule_Next="purge"),
        pub("s.x", Scheduler="s.plan"),
        Look("S"),
        pub("s.x", Scheduler="s.plan", Schedule_Next="purge"),
        pub("s.x", Schedule_Target="s.t"),
        Look("S"),
        create("N"),
        plan(FAR, "n.t", "n.plan"),
        pub("n.x", Scheduler="n.plan", Schedule_Next="purge"),
        create("T", allow_msg_schedules=True),
        plan(FAR, "t.t", "t.plan", Schedule_TTL="1h"),
        create("E", allow_msg_schedules=True, discard="new"),
        create("E", allow_msg_schedules=True, mirror={"name": "S"}),
        create("E", allow_msg_schedules=True, sources=[{"name": "S"}]),
        create("E", allow_msg_schedules=True, deny_purge=True, pedantic=True),
        create("E", allow_msg_schedules=True, deny_purge=True),
    ],
    "fast batches": [
        create("D"),
        Fast("fast.x.10.fail.1.0.$FI", b"x", {}, "d.a"),
        create("S", allow_batched=True),
        fast("b1", 3, "fail", 1, 0),
        *[fast("b1", 3, "fail", seq, 1) for seq in range(2, 8)],
        fast("b1", 3, "fail", 7, 4, b"question"),
        fast("b1", 3, "fail", 9, 1, b"gap"),
        fast("b1", 3, "fail", 8, 1),
        fast("b2", 2, "ok", 1, 0),
        fast("b2", 2, "ok", 3, 1, b"gap"),
        fast("b2", 2, "ok", 4, 1),
        fast("b2", 2, "ok", 5, 2, b"commit"),
        fast("b2", 2, "ok", 6, 1, b"after"),
        fast("b3", 2, "ok", 1, 0),
        fast("b3", 2, "ok", 2, 3, b"not stored"),
        fast("b4", 2, "ok", 1, 2, b"alone"),
        fast("b4", 2, "ok", 1, 3),
        fast("b5", 4, "ok", 1, 0),
        fast("b5", 4, "ok", 2, 1, Expected_Stream="X"),
        fast("b5", 4, "ok", 3, 2),
        fast("b6", 4, "fail", 1, 0),
        fast("b6", 4, "fail", 2, 1, Expected_Stream="X"),
        fast("b6", 4, "fail", 3, 2),
        fast("b7", 4, "ok", 1, 0),
        fast("b7", 4, "ok", 2, 2, Expected_Stream="X"),
        fast("b8", 4, "fail", 1, 0, Expected_Stream="X"),
        fast("b9", 4, "ok", 1, 2, Expected_Stream="X"),
        fast("c1", 4, "ok", 1, 0, Required_Api_Level=99),
        fast("c2", 4, "ok", 1, 0),
        fast("c2", 4, "ok", 2, 1),
        fast("c2", 4, "ok", 1, 0, b"again"),
        fast("c2", 4, "ok", 3, 1),
        fast("c3", 4, "fail", 1, 0),
        fast("c3", 4, "fail", 5, 3),
        fast("c4", 9, "ok", 1, 0),
        fast("c4", 9, "ok", 5, 3),
        fast("c5", 4, "ok", 1, 0, Msg_Id="m"),
        fast("c5", 4, "ok", 2, 1, Msg_Id="m"),
        fast("c5", 4, "ok", 3, 2, Msg_Id="m"),
        *[Fast(f"fast.{rest}.$FI") for rest in (
            "d1.2.ok.5.1", "d1.2.bad.1.0", "d1.2.ok.1.9", "d1.2.ok.0.0", "d1.2.ok.2.0", "d1.2.ok.9.4", "d1.2.ok.x.0",
            "q" * 65 + ".2.ok.1.0",
        )],
        Look("S"),
        create("E", mirror={"name": "S"}, allow_batched=True),
    ],
    "consumers that begin anew": [
        create("S"),
        *[pub("s.a", b"%d" % number) for number in range(10)],
        consumer("C", ack_policy="explicit", deliver_policy="by_start_sequence", opt_start_seq=3),
        Pull("C", 4),
        reset("C"),
        Pull("C", 2),
        reset("C", {}),
        Pull("C", 2, b"+ACK"),
        reset("C"),
        Pull("C", 2),
        reset("C", {"seq": 8}),
        info("C"),
        Pull("C", 9, b"+ACK"),
        info("C"),
        reset("C", {"seq": 2}),
        reset("C", {"seq": 0, "unknown": 1}),
        reset("C", {"seq": 100}),
        reset("C", {"seq": 5}),
        Pull("C", 1),
        consumer("NEW", deliver_policy="new"),
        reset("NEW", {"seq": 4}),
        reset("NEW"),
        consumer("LAST", deliver_policy="last", ack_policy="explicit"),
        reset("LAST", {"seq": 4}),
        reset("LAST"),
        Pull("LAST", 3),
        consumer("TIME", deliver_policy="by_start_time", opt_start_time="2020-01-01T00:00:00Z", ack_policy="all"),
        reset("TIME", {"seq": 4}),
        Pull("TIME", 2),
        consumer("EACH", deliver_policy="last_per_subject", filter_subject="s.*", ack_policy="explicit"),
        reset("EACH", {"seq": 4}),
        Pull("EACH", 2),
        reset("EACH"),
        Pull("EACH", 2),
        consumer("PUSH", deliver_subject="pushed", ack_policy="explicit"),
        reset("PUSH", {"seq": 9}),
        Push("pushed"),
    ],
    "flow control that acknowledges": [
        create("S"),
        *[pub("s.a", b"%d" % number) for number in range(10)],
        *[consumer("F", **{**FLOW, **more}) for more in (
            {"deliver_subject": ""}, {"max_ack_pending": -1}, {"ack_wait": 5_000_000_000}, {"max_deliver": 5},
            {"backoff": [1_000_000_000]},
        )],
        *[Ask("CONSUMER.CREATE.S.P", {"stream_name": "S", "pedantic": True,
                                      "config": {"name": "P", "durable_name": "P", **FLOW, **more}}) for more in (
            {}, {"flow_control": True}, {"flow_control": True, "idle_heartbeat": 2_000_000_000},
        )],
        consumer("F", **FLOW),
        Push("flow", settled=4),
        info("F"),
        Push("flow", settled=10),
        info("F"),
        consumer("F", **{**FLOW, "sourcing": True}),
        consumer("F2", ack_policy="explicit", sourcing=True),
        consumer("F2", ack_policy="explicit"),
        Ask("CONSUMER.NAMES.S"),
        Ask("STREAM.CREATE.W", {"name": "W", "subjects": ["w"], "retention": "workqueue"}),
        Ask("CONSUMER.CREATE.W.F", {"stream_name": "W", "config": {"name": "F", "durable_name": "F", **FLOW}}),
        reset("F", {"seq": 3}),
        Push("flow", settled=8, delivery=6),
        info("F"),
    ],
    "copying through a consumer that stands ready": [
        create("S"),
        *[pub("s.a", b"%d" % number) for number in range(5)],
        *[Ask("STREAM.CREATE.M", {"name": "M", "sources": [{"name": "S", **more}]}) for more in (
            {"consumer": {"name": "F"}}, {"consumer": {"deliver_subject": "flow"}}, {"consumer": {}},
            {"consumer": {"name": "F", "deliver_subject": "flow.*"}}, {"consumer": {"name": "a.b", "deliver_subject": "flow"}},
            {"consumer": {"name": "F", "deliver_subject": "flow"}, "filter_subject": "s.a"},
            {"consumer": {"name": "F", "deliver_subject": "flow"}, "opt_start_seq": 3},
        )],
        Ask("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S", "consumer": {"name": "F"}}}),
        consumer("F", **FLOW),
        Ask("STREAM.CREATE.M", {"name": "M", "sources": [
            {"name": "S", "consumer": {"name": "F", "deliver_subject": "flow"}}]}),
        Wait("M", last=5),
        pub("s.a", b"later"),
        Wait("M", last=6),
        Look("M"),
        create("N"),
        consumer("X", ack_policy="explicit"),
    ],
    "what schedules make": [
        create("S", allow_msg_schedules=True, allow_msg_ttl=True),
        Say("s.src", b"SRC", {"Foo": "bar", "Nats-Msg-Id": "q"}),
        Say("s.p1", b"one", {"X": "y", "Nats-Msg-Id": "z", "Nats-Schedule": "@at 2020-01-01T00:00:00Z",
                             "Nats-Schedule-Target": "s.t1", "Nats-Schedule-TTL": "1h", "Nats-TTL": "1h"}),
        Wait("S", last=3),
        plan("@at 2020-01-01T00:00:00Z", "s.t2", "s.p2", Schedule_Source="s.src", Schedule_Rollup="sub"),
        Wait("S", last=5),
        plan("@at 2020-01-01T00:00:00Z", "s.t3", "s.p3", Schedule_Source="s.none"),
        Wait("S", last=7),
        Look("S"),
        plan("@every 1s", "s.t4", "s.p4", Schedule_Rollup="sub"),
        Wait("S", last=10),
        pub("s.p4", b"enough"),
        Look("S"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Eyotd, NatsServer]]:
    with (
        Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as eyotd,
        NewerNatsServer(CONFIG, tmp_path_factory.mktemp("nats")) as reference,
    ):
        reference.hold_directories()
        yield eyotd, reference


@pytest.fixture(scope="module")
def importing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Eyotd, NatsServer]]:
    with (
        Eyotd(IMPORTED_CONFIG, tmp_path_factory.mktemp("eyotd")) as eyotd,
        NewerNatsServer(IMPORTED_CONFIG, tmp_path_factory.mktemp("nats")) as reference,
    ):
        reference.hold_directories()
        yield eyotd, reference


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_answers(servers: tuple[Eyotd, NatsServer], name: str) -> None:
    check(servers, SCENARIOS[name])


@pytest.mark.parametrize("name", ["an atomic batch", "fast batches"])
def test_the_same_answers_through_an_import(importing: tuple[Eyotd, NatsServer], name: str) -> None:
    check(importing, SCENARIOS[name])


def check(servers: tuple[Eyotd, NatsServer], steps: list[Step]) -> None:
    async def play() -> list[list[Any]]:
        return await asyncio.gather(*(played(server, steps) for server in servers))

    ours, theirs = asyncio.run(play())
    differences = [
        f"{step}\n  eyotd:       {mine}\n  nats-server: {their}"
        for step, mine, their in zip([*steps, "advisories"], ours, theirs, strict=True)
        if mine != their
    ]
    assert not differences, "\n".join(differences)
