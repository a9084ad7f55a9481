"""JSON of peers: the reader reports every fault as its own kind of error."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from eyot_wire.info import ClientConnect, LeafInfo, decode, decode_connect
from eyot_wire.jetstream.stream import StreamConfig
from eyot_wire.jetstream.struct import InvalidJson
from eyot_wire.jetstream.struct import decode as decode_request
from eyot_wire.untrusted import decode_json

DEEP = 100_000
BAD = {
    "no JSON": b"{",
    "no UTF-8 in a value": b'{"name":"\x80"}',
    "no UTF-8 in a key that is skipped": b'{"\x80erbose":false}',
    "deep where nothing is expected": b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep, and it never ends": b'{"name":' + b'{"a":' * DEEP,
}


@pytest.mark.parametrize("json", BAD.values(), ids=BAD)
def test_what_is_wrong_is_one_kind_of_error(json: bytes) -> None:
    for kind in (ClientConnect, LeafInfo):
        with contextlib.suppress(msgspec.DecodeError):  # nobody looks at a key that is not known
            decode(json, kind)
    with pytest.raises(msgspec.DecodeError):
        decode_json(json)


@pytest.mark.parametrize("json", BAD.values(), ids=BAD)
def test_a_second_connect_is_no_worse(json: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_connect(json, ClientConnect(verbose=True))


@pytest.mark.parametrize("json", [json for what, json in BAD.items() if "in a value" not in what])
def test_requests_say_it_in_go_s_words(json: bytes) -> None:
    with pytest.raises(InvalidJson, match=r"^(unexpected end|unexpected EOF|json: |exceeded max depth|invalid )"):
        decode_request(json, StreamConfig)


def test_requests_may_hold_letters_that_are_none() -> None:
    assert decode_request(b'{"name":"\x80"}', StreamConfig).name == "\N{REPLACEMENT CHARACTER}"


def test_what_nests_as_requests_do_is_taken() -> None:
    config = decode_request(b'{"name":"A","metadata":{"a":"1"},"consumer_limits":{"max_ack_pending":3}}', StreamConfig)
    assert config.consumer_limits is not None
    assert config.consumer_limits.max_ack_pending == 3
