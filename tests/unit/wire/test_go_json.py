"""JSON as Go reads it: values, their raw text, and Go's words for what is none; the words are nats-server 2.14.6's."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.go.json import Node, SyntaxFault, values
from eyot_wire.jetstream.model import CreateConsumerRequest, InvalidJson, MsgGetRequest, StreamConfigRequest, decode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def plain(node: Node) -> Any:
    match node.kind:
        case "object":
            return {name: plain(member) for name, member in node.value}
        case "array":
            return [plain(item) for item in node.value]
        case "number":
            return json.loads(node.value)
        case _:
            return node.value


@given(JSON, st.booleans())
def test_the_same_values_as_the_standard_library(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped, indent=1 if escaped else None)
    data = text.encode("utf-8", "surrogatepass")
    (node,) = values(b" \n" + data)
    assert plain(node) == json.loads(data.decode("utf-8", "replace"))
    assert node.raw == data


def damaged(value: Any, at: int, byte: int) -> bytes:
    """JSON of a value with one other byte."""
    data = bytearray(json.dumps(value).encode())
    data[at % len(data)] = byte
    return bytes(data)


@given(
    st.binary(max_size=40)
    | JSON.map(lambda value: json.dumps(value).encode()[:-1])
    | st.builds(damaged, JSON, st.integers(0, 10_000), st.integers(0, 255))
)
def test_anything_is_read_or_refused(data: bytes) -> None:
    try:
        found = list(values(data))
    except SyntaxFault:
        return
    text = (b"[" + b",".join(node.raw for node in found) + b"]").decode("utf-8", "replace")
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x", "invalid character 'x' looking for beginning of value at offset 1"),
        (b'{"name":"S"', "unexpected EOF"),
        (b'{"name":"S"}x', "invalid character 'x' looking for beginning of value at offset 13"),
        (b'{"name":"S",}', "invalid character '}' looking for beginning of object key string at offset 13"),
        (b'{"name" "S"}', "invalid character '\"' after object key at offset 9"),
        (b'{"a":tru}', "invalid character '}' in literal true (expecting 'e') at offset 9"),
        (b'{"a":"S\n"}', r"invalid character '\n' in string at offset 8"),
        (b'{"a":"\\x"}', r"invalid escape sequence `\x` in string at offset 8"),
        (b'{"a":"\\u12nul', r"invalid escape sequence `\u12nu` in string at offset 12"),
        (b"\xef\xbb\xbf{}", r"invalid character '\ufeff' looking for beginning of value at offset 3"),
        (b"{\xff}", r"invalid character '\xff' looking for beginning of object key string at offset 2"),
        (b'{"a":01}', "invalid character '1' after object key:value pair at offset 7"),
        (b"[1 2]", "invalid character '2' after array element at offset 4"),
    ],
)
def test_words(data: bytes, words: str) -> None:
    with pytest.raises(SyntaxFault) as refused:
        list(values(data))
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"placement": "x"}, "json: cannot unmarshal string into Go struct field {}.placement of type server.Placement"),
        ({"sources": [{"name": 1}]}, "json: cannot unmarshal number into Go struct field {}.sources.0.name of type string"),
        ({"subjects": [1]}, "json: cannot unmarshal number into {}.subjects.0 of type string"),
        ({"metadata": {"a": 1}}, "json: cannot unmarshal number into Go struct field {}.metadata.a of type string"),
        ({"max_msgs": 1.5}, "json: cannot unmarshal number 1.5 into Go struct field {}.max_msgs of type int64"),
        ({"max_msg_size": 1 << 33}, "json: cannot unmarshal number 8589934592 into Go struct field {}.max_msg_size of type int32"),
        ({"max_age": 1 << 63}, f"json: cannot unmarshal number {1 << 63} into Go struct field {{}}.max_age of type time.Duration"),
        ({"first_seq": -1}, "json: cannot unmarshal number -1 into Go struct field {}.first_seq of type uint64"),
        ({"retention": None}, 'can not unmarshal "null"'),
        ({"compression": "zip"}, "unknown compression algorithm"),
        ({"max_msgs": "x", "unknown": 1}, "json: cannot unmarshal string into Go struct field {}.max_msgs of type int64"),
    ],
)  # fmt: skip
def test_words_for_streams(members: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        decode(json.dumps(members).encode(), StreamConfigRequest)
    assert str(refused.value) == words.format("StreamConfigRequest")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"backoff": ["x"]}, "json: cannot unmarshal string into CreateConsumerRequest.config.backoff.0 of type time.Duration"),
        ({"priority_policy": "x"}, 'unknown priority policy: "x"'),
        ({"opt_start_time": 5}, "json: cannot unmarshal number into Go struct field CreateConsumerRequest.config.opt_start_time of type time.Time"),
        ({"pause_until": "2020-13-01T00:00:00Z"}, 'parsing time "2020-13-01T00:00:00Z": month out of range'),
        ({"pause_until": "2023-02-29T00:00:00Z"}, 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ({"pause_until": "2020-01-01T00:00:00Zx"}, 'parsing time "2020-01-01T00:00:00Zx": extra text: "x"'),
    ],
)  # fmt: skip
def test_words_for_consumers(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        decode(json.dumps({"config": config}).encode(), CreateConsumerRequest)
    assert str(refused.value) == words


def test_spellings_that_go_takes() -> None:
    config = decode(b'{"discard":"NEW","persist_mode":"","Name":"S"}', StreamConfigRequest)
    assert (config.discard, config.persist_mode, config.name) == ("new", "default", "S")
    request = decode(b'{"config":{"deliver_policy":"undefined"}}', CreateConsumerRequest)
    assert request.config.deliver_policy == "all"
    laid_over = decode(b'{"seq":1} {"batch":2}', MsgGetRequest)
    assert (laid_over.seq, laid_over.batch) == (1, 2)
