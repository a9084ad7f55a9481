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


@pytest.mark.parametrize("before", [None, ClientConnect(verbose=True)])
@pytest.mark.parametrize("json", [json for what, json in BAD.items() if "UTF-8" not in what])
def test_a_connect_that_is_no_json_is_refused(json: bytes, before: ClientConnect | None) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_connect(json, before)


def test_a_connect_may_hold_letters_that_are_none() -> None:
    json = b'{"name":"a\x80","lang":"\\ud800","protocol":1,"echo":false,"user":null,"x\x80":[{}],"NEW_account":true}'
    connect = decode_connect(json, ClientConnect(user="u", version="1"))
    assert (connect.name, connect.lang) == ("a\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}")
    assert (connect.protocol, connect.echo, connect.user, connect.version, connect.new_account) == (
        1,
        False,
        "u",
        "1",
        True,
    )
    for bad in (b'{"name":"\x80","protocol":1.5}', b'{"name":"\x80","user":{}}', b'["\x80"]', b'{"name":"\x80"} 1'):
        with pytest.raises(msgspec.DecodeError):
            decode_connect(bad)


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
