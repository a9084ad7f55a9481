"""NATS's Python client, with the rule of nats.go that it lacks: with TLS requested, it connects over TLS or not at all."""

from __future__ import annotations

from typing import Any

from nats.errors import Error as NatsError

from eyot_cli.connection.command_client import CommandClient

#: nats.go's words (`ErrSecureConnWanted`)
NOT_AVAILABLE = "nats: secure connection not available"


class SecureClient(CommandClient):
    """A client whose CONNECT, which carries the password, leaves over TLS only.

    `_process_info` and `_connect_command` are nats-py's own methods. The first reads the server's INFO before any
    answer; the second builds the line with the password. If a later release no longer calls the first, the second
    refuses.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tls_agreed = False

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection:
            if not (info.get("tls_required") or info.get("tls_available") or self.options["tls_handshake_first"]):
                raise NatsError(NOT_AVAILABLE)
            info["tls_required"] = True  # the client accepts TLS that is only offered
            self._tls_agreed = True
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        if not self._tls_agreed:
            raise NatsError(NOT_AVAILABLE)
        command: bytes = super()._connect_command()
        return command
