"""Reading `websocket { }`, and what its clients and those of MQTT must present."""

from __future__ import annotations

import msgspec

from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.listen import read_listen, read_listener_login
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.config.options import HANDSHAKE_TIMEOUT_DEFAULT_S, Options, WebsocketOptions
from eyot_daemon.config.reader import Block
from eyot_daemon.config.tls_read import read_tls


def read_websocket(parent: Block) -> WebsocketOptions | None:
    """Read the block's options; None without a block or without a port (as in nats-server, port 0 means no listener)."""
    block = parent.block("websocket", "ws")
    if block is None:
        return None
    host, port = read_listen(block)
    options = WebsocketOptions(
        host=host or "0.0.0.0",
        port=port or 0,
        advertise=block.string("advertise"),
        tls=read_tls(block, "tls"),
        no_tls=block.boolean("no_tls"),
        same_origin=block.boolean("same_origin"),
        allowed_origins=block.strings(
            "allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin"
        ),
        handshake_timeout_s=block.seconds_or_default("handshake_timeout", default=HANDSHAKE_TIMEOUT_DEFAULT_S),
        compression=block.boolean("compress", "compression"),
        authorization=_read_authorization(block.block("authorization", "authentication")),
        jwt_cookie=block.string("jwt_cookie"),
        user_cookie=block.string("user_cookie"),
        pass_cookie=block.string("pass_cookie"),
        token_cookie=block.string("token_cookie"),
        no_auth_user=block.string("no_auth_user"),
        headers=block.pairs("headers"),
        ping_interval_s=block.seconds("ping_interval", default=0.0) or None,
    )
    block.finish()
    if not options.port:
        return None
    if options.tls is None and not options.no_tls:
        raise parent.error("websocket requires TLS configuration", "websocket", "ws")
    block.remember("jwt_cookie", "jwt_cookie")
    return options


def _read_authorization(block: Block | None) -> AuthorizationOptions | None:
    if block is None:
        return None
    authorization = read_listener_login(block)
    if block.entry("users") is not None:
        raise block.error("users are not allowed in the websocket's authorization; list them at the top", "users")
    block.finish()
    return authorization


def for_listener(options: Options, listener: WebsocketOptions | MqttOptions | None) -> Options | None:
    """Return the options for authenticating clients of a listener with a block of its own; None: those of all clients."""
    if listener is None:
        return None
    own = listener.authorization
    overrides = own is not None and bool(own.user or own.token)
    if not overrides and not listener.no_auth_user:
        return None
    authorization = options.authorization
    if own is not None:
        authorization = msgspec.structs.replace(
            authorization, user=own.user, password=own.password, token=own.token, timeout_s=own.timeout_s
        )
    return msgspec.structs.replace(options, authorization=authorization, no_auth_user=listener.no_auth_user)
