"""The cause of a failure in one line: out of the texts of Spark's workers, of Java and of delta-rs, which have many."""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from eyot_hub.errors import HubError

_TRACEBACK: Final = "Traceback (most recent call last):"
_OURS: Final = "eyot_hub.errors."
_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs writes them whatever the output is


def cause(error: Exception) -> str:
    """Return the cause for a person, never empty.

    That is what a task raised, else the first line of Java's exceptions, else the error's own words.
    """
    text = _COLORS.sub("", str(error))
    if isinstance(error, OSError):
        return _system_error(error, text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(_OURS) and line.partition(": ")[2]:
            return line.partition(": ")[2]
    raised = _raised(text)
    if raised and isinstance(error, PySparkException | Py4JError):
        return raised[-1]
    if isinstance(error, Py4JError):
        # "An error occurred while calling o65.collect." precedes the actual error.
        lines = [line.removeprefix(": ") for line in lines[1:]] or lines
    name = type(error).__name__
    if not lines:
        return name
    return lines[0] if isinstance(error, HubError | PySparkException | Py4JError) else f"{name}: {lines[0]}"


def _raised(text: str) -> list[str]:
    """Return the last line of each of Python's tracebacks in a text: the exception and its words."""
    found, inside = [], False
    for line in text.splitlines():
        if line.endswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace():
            found.append(line)
            inside = False
    return found


def _system_error(error: OSError, text: str) -> str:
    """Return an error of a file or connection; delta-rs puts each level of the cause on a line of its own."""
    if error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = error.strerror or text  # without Python's "[Errno 28]"
    return ": ".join(line.strip(" \t↳") for line in text.splitlines() if line.strip(" \t↳")) or type(error).__name__
