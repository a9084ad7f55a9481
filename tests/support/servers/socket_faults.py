"""`eyotd` whose sockets fail when a test says so: each call of each socket can be made to raise any OSError.

The daemon runs as `python socket_faults.py PLAN -c FILE`. PLAN is a file of a few integers that the test maps as well (`FaultPlan`):
which method fails, at which call since the plan was armed, and with which errno. The methods are wrapped before trio is imported,
for trio keeps the functions that it finds then.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Everything that the daemon calls on sockets at run time. `socket` is the making of one, `dup` that of a second descriptor.
METHODS = (
    "accept",
    "connect",
    "connect_ex",
    "send",
    "recv",
    "recv_into",
    "getsockopt",
    "setsockopt",
    "getpeername",
    "getsockname",
    "shutdown",
    "setblocking",
    "close",
    "socket",
    "dup",
    "getaddrinfo",
    "register",
)
_FIELDS = struct.Struct("=5i")  # method (index, -1: none), call, errno, calls seen, times fired


class FaultPlan:
    """The mapped file: the test arms it, the daemon counts in it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_FIELDS.pack(-1, 0, 0, 0, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FIELDS.size)

    def arm(self, method: str, call: int, number: int) -> None:
        """Have the `call`-th (from 0) call of `method` from now on fail with errno `number`."""
        _FIELDS.pack_into(self._map, 0, METHODS.index(method), call, number, 0, 0)

    def disarm(self) -> bool:
        """Let all be well again; was the fault reached?"""
        fired = bool(_FIELDS.unpack_from(self._map, 0)[4])
        _FIELDS.pack_into(self._map, 0, -1, 0, 0, 0, 0)
        return fired

    @property
    def fired(self) -> bool:
        return bool(_FIELDS.unpack_from(self._map, 0)[4])

    def strike(self, method: int) -> None:
        """One call of a method. Raises OSError if it is the one."""
        wanted, call, number, seen, fired = _FIELDS.unpack_from(self._map, 0)
        if wanted != method:
            return
        _FIELDS.pack_into(self._map, 0, wanted, call, number, seen + 1, fired + (seen == call))
        if seen == call:
            raise OSError(number, os.strerror(number))


def install(plan: FaultPlan) -> None:
    """Wrap the socket methods of this process."""

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        index = METHODS.index(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            # Trio's own pair of sockets, by which threads wake its loop, is no connection.
            if not (args and isinstance(args[0], socket.socket) and args[0].fileno() in pairs):
                plan.strike(index)
            return real(*args, **kwargs)

        return call

    pairs: set[int] = set()
    real_pair = socket.socketpair

    def socketpair(*args: Any, **kwargs: Any) -> tuple[socket.socket, socket.socket]:
        pair = real_pair(*args, **kwargs)
        pairs.update(each.fileno() for each in pair)
        return pair

    socket.socketpair = socketpair  # type: ignore[assignment]
    for name in METHODS[:-4]:
        setattr(socket.socket, name, wrapped(name, getattr(socket.socket, name)))
    socket.getaddrinfo = wrapped("getaddrinfo", socket.getaddrinfo)
    socket.dup = wrapped("dup", socket.dup)
    making, real_init = METHODS.index("socket"), socket.socket.__init__

    def init(self: socket.socket, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        if fileno is None:
            plan.strike(making)  # a descriptor that is there already needs no second one
        real_init(self, family, type, proto, fileno)

    socket.socket.__init__ = init  # type: ignore[method-assign]


def install_epoll(plan: FaultPlan) -> None:
    """Registering a socket to be read may fail too (memory, the user's bound of watches). `Readers` makes its own epoll."""
    from eyot_daemon.turn import readers

    index, real = METHODS.index("register"), readers.select.epoll

    class Epoll:
        def __init__(self) -> None:
            self._real = real()

        def register(self, fd: int, mask: int) -> None:
            plan.strike(index)
            self._real.register(fd, mask)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    class Select:
        epoll = Epoll

        def __getattr__(self, name: str) -> Any:
            return getattr(select, name)

    import select

    readers.select = Select()  # type: ignore[assignment]


def main() -> int:
    plan = FaultPlan(Path(sys.argv.pop(1)))
    install(plan)
    from eyot_daemon import launch

    install_epoll(plan)
    return launch.main()


#: What the kernel may say of a connection, of its own resources, and of descriptors.
ERRNOS = tuple(
    getattr(errno, name)
    for name in (
        "ECONNRESET",
        "ENOTCONN",
        "EPIPE",
        "ECONNABORTED",
        "ETIMEDOUT",
        "EHOSTUNREACH",
        "ENETDOWN",
        "ENOBUFS",
        "ENOMEM",
        "EMFILE",
        "EINVAL",
        "EPERM",
        "EBADF",
    )
)

if __name__ == "__main__":
    sys.exit(main())
