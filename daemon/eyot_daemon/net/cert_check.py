"""Checks that the configured certificates, keys and authorities are usable, for `eyotd -t`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eyot_daemon.config.options import Options
from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net.tls_context import TlsError, client_context, server_context


def unusable_certificates(options: Options) -> Iterator[str]:
    """Yield a line for each `tls { }` block with a file that is missing, unreadable or does not fit; it names the files."""
    told: set[str] = set()
    for tls, make in _blocks(options):
        try:
            make(tls)
        except TlsError as error:
            if str(error) not in told:
                told.add(str(error))
                yield str(error)


def _blocks(options: Options) -> Iterator[tuple[TlsOptions, Callable[[TlsOptions], object]]]:
    leaf_links = options.leafnodes
    listeners = [options.tls, None if options.websocket is None else options.websocket.tls]
    listeners.append(None if options.mqtt is None else options.mqtt.tls)
    listeners.append(None if leaf_links.port is None else leaf_links.tls)
    for tls in listeners:
        if tls is not None:
            yield tls, server_context
    resolver = None if options.operator is None else options.operator.resolver
    for tls in (*(each.tls for each in options.eyot.bridges), None if resolver is None else resolver.tls):
        if tls is not None:
            yield tls, client_context
    for remote in leaf_links.remotes:
        if remote.tls is not None and not remote.disabled:
            yield remote.tls, client_context
