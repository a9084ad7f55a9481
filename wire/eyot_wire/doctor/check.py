"""The results of `eyot doctor`: one `Check` per checked item."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["ok", "warning", "failure", "skipped"]


class Check(Struct, frozen=True, kw_only=True):
    """The result of one check. `name`: the checked item, stable for scripts. `lines`: configuration that would fix it."""

    name: str
    state: State
    detail: str
    remedy: str = ""
    lines: tuple[str, ...] = ()


def ok(name: str, detail: str) -> Check:
    return Check(name=name, state="ok", detail=detail)


def warning(name: str, detail: str, remedy: str = "") -> Check:
    return Check(name=name, state="warning", detail=detail, remedy=remedy)


def failure(name: str, detail: str, remedy: str = "", lines: tuple[str, ...] = ()) -> Check:
    return Check(name=name, state="failure", detail=detail, remedy=remedy, lines=lines)


def skipped(name: str, detail: str, remedy: str = "") -> Check:
    return Check(name=name, state="skipped", detail=detail, remedy=remedy)
