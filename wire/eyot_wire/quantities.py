"""Sizes and durations in words, as the operator's tool and the doctor write them."""

from __future__ import annotations


def size(value: int | None) -> str:
    """Format bytes in binary units: `1.5 MiB`."""
    if value is None:
        return "?"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def span(seconds: float | None, none: str = "never") -> str:
    """Format a duration: `0.2s`, `42s`, `3m05s`, `2h10m`, `9d4h`; `none` for None."""
    if seconds is None:
        return none
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def rounded(value: float) -> str:
    """Format a number with three digits, all of them from a hundred on: `0.25`, `3.01`, `6,180`."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def counted(count: int | None, noun: str) -> str:
    """Format a number of things: `1 message`, `1,200 messages`; `noun` takes an s."""
    return f"{'?' if count is None else f'{count:,}'} {noun}{'' if count == 1 else 's'}"
