"""The consumers' part of the JetStream API: its forms, its refusals, its answers held against NATS's schemas."""

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.config.accounts import AccountJetStreamOptions
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.schemas import check_answer

S = 1_000_000_000


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    return fixture


def create(fixture: ConsumerFixture, words: str, stream: str = "S", action: str = "", **config: Any) -> Any:
    return fixture.request(words, {"stream_name": stream, "config": config, "action": action})


def code(answer: Any) -> int:
    assert answer["type"] == "io.nats.jetstream.api.v1.consumer_create_response"
    err_code = answer["error"]["err_code"]
    assert isinstance(err_code, int)
    return err_code


def test_created_durable(fixture: ConsumerFixture) -> None:
    fixture.fill(2)
    answer = check_answer(create(fixture, "CONSUMER.DURABLE.CREATE.S.C", durable_name="C", ack_policy="explicit"))
    assert answer.pop("created") == answer.pop("ts") == "2023-11-14T22:13:20Z"
    assert answer == {
        "type": "io.nats.jetstream.api.v1.consumer_create_response",
        "stream_name": "S",
        "name": "C",
        "config": {
            "durable_name": "C",
            "name": "C",
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": 30 * S,
            "max_deliver": -1,
            "replay_policy": "instant",
            "max_waiting": 512,
            "max_ack_pending": 1000,
            "num_replicas": 0,
            "metadata": {"_nats.level": "4", "_nats.req.level": "0", "_nats.ver": "2.14.0"},
        },
        "delivered": {"consumer_seq": 0, "stream_seq": 0},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
        "num_ack_pending": 0,
        "num_redelivered": 0,
        "num_waiting": 0,
        "num_pending": 2,
    }
    info = check_answer(fixture.info())
    assert info["config"] == answer["config"]
    listed = fixture.request("CONSUMER.LIST.S")["consumers"][0]["config"]
    assert listed == {**answer["config"], "metadata": {"_nats.req.level": "0"}}


def test_nothing_is_confirmed_before_it_is_on_flash(fixture: ConsumerFixture) -> None:
    body = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    subject = b"$JS.API.CONSUMER.CREATE.S.C"
    import json

    reply = fixture.publish(subject, json.dumps(body).encode())
    fixture.broker.flush()
    again = fixture.publish(subject, json.dumps(body).encode())  # the same once more, still under way
    fixture.broker.flush()
    assert fixture.answer(reply) is fixture.answer(again) is None
    fixture.commit()
    assert fixture.answer(reply) is not None
    assert fixture.answer(again) is not None
    assert fixture.crash().request("CONSUMER.NAMES.S")["consumers"] == ["C"]


def test_forms_of_creation(fixture: ConsumerFixture) -> None:
    assert create(fixture, "CONSUMER.CREATE.S.N", name="N")["name"] == "N"
    assert create(fixture, "CONSUMER.CREATE.S.M")["name"] == "M"
    durable = create(fixture, "CONSUMER.CREATE.S.D.s.x", durable_name="D", filter_subject="s.x")
    assert durable["name"] == durable["config"]["name"] == "D"
    unnamed = create(fixture, "CONSUMER.CREATE.S", ack_policy="explicit")
    assert unnamed["config"]["inactive_threshold"] == 5 * S
    assert "name" not in unnamed["config"]
    assert create(fixture, "CONSUMER.CREATE.S", name="legacy")["name"] == "legacy"


def test_refused_forms(fixture: ConsumerFixture) -> None:
    assert code(create(fixture, "CONSUMER.CREATE.S", durable_name="C")) == 10020
    assert code(create(fixture, "CONSUMER.DURABLE.CREATE.S", durable_name="C")) == 10016
    assert code(create(fixture, "CONSUMER.DURABLE.CREATE.S.C.x", durable_name="C")) == 10016
    assert code(create(fixture, "CONSUMER.DURABLE.CREATE.S.C")) == 10018
    assert code(create(fixture, "CONSUMER.DURABLE.CREATE.S.C", durable_name="D")) == 10017
    assert code(create(fixture, "CONSUMER.CREATE.S.C", durable_name="D")) == 10017
    assert code(create(fixture, "CONSUMER.CREATE.S.C.s.x", filter_subject="s.y")) == 10131
    assert code(create(fixture, "CONSUMER.CREATE.S.C.s.x", filter_subjects=["s.x"])) == 10137
    assert code(create(fixture, "CONSUMER.CREATE.S.C/D")) == 10127
    assert code(create(fixture, "CONSUMER.CREATE.S.C", stream="T")) == 10056
    assert code(create(fixture, "CONSUMER.CREATE.T.C", stream="T")) == 10059
    assert code(create(fixture, "CONSUMER.CREATE.S.C", num_replicas=3)) == 10074
    assert code(create(fixture, "CONSUMER.CREATE.S.C", action="update", ack_policy="explicit")) == 10149
    assert code(create(fixture, "CONSUMER.CREATE.S.C", nonsense=1)) == 10025
    assert code(create(fixture, "CONSUMER.CREATE.S.C", ack_policy="sometimes")) == 10025
    assert code(fixture.request("CONSUMER.CREATE.S.C", b"{")) == 10025
    assert code(create(fixture, "CONSUMER.CREATE.S.C", deliver_subject="s.x")) == 10081
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == []


def test_an_ephemeral_that_leaves_its_threshold_to_the_server_is_created_once(fixture: ConsumerFixture) -> None:
    base = {"name": "E", "ack_policy": "explicit"}
    assert "created" in create(fixture, "CONSUMER.CREATE.S.E", action="create", **base)
    assert code(create(fixture, "CONSUMER.CREATE.S.E", action="create", **base)) == 10148
    assert "created" in create(fixture, "CONSUMER.CREATE.S.E", action="update", **base)
    base = {"name": "F", "ack_policy": "explicit", "inactive_threshold": 10_000_000_000}
    for _ in range(2):
        assert "created" in create(fixture, "CONSUMER.CREATE.S.F", action="create", **base)


def test_create_again_and_update(fixture: ConsumerFixture) -> None:
    base = {"durable_name": "C", "ack_policy": "explicit"}
    first = create(fixture, "CONSUMER.CREATE.S.C", action="create", **base)
    assert create(fixture, "CONSUMER.CREATE.S.C", action="create", **base)["created"] == first["created"]
    assert code(create(fixture, "CONSUMER.CREATE.S.C", action="create", **base, max_deliver=3)) == 10148
    changed = create(fixture, "CONSUMER.CREATE.S.C", action="update", **base, max_deliver=3, description="new")
    assert changed["config"]["max_deliver"] == 3
    refused = create(fixture, "CONSUMER.CREATE.S.C", durable_name="C", ack_policy="all")
    assert (code(refused), refused["error"]["description"]) == (10012, "ack policy can not be updated")
    config = fixture.crash().info()["config"]
    assert (config["max_deliver"], config["description"]) == (3, "new")


def test_update_of_filters_changes_what_comes(fixture: ConsumerFixture) -> None:
    fixture.fill(2, b"s.a")
    fixture.fill(3, b"s.b")
    create(fixture, "CONSUMER.CREATE.S.C", durable_name="C", ack_policy="explicit", filter_subject="s.a")
    assert fixture.pull(batch=1).seqs == [1]
    changed = create(fixture, "CONSUMER.CREATE.S.C", durable_name="C", ack_policy="explicit", filter_subject="s.b")
    assert changed["num_pending"] == 3
    assert fixture.pull(batch=9, no_wait=True).seqs == [3, 4, 5]


def test_deliver_subject_may_move_while_nobody_listens(fixture: ConsumerFixture) -> None:
    fixture.fill(1)
    create(fixture, "CONSUMER.CREATE.S.C", durable_name="C", deliver_subject="d.1")
    box = fixture.listen(b"d.2")
    create(fixture, "CONSUMER.CREATE.S.C", durable_name="C", deliver_subject="d.2")
    assert box.seqs == [1]
    assert code(create(fixture, "CONSUMER.CREATE.S.C", durable_name="C", deliver_subject="d.1")) == 10013


def test_limits_on_the_number_of_consumers(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path, limits=AccountJetStreamOptions(consumers_max=2))
    fixture.create(max_consumers=1)
    fixture.create("T", subjects=["t"])
    create(fixture, "CONSUMER.CREATE.S.A")
    assert code(create(fixture, "CONSUMER.CREATE.S.B")) == 10026
    create(fixture, "CONSUMER.CREATE.T.A", stream="T")
    create(fixture, "CONSUMER.CREATE.T.B", stream="T")
    assert code(create(fixture, "CONSUMER.CREATE.T.C", stream="T")) == 10026


def test_work_queue_rules(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="workqueue")
    assert code(create(fixture, "CONSUMER.CREATE.S.A", ack_policy="all", deliver_subject="d")) == 10098
    create(fixture, "CONSUMER.CREATE.S.A", durable_name="A", ack_policy="explicit", filter_subject="s.a")
    assert code(create(fixture, "CONSUMER.CREATE.S.B", ack_policy="explicit")) == 10099
    assert code(create(fixture, "CONSUMER.CREATE.S.B", ack_policy="explicit", filter_subject="s.*")) == 10100
    create(fixture, "CONSUMER.CREATE.S.B", durable_name="B", ack_policy="explicit", filter_subject="s.b")
    assert (
        code(create(fixture, "CONSUMER.CREATE.S.B", durable_name="B", ack_policy="explicit", filter_subject="s.>"))
        == 10100
    )


def test_names_and_list_in_pages(fixture: ConsumerFixture) -> None:
    for i in range(300):
        create(fixture, f"CONSUMER.CREATE.S.c{i:03}", name=f"c{i:03}", mem_storage=True)
    names = check_answer(fixture.request("CONSUMER.NAMES.S"))
    assert (names["total"], names["offset"], names["limit"]) == (300, 0, 1024)
    assert names["consumers"][:2] == ["c000", "c001"]
    listed = check_answer(fixture.request("CONSUMER.LIST.S", {"offset": 256}))
    assert (listed["total"], listed["offset"], listed["limit"], len(listed["consumers"])) == (300, 256, 256, 44)
    assert fixture.request("CONSUMER.LIST.S", {"offset": 999})["consumers"] == []
    missing = fixture.request("CONSUMER.NAMES.T")
    assert missing["error"]["err_code"] == 10059
    assert check_answer(missing)["total"] == 0
    assert check_answer(fixture.request("CONSUMER.LIST.T"))["error"]["err_code"] == 10059


def test_info_and_delete(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    assert fixture.request("CONSUMER.INFO.S.C", b"x")["error"]["err_code"] == 10038
    assert fixture.request("CONSUMER.INFO.S.D")["error"]["err_code"] == 10014
    assert fixture.request("CONSUMER.INFO.T.C")["error"]["err_code"] == 10059
    assert check_answer(fixture.request("CONSUMER.DELETE.S.C", b"{}"))["success"] is True
    assert fixture.request("CONSUMER.DELETE.S.C")["error"]["err_code"] == 10014
    assert fixture.crash().request("CONSUMER.NAMES.S")["consumers"] == []


def test_a_consumer_goes_with_its_stream(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    box = fixture.pull(batch=1, expires=60 * S)
    fixture.request("STREAM.DELETE.S")
    assert box.statuses == ["409 Consumer Deleted"]
    fixture.create()
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == []


def test_pull_request_where_there_is_no_consumer(fixture: ConsumerFixture) -> None:
    for words in ("CONSUMER.MSG.NEXT.S.C", "CONSUMER.MSG.NEXT.T.C"):
        ((header, payload),) = fixture.messages(words)
        assert header == f"NATS/1.0 503\r\nNats-Subject: $JS.API.{words}\r\n\r\n".encode()
        assert payload == b""


def test_pull_request_of_another_level(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    reply = fixture.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"", {"Nats-Required-Api-Level": "99"})
    fixture.commit()
    assert [got.header for got in fixture.inbox.got if got.subject == reply] == [
        b"NATS/1.0 412 Required Api Level\r\n\r\n"
    ]


def test_pause_answers(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    paused = check_answer(fixture.request("CONSUMER.PAUSE.S.C", {"pause_until": "2023-11-14T23:13:20Z"}))
    assert (paused["paused"], paused["pause_remaining"]) == (True, 3600 * S)
    assert fixture.info()["config"]["metadata"]["_nats.req.level"] == "1"
    # creating it again does not change that
    again = fixture.add(ack_policy="explicit")
    assert again["config"]["pause_until"] == "2023-11-14T23:13:20Z"
    resumed = check_answer(fixture.request("CONSUMER.PAUSE.S.C"))
    assert resumed["paused"] is False
    assert fixture.request("CONSUMER.PAUSE.S.C", {"pause_until": "soon"})["error"]["err_code"] == 10025


def test_events_of_a_consumers_life(fixture: ConsumerFixture) -> None:
    heard = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.>")
    fixture.add(ack_policy="explicit")
    fixture.request("CONSUMER.DELETE.S.C")
    assert heard.subjects == [
        b"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.C",
        b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.C",
    ]
    assert b'"stream":"S","consumer":"C"' in heard.got[0].payload


def test_a_consumer_that_cannot_be_stored_is_not_there(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fixture.store.options.__class__, "backlog_txns_hard", -1)
        answer = fixture.add(ack_policy="explicit")
    assert answer["error"]["err_code"] == 10104
    assert fixture.request("CONSUMER.NAMES.S")["consumers"] == []


def test_unreadable_consumer_is_left_alone(fixture: ConsumerFixture) -> None:
    fixture.add("A", ack_policy="explicit")
    txn = fixture.store.begin()
    fixture.stream().log.put_consumer(txn, "B", b"{}", b"")
    fixture.store.submit(txn)
    fixture.commit()
    again = fixture.crash()
    assert again.request("CONSUMER.NAMES.S")["consumers"] == ["A"]
    assert [each[:3] for each in again.js.consumers.unrestored] == [("$G", "S", "B")]  # type: ignore[attr-defined]
