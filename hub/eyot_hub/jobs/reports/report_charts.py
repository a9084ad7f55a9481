"""The report's charts as inline SVG, and numbers for people. No scripts, no external resources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from eyot_wire.quantities import rounded
from eyot_wire.quoting import printable

WIDTH: Final = 960
LABEL: Final = 205
BAR: Final = 20
COLUMNS_HEIGHT: Final = 150
COLUMN_MAX: Final = 44  # limits the width when there is a single day
STEP_MAX: Final = 64
LABELS_MAX: Final = 12
NAME_MAX: Final = 26
TEXT_MAX: Final = 100  # characters of a text in a cell or sentence
TITLE_MAX: Final = 1000  # of a tooltip
_STEPS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))


class Piece(NamedTuple):
    """Part of a strip: sequences `first` to `last`, and the class that colours it."""

    first: int
    last: int
    kind: str


def duration(seconds: float | None) -> str:
    """Format a duration: `2.4 s`, `23 min`, `1.5 d`."""
    if seconds is None:
        return "–"
    if not seconds:
        return "0 s"
    for size, unit in _STEPS:
        if abs(seconds) >= size or unit == "ms":
            return f"{rounded(seconds / size)} {unit}"
    return "0"


def amount(count: float) -> str:
    """Format a count: `950`, `12.4 k`, `1.28 M`."""
    if abs(count) < 1e4:
        return f"{count:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M")):
        if round(abs(count) / size, 1 if abs(count) < 100 * size else 0) < 1000:
            return f"{rounded(count / size)} {unit}"
    return f"{rounded(count / 1e9)} G"


def top_of(most: float) -> float:
    """Return the end of an axis from 0 to beyond `most`: a short number whose half is whole."""
    unit = 10 ** max(0, math.floor(math.log10(max(most, 1))))
    return float(next(unit * step for step in (1, 2, 3, 4, 6, 8, 10) if unit * step >= most and unit * step % 2 == 0))


def shorten(labels: Sequence[str]) -> list[str]:
    """Shorten names to fit beside a bar and stay distinct: common leading words go first, then the middle."""
    long = [label for label in labels if len(label) > NAME_MAX]
    # All names between the first and the last in order share at least what these two share.
    same = _same(min(long), max(long)) if len(long) > 1 else 0
    return [_cut(f"…{label[same:]}" if same and len(label) > NAME_MAX else label) for label in labels]


def _same(first: str, last: str) -> int:
    """Return the number of leading characters, in whole words, that both share."""
    differ = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return max(first.rfind(sign, 0, differ) + 1 for sign in "-._/ ")


def _cut(label: str) -> str:
    if len(label) <= NAME_MAX:
        return label
    tail = (NAME_MAX - 1) // 2
    return f"{label[: NAME_MAX - 1 - tail]}…{label[-tail:]}"


def visible(text: str, most: int = TEXT_MAX) -> str:
    """Return a text of a peer's for the page, escaped and cut: no sign that is invisible or turns the direction of writing."""
    shown = printable(text[: most + 1])
    return escape(shown if len(shown) <= most else f"{shown[: most - 1]}…")


def _name(label: str, short: str, y: float) -> str:
    """Render a name left of its bar, with the full name as tooltip."""
    return (
        f"<text x={LABEL - 8} y={y} text-anchor=end>{visible(short)}<title>{visible(label, TITLE_MAX)}</title></text>"
    )


def columns(values: Sequence[tuple[str, float]], unit: str) -> str:
    """Render vertical bars side by side, for values over time; the last stands at the axis, which a phone shows first."""
    if not values:
        return "<p class=note>Nothing yet.</p>"
    most = top_of(max(value for _, value in values))
    room = WIDTH - 56
    step = min((room - 16) / len(values), STEP_MAX)  # beside the first column, half of its label
    left = room - step * len(values)
    width = min(step * 0.76, COLUMN_MAX)
    every = max(1, math.ceil(len(values) / LABELS_MAX))
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = 10 + COLUMNS_HEIGHT * (1 - share)
        parts.append(f"<line class=grid x1=0 x2={room} y1={y:.1f} y2={y:.1f} />")
        parts.append(f"<text class=soft x={room + 8} y={y + 4:.1f}>{amount(most * share)}</text>")
    for index, (label, value) in enumerate(values):
        x, height = left + index * step, COLUMNS_HEIGHT * value / most
        title = f"<title>{escape(label)}: {value:,.0f} {escape(unit)}</title>"
        if value:
            parts.append(
                f"<rect class=bar x={x + (step - width) / 2:.1f} y={10 + COLUMNS_HEIGHT - height:.1f} width={width:.1f} "
                f"height={max(height, 1):.1f} rx=2>{title}</rect>"
            )
        if (len(values) - 1 - index) % every == 0:
            middle = x + step / 2
            parts.append(
                f"<text class=soft x={middle:.1f} y={COLUMNS_HEIGHT + 28} text-anchor=middle>{escape(label[5:])}</text>"
            )
    return _svg(COLUMNS_HEIGHT + 36, "".join(parts), unit, "scroll newest")


def lag_bars(values: Sequence[tuple[str, float]]) -> str:
    """Render durations as horizontal bars on a logarithmic scale from 0.1 s: a fleet's delays span seconds to days."""
    if not values:
        return "<p class=note>Nothing yet.</p>"
    least, most = 0.1, max([10.0, *(value for _, value in values)])
    room = WIDTH - LABEL - 90

    def x(value: float) -> float:
        return room * math.log10(max(value, least) / least) / math.log10(most / least)

    parts, height = [], len(values) * BAR
    for mark in (1.0, 60.0, 3600.0, 86_400.0, 2_592_000.0):
        if mark <= most:
            at = LABEL + x(mark)
            parts.append(f"<line class=grid x1={at:.1f} x2={at:.1f} y1=0 y2={height} />")
            parts.append(f"<text class=soft x={at:.1f} y={height + 14} text-anchor=middle>{duration(mark)}</text>")
    names = shorten([label for label, _ in values])
    for index, (label, value) in enumerate(values):
        y = index * BAR
        parts.append(
            f"{_name(label, names[index], y + 14)}<rect class=bar x={LABEL} y={y + 3} width={max(1.0, x(value)):.1f} height={BAR - 7} rx=2></rect>"
            f"<text x={LABEL + x(value) + 6:.1f} y={y + 14}>{duration(value)}</text>"
        )
    return _svg(height + 20, "".join(parts), "delay")


def strips(lines: Sequence[tuple[str, int, Sequence[Piece]]]) -> str:
    """Render each origin's sequences from 1 to the last as a strip: what is in the table and what is not.

    A piece is at least two pixels wide, so that one message among millions is visible.
    """
    if not lines:
        return "<p class=note>Nothing yet.</p>"
    room = WIDTH - LABEL - 90
    parts, names = [], shorten([label for label, _, _ in lines])
    for index, (label, last, pieces) in enumerate(lines):
        y, scale = index * BAR, room / max(last, 1)
        parts.append(_name(label, names[index], y + 14))
        parts.append(f"<rect class=held x={LABEL} y={y + 4} width={room} height={BAR - 8} rx=2></rect>")
        for piece in pieces:
            width = max(2.0, (piece.last - piece.first + 1) * scale)
            at = min(LABEL + (piece.first - 1) * scale, LABEL + room - width)
            parts.append(
                f"<rect class={piece.kind} x={at:.1f} y={y + 4} width={width:.1f} height={BAR - 8}>"
                f"<title>{piece.first:,} to {piece.last:,}: {piece.kind.replace('_', ' ')}</title></rect>"
            )
        parts.append(f"<text class=soft x={LABEL + room + 8} y={y + 14}>{amount(last)}</text>")
    return _svg(len(lines) * BAR, "".join(parts), "sequences")


def _svg(height: float, inside: str, what: str, kind: str = "scroll") -> str:
    svg = f"<svg viewBox='0 0 {WIDTH} {height:.0f}' role=img aria-label='{escape(what)}'>{inside}</svg>"
    return f"<div class='{kind}'>{svg}</div>"
