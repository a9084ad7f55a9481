"""Which daemon a command speaks to, and how it reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from eyot_cli.failure import Failure

DEFAULT_CONTROL = "/run/eyot/control.sock"
TIMEOUT_S = 5
T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The daemon: its control socket (or monitoring URL) and its NATS listener with credentials."""

    control: str
    server: str
    user: str | None
    password: str | None
    creds: Path | None
    domain: str | None
    as_json: bool

    def get(self, path: str) -> bytes:
        """The body of a page of the control socket or the monitoring port. Raises Failure."""
        over_http = self.control.startswith(("http://", "https://"))
        transport = None if over_http else httpx.HTTPTransport(uds=self.control)
        base = self.control.rstrip("/") if over_http else "http://eyot"
        try:
            with httpx.Client(transport=transport, timeout=TIMEOUT_S) as client:
                answer = client.get(base + path)
        except httpx.HTTPError as error:
            raise Failure(
                f"no answer from {self.control} ({error}): is eyotd running, and may you read its socket? "
                "Another daemon is named with --control PATH or --control http://HOST:PORT"
            ) from error
        if answer.status_code != 200:
            raise Failure(f"{self.control}{path} answered {answer.status_code}: {answer.text.strip()}")
        return answer.content

    def with_client(self, action: Callable[[Client], Awaitable[T]]) -> T:
        """Runs `action` with a connected NATS client. Raises Failure in the server's own words."""

        async def run() -> T:
            client = await self._connect()
            try:
                return await action(client)
            finally:
                await client.close()

        try:
            return asyncio.run(run())
        except APIError as error:
            raise Failure(f"{error.description} ({error.err_code})") from error
        except (NatsError, OSError, TimeoutError) as error:
            raise Failure(f"{self.server}: {error or type(error).__name__}") from error

    def jetstream(self, client: Client) -> JetStreamContext:
        return client.jetstream(domain=self.domain, timeout=TIMEOUT_S)

    async def _connect(self) -> Client:
        async def quiet(_: Exception) -> None:
            """The error that ends the command is raised and printed once."""

        token = self.user if self.password is None else None
        return await nats.connect(
            self.server,
            user=self.user if self.password is not None else None,
            password=self.password,
            token=token,
            user_credentials=str(self.creds) if self.creds else None,
            allow_reconnect=False,
            connect_timeout=TIMEOUT_S,
            error_cb=quiet,
            name="eyot",
        )
