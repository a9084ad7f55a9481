"""The API of streams and messages: answers, codes, paging, and the NATS project's schemas."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.config.jetstream import JetStreamOptions
from support.clients.destinations import Recorder
from support.jetstream.fixture import Fixture
from support.jetstream.schemas import check_answer, check_pub_ack


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def refusal(answer: Any) -> tuple[int, str]:
    check_answer(answer)
    return answer["error"]["err_code"], answer["error"]["description"]


def test_a_stream_from_creation_to_deletion(fixture: Fixture) -> None:
    created = check_answer(fixture.create())
    assert created["did_create"]
    assert created["state"]["consumer_count"] == 0
    assert created["config"]["metadata"] == {"_nats.level": "4", "_nats.req.level": "0", "_nats.ver": "2.14.0"}
    assert check_answer(fixture.create())["did_create"]
    check_pub_ack(fixture.put(b"s.a", b"1234"))
    info = check_answer(fixture.request("STREAM.INFO.S"))
    assert info["state"] == {
        "messages": 1,
        "bytes": 37,
        "first_seq": 1,
        "first_ts": "2023-11-14T22:13:20Z",
        "last_seq": 1,
        "last_ts": "2023-11-14T22:13:20Z",
        "num_subjects": 1,
        "consumer_count": 0,
    }
    updated = check_answer(fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["t"], "max_msgs": 5}))
    assert updated["config"]["max_msgs"] == 5
    assert fixture.put(b"s.a") is None
    assert fixture.put(b"t")["seq"] == 2
    assert check_answer(fixture.request("STREAM.NAMES"))["streams"] == ["S"]
    assert check_answer(fixture.request("STREAM.LIST"))["streams"][0]["config"]["name"] == "S"
    assert check_answer(fixture.request("STREAM.DELETE.S"))["success"]
    assert fixture.put(b"t") is None
    assert refusal(fixture.request("STREAM.INFO.S")) == (10059, "stream not found")
    assert check_answer(fixture.create())["state"]["last_seq"] == 0


def test_the_answer_to_a_creation_waits_for_the_disk(fixture: Fixture) -> None:
    reply = fixture.publish(b"$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    fixture.broker.flush()
    assert fixture.answer(reply) is None
    fixture.commit()
    assert fixture.answer(reply) is not None


def test_a_stream_can_be_replaced_in_one_turn(fixture: Fixture) -> None:
    fixture.create()
    fixture.put(b"s.a", b"old")
    deleted = fixture.publish(b"$JS.API.STREAM.DELETE.S")
    created = fixture.publish(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.>"]}')
    fixture.commit()
    fixture.run_on()  # on a slow machine the second request is answered in a later turn
    assert b'"success":true' in (fixture.answer(deleted) or b"")
    assert b'"did_create":true' in (fixture.answer(created) or b"")
    assert fixture.put(b"s.a", b"new")["seq"] == 1
    assert fixture.restart().held() == [(1, b"new")]


def test_everything_is_back_after_a_restart(fixture: Fixture) -> None:
    fixture.create(max_msgs=2)
    for payload in (b"1", b"2", b"3"):
        fixture.put(b"s.a", payload)
    before = fixture.request("STREAM.INFO.S")
    fixture = fixture.restart()
    after = fixture.request("STREAM.INFO.S")
    assert (after["config"], after["state"], after["created"]) == (before["config"], before["state"], before["created"])
    assert fixture.put(b"s.a", b"4")["seq"] == 4
    assert fixture.held() == [(3, b"3"), (4, b"4")]


def test_lowered_limits_hold_at_once(fixture: Fixture) -> None:
    fixture.create()
    for number in range(6):
        fixture.put(b"s.%d" % (number % 2), b"%d" % number)
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 2})
    assert [seq for seq, _ in fixture.held()] == [3, 4, 5, 6]
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 1})
    assert [seq for seq, _ in fixture.held()] == [6]


@pytest.mark.parametrize("limit", [{"max_msgs": 1}, {"max_bytes": 40}])
def test_lowered_limits_are_enforced_in_slices(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    monkeypatch.setattr("eyot_daemon.jetstream.retention.limits.ENFORCED_MAX", 2)
    fixture.create()
    for _ in range(7):
        fixture.put(b"s.a")  # 33 bytes each
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **limit})
    assert [seq for seq, _ in fixture.held()] == [7]


def test_a_longer_message_replaces_one_where_it_fits(fixture: Fixture) -> None:
    fixture.create(max_msgs_per_subject=1, discard="new", max_bytes=104)
    for subject in (b"s.a", b"s.b", b"s.c"):
        fixture.put(subject)  # 33 bytes each
    assert fixture.put(b"s.a", b"123456")["error"]["description"] == "maximum bytes exceeded"
    assert fixture.put(b"s.a", b"12345")["seq"] == 4
    assert fixture.put(b"s.b", b"1")["error"]["description"] == "maximum bytes exceeded"
    lowered = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1, "discard": "new", "max_bytes": 50}
    fixture.request("STREAM.UPDATE.S", lowered)
    assert fixture.put(b"s.b")["seq"] == 5


def test_a_first_sequence_can_be_chosen(fixture: Fixture) -> None:
    fixture.create(first_seq=100)
    assert fixture.put(b"s.a")["seq"] == 100
    assert fixture.request("STREAM.INFO.S")["state"]["first_seq"] == 100


@pytest.mark.parametrize(
    ("words", "body", "err_code", "text"),
    [
        ("STREAM.CREATE.S", b"", 10056, "stream name in subject does not match request"),
        ("STREAM.CREATE.S", b'{"name":"T"}', 10056, "stream name in subject does not match request"),
        ("STREAM.CREATE.S/x", b'{"name":"S/x"}', 10128, "Stream name can not contain path separators"),
        ("STREAM.CREATE.S", b'{"name":"S","nope":1}', 10025, 'invalid JSON: json: unknown field "nope"'),
        (
            "STREAM.CREATE.S",
            b'{"name":"S"} x',
            10025,
            "invalid JSON: invalid character 'x' looking for beginning of value at offset 14",
        ),
        ("STREAM.CREATE.S", b'{"name":', 10025, "invalid JSON: unexpected EOF"),
        ("STREAM.CREATE.E", b'{"name":"E","max_msgs":7}', 10058, None),
        ("STREAM.CREATE.N", b'{"name":"N","subjects":["e.x"]}', 10065, None),
        ("STREAM.CREATE.N", b'{"name":"N","sealed":true}', 10052, "stream configuration for create can not be sealed"),
        ("STREAM.UPDATE.N", b'{"name":"N"}', 10059, "stream not found"),
        ("STREAM.UPDATE.E", b'{"name":"E","storage":"memory"}', 10052, None),
        ("STREAM.INFO.N", b"", 10059, "stream not found"),
        ("STREAM.INFO.E", b"{xx", 10025, None),
        ("STREAM.DELETE.N", b"", 10059, "stream not found"),
        ("STREAM.DELETE.E", b"x", 10038, "expected an empty request payload"),
        ("STREAM.PURGE.N", b"", 10059, "stream not found"),
        ("STREAM.PURGE.E", b'{"seq":1,"keep":1}', 10003, "bad request"),
        ("STREAM.PURGE.D", b"", 10110, "stream purge not permitted"),
        ("STREAM.MSG.GET.E", b"", 10003, "bad request"),
        ("STREAM.MSG.GET.E", b"{}", 10003, "bad request"),
        ("STREAM.MSG.GET.E", b'{"seq":1,"last_by_subj":"e.x"}', 10003, "bad request"),
        ("STREAM.MSG.GET.E", b'{"seq":1,"batch":1}', 10003, "bad request"),
        ("STREAM.MSG.GET.E", b'{"seq":1,"what":1}', 10025, None),
        ("STREAM.MSG.GET.E", b'{"seq":1}', 10037, "no message found"),
        ("STREAM.MSG.GET.N", b'{"seq":1}', 10059, "stream not found"),
        ("STREAM.MSG.DELETE.E", b"", 10003, "bad request"),
        ("STREAM.MSG.DELETE.E", b'{"seq":1}', 10057, "stream store EOF"),
        ("STREAM.MSG.DELETE.E", b'{"seq":0}', 10057, "no message found"),
        ("STREAM.MSG.DELETE.P", b'{"seq":1}', 10057, "no message found"),
        ("STREAM.MSG.DELETE.P", b'{"seq":5}', 10057, "stream store EOF"),
        ("STREAM.MSG.DELETE.M", b'{"seq":0}', 10043, "sequence 0 not found"),
        ("STREAM.MSG.DELETE.M", b'{"seq":1}', 10043, "sequence 1 not found"),
        ("STREAM.MSG.DELETE.D", b'{"seq":1}', 10057, "message delete not permitted"),
    ],
)
def test_refusals(fixture: Fixture, words: str, body: bytes, err_code: int, text: str | None) -> None:
    fixture.create("E")
    fixture.create("D", deny_purge=True, deny_delete=True)
    fixture.create("M", storage="memory")
    fixture.create("P", first_seq=5)
    code, description = refusal(fixture.request(words, body))
    assert (code, text or description) == (err_code, description)


def test_refusals_of_lists_keep_their_members(fixture: Fixture) -> None:
    assert fixture.request("STREAM.INFO.N")["total"] == 0
    assert fixture.request("STREAM.NAMES", b"x")["total"] == 0
    assert fixture.request("STREAM.LIST", b"x")["total"] == 0
    assert fixture.request("STREAM.PURGE.N")["purged"] == 0


def test_unknown_requests_are_not_answered(fixture: Fixture) -> None:
    for words in ("FOO", "STREAM.FOO.S", "STREAM.INFO", "STREAM.INFO.S.T", "META.LEADER.STEPDOWN"):
        assert fixture.request(words) is None


def test_clusters_are_elsewhere(fixture: Fixture) -> None:
    answer = fixture.request("STREAM.LEADER.STEPDOWN.S")
    assert answer["error"]["err_code"] == 10010


def test_a_request_for_a_higher_api_level_is_refused(fixture: Fixture) -> None:
    assert fixture.request("STREAM.NAMES", b"", {"Nats-Required-Api-Level": "4"})["total"] == 0
    for level in ("5", "x", "9" * 5000):
        assert refusal(fixture.request("STREAM.NAMES", b"", {"Nats-Required-Api-Level": level}))[0] == 10185


def test_lenient_servers_ignore_unknown_members(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, options=JetStreamOptions(strict=False))
    assert fixture.request("STREAM.CREATE.S", b'{"name":"S","nope":1}')["did_create"]


def test_an_account_without_jetstream_says_so(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, limits=AccountJetStreamOptions())
    inbox = Recorder()
    other = fixture.broker.global_account
    other.subscribe(b"_INBOX.x", inbox)
    other.publish(b"$JS.API.INFO", b"_INBOX.x")
    fixture.commit()
    assert b'"err_code":10039' in inbox.got[0].payload


def test_account_info_and_limits(tmp_path: Path) -> None:
    limits = AccountJetStreamOptions(
        file_max=10_000, memory_max=5_000, streams_max=2, file_stream_bytes_max=8_000, max_bytes_required=True
    )
    fixture = Fixture(tmp_path, limits=limits)
    assert refusal(fixture.create("N"))[0] == 10113
    assert refusal(fixture.create("N", max_bytes=9_000))[0] == 10122
    fixture.create("S", max_bytes=6_000)
    assert refusal(fixture.create("N", max_bytes=6_000))[0] == 10047
    assert refusal(fixture.create("N", max_bytes=6_000, storage="memory"))[0] == 10028
    fixture.create("T", max_bytes=1_000)
    assert refusal(fixture.create("N", max_bytes=1_000))[0] == 10027
    fixture.put(b"s.a", b"1234")
    info = check_answer(fixture.request("INFO"))
    assert (info["storage"], info["streams"], info["reserved_storage"]) == (37, 2, 7_000)
    assert info["limits"]["max_storage"] == 10_000
    assert info["api"] == {"level": 4, "total": 7, "errors": 5}


def test_a_stream_without_limit_reserves_a_byte(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, limits=AccountJetStreamOptions(file_max=1_000, memory_max=0, file_stream_bytes_max=500))
    assert refusal(fixture.create("N", storage="memory"))[0] == 10028
    assert "error" not in fixture.create("N")
    assert "error" not in fixture.create("M", max_bytes=500)
    assert "error" not in fixture.create("O", max_bytes=500)
    assert refusal(fixture.create("P"))[0] == 10047
    assert refusal(fixture.request("STREAM.UPDATE.N", {"name": "N", "subjects": ["n.>"], "max_bytes": 1}))[0] == 10047
    assert "error" not in fixture.request("STREAM.UPDATE.M", {"name": "M", "subjects": ["m.>"], "max_bytes": 400})


def test_counts_of_0_are_no_limits_and_what_is_there_is_not_counted_twice(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path / "none", limits=AccountJetStreamOptions(streams_max=0, consumers_max=0))
    assert "error" not in fixture.create("N", max_consumers=5)
    fixture = Fixture(tmp_path / "one", limits=AccountJetStreamOptions(streams_max=1, consumers_max=1, file_max=100))
    assert refusal(fixture.create("N", max_consumers=2))[0] == 10026
    assert "error" not in fixture.create("N", max_bytes=100)
    assert "error" not in fixture.create("N", max_bytes=100)
    assert refusal(fixture.create("N", max_bytes=90))[0] == 10058
    assert refusal(fixture.create("O"))[0] == 10027


def test_tiers(tmp_path: Path) -> None:
    r1, r3 = AccountJetStreamOptions(streams_max=1, file_max=100), AccountJetStreamOptions(streams_max=1, file_max=900)
    fixture = Fixture(tmp_path / "both", limits=msgspec.structs.replace(r1, tiers=(("R1", r1), ("R3", r3))))
    assert "error" not in fixture.create("N", max_bytes=100)
    assert refusal(fixture.create("O"))[0] == 10027
    assert refusal(fixture.create("O", num_replicas=3))[0] == 10074
    assert refusal(fixture.create("O", num_replicas=5))[0] == 10120
    info = check_answer(fixture.request("INFO"))
    assert info["limits"]["max_storage"] == 0
    assert [(tier["streams"], tier["limits"]["max_storage"]) for tier in info["tiers"].values()] == [(1, 100), (0, 900)]
    fixture = Fixture(tmp_path / "other", limits=AccountJetStreamOptions(tiers=(("R3", r3),)))
    assert refusal(fixture.create("N"))[0] == 10120


def test_names_and_lists_are_paged_and_filtered(fixture: Fixture) -> None:
    for number in range(5):
        fixture.create(f"S{number}")
    page = fixture.request("STREAM.NAMES", {"offset": 3})
    assert (page["total"], page["offset"], page["limit"], page["streams"]) == (5, 3, 1024, ["S3", "S4"])
    assert fixture.request("STREAM.NAMES", {"offset": 9})["offset"] == 5
    assert fixture.request("STREAM.NAMES", {"offset": -1})["offset"] == 0
    assert fixture.request("STREAM.NAMES", {"subject": "s2.*"})["streams"] == ["S2"]
    assert fixture.request("STREAM.NAMES", {"subject": "nobody"})["streams"] is None
    listed = check_answer(fixture.request("STREAM.LIST", {"subject": "s1.x"}))
    assert (listed["total"], listed["limit"], [each["config"]["name"] for each in listed["streams"]]) == (
        1,
        256,
        ["S1"],
    )


def test_info_tells_subjects_and_deleted_sequences(fixture: Fixture) -> None:
    fixture.create()
    for subject in (b"s.b", b"s.a", b"s.a"):
        fixture.put(subject)
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 2})
    info = check_answer(fixture.request("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}))
    assert (info["total"], info["limit"]) == (2, 100_000)
    assert info["state"]["subjects"] == {"s.a": 1, "s.b": 1}
    assert (info["state"]["num_deleted"], info["state"]["deleted"]) == (1, [2])
    page = fixture.request("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": 1})
    assert page["state"]["subjects"] == {"s.b": 1}


def test_purging(fixture: Fixture) -> None:
    fixture.create()
    for number in range(1, 10):
        fixture.put(b"s.%d" % (number % 3), b"%d" % number)
    assert check_answer(fixture.request("STREAM.PURGE.S", {"seq": 3}))["purged"] == 2
    assert fixture.request("STREAM.PURGE.S", {"filter": "s.0", "keep": 1})["purged"] == 2
    assert fixture.request("STREAM.PURGE.S", {"filter": "s.1", "seq": 5})["purged"] == 1
    assert [seq for seq, _ in fixture.held()] == [5, 7, 8, 9]
    assert fixture.request("STREAM.PURGE.S", {"keep": 1})["purged"] == 3
    assert fixture.request("STREAM.PURGE.S")["purged"] == 1
    state = fixture.request("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"]) == (10, 9)
    assert fixture.request("STREAM.PURGE.S", {"seq": 100})["purged"] == 0
    assert fixture.put(b"s.a")["seq"] == 100


def test_getting_messages(fixture: Fixture) -> None:
    fixture.create()
    fixture.put(b"s.a", b"1", {"Mine": "x"})
    fixture.advance(1)
    fixture.put(b"s.b", b"2")
    fixture.put(b"s.a", b"3")

    def got(**asked: Any) -> int:
        seq = check_answer(fixture.request("STREAM.MSG.GET.S", asked))["message"]["seq"]
        assert isinstance(seq, int)
        return seq

    first = check_answer(fixture.request("STREAM.MSG.GET.S", {"seq": 1}))["message"]
    assert first == {
        "subject": "s.a",
        "seq": 1,
        "hdrs": "TkFUUy8xLjANCk1pbmU6IHgNCg0K",
        "data": "MQ==",
        "time": "2023-11-14T22:13:20Z",
    }
    assert "hdrs" not in fixture.request("STREAM.MSG.GET.S", {"seq": 1, "no_hdr": True})["message"]
    assert got(last_by_subj="s.a") == 3
    assert got(last_by_subj="s.*") == 3
    assert got(next_by_subj="s.a") == 1
    assert got(next_by_subj="s.a", seq=2) == 3
    assert got(start_time="2023-11-14T22:13:20.5Z") == 2
    assert got(start_time="2023-11-14T22:13:20.5Z", next_by_subj="s.a") == 3
    assert refusal(fixture.request("STREAM.MSG.GET.S", {"last_by_subj": "s.zz"}))[0] == 10037


def test_getting_waits_for_what_is_under_way(fixture: Fixture) -> None:
    fixture.create()
    fixture.publish(b"s.a", b"1")
    reply = fixture.publish(b"$JS.API.STREAM.MSG.GET.S", b'{"seq":1}')
    fixture.commit()
    assert b'"seq":1' in (fixture.answer(reply) or b"")


def test_deleting_messages(fixture: Fixture) -> None:
    fixture.create()
    fixture.put(b"s.a", b"1")
    fixture.put(b"s.a", b"2")
    fixture.put(b"s.a", b"3")
    assert check_answer(fixture.request("STREAM.MSG.DELETE.S", {"seq": 2}))["success"]
    assert refusal(fixture.request("STREAM.MSG.DELETE.S", {"seq": 2})) == (10043, "sequence 2 not found")
    assert check_answer(fixture.request("STREAM.MSG.DELETE.S", {"seq": 1}))["success"]
    assert refusal(fixture.request("STREAM.MSG.DELETE.S", {"seq": 1})) == (10057, "no message found")
    assert fixture.held() == [(3, b"3")]


def test_advisories_go_to_those_who_listen(fixture: Fixture) -> None:
    listener = Recorder()
    fixture.account.subscribe(b"$JS.EVENT.ADVISORY.>", listener)
    fixture.create()
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["t"]})
    fixture.request("STREAM.DELETE.S")
    import json

    events = [check_answer(json.loads(payload)) for payload in listener.payloads]
    actions = [event["action"] for event in events if event["type"].endswith("stream_action")]
    assert actions == ["create", "modify", "delete"]
    audits = [event["subject"] for event in events if event["type"].endswith("api_audit")]
    assert audits == ["$JS.API.STREAM.CREATE.S", "$JS.API.STREAM.UPDATE.S", "$JS.API.STREAM.DELETE.S"]


def test_mirrors_and_sources_show_their_origins(fixture: Fixture) -> None:
    fixture.create("M", subjects=None, mirror={"name": "O", "external": {"api": "$JS.hub.API", "deliver": ""}})
    info = check_answer(fixture.request("STREAM.INFO.M"))
    assert info["mirror"] == {
        "name": "O",
        "external": {"api": "$JS.hub.API", "deliver": ""},
        "lag": 0,
        "active": -1,
    }
    fixture.create("T", subjects=None, sources=[{"name": "O", "filter_subject": "a"}])
    assert check_answer(fixture.request("STREAM.INFO.T"))["sources"][0]["filter_subject"] == "a"


@pytest.mark.parametrize(
    ("subject", "path"),
    [
        (b"STREAM.INFO.S", ("state", "messages")),
        (b"STREAM.LIST", ("streams", 0, "state", "messages")),
        (b"CONSUMER.LIST.S", ("consumers", 0, "num_pending")),
        (b"CONSUMER.INFO.S.C", ("num_pending",)),
    ],
)
def test_what_was_published_before_the_request_counts(
    tmp_path: Path, subject: bytes, path: tuple[str | int, ...]
) -> None:
    fixture = Fixture(tmp_path)
    fixture.create()
    fixture.request("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"name": "C", "ack_policy": "none"}})
    fixture.publish(b"s.1", b"on its way to flash")
    reply = fixture.publish(b"$JS.API." + subject)
    fixture.commit()
    answer = json.loads(fixture.answer(reply) or b"null")
    for step in path:
        answer = answer[step]
    assert answer == 1
