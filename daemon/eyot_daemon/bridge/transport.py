"""The transport of a bridge: TLS and WebSocket over an open stream."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import trio

from eyot_daemon.net.tls_checks import check_certificate
from eyot_daemon.net.tls_context import TlsError, client_context
from eyot_daemon.net.websocket_upgrade import UpgradeError
from eyot_serving.tls_alert import handshake

if TYPE_CHECKING:
    from eyot_daemon.config.bridges import BridgeOptions
    from eyot_sync.link.urls import LinkAddress

_TLS_TIMEOUT_S = 10.0
_WEBSOCKET_S = 10.0
#: Where brokers serve MQTT over WebSocket.
_WEBSOCKET_PATH = "/mqtt"


class TransportError(Exception):
    """No connection; the text says why."""


async def open_transport(stream: trio.abc.Stream, address: LinkAddress, bridge: BridgeOptions) -> trio.abc.Stream:
    """Return a stream for MQTT over `stream`. Raises TransportError."""
    if address.scheme in ("mqtts", "wss") or bridge.tls is not None:
        stream = await _secure(stream, address, bridge)
    if address.scheme in ("ws", "wss"):
        stream = await _shake_hands(stream, address)
    return stream


async def _secure(stream: trio.abc.Stream, address: LinkAddress, bridge: BridgeOptions) -> trio.abc.Stream:
    options = bridge.tls
    try:
        context = client_context(options)
        if bridge.alpn:
            context.set_alpn_protocols(list(bridge.alpn))
        secured = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True)
        with trio.fail_after(max(_TLS_TIMEOUT_S, options.timeout_s if options is not None else 0.0)):
            await handshake(secured)
        if options is not None:
            check_certificate(options, secured)
    except trio.TooSlowError:
        raise TransportError("TLS handshake took too long") from None
    except (TlsError, trio.BrokenResourceError, ssl.SSLError, OSError) as error:
        raise TransportError(f"TLS handshake error: {error.__cause__ or error}") from None
    return secured


async def _shake_hands(stream: trio.abc.Stream, address: LinkAddress) -> trio.abc.Stream:
    from eyot_daemon.net.websocket_client import WebSocketClientStream  # loads its library only where it is used

    websocket = WebSocketClientStream(stream)
    try:
        with trio.fail_after(_WEBSOCKET_S):
            path = address.path or _WEBSOCKET_PATH
            host = f"{address.host}:{address.port}"
            await websocket.open(host, path, compress=False, suffix="", subprotocol="mqtt")
    except trio.TooSlowError:
        raise TransportError("no answer to the WebSocket handshake") from None
    except (UpgradeError, trio.BrokenResourceError) as error:
        raise TransportError(str(error) or "the connection broke during the WebSocket handshake") from None
    return websocket
