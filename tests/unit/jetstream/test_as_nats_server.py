"""What random conversations beside nats-server 2.14 found, each as the smallest of them."""

import json
from pathlib import Path

import pytest

from eyot_daemon.jetstream.sourcing.sourcing import Sourcing
from eyot_daemon.router.subscription import IMPORTED
from support.jetstream.consumers import ConsumerFixture

S = 1_000_000_000


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(subjects=["s.>"])
    return fixture


def err(answer: dict[str, dict[str, int]]) -> int:
    return answer["error"]["err_code"]


def test_an_id_is_remembered_where_nobody_is_interested(fixture: ConsumerFixture) -> None:
    fixture.create("I", subjects=["i.>"], retention="interest")
    assert fixture.put(b"i.a", b"", {"Nats-Msg-Id": "1"})["seq"] == 1
    assert fixture.put(b"i.b", b"", {"Nats-Msg-Id": "1"}) == {"stream": "I", "seq": 1, "duplicate": True}


def test_a_ttl_that_cannot_be_read_matters_only_where_something_is_stored(fixture: ConsumerFixture) -> None:
    fixture.create("I", subjects=["i.>"], retention="interest", allow_msg_ttl=True)
    assert fixture.put(b"i.a", b"", {"Nats-TTL": "x"})["seq"] == 1
    assert err(fixture.put(b"s.a", b"", {"Nats-TTL": "x"})) == 10165
    assert err(fixture.put(b"s.a", b"", {"Nats-TTL": "9s"})) == 10166


def test_a_paused_consumer_answers_who_does_not_wait(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    fixture.fill(3)
    fixture.request("CONSUMER.PAUSE.S.C", {"pause_until": "2036-01-01T00:00:00Z"})
    assert fixture.pull(batch=3, no_wait=True).statuses == ["404 No Messages"]


def test_limits_on_consumers_do_not_get_tighter_than_those_there(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit", max_ack_pending=100)
    config = {"name": "S", "subjects": ["s.>"], "consumer_limits": {"max_ack_pending": 10}}
    answer = fixture.request("STREAM.UPDATE.S", config)
    assert (err(answer), answer["error"]["description"]) == (10069, "change to limits violates consumers: C")
    assert "error" not in fixture.request("STREAM.UPDATE.S", {**config, "consumer_limits": {"max_ack_pending": 100}})


def test_consumers_that_go_with_their_stream_are_told(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    told = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.C")
    fixture.request("STREAM.DELETE.S")
    assert [json.loads(got.payload)["action"] for got in told.got] == ["delete"]


def test_what_counts_as_a_request(fixture: ConsumerFixture) -> None:
    def counted() -> tuple[int, int]:
        api = fixture.request("INFO")["api"]
        return api["total"], api["errors"]

    fixture.fill(1)
    total, errors = counted()
    fixture.request("STREAM.MSG.GET.S", {"seq": 1})  # not counted
    fixture.request("STREAM.MSG.GET.S", {"seq": 9})  # an error is
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 9})  # counted, but as no error
    assert counted() == (total + 3, errors + 1)


def test_the_first_mistake_is_the_one_nats_server_finds_first(fixture: ConsumerFixture) -> None:
    both = {"name": "T", "num_replicas": 3, "discard_new_per_subject": True}
    assert err(fixture.request("STREAM.CREATE.T", both)) == 10052
    assert err(fixture.request("STREAM.CREATE.T", {"name": "T", "num_replicas": 3})) == 10074
    assert err(fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})) == 10074
    assert err(fixture.request("STREAM.UPDATE.NONE", {"name": "NONE", "max_age": 1})) == 10052
    assert err(fixture.request("STREAM.CREATE.T", {"name": "T", "sealed": True, "max_age": 1})) == 10052
    assert err(fixture.request("STREAM.CREATE.T", {"name": "T", "subjects": ["s.x"]})) == 10065
    assert (
        err(fixture.request("STREAM.CREATE.T", {"name": "T", "mirror": {"name": "S", "filter_subject": "a..b"}}))
        == 10049
    )


def test_infos_and_lists(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit", priority_policy="overflow", priority_groups=["g"])
    info = fixture.request("STREAM.INFO.S", {"subjects_filter": "nobody"})
    assert info["limit"] == 0
    assert info["cluster"] == {"leader": fixture.jsa.account.broker.server_name}
    listed = fixture.request("STREAM.LIST")["streams"][0]
    assert listed["config"]["metadata"] == {"_nats.req.level": "0"}
    assert fixture.info()["config"]["metadata"]["_nats.req.level"] == "1"
    assert fixture.info()["priority_groups"] == [{"group": "g", "pinned_ts": "0001-01-01T00:00:00Z"}]
    assert "error" not in fixture.request("STREAM.INFO.S", b"no JSON at all")


def test_filters_that_have_something_in_common_may_stand_side_by_side(fixture: ConsumerFixture) -> None:
    assert "error" not in fixture.add("D", filter_subjects=["*.*.d", "*.c.>"], ack_policy="explicit")
    assert err(fixture.add("E", filter_subjects=["s.>", "s.a"], ack_policy="explicit")) == 10138


def test_a_purge_beyond_the_end_of_everything_moves_the_end(fixture: ConsumerFixture) -> None:
    fixture.request("STREAM.PURGE.S", {"filter": ">", "seq": 24})
    assert fixture.put(b"s.a", b"")["seq"] == 24


def test_one_message_purged_by_its_subject_is_told_as_terminated(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    for subject in (b"s.a", b"s.b", b"s.b"):
        fixture.put(subject, b"")
    fixture.pull(batch=3, no_wait=True)
    told = fixture.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
    fixture.request("STREAM.PURGE.S", {"filter": "s.b"})
    assert told.got == []
    fixture.request("STREAM.PURGE.S", {"filter": "s.a"})
    assert [json.loads(got.payload)["stream_seq"] for got in told.got] == [1]


def test_a_batch_is_refused_for_its_size_first(fixture: ConsumerFixture) -> None:
    fixture.create("B", subjects=["b.>"], max_msg_size=100)
    batch = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1"}
    assert err(fixture.put(b"b.a", b"x" * 100, batch)) == 10054
    assert err(fixture.put(b"b.a", b"x", batch)) == 10174


def test_the_body_comes_before_the_api_level_where_it_does_in_nats_server(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    level = {"header": {"Nats-Required-Api-Level": "99"}}
    assert err(fixture.request("CONSUMER.INFO.S.C", b"x", **level)) == 10038
    assert err(fixture.request("CONSUMER.PAUSE.S.C", b"{x", **level)) == 10025
    assert err(fixture.request("CONSUMER.DELETE.S.C", b"x", **level)) == 10185


def test_the_threshold_of_a_consumer_follows_what_it_was(fixture: ConsumerFixture) -> None:
    def made(**members: object) -> int:
        body = {"stream_name": "S", "config": {"name": "x", "ack_policy": "explicit", **members}}
        return fixture.request("CONSUMER.CREATE.S.x", body)["config"].get("inactive_threshold", 0)

    assert made() == 5 * S
    assert made(durable_name="x") == 5 * S
    fixture.request("CONSUMER.DELETE.S.x")
    assert made(durable_name="x") == 0
    assert made() == 0


def test_bytes_that_are_no_utf_8_are_refused_as_the_rest(fixture: ConsumerFixture) -> None:
    answer = fixture.request("STREAM.MSG.GET.S", b'{"seq":"\xff"}')
    words = "invalid JSON: json: cannot unmarshal string into Go struct field JSApiMsgGetRequest.seq of type uint64"
    assert (err(answer), answer["error"]["description"]) == (10025, words)


def test_a_stream_that_discards_new_messages_keeps_what_it_holds(fixture: ConsumerFixture) -> None:
    for name, discard, left in (("N", "new", 3), ("O", "old", 1)):
        config = {"subjects": [f"{discard}.>"], "discard": discard}
        fixture.create(name, **config)
        fixture.fill(3, subject=f"{discard}.a".encode())
        fixture.request(f"STREAM.UPDATE.{name}", {"name": name, **config, "max_msgs": 1})
        assert len(fixture.held(name)) == left, discard
        fixture = fixture.restart()
        assert len(fixture.held(name)) == left, discard
    assert err(fixture.put(b"new.a", b"")) == 10077


def test_nothing_is_republished_to_nowhere_nor_back_into_its_stream(fixture: ConsumerFixture) -> None:
    config = {"name": "R", "subjects": ["r.>"], "republish": {"src": ">", "dest": ""}}
    assert fixture.request("STREAM.CREATE.R", config)["config"]["republish"] == {"src": ">", "dest": ""}
    fixture.put(b"r.a", b"1")
    fixture.run_on()
    assert len(fixture.held("R")) == 1
    assert fixture.request("STREAM.UPDATE.R", config)["config"]["republish"] == {"src": ">", "dest": ">"}
    fixture.put(b"r.a", b"2")
    fixture.run_on()
    assert len(fixture.held("R")) == 2


def test_the_end_of_a_batch_before_its_first_message_is_too_large(fixture: ConsumerFixture) -> None:
    fixture.create("B", subjects=["b.>"], allow_atomic=True)
    batch = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "0"}
    assert err(fixture.put(b"b.a", b"", batch)) == 10176
    assert err(fixture.put(b"b.a", b"", batch | {"Nats-Batch-Commit": "eob"})) == 10199


def test_a_ttl_is_looked_at_before_the_limits_of_its_stream(fixture: ConsumerFixture) -> None:
    config = {
        "discard": "new",
        "max_msgs_per_subject": 1,
        "discard_new_per_subject": True,
        "allow_msg_ttl": True,
        "max_msgs": 1,
    }
    fixture.create("T", subjects=["t.>"], **config)
    fixture.put(b"t.a", b"")
    assert err(fixture.put(b"t.a", b"", {"Nats-TTL": "500ms"})) == 10165
    assert err(fixture.put(b"t.a", b"", {"Nats-TTL": "2s"})) == 10077


def test_who_is_not_interested_fills_no_stream(fixture: ConsumerFixture) -> None:
    fixture.create("I", subjects=["i.>"], retention="interest", discard="new", max_msgs=1)
    fixture.add("C", "I", ack_policy="explicit", filter_subject="i.a")
    fixture.put(b"i.a", b"")
    assert fixture.put(b"i.b", b"")["seq"] == 2
    assert err(fixture.put(b"i.a", b"")) == 10077


@pytest.mark.parametrize("subjects", [[b"i.a"] * 5, [b"i.a", b"i.a", b"i.b", b"i.a"], [b"i.b", b"i.b", b"i.a"]])
def test_a_turn_stores_what_somebody_wants_and_counts_the_rest(fixture: ConsumerFixture, subjects: list[bytes]) -> None:
    """Messages that are all wanted are staged as one run; the sequences and the answers are the same."""
    fixture.create("I", subjects=["i.>"], retention="interest")
    fixture.add("C", "I", ack_policy="explicit", filter_subject="i.a")
    replies = [fixture.publish(subject, b"%d" % number) for number, subject in enumerate(subjects)]
    fixture.commit()
    answers = [json.loads(fixture.answer(reply) or b"") for reply in replies]
    assert answers == [{"stream": "I", "seq": seq} for seq in range(1, len(subjects) + 1)]
    wanted = [(seq, b"%d" % (seq - 1)) for seq, subject in enumerate(subjects, 1) if subject == b"i.a"]
    assert fixture.held("I") == wanted
    got = fixture.pull("C", "I", batch=5, no_wait=True).messages
    fixture.ack(*got)
    fixture.commit()
    assert [each.payload for each in got] == [payload for _, payload in wanted]
    assert fixture.held("I") == []


@pytest.mark.parametrize(("thresholds", "served"), [({"min_pending": 9, "min_ack_pending": 1}, 1), ({"min_pending": 1, "min_ack_pending": 9}, 1),
                                                    ({"min_pending": 9, "min_ack_pending": 9}, 0)])  # fmt: skip
def test_one_threshold_of_two_is_enough(fixture: ConsumerFixture, thresholds: dict[str, int], served: int) -> None:
    fixture.add(ack_policy="explicit", priority_groups=["g"], priority_policy="overflow")
    fixture.fill(3)
    assert len(fixture.pull(batch=1, group="g").messages) == 1
    assert len(fixture.pull(batch=1, group="g", **thresholds).messages) == served


def test_mirrors_ask_as_soon_as_the_server_is_there_and_keep_no_expectations(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path, sourcing=Sourcing())
    fixture.create("O", subjects=["o.>"])
    fixture.create("M", subjects=None, mirror={"name": "O"})
    fixture.put(b"o.a", b"1", {"Nats-Expected-Last-Sequence": "0", "Own": "x"})
    fixture.put(b"o.a", b"2", {"Nats-Expected-Last-Sequence": "1"})
    fixture.run_on()
    copies = [fixture.stream("M").log.get(seq) for seq in (1, 2)]
    assert [copy.header for copy in copies if copy is not None] == [b"NATS/1.0\r\nOwn: x\r\n\r\n", b""]
    fixture = fixture.restart()
    fixture.commit()
    assert "error" not in fixture.request("STREAM.INFO.M")["mirror"]
    fixture.put(b"o.a", b"3")
    fixture.run_on()
    assert fixture.stream("M").log.state.last_seq == 3


def test_what_a_pull_request_lacks_is_told_as_it_was_asked_for(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    fixture.fill(1)
    box = fixture.pull(batch=1 << 33, expires=S, max_bytes=-1)
    fixture.advance(1.5)
    assert len(box.messages) == 1
    header = box.got[-1].header
    assert b"Nats-Pending-Messages: %d\r\n" % ((1 << 33) - 1) in header
    assert b"Nats-Pending-Bytes: -1\r\n" in header


def test_a_rollup_comes_into_a_full_subject(fixture: ConsumerFixture) -> None:
    config = {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True, "allow_rollup_hdrs": True}
    fixture.create("U", subjects=["u.>"], allow_atomic=True, **config)
    fixture.put(b"u.a", b"1")
    assert err(fixture.put(b"u.a", b"2")) == 10077
    assert fixture.put(b"u.a", b"3", {"Nats-Rollup": "sub"})["seq"] == 2
    batch = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    assert err(fixture.put(b"u.a", b"4", batch)) == 10077
    assert fixture.put(b"u.a", b"5", batch | {"Nats-Rollup": "sub"})["seq"] == 3
    assert [payload for _, payload in fixture.held("U")] == [b"5"]


def test_in_a_batch_nothing_makes_room(fixture: ConsumerFixture) -> None:
    fixture.create("V", subjects=["v.>"], allow_atomic=True, discard="new", max_msgs=2, max_msgs_per_subject=1)
    fixture.put(b"v.a", b"1")
    batch = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1"}
    fixture.publish(b"v.a", b"2", batch)
    fixture.commit()
    answer = fixture.put(b"v.a", b"3", batch | {"Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"})
    assert answer["error"]["description"] == "maximum messages exceeded"
    assert fixture.put(b"v.a", b"4", batch | {"Nats-Batch-Commit": "1"})["seq"] == 2
    assert fixture.put(b"v.b", b"5")["seq"] == 3
    assert err(fixture.put(b"v.b", b"6", batch | {"Nats-Batch-Commit": "1"})) == 10077
    assert fixture.put(b"v.b", b"7")["seq"] == 4


def test_what_is_delivered_while_the_state_is_written_is_written_too(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    fixture.fill(2)
    box = fixture.pull(batch=1)
    fixture.advance(0.2)
    fixture.answer_to(box.messages[0])
    fixture.broker.flush()  # the acknowledgement is on its way to flash
    fixture.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", box.sub.subject, b"", b"", origin=fixture.client)
    fixture.broker.flush()
    assert len(box.messages) == 2
    fixture.commit()
    fixture.advance(0.2)
    fixture = fixture.crash()
    assert fixture.info()["delivered"]["consumer_seq"] == 2
    assert fixture.info()["num_ack_pending"] == 1


def test_who_asks_through_an_import_is_told(fixture: ConsumerFixture) -> None:
    told = fixture.listen(b"$JS.EVENT.ADVISORY.API")
    header = b'NATS/1.0\r\nNats-Request-Info: {"acc":"USES","rtt":5,"start":"2026-11-22T11:19:58Z"}\r\n\r\n'
    for origin in (IMPORTED, fixture.client):  # a client may say what it likes
        fixture.account.publish(b"$JS.API.INFO", b"inbox", header, origin=origin)
        fixture.commit()
    through, direct = (json.loads(got.payload)["client"] for got in told.got)
    start = "2026-11-22T11:19:58Z"
    assert through == {"start": start, "acc": "USES", "svc": "$G", "rtt": 5, "server": "world"}
    assert direct["acc"] == "$G"
    assert "svc" not in direct


def fields(*lines: str) -> bytes:
    """A header with its blanks."""
    return "\r\n".join(("NATS/1.0", *lines, "", "")).encode()


def test_blanks_behind_a_value_belong_to_it(fixture: ConsumerFixture) -> None:
    """Of the value of a field only blanks before it are no part, tabs are: `a` and `a ` are two ids, and no message is lost."""
    fixture.create("T", subjects=["t.>"], allow_msg_ttl=True, allow_rollup_hdrs=True, allow_msg_schedules=True)
    ids = [b"a", b"a ", b"\ta", b"  a"]
    sent = [fixture.put(b"s.a", b"", b"NATS/1.0\r\nNats-Msg-Id:%b\r\n\r\n" % each) for each in ids]
    assert [each["seq"] for each in sent] == [1, 2, 3, 1]
    assert err(fixture.put(b"s.a", b"", fields("Nats-Expected-Stream: S "))) == 10060
    assert err(fixture.put(b"s.a", b"", fields("Nats-Expected-Last-Sequence: 3 "))) == 10071
    assert err(fixture.put(b"t.a", b"", fields("Nats-TTL: 1h "))) == 10165
    answer = fixture.put(b"t.a", b"", fields("Nats-Rollup: sub\t"))
    assert answer["error"]["description"] == 'rollup value invalid: "sub\\t"'
    target = "Nats-Schedule-Target: t.made"
    for pattern in ("@every 1h ", "@every  1h", "@at 2099-01-01T00:00:00Z ", "@daily "):
        assert err(fixture.put(b"t.a", b"", fields(f"Nats-Schedule: {pattern}", target))) == 10189
    assert err(fixture.put(b"t.a", b"", fields("Nats-Schedule: @daily", "Nats-Schedule-Target: t.made "))) == 10190
    assert "error" not in fixture.put(b"t.a", b"", fields("Nats-Schedule: 0 0 0 1 1 * ", target))


def test_the_last_id_after_a_restart_has_its_blanks(fixture: ConsumerFixture) -> None:
    fixture.put(b"s.a", b"", fields("Nats-Msg-Id: a "))
    again = fixture.restart()
    assert err(again.put(b"s.a", b"", fields("Nats-Expected-Last-Msg-Id: a", "Nats-Msg-Id: b"))) == 10070
    assert again.put(b"s.a", b"", fields("Nats-Expected-Last-Msg-Id: a ", "Nats-Msg-Id: b"))["seq"] == 2
    assert again.put(b"s.a", b"", fields("Nats-Msg-Id: a ")).get("duplicate") is True
