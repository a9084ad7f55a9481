"""The configuration grammar: accepted text, its values, and the positions of mistakes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eyot_wire.conf import ConfError, ConfMap, parse_file, parse_text
from eyot_wire.conf.parser import DEPTH_MAX

VALUES: list[tuple[str, Any]] = [
    ("a: 1", {"a": 1}),
    ("a = 1", {"a": 1}),
    ("a 1", {"a": 1}),
    ("a:1;b=2,c 3", {"a": 1, "b": 2, "c": 3}),
    ("a: -5k", {"a": -5000}),
    ("a: 1K\nb: 1kb\nc: 1Ki\nd: 1KiB", {"a": 1000, "b": 1024, "c": 1024, "d": 1024}),
    ("a: 2m\nb: 1mb\nc: 1g\nd: 1GB\ne: 1t", {"a": 2_000_000, "b": 1 << 20, "c": 10**9, "d": 1 << 30, "e": 10**12}),
    ("a: 1.5\nb: -0.25", {"a": 1.5, "b": -0.25}),
    (
        "a: true\nb: YES\nc: on\nd: false\ne: No\nf: OFF",
        {"a": True, "b": True, "c": True, "d": False, "e": False, "f": False},
    ),
    ("a: \"true\"\nb: '1'", {"a": "true", "b": "1"}),
    (
        "a: 10s\nb: 1h30m\nc: 127.0.0.1:4222\nd: 0x10\ne: 1_000",
        {"a": "10s", "b": "1h30m", "c": "127.0.0.1:4222", "d": "0x10", "e": "1_000"},
    ),
    ("a: 2006-01-02T15:04:05Z", {"a": datetime(2006, 1, 2, 15, 4, 5, tzinfo=UTC)}),
    (r'a: "t\t n\n q\" b\\ x\x41"', {"a": 't\t n\n q" b\\ xA'}),
    (r"a: 'raw\n'", {"a": r"raw\n"}),
    (r"a: b\x20c", {"a": "b c"}),
    ('a: "two\nlines"', {"a": "two\nlines"}),
    ("a: x# not a comment", None),
    ("# c\n// d\na: 1 # e\nb: 2 // f\n", {"a": 1, "b": 2}),
    ("a: (\n raw { # ]\n more\n)\nb: 1", {"a": " raw { # ]\n more\n", "b": 1}),
    ("a: [1, 2,\n 3\n 4 # c\n]", {"a": [1, 2, 3, 4]}),
    ("a: [1,]", {"a": [1]}),
    ("a: [[1], {b: 2}]", {"a": [[1], {"b": 2}]}),
    ("a { b { c d } }", {"a": {"b": {"c": "d"}}}),
    ("a{b:1}", {"a": {"b": 1}}),
    ("a\n{\n b 1\n}", {"a": {"b": 1}}),
    ('{"a": {"b": [true, null]}, "c": "d"}', {"a": {"b": [True, "null"]}, "c": "d"}),
    ('"a b": 1\n\'c d\' = 2\n"e"f=3', {"a b": 1, "c d": 2, "e": "f=3"}),
    ("a: 1\na: 2", {"a": 2}),
    ("a: foo=bar\nb: foo:bar\nc: http://x/y", {"a": "foo=bar", "b": "foo:bar", "c": "http://x/y"}),
    ("a: $2a$11$abc.def", {"a": "$2a$11$abc.def"}),
    ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ("", {}),
    ("{}", {}),
]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_values(text: str, expected: dict[str, Any] | None) -> None:
    if expected is None:
        with pytest.raises(ConfError):
            parse_text(text)
    else:
        assert parse_text(text).plain() == expected


MISTAKES = [
    ("a: 1 b: 2", (1, 6), "a"),
    ("a: {b: 1 c: 2}", (1, 10), "b"),
    ("a: [1 2]", (1, 7), "a"),
    ("a: [1,,2]", (1, 7), "a"),
    ("a: [1;2]", (1, 6), "a"),
    ("ok: 1\na: [1,\n2", (2, 4), "a"),
    ("ok: 1\n\na {\n b: 1\n", (3, 3), "a"),
    ("a: 1\n}", (2, 1), ""),
    ("a:", (1, 3), "a"),
    ("a\nb: 1", (1, 2), "a"),
    ("a:\n 1", (1, 3), "a"),
    ("= 1", (1, 1), ""),
    ('a: "abc', (1, 4), "a"),
    ('a: "\\q"', (1, 5), "a"),
    ('a: "\\xzz"', (1, 5), "a"),
    ("a: it's", (1, 6), "a"),
    ("a: .5", (1, 4), "a"),
    ("a: -x", (1, 4), "a"),
    ("a: 12.", (1, 4), "a"),
    ("a: 1.5k", (1, 4), "a"),
    ("a: 99999999999999999999", (1, 4), "a"),
    ("a: 9E\nb: 9999999999E", (2, 4), "b"),
    ("a: 2006-13-02T15:04:05Z", (1, 4), "a"),
    ("a: 1 MB", (1, 6), "a"),
    ("a: (abc)", (1, 4), "a"),
    ("a: (\nabc\n) x", (1, 4), "a"),
    ("b: 1\n a: $NOWHERE", (2, 5), "a"),
    ("a: $B\nB: 1", (1, 4), "a"),
    ("a: ;", (1, 4), "a"),
]


@pytest.mark.parametrize(("text", "place", "key"), MISTAKES)
def test_mistakes_name_line_column_and_key(text: str, place: tuple[int, int], key: str) -> None:
    with pytest.raises(ConfError) as caught:
        parse_text(text, "some.conf", env={})
    error = caught.value
    assert (error.file, error.line, error.column) == ("some.conf", *place)
    if key:
        assert error.key == key
        assert str(error).startswith(f'some.conf:{place[0]}:{place[1]}: key "{key}": ')


def test_variables_come_from_enclosing_maps_then_from_the_environment() -> None:
    text = "V: 1\nouter { V: 2\n inner { x: $V } }\ny: $V\nz: $W\nlist: [$V, $W]\n"
    plain = parse_text(text, env={"V": "9", "W": "[1, two]"}).plain()
    assert plain["outer"] == {"V": 2, "inner": {"x": 2}}
    assert (plain["y"], plain["z"], plain["list"]) == (1, [1, "two"], [1, [1, "two"]])


def test_a_key_that_served_as_variable_is_marked() -> None:
    parsed = parse_text("V: 1\nW: 2\nx: $V\n")
    assert [(entry.key, entry.used_as_variable) for entry in parsed] == [("V", True), ("W", False), ("x", False)]


@pytest.mark.parametrize("text", ["$A", "{ b: $A }", "a b", "[1,", "-", "\udcff"])
def test_environment_values_that_cannot_be_parsed(text: str) -> None:
    with pytest.raises(ConfError, match="environment variable 'A'") as caught:
        parse_text("x: $A", env={"A": text})
    assert caught.value.key == "x"


def test_errors_do_not_repeat_what_may_be_a_password() -> None:
    for text in ("password: -secret1", "password: 1.2k", "password: $P"):
        with pytest.raises(ConfError) as caught:
            parse_text(text, env={"P": "-secret1 x"})
        assert "secret1" not in str(caught.value)
        assert "1.2k" not in str(caught.value)


def test_includes_are_relative_to_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("a: 1\nblock {\n include ./sub/b.conf # here\n}\nc: $a\n")
    (tmp_path / "sub/b.conf").write_text("b: 2\nINCLUDE 'd.conf'\n")
    (tmp_path / "sub/d.conf").write_text("d: 3\n")
    parsed = parse_file(tmp_path / "main.conf")
    assert parsed.plain() == {"a": 1, "block": {"b": 2, "d": 3}, "c": 1}
    block = parsed["block"].value
    assert isinstance(block, ConfMap)
    assert block["d"].position == (str(tmp_path / "sub/d.conf"), 1, 4)


def test_an_included_key_replaces_an_earlier_one_and_can_be_a_variable(tmp_path: Path) -> None:
    (tmp_path / "main.conf").write_text("a: 1\ninclude other.conf\nb: $v\n")
    (tmp_path / "other.conf").write_text("a: 2\nv: 3\n")
    assert parse_file(tmp_path / "main.conf").plain() == {"a": 2, "v": 3, "b": 3}


def test_a_pattern_includes_what_there_is_by_name(tmp_path: Path) -> None:
    """Eyot's own: `/etc/eyot/eyotd.conf` is never edited, the device's own settings lie beside it."""
    folder = tmp_path / "etc [x]"
    more = folder / "conf.d"
    more.mkdir(parents=True)
    main = folder / "main.conf"
    main.write_text("a: 1\nb: 1\ninclude conf.d/*.conf\nblock { include 'conf.d/z?.conf' }\n")
    assert parse_file(main, {}).plain() == {"a": 1, "b": 1, "block": {}}
    for name, text in (("20.conf", "b: 20"), ("10.conf", "b: 10\nc: 3"), ("z1.conf", "d: 4"), (".x.conf", "e: 5")):
        (more / name).write_text(text)
    (more / "30.conf.dpkg-old").write_text("b: 30")
    assert parse_file(main, {}).plain() == {"a": 1, "b": 20, "c": 3, "d": 4, "block": {"d": 4}}
    (more / "10.conf").write_text("b: [")
    with pytest.raises(ConfError, match=r"10\.conf:1"):
        parse_file(main, {})
    (more / "10.conf").write_text("include ../main.conf")
    with pytest.raises(ConfError, match="includes itself"):
        parse_file(main, {})


def test_include_mistakes(tmp_path: Path) -> None:
    main, other = tmp_path / "main.conf", tmp_path / "other.conf"
    main.write_text("a: 1\ninclude other.conf\n")
    with pytest.raises(ConfError, match="No such file") as caught:
        parse_file(main)
    assert (caught.value.line, caught.value.key) == (2, "include")
    other.write_text("b: 1\nc: {\n")
    with pytest.raises(ConfError) as caught:
        parse_file(main)
    assert (caught.value.file, caught.value.line) == (str(other), 2)
    other.write_text("x: 1\n\ninclude main.conf\n")
    with pytest.raises(ConfError, match="includes itself") as caught:
        parse_file(main)
    assert (caught.value.file, caught.value.line) == (str(other), 3)
    other.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfError, match="not UTF-8"):
        parse_file(main)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfError, match=r"^/nonexistent/x\.conf: cannot read"):
        parse_file("/nonexistent/x.conf")


@pytest.mark.parametrize("opening", ["[", "{a:", "{a:["])
def test_depth_is_bounded(opening: str) -> None:
    with pytest.raises(ConfError, match="nested deeper"):
        parse_text("a: " + opening * (DEPTH_MAX + 1))


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "bom.conf"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert parse_file(path).plain() == {"a": 1}


def test_text_that_is_no_configuration_is_a_parse_error_in_nats_servers_words() -> None:
    with pytest.raises(ConfError, match=r"^some\.conf:2:4: .*Parse error on line 2: "):
        parse_text("a: 1\nb {{{", "some.conf", env={})
