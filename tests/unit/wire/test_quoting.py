"""Quoted text: as Go prints it."""

import pytest

from eyot_wire.quoting import quoted

# What fmt.Printf("%q") prints, from Go's documentation of strconv.Quote and by reading its rules.
CASES = [
    (b"", '""'),
    (b"orders.new", '"orders.new"'),
    (b'say "hi"', '"say \\"hi\\""'),
    (b"back\\slash", '"back\\\\slash"'),
    (b"\x00\x07\x1b\x7f", '"\\x00\\a\\x1b\\x7f"'),
    (b"\t\n\r", '"\\t\\n\\r"'),
    (b"\xff\xfe", '"\\xff\\xfe"'),
    (b"\xc3(", '"\\xc3("'),
    ("größe.☺".encode(), '"größe.☺"'),
    ("\u00ad\u200b\u2028\ue000".encode(), '"\\u00ad\\u200b\\u2028\\ue000"'),
    ("\U000e0001\U0001f600".encode(), '"\\U000e0001\U0001f600"'),
]


@pytest.mark.parametrize(("text", "shown"), CASES)
def test_as_go_prints_it(text: bytes, shown: str) -> None:
    assert quoted(text) == shown
