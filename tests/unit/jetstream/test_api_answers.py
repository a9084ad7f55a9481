"""Every endpoint of the JetStream API, by what it answers and by what it refuses, and every advisory: as the NATS project's schemas say.

What is asked here is asked for the forms of the answers alone; what they say is held elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream.api import dispatch as api
from support.clients.destinations import Recorder
from support.jetstream.backup_fixture import take
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.schemas import check_answer, check_pub_ack

#: What one server always refuses.
CLUSTER_ONLY = {
    "stream_leader_stepdown_response",
    "consumer_leader_stepdown_response",
    "stream_remove_peer_response",
}


def is_nats(kind: str) -> bool:
    """Whether NATS has such an answer: not what has no JSON answer, nor Eyot's own."""
    return bool(kind) and not kind.startswith("eyot_")


#: What nats-server sends otherwise: the stream's state where the schema wants blocks, sequences as numbers where it wants strings,
#: and no server where it wants one.
NOT_AS_SENT = (".snapshot_create", ".nak", ".terminated", ".consumer_group_pinned", ".consumer_group_unpinned")
#: Schemas that fit no server's errors: one takes anything for a pause, and an error for both; in the other an error has an error.
#: They are held against another answer's.
UNFIT_FOR_ERRORS = {"consumer_pause_response", "consumer_unpin_response"}


class Asker:
    """Asks, and remembers which endpoints have answered and refused."""

    def __init__(self, fixture: ConsumerFixture) -> None:
        self.fixture = fixture
        self.answered: set[str] = set()
        self.refused: set[str] = set()

    def ask(self, words: str, body: Any = b"", *, refused: bool = False, **more: Any) -> Any:
        endpoint = api.find(self.fixture.js.endpoints, f"$JS.API.{words}".split("."))
        assert endpoint is not None, words
        answer = self.fixture.request(words, body, **more)
        assert answer["type"] == f"io.nats.jetstream.api.v1.{endpoint.kind}"
        if refused and endpoint.kind in UNFIT_FOR_ERRORS:
            check_answer({**answer, "type": "io.nats.jetstream.api.v1.consumer_info_response"})
        else:
            check_answer(answer)
        assert ("error" in answer) == refused, answer
        (self.refused if refused else self.answered).add(endpoint.kind)
        return answer

    def refuse(self, words: str, *bodies: Any) -> None:
        for body in bodies or (b"",):
            self.ask(words, body, refused=True)


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(ConsumerFixture(tmp_path / "store", domain="edge"))


FULL = {
    "description": "every member",
    "max_msgs": 1000,
    "max_bytes": 1 << 20,
    "max_age": int(3600e9),
    "max_msg_size": 1 << 16,
    "max_msgs_per_subject": 500,
    "max_consumers": 10,
    "duplicate_window": int(60e9),
    "allow_rollup_hdrs": True,
    "allow_direct": True,
    "allow_msg_ttl": True,
    "subject_delete_marker_ttl": int(60e9),
    "subject_transform": {"src": "s.>", "dest": "s.>"},
    "republish": {"src": "s.x", "dest": "r.x", "headers_only": True},
    "consumer_limits": {"inactive_threshold": int(1e9), "max_ack_pending": 100},
    "compression": "s2",
    "first_seq": 5,
    "metadata": {"owner": "x"},
    "allow_atomic": True,
    "allow_msg_schedules": True,
}


def streams(asker: Asker, storage: str) -> None:
    fixture, ask, refuse = asker.fixture, asker.ask, asker.refuse
    ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": storage, **FULL})
    ask("STREAM.CREATE.PLAIN", {"name": "PLAIN", "subjects": ["p"], "storage": storage})
    ask("STREAM.CREATE.COUNT", {"name": "COUNT", "subjects": ["c"], "storage": storage, "allow_msg_counter": True})
    ask("STREAM.CREATE.MIRROR", {"name": "MIRROR", "mirror": {"name": "S"}, "storage": storage})
    source = {"name": "S", "opt_start_seq": 2, "subject_transforms": [{"src": "s.a", "dest": "t.a"}]}
    external = {"name": "FAR", "external": {"api": "$JS.far.API", "deliver": "deliver.far"}, "filter_subject": "far.>"}
    ask("STREAM.CREATE.SOURCES", {"name": "SOURCES", "sources": [source, external], "storage": storage})
    refuse("STREAM.CREATE.S", b"", b"{", {"name": "S", "subjects": ["other"]}, {"name": "T", "subjects": ["s.x"]})
    refuse("STREAM.CREATE.R3", {"name": "R3", "subjects": ["r3"], "num_replicas": 3})
    refuse("STREAM.UPDATE.NONE", {"name": "NONE", "subjects": ["n"]})
    ask("STREAM.UPDATE.PLAIN", {"name": "PLAIN", "subjects": ["p", "p2"], "storage": storage})
    fixture.fill(20)
    check_pub_ack(fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "1"}))
    check_pub_ack(fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "1"}))
    check_pub_ack(fixture.put(b"c", b"", {"Nats-Incr": "5"}))
    check_pub_ack(fixture.put(b"s.a", b"x", {"Nats-Expected-Last-Sequence": "7"}))
    ask("STREAM.MSG.DELETE.S", {"seq": 7})
    for body in (b"", {"deleted_details": True, "subjects_filter": ">"}, {"offset": 1}):
        ask("STREAM.INFO.S", body)
    refuse("STREAM.INFO.NONE")
    for body in (b"", {"subject": "s.a"}, {"offset": 1}):
        ask("STREAM.NAMES", body)
        ask("STREAM.LIST", body)
    refuse("STREAM.NAMES", b"[")
    refuse("STREAM.LIST", b"[")
    for body in ({"seq": 6}, {"last_by_subj": "s.a"}, {"seq": 1, "next_by_subj": "s.x"}):
        ask("STREAM.MSG.GET.S", body)
    refuse("STREAM.MSG.GET.S", b"", {"seq": 999}, {"last_by_subj": "none"}, {})
    refuse("STREAM.MSG.DELETE.S", b"", {"seq": 999})
    ask("STREAM.PURGE.S", {"filter": "s.a", "keep": 1})
    refuse("STREAM.PURGE.S", {"seq": 5, "keep": 2})
    refuse("STREAM.PURGE.NONE")


def consumers(asker: Asker) -> None:
    fixture, ask, refuse = asker.fixture, asker.ask, asker.refuse
    fixture.listen(b"d")
    full = {
        "durable_name": "C",
        "description": "every member",
        "ack_policy": "explicit",
        "ack_wait": int(2e9),
        "max_deliver": 5,
        "backoff": [int(1e9), int(2e9)],
        "filter_subjects": ["s.a", "s.x"],
        "replay_policy": "instant",
        "sample_freq": "100%",
        "max_waiting": 10,
        "max_ack_pending": 50,
        "inactive_threshold": int(1e9),
        "headers_only": True,
        "max_batch": 100,
        "max_expires": int(10e9),
        "max_bytes": 1 << 20,
        "metadata": {"owner": "x"},
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 6,
    }
    push = {
        "durable_name": "PUSH",
        "ack_policy": "explicit",
        "deliver_subject": "d",
        "flow_control": True,
        "idle_heartbeat": int(1e9),
    }
    pinned = {
        "durable_name": "PIN",
        "ack_policy": "explicit",
        "priority_groups": ["g"],
        "priority_policy": "pinned_client",
    }
    ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": full})
    ask("CONSUMER.DURABLE.CREATE.S.PUSH", {"stream_name": "S", "config": push})
    ask("CONSUMER.CREATE.S.PIN", {"stream_name": "S", "config": {**pinned, "priority_timeout": int(5e9)}})
    ask("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"ack_policy": "explicit"}})
    refuse("CONSUMER.CREATE.S.C", b"", {"stream_name": "S", "config": {"durable_name": "D"}})
    refuse("CONSUMER.DURABLE.CREATE.NONE.C", {"stream_name": "NONE", "config": {"durable_name": "C"}})
    refuse("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C", "filter_subject": ".."}})
    for words in ("CONSUMER.NAMES.S", "CONSUMER.LIST.S"):
        ask(words)
        ask(words, {"offset": 2})
        refuse(words, b"[")
        refuse(words.replace(".S", ".NONE"))
    ask("CONSUMER.INFO.S.C")
    ask("CONSUMER.INFO.S.PIN")
    refuse("CONSUMER.INFO.S.NONE")
    ask("CONSUMER.PAUSE.S.C", {"pause_until": "2999-01-01T00:00:00Z"})
    ask("CONSUMER.INFO.S.C")
    ask("CONSUMER.PAUSE.S.C")
    refuse("CONSUMER.PAUSE.S.NONE")
    refuse("CONSUMER.UNPIN.S.C", {"group": "g"})
    ask("CONSUMER.UNPIN.S.PIN", {"group": "g"})
    ask("CONSUMER.RESET.S.C", {"seq": 8})
    ask("CONSUMER.RESET.S.C")
    refuse("CONSUMER.RESET.S.C", {"seq": -1})
    assert fixture.request("CONSUMER.RESET.S.NONE") is None


def backups(asker: Asker) -> None:
    fixture, ask, refuse = asker.fixture, asker.ask, asker.refuse
    answer, _ = take(fixture)
    asker.answered.add("stream_snapshot_response")
    refuse("STREAM.SNAPSHOT.S", b"", {"deliver_subject": ""})
    refuse("STREAM.SNAPSHOT.NONE", {"deliver_subject": "x"})
    config = {**answer["config"], "name": "BACK", "subjects": ["back.>"], "subject_transform": None, "republish": None}
    ask("STREAM.RESTORE.BACK", {"config": config, "state": answer["state"]})
    refuse("STREAM.RESTORE.S", b"", {"config": answer["config"], "state": answer["state"]})


def endings(asker: Asker) -> None:
    ask, refuse = asker.ask, asker.refuse
    ask("CONSUMER.DELETE.S.PUSH")
    refuse("CONSUMER.DELETE.S.PUSH")
    ask("STREAM.DELETE.SOURCES")
    refuse("STREAM.DELETE.SOURCES")
    refuse("STREAM.LEADER.STEPDOWN.S")
    refuse("CONSUMER.LEADER.STEPDOWN.S.C")
    refuse("STREAM.PEER.REMOVE.S", {"peer": "x"})
    ask("INFO")
    ask("INFO", refused=True, header={"Nats-Required-Api-Level": "99"})


def test_every_endpoint_answers_and_refuses_by_its_schema(asker: Asker, storage: str) -> None:
    streams(asker, storage)
    consumers(asker)
    backups(asker)
    endings(asker)
    kinds = {endpoint.kind for endpoint in asker.fixture.js.endpoints.values() if is_nats(endpoint.kind)}
    assert asker.answered == kinds - CLUSTER_ONLY
    assert asker.refused == kinds


def test_every_endpoint_refuses_by_its_schema_where_jetstream_is_off_or_too_old(asker: Asker) -> None:
    level = {"Nats-Required-Api-Level": "99"}
    for words, endpoint in asker.fixture.js.endpoints.items():
        if is_nats(endpoint.kind) and words != ("CONSUMER", "RESET"):  # a consumer that is not there does not answer
            tail = ".".join((*words, *("S" for _ in range(endpoint.extra if endpoint.extra is not None else 2))))
            refused = asker.ask(tail, b"", refused=True, header=level)
            of_clusters = words[-1] == "STEPDOWN" or words == ("STREAM", "PEER", "REMOVE")
            assert refused["error"]["err_code"] == (10010 if of_clusters else 10185)
    asker.fixture.jsa.set_limits(None)
    for words, endpoint in asker.fixture.js.endpoints.items():
        if is_nats(endpoint.kind):
            tail = ".".join((*words, *("S" for _ in range(endpoint.extra if endpoint.extra is not None else 2))))
            refused = asker.ask(tail, b"", refused=True)
            assert refused["error"]["err_code"] == 10039


def test_account_info_with_limits_and_tiers(tmp_path: Path) -> None:
    limits = AccountJetStreamOptions(file_max=1 << 20, memory_max=1 << 16, streams_max=3, consumers_max=5)
    fixture = ConsumerFixture(tmp_path, limits=limits)
    fixture.create(max_bytes=1000)
    fixture.fill(3)
    answer = check_answer(fixture.request("INFO"))
    assert (answer["limits"]["max_storage"], answer["reserved_storage"]) == (1 << 20, 1000)


def test_refusals_of_publishers(asker: Asker) -> None:
    fixture = asker.fixture
    fixture.create(max_msg_size=5, max_msgs=1, discard="new")
    said = [check_pub_ack(fixture.put(b"s.a", payload)) for payload in (b"too large", b"x", b"x")]
    said.append(check_pub_ack(fixture.put(b"s.a", b"", {"Nats-Expected-Stream": "T"})))
    assert [answer.get("error", {}).get("err_code") for answer in said] == [10054, None, 10077, 10060]


# -- advisories --------------------------------------------------------------------------------------------------------


def test_every_advisory_is_as_its_schema_says(tmp_path: Path, storage: str) -> None:
    fixture = ConsumerFixture(
        tmp_path
    )  # without a domain: nats-server names it in some whose schema does not know that
    asker = Asker(fixture)
    heard = Recorder()
    fixture.account.subscribe(b"$JS.EVENT.>", heard)
    streams(asker, storage)
    consumers(asker)
    backups(asker)
    pins(fixture)  # before time passes: the stream's consumers do not outlive a second of silence
    messages_of_a_consumer(fixture)
    abandoned_batch(fixture)
    endings(asker)
    kinds = set()
    for got in heard.got:
        event = json.loads(got.payload)
        if not event["type"].endswith(NOT_AS_SENT):
            check_answer(event)
        kinds.add(event["type"].removeprefix("io.nats.jetstream."))
    assert kinds == {
        "advisory.v1.api_audit",
        "advisory.v1.consumer_action",
        "advisory.v1.consumer_group_pinned",
        "advisory.v1.consumer_group_unpinned",
        "advisory.v1.consumer_pause",
        "advisory.v1.max_deliver",
        "advisory.v1.nak",
        "advisory.v1.restore_create",
        "advisory.v1.snapshot_complete",
        "advisory.v1.snapshot_create",
        "advisory.v1.stream_action",
        "advisory.v1.stream_batch_abandoned",
        "advisory.v1.terminated",
        "metric.v1.consumer_ack",
    }  # restore_complete is among the restores' own tests


def messages_of_a_consumer(fixture: ConsumerFixture) -> None:
    """One message each that is acknowledged (and sampled), refused, ended, and delivered for the last time."""
    config = {
        "durable_name": "M",
        "ack_policy": "explicit",
        "max_deliver": 1,
        "ack_wait": int(1e9),
        "sample_freq": "100",
    }
    fixture.request("CONSUMER.CREATE.S.M", {"stream_name": "S", "config": config})
    box = fixture.listen(b"fetched")
    fixture.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.M", b"fetched", b"", b'{"batch":4}', origin=fixture.client)
    fixture.commit()
    fixture.advance(0.1)
    for got, answer in zip(box.messages, (b"+ACK", b"-NAK", b"+TERM because"), strict=False):
        fixture.account.publish(got.reply, payload=answer, origin=fixture.client)
        fixture.commit()
    for _ in range(4):
        fixture.advance(1)


def abandoned_batch(fixture: ConsumerFixture) -> None:
    fixture.publish(b"s.a", b"x", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"})
    fixture.commit()
    for _ in range(15):
        fixture.advance(1)


def pins(fixture: ConsumerFixture) -> None:
    fixture.listen(b"pulled")
    body = msgspec.json.encode({"batch": 1, "group": "g", "expires": int(1e9)})
    fixture.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.PIN", b"pulled", b"", body, origin=fixture.client)
    fixture.commit()
    fixture.request("CONSUMER.UNPIN.S.PIN", {"group": "g"})
