"""Defaults, checks and update rules of stream configurations, by nats-server's codes and texts."""

from typing import Any

import pytest

from eyot_daemon.jetstream.config.rules import ConfigRules
from eyot_daemon.jetstream.config.stream import checked, checked_update, same
from eyot_wire.jetstream.errors import JetStreamError
from eyot_wire.jetstream.model import StreamConfig, StreamConfigRequest, decode, encode

S = 1_000_000_000
MS = 1_000_000

OTHERS = {
    "OTHER": StreamConfig(name="OTHER", subjects=["other.>"], max_msg_size=100),
    "DIRECT": StreamConfig(name="DIRECT", subjects=["direct"], allow_direct=True, max_msg_size=-1),
    "LOOP": decode(b'{"name":"LOOP","sources":[{"name":"S"}]}', StreamConfig),
    "OF_OTHER": decode(b'{"name":"OF_OTHER","mirror":{"name":"OTHER"}}', StreamConfig),
    "MIRROR": decode(b'{"name":"MIRROR","mirror":{"name":"S"}}', StreamConfig),
}
RULES = ConfigRules(streams=OTHERS, duplicate_window_max_ns=3600 * S)
#: Without the streams that copy from S.
PEACEFUL = ConfigRules(streams={name: OTHERS[name] for name in ("OTHER", "DIRECT")})


def config(**members: Any) -> StreamConfig:
    return decode(encode({"name": "S", **members}), StreamConfig)


def refusal(members: dict[str, Any], *, pedantic: bool = False) -> tuple[int, str]:
    with pytest.raises(JetStreamError) as refused:
        checked(config(**members), RULES, pedantic=pedantic)
    return refused.value.api_error.err_code, refused.value.api_error.description


def test_defaults() -> None:
    stored = checked(config(), RULES)
    assert decode(encode(stored), StreamConfig) == StreamConfig(
        name="S",
        subjects=["S"],
        max_consumers=-1,
        max_msgs=-1,
        max_bytes=-1,
        max_msgs_per_subject=-1,
        max_msg_size=-1,
        num_replicas=1,
        duplicate_window=120 * S,
        metadata={"_nats.req.level": "0"},
    )


@pytest.mark.parametrize(
    ("members", "changed"),
    [
        ({"max_age": 60 * S}, {"duplicate_window": 60 * S}),
        ({"max_age": 600 * S}, {"duplicate_window": 120 * S}),
        ({"duplicate_window": 5 * S}, {"duplicate_window": 5 * S}),
        ({"mirror": {"name": "OTHER"}}, {"duplicate_window": 0, "subjects": []}),
        ({"sources": [{"name": "OTHER"}]}, {"duplicate_window": 0, "subjects": []}),
        ({"mirror": {"name": "DIRECT"}}, {"mirror_direct": True}),
        ({"mirror": {"name": "OTHER"}, "mirror_direct": True}, {"mirror_direct": False}),
        ({"mirror": {"name": "X", "external": {"api": "$JS.d.API"}}, "mirror_direct": True}, {"mirror_direct": True}),
        ({"max_msgs": -7, "max_bytes": 5}, {"max_msgs": -1, "max_bytes": 5}),
        (
            {"metadata": {"a": "b", "_nats.ver": "9", "_nats.req.level": "7"}},
            {"metadata": {"a": "b", "_nats.req.level": "0"}},
        ),
        ({"subjects": ["$JS.EVENT.ADVISORY.>", "$SYS.ACCOUNT.A.>"]}, {}),
        ({"compression": "s2", "persist_mode": "async"}, {"compression": "s2", "persist_mode": "async"}),
    ],
)
def test_what_is_filled_in(members: dict[str, Any], changed: dict[str, Any]) -> None:
    stored = checked(config(**members), PEACEFUL)
    for name, value in changed.items():
        assert getattr(stored, name) == value


BAD_NAME = r"stream name is required and can not contain '.', '*', '>', '\', '/'"


@pytest.mark.parametrize(
    ("members", "err_code", "text"),
    [
        ({"name": ""}, 10052, BAD_NAME),
        ({"name": "a.b"}, 10052, BAD_NAME),
        ({"name": "a b"}, 10052, BAD_NAME),
        ({"name": "n" * 256}, 10052, "stream name is too long, maximum allowed is 255"),
        ({"description": "d" * 4097}, 10052, "stream description is too long, maximum allowed is 4096"),
        ({"metadata": {"k": "v" * 131072}}, 10052, "stream metadata exceeds maximum size of 131072 bytes"),
        ({"num_replicas": 6}, 10052, "maximum replicas is 5"),
        ({"num_replicas": -1}, 10133, None),
        ({"max_age": -1}, 10052, "max age can not be negative"),
        ({"max_age": 99 * MS}, 10052, "max age needs to be >= 100ms"),
        ({"duplicate_window": -1}, 10052, "duplicates window can not be negative"),
        ({"duplicate_window": 2 * S, "max_age": S}, 10052, "duplicates window can not be larger then max age"),
        (
            {"duplicate_window": 7200 * S},
            10052,
            "duplicates window can not be larger then server limit of 1h0m0s",
        ),
        ({"duplicate_window": 99 * MS}, 10052, "duplicates window needs to be >= 100ms"),
        ({"deny_purge": True, "allow_rollup_hdrs": True}, 10052, "roll-ups require the purge permission"),
        (
            {"discard_new_per_subject": True},
            10052,
            "discard new per subject requires discard new policy to be set",
        ),
        (
            {"discard_new_per_subject": True, "discard": "new"},
            10052,
            "discard new per subject requires max msgs per subject > 0",
        ),
        ({"subject_delete_marker_ttl": -1}, 10052, "subject delete marker TTL must not be negative"),
        ({"subject_delete_marker_ttl": 5}, 10052, "subject delete marker TTL must be at least 1 second"),
        ({"persist_mode": "async", "storage": "memory"}, 10052, None),
        ({"subjects": ["a..b"]}, 10052, "invalid subject"),
        ({"subjects": ["a.>.b"]}, 10052, "invalid subject"),
        ({"subjects": ["a", "a"]}, 10052, 'subject "a" overlaps with "a"'),
        ({"subjects": ["a.*", "a.b"]}, 10052, 'subject "a.*" overlaps with "a.b"'),
        ({"subjects": [">"]}, 10052, "capturing all subjects requires no-ack to be true"),
        ({"subjects": ["$JS.API.>"]}, 10052, "subjects that overlap with jetstream api require no-ack to be true"),
        ({"subjects": ["*.API.x"]}, 10052, "subjects that overlap with jetstream api require no-ack to be true"),
        ({"subjects": ["$SYS.>"]}, 10052, "subjects that overlap with system api require no-ack to be true"),
        ({"subject_transform": {"src": "a..b", "dest": "c"}}, 10155, None),
        ({"subject_transform": {"src": "a.*", "dest": "c.{{wildcard(2)}}"}}, 10156, None),
        (
            {"subjects": ["a.>"], "republish": {"src": ">", "dest": "a.b.>"}},
            10052,
            "stream configuration for republish destination forms a cycle",
        ),
        (
            {"subjects": ["a"], "republish": {"src": "a.*", "dest": "b.{{wildcard(3)}}"}},
            10052,
            "stream configuration for republish with transform from 'a.*' to 'b.{{wildcard(3)}}' not valid",
        ),
        ({"placement": {"preferred": "n1"}}, 10052, "preferred server not permitted in placement"),
        ({"mirror": {"name": "OTHER"}, "first_seq": 5}, 10143, None),
        ({"mirror": {"name": "OTHER"}, "subjects": ["a"]}, 10034, None),
        ({"mirror": {"name": "OTHER"}, "sources": [{"name": "OTHER"}]}, 10031, None),
        ({"mirror": {"name": "a.b"}}, 10142, None),
        ({"mirror": {"name": "OTHER"}, "max_msg_size": 10}, 10030, None),
        (
            {"mirror": {"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "b", "dest": ""}]}},
            10150,
            None,
        ),
        ({"mirror": {"name": "O", "subject_transforms": [{"src": "a..", "dest": ""}]}}, 10151, None),
        ({"mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "{{nope(1)}}"}]}}, 10154, None),
        (
            {"mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": ""}, {"src": "a.b", "dest": ""}]}},
            10152,
            None,
        ),
        ({"mirror": {"name": "S"}}, 10052, "detected cycle"),
        ({"mirror": {"name": "MIRROR"}}, 10052, "detected cycle"),
        ({"sources": [None]}, 10141, None),
        ({"sources": [{"name": "a.b"}]}, 10141, None),
        ({"sources": [{"name": "OTHER"}, {"name": "OTHER"}]}, 10140, None),
        (
            {"sources": [{"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "b", "dest": ""}]}]},
            10144,
            None,
        ),
        ({"sources": [{"name": "O", "subject_transforms": [{"src": "..", "dest": ""}]}]}, 10145, None),
        ({"sources": [{"name": "O", "subject_transforms": [{"src": "a", "dest": "$9"}]}]}, 10146, None),
        (
            {"sources": [{"name": "O", "subject_transforms": [{"src": "a", "dest": ""}, {"src": "*", "dest": ""}]}]},
            10147,
            None,
        ),
        ({"sources": [{"name": "OTHER"}], "max_msg_size": 10}, 10046, None),
        ({"sources": [{"name": "LOOP"}]}, 10052, "detected cycle"),
        ({"sources": [{"name": "OTHER"}, {"name": "OF_OTHER"}]}, 10052, "detected cycle"),
        ({"sources": [{"name": "O", "external": {"api": "$JS.API"}}]}, 10021, None),
        (
            {"sources": [{"name": "O", "external": {"api": "$JS.*.API"}}]},
            10052,
            'stream external api prefix "$JS.*.API" must be a valid subject without wildcards',
        ),
        ({"sources": [{"name": "O", "external": {"api": "x", "deliver": "a.*"}}]}, 10024, None),
        ({"sources": [{"name": "OTHER"}, {"name": "O", "external": {"api": "x", "deliver": "other"}}]}, 10022, None),
    ],
)
def test_refusals(members: dict[str, Any], err_code: int, text: str | None) -> None:
    code, description = refusal(members)
    assert (code, text or description) == (err_code, description)


def test_a_stream_without_acks_may_capture_everything() -> None:
    assert checked(config(subjects=[">"], no_ack=True), ConfigRules(streams={})).subjects == [">"]


def test_the_same_origin_may_be_sourced_through_different_prefixes_and_filters() -> None:
    sources = [
        {"name": "O"},
        {"name": "O", "external": {"api": "$JS.d1.API", "deliver": ""}},
        {"name": "O", "external": {"api": "$JS.d2.API", "deliver": ""}},
        {"name": "O", "filter_subject": "a"},
    ]
    assert len(checked(config(sources=sources), RULES).sources) == 4


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"max_msgs": -2}, "pedantic mode: max_msgs must be set to -1"),
        ({"max_age": S}, "pedantic mode: duplicate window cannot be bigger than max age"),
        (
            {"max_age": 2 * S, "republish": {"dest": "r.>"}, "duplicate_window": S},
            "pedantic mode: republish source can not be empty",
        ),
    ],
)
def test_pedantic_refuses_what_would_be_corrected(members: dict[str, Any], text: str) -> None:
    assert refusal(members, pedantic=True) == (10157, text)


@pytest.mark.parametrize(
    ("before", "after", "err_code", "text"),
    [
        ({"storage": "file"}, {"storage": "memory"}, 10052, "stream configuration update can not change storage type"),
        (
            {},
            {"retention": "workqueue"},
            10052,
            "stream configuration update can not change retention policy to/from workqueue",
        ),
        ({"sealed": True}, {}, 10052, "stream configuration update can not unseal a sealed stream"),
        ({"deny_delete": True}, {}, 10052, "stream configuration update can not cancel deny message deletes"),
        ({"deny_purge": True}, {}, 10052, "stream configuration update can not cancel deny purge"),
        ({"mirror": {"name": "OTHER"}}, {"mirror": {"name": "DIRECT"}}, 10055, None),
        ({}, {"mirror": {"name": "DIRECT"}}, 10055, None),
        ({}, {"persist_mode": "async"}, 10052, "stream configuration update can not change persist mode"),
    ],
)
def test_what_cannot_be_changed(before: dict[str, Any], after: dict[str, Any], err_code: int, text: str | None) -> None:
    old = checked(config(**before), PEACEFUL)
    with pytest.raises(JetStreamError) as refused:
        checked_update(old, config(**after), PEACEFUL)
    assert refused.value.api_error.err_code == err_code
    assert text in (None, refused.value.api_error.description)


def test_what_can_be_changed() -> None:
    old = checked(config(subjects=["a"]), RULES)
    new = checked_update(old, config(subjects=["b"], max_consumers=3, retention="interest", max_msgs=1), RULES)
    assert (new.subjects, new.max_consumers, new.retention) == (["b"], 3, "interest")


def test_a_mirror_is_promoted_by_taking_its_origin_away() -> None:
    old = checked(config(mirror={"name": "OTHER"}), ConfigRules(streams={}))
    assert checked_update(old, config(subjects=["a"]), ConfigRules(streams={})).mirror is None


def test_sealing_brings_its_flags_along() -> None:
    sealed = checked_update(checked(config(max_age=S), RULES), config(sealed=True, max_age=S), RULES)
    assert (sealed.max_age, sealed.discard, sealed.deny_delete, sealed.deny_purge) == (0, "new", True, True)


def test_the_servers_own_metadata_does_not_count_in_comparisons() -> None:
    stored = checked(config(metadata={"a": "b"}), RULES)
    asked = checked(config(metadata={"a": "b", "_nats.ver": "2.9"}), RULES)
    assert same(stored, asked)
    assert not same(stored, checked(config(metadata={"a": "c"}), RULES))


def test_the_request_is_the_configuration_and_a_flag() -> None:
    asked = decode(b'{"name":"S","pedantic":true}', StreamConfigRequest)
    assert asked.pedantic
    assert asked.plain() == StreamConfig(name="S")
