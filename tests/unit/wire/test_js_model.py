"""The JSON of the JetStream API: order, omission, strictness, Go's words; times and errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.jetstream.errors import error, fail
from eyot_wire.jetstream.model import (
    ConsumerConfig,
    CreateConsumerRequest,
    ErrorPart,
    InvalidJson,
    PagePart,
    StreamConfig,
    StreamInfo,
    StreamState,
    decode,
    encode,
    encode_response,
    ns_to_rfc3339,
    rfc3339_to_ns,
)


def test_members_leave_in_order_and_zero_values_only_where_they_must() -> None:
    assert encode(StreamConfig(name="S")).decode() == (
        '{"name":"S","retention":"limits","max_consumers":0,"max_msgs":0,"max_bytes":0,"max_age":0,'
        '"max_msgs_per_subject":0,"discard":"old","storage":"file","num_replicas":0,"compression":"none",'
        '"allow_direct":false,"mirror_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,'
        '"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false}'
    )
    assert encode(ConsumerConfig(durable_name="C")).decode() == (
        '{"durable_name":"C","deliver_policy":"all","ack_policy":"none","replay_policy":"instant","num_replicas":0}'
    )


def test_a_response_is_its_type_and_its_parts() -> None:
    assert encode_response("stream_info_response", ErrorPart(error=error(10059)), PagePart()) == (
        b'{"type":"io.nats.jetstream.api.v1.stream_info_response",'
        b'"error":{"code":404,"err_code":10059,"description":"stream not found"},"total":0,"offset":0,"limit":0}'
    )


def test_structs_with_lists_do_not_share_them() -> None:
    one, two = StreamConfig(), StreamConfig()
    one.subjects.append("a")
    one.consumer_limits.max_ack_pending = 5
    assert (two.subjects, two.consumer_limits.max_ack_pending) == ([], 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"nope":1}', 'json: unknown field "nope"'),
        (b'{"mirror":{"name":"a","nope":1}}', 'json: unknown field "nope"'),
        (b'{"max_msgs":"x"}', "json: cannot unmarshal string into Go struct field StreamConfig.max_msgs of type int64"),
        (b'{"name":3}', "json: cannot unmarshal number into Go struct field StreamConfig.name of type string"),
        (b'{"retention":"x"}', 'can not unmarshal "\\"x\\""'),
        (
            b'{"sources":[{"opt_start_time":"noon"}]}',
            'parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006"',
        ),
        (
            b'{"first_seq":-0}',
            "json: cannot unmarshal number -0 into Go struct field StreamConfig.first_seq of type uint64",
        ),
        (b"[]", "json: cannot unmarshal array into Go value of type server.StreamConfig"),
        (b"", "unexpected EOF"),
        (b'{"name"', "unexpected EOF"),
        (b"{} x", "invalid character 'x' looking for beginning of value at offset 4"),
        (b"xx", "invalid character 'x' looking for beginning of value at offset 1"),
    ],
)
def test_what_cannot_be_read(data: bytes, words: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        decode(data, StreamConfig)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("data", "strict", "expected"),
    [
        (b'{"NAME":"S"}', True, {"name": "S"}),
        (b'{"name":null,"subjects":null,"mirror":null}', True, {}),
        (b'{"sources":[null],"metadata":{"a":null}}', True, {"sources": [{"name": ""}], "metadata": {"a": ""}}),
        (b'{"name":"S","nope":{"a":1},"mirror":{"name":"O","x":1}}', False, {"name": "S", "mirror": {"name": "O"}}),
    ],
)
def test_what_go_would_read(data: bytes, strict: bool, expected: dict[str, Any]) -> None:
    assert decode(data, StreamConfig, strict=strict) == decode(encode(expected), StreamConfig)


def test_a_nested_request() -> None:
    request = decode(b'{"stream_name":"S","config":{"ack_policy":"explicit"},"action":"create"}', CreateConsumerRequest)
    assert (request.stream_name, request.config.ack_policy, request.action) == ("S", "explicit", "create")


def test_infos_survive_the_journey() -> None:
    info = StreamInfo(config=StreamConfig(name="S", subjects=["a"]), state=StreamState(messages=3))
    assert decode(encode(info), StreamInfo) == info


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0001-01-01T00:00:00Z"),
        (1_700_000_000_000_000_000, "2023-11-14T22:13:20Z"),
        (1_700_000_000_120_000_000, "2023-11-14T22:13:20.12Z"),
        (1_700_000_000_000_000_001, "2023-11-14T22:13:20.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
    ],
)
def test_times(ns: int, text: str) -> None:
    assert (ns_to_rfc3339(ns), rfc3339_to_ns(text)) == (text, ns)


def test_times_with_offsets() -> None:
    assert rfc3339_to_ns("2023-11-14T23:13:20+01:00") == rfc3339_to_ns("2023-11-14T22:13:20Z")
    assert rfc3339_to_ns("2023-11-14T16:43:20-05:30") == rfc3339_to_ns("2023-11-14T22:13:20Z")


@pytest.mark.parametrize(
    "text", ["", "2023-11-14", "2023-13-14T00:00:00Z", "2023-02-30T00:00:00Z", "2023-11-14T22:13:20"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="parsing time"):
        rfc3339_to_ns(text)


@given(st.integers(-62_000_000_000_000_000_000, 9_000_000_000_000_000_000))
def test_times_survive_the_journey(ns: int) -> None:
    assert rfc3339_to_ns(ns_to_rfc3339(ns)) == ns


def test_errors_are_filled_in() -> None:
    assert error(10071, seq=7).description == "wrong last sequence: 7"
    assert error(10052, err="because").code == 500
    assert fail(10059).api_error == error(10059)
    with pytest.raises(KeyError):
        error(1)


def test_nothing_below_nothing_is_nothing_where_numbers_may_be_negative() -> None:
    assert decode(b'{"max_msgs":-0}', StreamConfig).max_msgs == 0
