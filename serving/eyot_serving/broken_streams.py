"""The memory of a connection that broke is freed when the connection ends, not by the garbage collector.

Trio's SocketStream translates a socket's error in a context manager that is a generator. Under Python 3.13 the
generator's frame keeps the frame that threw the error into the generator, and that frame keeps the error. The error's
traceback refers to the generator's frame, which closes a reference cycle. The cycle keeps the frames of whoever read
from the connection, and all that the peer had sent.
"""

from __future__ import annotations


def cut_cycles(error: BaseException) -> None:
    """Drop the tracebacks of the errors that `error` was raised from: each may be part of a reference cycle."""
    before = _raised_from(error)
    seen: set[int] = set()
    while before:
        earlier = before.pop()
        if earlier is not None and id(earlier) not in seen:
            seen.add(id(earlier))
            earlier.__traceback__ = None
            before += _raised_from(earlier)


def _raised_from(error: BaseException) -> list[BaseException | None]:
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [error.__cause__, error.__context__, *members]
