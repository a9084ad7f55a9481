"""Whatever values are written in the grammar, in any of its spellings, come back; and no text crashes the parser."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.conf import ConfError, parse_text

_BARE = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./@*>-]{0,12}", fullmatch=True).filter(
    lambda word: word.lower() not in ("true", "false", "yes", "no", "on", "off", "include") and "//" not in word
)
_SCALARS = st.one_of(
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9),
    st.text(max_size=20),
    _BARE,
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(_BARE, st.text(max_size=8)), inner, max_size=4)
    ),
    max_leaves=20,
)
_MAPS = st.dictionaries(st.one_of(_BARE, st.text(max_size=8)), _VALUES, max_size=5)


class Writer:
    """Writes values in the grammar; every free choice of spelling is drawn."""

    def __init__(self, draw: st.DataObject) -> None:
        self._draw = draw

    def _one_of(self, *choices: str) -> str:
        return self._draw.draw(st.sampled_from(choices))

    def top(self, values: dict[str, Any]) -> str:
        body = "".join(self.entry(key, value) for key, value in values.items())
        return "{\n" + body + "}" if self._draw.draw(st.booleans()) else body

    def entry(self, key: str, value: Any) -> str:
        name = key if _is_bare(key) and self._draw.draw(st.booleans()) else self.quoted(key)
        opener = value if isinstance(value, dict) else None
        separator = self._one_of(": ", " = ", ":", " ") if opener is None else self._one_of(": ", " ", "", " \n ")
        return f"{name}{separator}{self.value(value)}{self._one_of(chr(10), ' # c' + chr(10), ' ;', ',', chr(13) + chr(10))}"

    def value(self, value: Any) -> str:
        if isinstance(value, bool):
            return self._one_of("true", "YES", "On") if value else self._one_of("false", "no", "OFF")
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return f"{value:.6f}"
        if isinstance(value, list):
            comma = self._one_of(", ", ",", "\n", " // c\n")
            return "[" + comma.join(self.value(element) for element in value) + self._one_of("]", "\n]")
        if isinstance(value, dict):
            return "{" + "".join(self.entry(key, inner) for key, inner in value.items()) + "}"
        return value if _is_bare(value) and self._draw.draw(st.booleans()) else self.quoted(value)

    def quoted(self, text: str) -> str:
        if "'" not in text and self._draw.draw(st.booleans()):
            return f"'{text}'"
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        if self._draw.draw(st.booleans()):
            escaped = escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
        return f'"{escaped}"'


def _is_bare(text: str) -> bool:
    words = ("true", "false", "yes", "no", "on", "off", "include")
    return bool(text) and text.isascii() and text.isidentifier() and text.lower() not in words


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6f}")
    if isinstance(value, list):
        return [_rounded(element) for element in value]
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return value


@given(_MAPS, st.data())
def test_written_values_come_back(values: dict[str, Any], data: st.DataObject) -> None:
    text = Writer(data).top(values)
    assert parse_text(text, env={}).plain() == _rounded(values)


@given(st.text(alphabet=st.sampled_from("ab1.5-k\"'\\x{}[]():=,;#/$ \t\n\r"), max_size=40))
def test_any_text_parses_or_names_its_place(text: str) -> None:
    error: ConfError | None = None
    try:
        parse_text(text, env={})
    except ConfError as caught:
        error = caught
    if error is not None:
        assert 1 <= error.line <= text.count("\n") + text.count("\r") + 1
        assert error.column >= 1
