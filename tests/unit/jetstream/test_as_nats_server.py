"""What random conversations beside nats-server 2.14 found, each as the smallest of them."""

import json
from pathlib import Path

import pytest

from support.js_consumers import ConsumerWorld

S = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> ConsumerWorld:
    world = ConsumerWorld(tmp_path)
    world.create(subjects=["s.>"])
    return world


def err(answer: dict[str, dict[str, int]]) -> int:
    return answer["error"]["err_code"]


def test_an_id_is_remembered_where_nobody_is_interested(world: ConsumerWorld) -> None:
    world.create("I", subjects=["i.>"], retention="interest")
    assert world.put(b"i.a", b"", {"Nats-Msg-Id": "1"})["seq"] == 1
    assert world.put(b"i.b", b"", {"Nats-Msg-Id": "1"}) == {"stream": "I", "seq": 1, "duplicate": True}


def test_a_ttl_that_cannot_be_read_matters_only_where_something_is_stored(world: ConsumerWorld) -> None:
    world.create("I", subjects=["i.>"], retention="interest", allow_msg_ttl=True)
    assert world.put(b"i.a", b"", {"Nats-TTL": "x"})["seq"] == 1
    assert err(world.put(b"s.a", b"", {"Nats-TTL": "x"})) == 10165
    assert err(world.put(b"s.a", b"", {"Nats-TTL": "9s"})) == 10166


def test_a_paused_consumer_answers_who_does_not_wait(world: ConsumerWorld) -> None:
    world.add(ack_policy="explicit")
    world.fill(3)
    world.request("CONSUMER.PAUSE.S.C", {"pause_until": "2036-01-01T00:00:00Z"})
    assert world.pull(batch=3, no_wait=True).statuses == ["404 No Messages"]


def test_limits_on_consumers_do_not_get_tighter_than_those_there(world: ConsumerWorld) -> None:
    world.add(ack_policy="explicit", max_ack_pending=100)
    config = {"name": "S", "subjects": ["s.>"], "consumer_limits": {"max_ack_pending": 10}}
    answer = world.request("STREAM.UPDATE.S", config)
    assert (err(answer), answer["error"]["description"]) == (10069, "change to limits violates consumers: C")
    assert "error" not in world.request("STREAM.UPDATE.S", {**config, "consumer_limits": {"max_ack_pending": 100}})


def test_consumers_that_go_with_their_stream_are_told(world: ConsumerWorld) -> None:
    world.add(ack_policy="explicit")
    told = world.listen(b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.C")
    world.request("STREAM.DELETE.S")
    assert [json.loads(got.payload)["action"] for got in told.got] == ["delete"]


def test_what_counts_as_a_request(world: ConsumerWorld) -> None:
    def counted() -> tuple[int, int]:
        api = world.request("INFO")["api"]
        return api["total"], api["errors"]

    world.fill(1)
    total, errors = counted()
    world.request("STREAM.MSG.GET.S", {"seq": 1})  # not counted
    world.request("STREAM.MSG.GET.S", {"seq": 9})  # an error is
    world.request("STREAM.MSG.DELETE.S", {"seq": 9})  # counted, but as no error
    assert counted() == (total + 3, errors + 1)


def test_the_first_mistake_is_the_one_nats_server_finds_first(world: ConsumerWorld) -> None:
    both = {"name": "T", "num_replicas": 3, "discard_new_per_subject": True}
    assert err(world.request("STREAM.CREATE.T", both)) == 10052
    assert err(world.request("STREAM.CREATE.T", {"name": "T", "num_replicas": 3})) == 10074
    assert err(world.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})) == 10074
    assert err(world.request("STREAM.UPDATE.NONE", {"name": "NONE", "max_age": 1})) == 10052
    assert err(world.request("STREAM.CREATE.T", {"name": "T", "sealed": True, "max_age": 1})) == 10052
    assert err(world.request("STREAM.CREATE.T", {"name": "T", "subjects": ["s.x"]})) == 10065
    assert (
        err(world.request("STREAM.CREATE.T", {"name": "T", "mirror": {"name": "S", "filter_subject": "a..b"}})) == 10049
    )


def test_infos_and_lists(world: ConsumerWorld) -> None:
    world.add(ack_policy="explicit", priority_policy="overflow", priority_groups=["g"])
    info = world.request("STREAM.INFO.S", {"subjects_filter": "nobody"})
    assert info["limit"] == 0
    assert info["cluster"] == {"leader": world.jsa.account.broker.server_name}
    listed = world.request("STREAM.LIST")["streams"][0]
    assert listed["config"]["metadata"] == {"_nats.req.level": "0"}
    assert world.info()["config"]["metadata"]["_nats.req.level"] == "1"
    assert world.info()["priority_groups"] == [{"group": "g", "pinned_ts": "0001-01-01T00:00:00Z"}]
    assert "error" not in world.request("STREAM.INFO.S", b"no JSON at all")


def test_filters_that_have_something_in_common_may_stand_side_by_side(world: ConsumerWorld) -> None:
    assert "error" not in world.add("D", filter_subjects=["*.*.d", "*.c.>"], ack_policy="explicit")
    assert err(world.add("E", filter_subjects=["s.>", "s.a"], ack_policy="explicit")) == 10138
