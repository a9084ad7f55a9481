"""Why a package is not installed, or an upgrade cannot go on."""

from __future__ import annotations


class Refused(Exception):
    """A package is not installed; the text says why. Nothing has changed."""


class Stuck(Exception):
    """An upgrade that has begun cannot go on at present; the text says why. The same step is tried again later."""
