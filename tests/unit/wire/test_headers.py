"""Header blocks: parsing, building and rewriting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire import headers

NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)
VALUE = st.from_regex(r"([!-~]([ -~]{0,8}[!-~])?)?", fullmatch=True)
FIELDS = st.lists(st.tuples(NAME, VALUE), max_size=5)


def values(parsed: headers.Headers, name: bytes) -> list[bytes]:
    return [value for key, value in parsed.fields if key == name]


def test_build_and_parse() -> None:
    block = headers.build("100 Idle Heartbeat", [("Nats-Last-Consumer", "5"), ("A", "")])
    assert block == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 5\r\nA: \r\n\r\n"
    parsed = headers.parse(block)
    assert (parsed.status, parsed.description) == (100, "Idle Heartbeat") == headers.status(block)
    assert parsed.get(b"Nats-Last-Consumer") == b"5"
    assert parsed.get(b"nats-last-consumer") is None
    assert b"A" in parsed
    assert parsed.encode() == block
    assert headers.build("503") == headers.NO_RESPONDERS
    assert headers.build() == b"NATS/1.0\r\n\r\n"


def test_status() -> None:
    assert headers.status(b"") is None
    assert headers.status(b"NATS/1.0\r\nA: b\r\n\r\n") is None
    assert headers.status(b"NATS/1.0 503\r\n\r\n") == (503, "")
    assert headers.status(b"NATS/1.0   404  No Messages \r\n\r\n") == (404, "No Messages")
    assert headers.status(b"NATS/1.0 hello\r\n\r\n") is None


@pytest.mark.parametrize(
    "bad", [b"X", b"NATS/1.0", b"NATS/1.0\r\n", b"NATS/1.0\r\nno colon\r\n\r\n", b"NATS/1.0\r\n: x\r\n\r\n"]
)
def test_bad_blocks(bad: bytes) -> None:
    with pytest.raises(headers.HeaderError):
        headers.parse(bad)


def test_empty() -> None:
    assert len(headers.parse(b"")) == 0
    assert headers.parse(b"").encode() == b""
    assert headers.get(b"", b"A") is None


def test_get_looks_at_names_only() -> None:
    block = b"NATS/1.0\r\nX-A: A: 1\r\nA:2  \r\nA: 3\r\n\r\n"
    assert headers.get(block, b"A") == b"2"
    assert values(headers.parse(block), b"A") == [b"2", b"3"]
    assert headers.get(block, b"B") is None


def test_set_add_remove_strip() -> None:
    one = headers.set_field(b"", b"A", b"1")
    assert one == b"NATS/1.0\r\nA: 1\r\n\r\n"
    two = headers.add_field(one, b"A", b"2")
    assert values(headers.parse(two), b"A") == [b"1", b"2"]
    assert headers.set_field(two, b"A", b"3") == b"NATS/1.0\r\nA: 3\r\n\r\n"
    assert headers.remove(two, b"A") == b""
    assert headers.remove(b"NATS/1.0 503\r\nA: 1\r\n\r\n", b"A") == b"NATS/1.0 503\r\n\r\n"
    block = headers.build("", [("Nats-Expected-Stream", "S"), ("Nats-Msg-Id", "1"), ("Nats-Batch-Id", "b")])
    assert headers.strip(block, (b"Nats-Expected-", b"Nats-Batch-")) == headers.build("", [("Nats-Msg-Id", "1")])
    assert headers.strip(block, (b"Nats-",)) == b""
    assert headers.strip(block, (b"X-",)) is block


@given(FIELDS)
def test_round_trip(fields: list[tuple[str, str]]) -> None:
    block = headers.build("", fields)
    assert headers.is_block(block)
    parsed = headers.parse(block)
    assert [(name.decode(), value.decode()) for name, value in parsed] == fields
    for name, _ in fields:
        assert headers.get(block, name.encode()) == parsed.get(name.encode())


@given(FIELDS, NAME, VALUE)
def test_set_field_leaves_exactly_one(fields: list[tuple[str, str]], name: str, value: str) -> None:
    changed = headers.parse(headers.set_field(headers.build("", fields), name.encode(), value.encode()))
    assert values(changed, name.encode()) == [value.encode()]
    kept = [(key, each) for key, each in changed if key != name.encode()]
    assert kept == [(key.encode(), each.encode()) for key, each in fields if key != name]
