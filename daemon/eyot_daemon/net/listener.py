"""Listening sockets: bind, accept, and start a task for every connection.

`TcpListener` knows nothing of NATS: it passes each accepted socket to `serve`, an async function that runs as a task of
the listener's nursery during the connection. `client/listener.py` and the leaf links provide `serve`.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from eyot_daemon.net.binding import plain_host
from eyot_daemon.net.early_listen import BACKLOG, take

log = logging.getLogger("eyot.listener")

#: Connections accepted before other tasks get their turn.
ACCEPTS_PER_TURN = 64
#: Pause when the process is out of file descriptors or memory; pending connections stay in the backlog.
ACCEPT_RETRY_S = 0.1

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Serve = Callable[[socket.socket, "tuple[str, int]"], Awaitable[None]]


class TcpListener:
    """One bound TCP socket; `listen` starts listening, `run` accepts."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(False)
        self.host, self.port = sock.getsockname()[:2]

    @classmethod
    def bind(cls, host: str, port: int) -> TcpListener:
        """Bind and listen; `port` -1 or 0: any free one. OSError if that is not possible."""
        listener = cls.reserve(host, port)
        try:
            listener.listen()
        except OSError:
            listener.close()
            raise
        return listener

    @classmethod
    def reserve(cls, host: str, port: int) -> TcpListener:
        """Bind only. OSError if that is not possible."""
        return cls(take(host, max(port, 0)))

    def listen(self) -> None:
        """Start listening. Raises OSError if another process was faster."""
        self._sock.listen(BACKLOG)

    def close(self) -> None:
        """Stop listening; connections that were accepted live on."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    async def run(self, serve: Serve, nursery: trio.Nursery) -> None:
        """Accept until closed or cancelled; each connection becomes a task of `nursery`."""
        try:
            while True:
                try:
                    await trio.lowlevel.wait_readable(self._sock)
                except OSError as error:
                    if self._sock.fileno() < 0:
                        return
                    log.error("waiting on %s:%d: %s", self.host, self.port, error)
                    await trio.sleep(ACCEPT_RETRY_S)
                    continue
                for _ in range(ACCEPTS_PER_TURN):
                    try:
                        sock, address = self._sock.accept()
                    except BlockingIOError:
                        break
                    except OSError as error:
                        if error.errno in _OUT_OF_RESOURCES:
                            log.error("accept on %s:%d: %s", self.host, self.port, error)
                            await trio.sleep(ACCEPT_RETRY_S)
                            break
                        continue  # the peer disconnected before it was accepted
                    nursery.start_soon(_serve, serve, sock, (plain_host(address[0]), address[1]))
        except trio.ClosedResourceError:
            return
        finally:
            self.close()


async def _serve(serve: Serve, sock: socket.socket, address: tuple[str, int]) -> None:
    """Serve one connection. An error ends only this connection; only cancellation propagates."""
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await serve(sock, address)
    except OSError as error:
        log.info("connection from %s:%d failed: %s", *address, error)
    except Exception:
        log.exception("connection from %s:%d failed", *address)
    finally:
        with suppress(OSError):
            sock.close()
