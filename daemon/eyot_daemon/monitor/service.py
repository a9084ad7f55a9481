"""Monitoring as a part of the daemon: its pages over HTTP, HTTPS and the control socket, as far as they are configured."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net.tls_context import TlsError, monitoring_context, renew
from eyot_daemon.process.ports_file import Ports, urls
from eyot_daemon.process.start_error import StartError, cannot_listen

if TYPE_CHECKING:
    from eyot_daemon.monitor.pages import Monitoring

log = logging.getLogger("eyot")

#: Between an HTTP server that failed and its next start.
AGAIN_S = 0.2


class MonitoringService:
    """The pages of one daemon. `start` raises StartError."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._pages: Monitoring | None = None
        self._https: ssl.SSLContext | None = None

    def start(self, options: Options, nursery: trio.Nursery, ports: Ports, control: Path | None) -> None:
        """Bind, and listen on the Unix socket `control`; `open` lets connections come to the others."""
        if not options.http_port and not options.https_port and control is None:
            return
        from eyot_daemon.monitor.pages import Monitoring  # a daemon without pages starts without their libraries

        pages = self._pages = Monitoring(self._clients)
        host = options.http_host or options.host
        if options.http_port:
            self._listen(pages, "http", host, options.http_port, ports)
        if options.https_port and options.tls is not None:
            self._https = _context(options.tls)
            self._listen(pages, "https", host, options.https_port, ports)
        if control is not None:
            try:
                pages.listen_control(control)
            except OSError as error:
                raise StartError(f"Error listening on control socket {control}: {error.strerror or error}") from error
            log.info("Listening for control connections on %s", control)
        nursery.start_soon(_run, pages)

    def _listen(self, pages: Monitoring, scheme: str, host: str, wanted: int, ports: Ports) -> None:
        try:
            _, port = pages.reserve(host, wanted, self._https)
        except OSError as error:
            raise cannot_listen(f"{scheme} ", host, wanted, error) from error
        self._clients.broker.bound[scheme] = port
        ports.monitoring = ports.monitoring + urls(scheme, host, port)
        log.info("Starting %s monitor on %s:%d", scheme, host, port)

    def open(self) -> None:
        """The daemon is ready. Raises StartError."""
        if self._pages is not None:
            try:
                self._pages.open()
            except OSError as error:
                raise StartError(f"Error listening for monitoring: {error.strerror or error}") from error

    def renew(self, options: Options) -> None:
        """Read the certificates anew."""
        if self._https is not None and options.tls is not None:
            renew(self._https, options.tls)

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()


def _context(tls: TlsOptions) -> ssl.SSLContext:
    try:
        return monitoring_context(tls)
    except TlsError as error:
        raise StartError(str(error)) from error


async def _run(pages: Monitoring) -> None:
    """Serve the pages. If the HTTP server fails, the broker goes on, and the server is started again."""
    try:
        while True:
            try:
                await pages.run()
                return
            except Exception as error:
                cause = _innermost(error)
                unforeseen = None if isinstance(cause, OSError) else error
                log.error("Monitoring failed, it is started again: %s", cause, exc_info=unforeseen)
            await trio.sleep(AGAIN_S)
    finally:
        pages.close()


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
