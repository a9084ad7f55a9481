"""What holds for every command-line program: text is UTF-8, and an error of the system is one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from eyot_wire.quoting import printable

#: The exit status that a shell reports for a program that SIGPIPE ended.
CLOSED_PIPE = 128 + 13
#: The exit status that a shell reports for a program that SIGINT ended.
INTERRUPTED = 128 + 2
#: Exit status for a mistake on the command line.
USAGE = 2
#: Variables whose values the programs use as text.
PREFIXES = ("NATS_", "EYOT_")


def run_program(name: str, main: Callable[[], int], *, failed: int = 1) -> int:
    """Check the command line, run `main` and flush its output; return its exit status.

    Return `INTERRUPTED`, silently, when SIGINT ends `main`. Return `CLOSED_PIPE`, silently, when the reader has closed
    the output (`eyot stream ls | head -1`). Return `failed`, after one line on stderr, for any other OSError: a full disk
    below standard output, or a file that `main` cannot use.
    """
    if sys.stdout is None:  # the program was started with a closed descriptor 1
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open as long as the program runs
    output = sys.stdout
    if wrong := not_utf8(sys.argv[1:], os.environ):
        _complain(f"{name}: {wrong}")
        return USAGE
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return CLOSED_PIPE
    except SystemExit:
        # click takes a closed pipe for itself: it sets another standard output, and ends with status 1.
        if sys.stdout is output:
            raise
        _drop_output()
        return CLOSED_PIPE
    except OSError as error:
        _complain(f"{name}: {told(error)}")
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return failed


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Let SIGINT end the process at once in here, silently, without KeyboardInterrupt: while a program loads, for example."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield  # SIGINT is ignored, or somebody else's
        return
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:
        yield  # not the main thread, which alone gets signals
        return
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # what was done in here has set no handler
            signal.signal(signal.SIGINT, before)


def told(error: OSError) -> str:
    """Return an error of the system in one line, with the name of its file where it has one."""
    file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
    text = error.strerror or str(error) or type(error).__name__
    return printable(f"{file}: {text}" if file else text)


def not_utf8(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return which argument or variable is not UTF-8, "" without any. Nothing that the programs send or store may hold it."""
    for number, text in enumerate(arguments, 1):
        if not _is_utf8(text):
            return f"argument {number} is not UTF-8: {printable(text)}"
    for name, text in environment.items():
        if name.startswith(PREFIXES) and not _is_utf8(text):
            return f"{printable(name)} is not UTF-8"  # never the text: a password may be in it
    return ""


def _is_utf8(text: str) -> bool:
    """Return whether the text is UTF-8. Python has each other byte of an argument as half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _complain(text: str) -> None:
    """Print an error. Where stderr is full or closed, too, the exit status alone tells."""
    with suppress(OSError):
        print(text, file=sys.stderr)


def _drop_output() -> None:
    """Discard what standard output still holds: Python flushes once more at exit and would report the same error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
