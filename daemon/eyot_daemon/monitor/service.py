"""Monitoring as a service of the daemon: its pages over HTTP, HTTPS and the control socket, as far as they are configured."""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import trio

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.monitor.page.support_bundle import SupportBundle
from eyot_daemon.net.tls_context import monitoring_context
from eyot_daemon.process.ports_file import Ports, urls
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.process.start_error import Cause, StartError, cannot_listen
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    from pathlib import Path

    from eyot_daemon.monitor.page.answers import PageAnswers
    from eyot_daemon.monitor.pages import Monitoring

log = logging.getLogger("eyot")

#: Between an HTTP server that failed and its next start.
AGAIN_S = 0.2


class MonitoringConfiguration(NamedTuple):
    """The options, and the certificates of the HTTPS pages as they are on disk now."""

    options: Options
    tls: ssl.SSLContext | None


class MonitoringService:
    """The pages of one daemon.

    `env` is the process's environment, `page` gives the local page while it is served, `bundle` makes support bundles.
    """

    name = "monitoring"

    def __init__(
        self,
        clients: Clients,
        env: Mapping[str, str],
        page: Callable[[], PageAnswers | None] = lambda: None,
        bundle: SupportBundle | None = None,
    ) -> None:
        self._clients = clients
        self._page = page
        self._bundle = bundle
        self._env = env
        self._pages: Monitoring | None = None

    def configure(self, options: Options) -> MonitoringConfiguration:
        """Check the options and read the certificates. Raises TlsError."""
        has_tls = options.https_port and options.tls is not None
        return MonitoringConfiguration(options, monitoring_context(options.tls) if has_tls and options.tls else None)

    def start(self, prepared: MonitoringConfiguration, runtime: Runtime) -> None:
        """Bind, and listen on the Unix socket at once. Raises StartError."""
        options = prepared.options
        control = options.eyot.control_path(self._env)
        if not options.http_port and not options.https_port and control is None:
            return
        from eyot_daemon.monitor.pages import Monitoring  # a daemon without pages starts without their libraries

        pages = self._pages = Monitoring(self._clients, self._page, self._bundle)
        host = options.http_host or options.host
        if options.http_port:
            self._listen(pages, "http", host, options.http_port, runtime.ports)
        if options.https_port and prepared.tls is not None:
            self._listen(pages, "https", host, options.https_port, runtime.ports, prepared.tls)
        if control is not None:
            try:
                pages.listen_control(control)
            except OSError as error:
                raise _cannot_listen_on(control, error) from error
            log.info("Listening for control connections on %s", control)
        runtime.nursery.start_soon(_run, pages)
        runtime.when_open(self._open)

    def _listen(
        self,
        pages: Monitoring,
        scheme: str,
        host: str,
        wanted: int,
        ports: Ports,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            _, port = pages.reserve(host, wanted, tls)
        except OSError as error:
            raise cannot_listen(f"{scheme} ", host, wanted, error) from error
        self._clients.broker.bound[scheme] = port
        ports.monitoring = ports.monitoring + urls(scheme, host, port)
        log.info("Starting %s monitor on %s:%d", scheme, host, port)

    def _open(self) -> None:
        assert self._pages is not None
        try:
            self._pages.open()
        except OSError as error:
            raise StartError(f"Error listening for monitoring: {error.strerror or error}", Cause.PORT) from error

    def reload(self, prepared: MonitoringConfiguration, steps: ReloadSteps) -> None:
        """Use the new certificates for new connections."""
        pages = self._pages
        if pages is not None and pages.tls is not None:
            before = pages.tls
            steps.undo(lambda: setattr(pages, "tls", before))
            pages.tls = prepared.tls or before

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: a server that answers this request serves its pages."""
        return None

    def stop(self) -> None:
        if self._pages is not None:
            self._pages.close()


def _cannot_listen_on(control: Path, error: OSError) -> StartError:
    # Python has no error number for a path that does not fit an address.
    too_long = error.errno in (None, errno.ENAMETOOLONG)
    text = f"Error listening on control socket {control}: {error.strerror or error}"
    return StartError(text, Cause.CONTROL_PATH if too_long else Cause.CONTROL_SOCKET)


async def _run(pages: Monitoring) -> None:
    """Serve the pages. If the HTTP server fails, the broker continues, and the server is restarted."""
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
