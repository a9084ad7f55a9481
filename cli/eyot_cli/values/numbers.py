"""Numbers on the command line, within what the API's fields of 64 bits hold."""

from __future__ import annotations

import math
from typing import Any, Final

import click
from click.types import FloatParamType, IntParamType

#: Greatest integer of 64 bits with a sign.
INT64_MAX: Final = 2**63 - 1


class Integer(IntParamType):
    """An integer of 64 bits with a sign."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse an integer. Raises BadParameter."""
        found: int = super().convert(value, param, ctx)
        if not -INT64_MAX <= found <= INT64_MAX:
            self.fail(f"{value} is beyond 64 bits", param, ctx)
        return found


class IntegerFrom(click.IntRange, Integer):
    """An integer of 64 bits that is not below a bound."""


class Finite(FloatParamType):
    """A number that is neither infinite nor none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number. Raises BadParameter."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no number to compare with", param, ctx)
        return found


class FiniteRange(click.FloatRange, Finite):
    """A number between bounds. NaN is below and above none, and so click takes it."""


INTEGER: Final = Integer()
FINITE: Final = Finite()


def at_least(least: int) -> IntegerFrom:
    """Return the type of an integer from `least` on."""
    return IntegerFrom(least)
