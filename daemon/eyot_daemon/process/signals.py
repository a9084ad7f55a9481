"""Signals: those the daemon reacts to, and `eyotd --signal`, which sends them to a running one."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Protocol

import trio

from eyot_daemon.process.reload_answer import ReloadAnswer, SignalError
from eyot_wire.digits import is_digits, parse_uint

log = logging.getLogger("eyot")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Go's names of the signals, which nats-server logs
_SPOKEN = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
}
# The kernel's type for a process id; `os.kill` raises OverflowError for a larger number.
_PID_MAX = 2**31 - 1
_COMMANDS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


class Reactions(Protocol):
    """The daemon's reactions to signals."""

    def stop(self) -> None: ...

    def lame_duck(self) -> None: ...

    def reload(self) -> None: ...

    def reopen_log(self) -> None: ...


async def watch_signals(reactions: Reactions, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """React until cancelled: INT and TERM stop, HUP reloads, USR1 reopens the log, USR2 begins lame-duck mode."""
    handled = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    with trio.open_signal_receiver(*handled) as received:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)  # signals that arrived while it loaded are delivered now
        task_status.started()
        async for number in received:
            log.info('Trapped "%s" signal', _SPOKEN[signal.Signals(number)])
            if number in STOP_SIGNALS:
                reactions.stop()
            elif number == signal.SIGHUP:
                reactions.reload()
            elif number == signal.SIGUSR1:
                reactions.reopen_log()
            else:
                reactions.lame_duck()


def send_signal(command: str, pid_file: str = "", control: Path | None = None) -> None:
    """Carry out `--signal COMMAND[=PID or pid file]`. Raises SignalError.

    With the daemon's control socket at `control`, a reload is awaited: the daemon's refusal is an error here, too.
    """
    name, _, target = command.partition("=")
    number = _COMMANDS.get(name)
    if number is None:
        raise SignalError(f'unknown signal "{name}"')
    pid = _pid(target or pid_file)
    answer = None if name != "reload" or control is None else ReloadAnswer.of(control, pid)
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise SignalError("no such process") from None
    except PermissionError:
        raise SignalError(f"not permitted to signal process {pid}") from None
    if answer is not None:
        answer.wait()


def _pid(target: str) -> int:
    """Return a pid: given, from a file, or of the only eyotd on this machine."""
    if target:
        text = target
        if not is_digits(target):
            try:
                text = Path(target).read_text().strip()
            except OSError as error:
                raise SignalError(f"cannot read pid file {target}: {error.strerror}") from None
        pid = parse_uint(text)
        if pid is None or pid > _PID_MAX:
            raise SignalError(f'invalid pid: "{text}"')
        return pid
    running = _running()
    if not running:
        raise SignalError("no eyotd processes running")
    if len(running) > 1:
        raise SignalError("multiple eyotd processes running:\n" + "\n".join(map(str, running)))
    return running[0]


def _running() -> list[int]:
    """Return the daemons with this command's name: `eyotd`, or the name under which launchers installed it."""
    names = {"eyotd", Path("/proc/self/comm").read_text().strip()} - {"python", "python3"}
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() in names and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return sorted(found)
