"""nats-server's pages about its process, as far as Eyot has an equivalent: `/debug/vars`, `/stacksz`, `/raftz`.

`/debug/vars` is Go's expvar page; its `memstats` hold the figures that a Python process has, too. `/stacksz` shows the
stack of every thread and every Trio task.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
import traceback
from collections.abc import Iterator

import trio

from eyot_daemon.monitor.server import memory_bytes
from eyot_daemon.router.providers import Json

#: Tasks shown at the most: a server with ten thousand connections has as many.
TASKS_MAX = 1000


#: Flags with a secret value.
_SECRET_FLAGS = frozenset(("pass", "auth"))
_REDACTED = "[REDACTED]"
#: `scheme://user:password@host`, or with a token for the user; a password may hold any character.
_CREDENTIALS = re.compile(r"(?<=://).*(?=@)", re.DOTALL)


def redacted(arguments: list[str]) -> list[str]:
    """Return a command line without secrets: passwords, tokens, and those in addresses."""
    shown: list[str] = []
    secret = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        named = argument.startswith("-") and flag.lstrip("-") in _SECRET_FLAGS
        if secret:
            shown.append(_REDACTED)
        elif named and equals:
            shown.append(f"{flag}={_REDACTED}")
        else:
            shown.append(_CREDENTIALS.sub(_REDACTED, argument))
        secret = named and not equals and not secret
    return shown


def expvarz() -> Json:
    """Return the command line and the memory figures."""
    used = memory_bytes()
    return {
        "cmdline": redacted(sys.argv),
        "memstats": {
            "Alloc": used,
            "Sys": used,
            "HeapAlloc": used,
            "HeapObjects": sys.getallocatedblocks(),
            "NumGC": sum(generation["collections"] for generation in gc.get_stats()),
        },
    }


def stacksz() -> str:
    """Return the stacks of all threads, then of all tasks (coroutines, outermost first)."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {ident} [{names.get(ident, '?')}]:\n{''.join(traceback.format_stack(frame))}")
    root = trio.lowlevel.current_root_task()
    for number, task in enumerate(_tasks(root) if root is not None else ()):
        if number == TASKS_MAX:
            parts.append(f"... and more: no more than {TASKS_MAX} tasks are shown\n")
            break
        lines = "".join(
            f'  File "{frame.f_code.co_filename}", line {line}\n' for frame, line in task.iter_await_frames()
        )
        parts.append(f"task {task.name}:\n{lines}")
    return "\n".join(parts)


def _tasks(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    waiting = [task]
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting += nursery.child_tasks


def raftz() -> tuple[int, str]:
    """Return nats-server's answer without Raft: an Eyot store has one owner."""
    return 404, "No Raft nodes registered"
