"""NATS's Python client for one command: what the user may not do ends the command at once, in the server's own words.

A server answers a forbidden publish or subscription on the connection, not to the request: without this a request waits for
an answer that never comes, and a publish looks as if it went well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError

from eyot_cli.terminal.show import print_line

_VIOLATION = "permissions violation"
#: refusals that are kept until something asks for them
_KEPT = 16


class PermissionViolation(NatsError):
    """The user's permissions do not allow it; the text is the server's."""


class CommandClient(Client):
    """A client that knows what was refused."""

    def __init__(self) -> None:
        super().__init__()
        #: whether requests and their answers are shown on standard error
        self.trace = False
        #: the server's words, which nats-py has in lower case
        self._refused: deque[str] = deque(maxlen=_KEPT)
        #: tasks that wait for an answer, and the subject that each asked; "": for the answer to a PING
        self._asking: dict[asyncio.Task[Any], str] = {}
        #: of these, the tasks whose request was refused, or whose connection is gone
        self._ended: dict[asyncio.Task[Any], NatsError] = {}

    def use_transport(self, transport: TcpTransport) -> None:
        """Connect by this transport, which is not connected yet."""
        self._transport = transport

    def note_error(self, error: Exception) -> None:
        """Keep what an error of the connection refuses, and end the request that it is about."""
        text = str(error).removeprefix("nats: ")
        if not text.startswith(_VIOLATION):
            return
        inbox = bytes(self._resp_sub_prefix or b"").decode().lower()
        for task, subject in self._asking.items():
            if subject and f'publish to "{subject.lower()}"' in text:
                self._ended[task] = _violation("Publish", subject)
                task.cancel()
                return
            if subject and inbox and f'subscription to "{inbox}' in text:
                self._ended[task] = PermissionViolation(text)
                task.cancel()
                return
        self._refused.append(text)

    async def note_closed(self) -> None:
        """End what waits for an answer: nats-py would let it wait until its time is over."""
        for task in self._asking:
            self._ended[task] = ConnectionClosedError()
            task.cancel()

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Send a request. Raises PermissionViolation at once if the user may not, ConnectionClosedError when the connection ends."""
        self._show(">>>", subject, payload)
        with self._asks(subject):
            answer = await super().request(subject, payload, timeout=timeout, old_style=old_style, headers=headers)
        self._show("<<<", subject, answer.data)
        return answer

    async def flush(self, timeout: int = 10) -> None:
        """Return when the server has answered a PING. Raises ConnectionClosedError when the connection ends."""
        with self._asks(""):
            await super().flush(timeout)

    @contextmanager
    def _asks(self, subject: str) -> Iterator[None]:
        """Raise what ends the wait of the present task early."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._asking[task] = subject
        try:
            yield
        except asyncio.CancelledError:
            error = self._ended.get(task)
            if error is None:
                raise
            task.uncancel()
            raise error from None
        finally:
            del self._asking[task]
            self._ended.pop(task, None)

    def _show(self, mark: str, subject: str, payload: bytes) -> None:
        """Show a request or an answer where that was asked for."""
        if self.trace:
            print_line(f"{mark} {subject}: {payload.decode('utf-8', 'replace')}", error=True)

    async def confirm(self, subject: str) -> None:
        """Return when the server has a publish to the subject, or the subscription. Raises PermissionViolation if it refused."""
        # nats-py sends the PING of a flush before what it has gathered, so only that of a second one comes behind the publish.
        await self.flush()
        await self.flush()
        refused = [text for text in self._refused if f'"{subject.lower()}"' in text]
        if refused:
            self._refused.clear()
            raise _violation("Subscription" if "for subscription" in refused[0] else "Publish", subject)

    def refused(self) -> str:
        """Return the first refusal that nothing has asked for, "" without any."""
        return self._refused[0] if self._refused else ""


def _violation(action: str, subject: str) -> PermissionViolation:
    """Return the server's words, with the subject as it is."""
    return PermissionViolation(f'Permissions Violation for {action} to "{subject}"')
