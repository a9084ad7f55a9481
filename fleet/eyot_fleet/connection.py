"""One connection to a NATS server, on Trio: `async with connected(login)`. When it breaks, the block is cancelled.

A broken connection stays broken: whoever needs another one opens it. What arrives for a subscription waits there, bounded;
beyond, the oldest are dropped and counted.
"""

from __future__ import annotations

import logging
import math
import os
import re
import ssl
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from eyot_fleet.errors import ConnectionLost, FleetError, NoAnswer, Refused
from eyot_fleet.login import Login, split_server
from eyot_serving.broken_streams import cut_cycles
from eyot_serving.tls_alert import handshake
from eyot_wire import frames, headers, info
from eyot_wire.nuid import nuid
from eyot_wire.quoting import printable
from eyot_wire.scanner import ProtocolError, Scanner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger("eyot.fleet")

CLIENT_NAME: Final = "eyot-fleet"
DIAL_S: Final = 10.0
#: Between two PINGs; a server that has not answered the last one is gone.
PING_S: Final = 20.0
#: Bytes that wait to be sent before a publisher waits.
OUT_MAX: Final = 4 << 20
#: Of one subscription.
WAITING_MAX: Final = 20_000
WAITING_BYTES_MAX: Final = 32 << 20
_READ_BYTES: Final = 256 * 1024
_DENIED: Final = re.compile(r'Permissions Violation for (?:Publish to|Subscription to) "([^"]*)"')


class Subscription:
    """Messages of one subscription, in order. `take` returns all that wait."""

    def __init__(self, subject: str, sid: bytes) -> None:
        self.subject = subject
        self.sid = sid
        #: messages that found no room
        self.dropped = 0
        self._waiting: deque[frames.Msg] = deque()
        self._bytes = 0
        self._wakeup = trio.Event()

    def deliver(self, message: frames.Msg) -> None:
        """Keep a message; the oldest make room. Called by the connection."""
        self._waiting.append(message)
        self._bytes += len(message.payload)
        while len(self._waiting) > WAITING_MAX or self._bytes > WAITING_BYTES_MAX:
            self._bytes -= len(self._waiting.popleft().payload)
            self.dropped += 1
        self._wakeup.set()

    async def take(self) -> list[frames.Msg]:
        """Wait for messages, and return all that wait."""
        await self._wakeup.wait()
        return self.take_now()

    def take_now(self) -> list[frames.Msg]:
        """Return all messages that wait."""
        self._wakeup = trio.Event()
        found = list(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return found


class _Request:
    """A request that waits for one answer."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.done = trio.Event()
        self.answer: frames.Msg | None = None
        self.refused = ""


class Connection:
    """An open connection. Made by `connected`."""

    def __init__(self, stream: trio.abc.Stream, server: str, scanner: Scanner, said: info.ServerInfo) -> None:
        self.info = said
        self.server = server
        #: false once it broke; what used it may still be ending
        self.is_open = True
        self._stream = stream
        self._scanner = scanner
        self._out = bytearray()
        self._has_out = trio.Event()
        self._drained = trio.Event()
        self._inbox = f"_INBOX.{nuid()}"
        self._subscriptions: dict[bytes, Subscription] = {}
        self._requests: dict[bytes, _Request] = {}
        self._count = 0
        self._pongs_due = 0
        self._send(frames.encode_sub(f"{self._inbox}.*".encode(), b"0"))

    # -- use -------------------------------------------------------------------------------------------------------

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        """Publish a message; wait while too much is to be sent. Raises ConnectionLost."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.server} is broken")
        while len(self._out) > OUT_MAX:
            self._drained = trio.Event()
            await self._drained.wait()
        self._send(frames.encode_pub(subject.encode(), reply.encode(), header, payload))

    def subscribe(self, subject: str, queue: str = "") -> Subscription:
        """Subscribe; the subscription lives as long as the connection, or until `unsubscribe`."""
        made = Subscription(subject, self._next())
        self._subscriptions[made.sid] = made
        self._send(frames.encode_sub(subject.encode(), made.sid, queue.encode()))
        return made

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        if self._subscriptions.pop(subscription.sid, None) is not None:
            self._send(frames.encode_unsub(subscription.sid))

    def new_inbox(self) -> str:
        """Return a subject for answers that nobody else has."""
        return f"_INBOX.{nuid()}"

    async def request(
        self, subject: str, payload: bytes = b"", header: bytes = b"", timeout_s: float = 10.0
    ) -> frames.Msg:
        """Publish a request and return the answer. Raises NoAnswer, Refused and ConnectionLost."""
        request, number = _Request(subject), self._next()
        reply = f"{self._inbox}.{number.decode()}"
        self._requests[reply.encode()] = request
        try:
            await self.publish(subject, payload, reply, header)
            with trio.move_on_after(timeout_s):
                await request.done.wait()
        finally:
            del self._requests[reply.encode()]
        if request.refused:
            raise Refused(request.refused)
        if request.answer is None:
            raise NoAnswer(f"no answer on {printable(subject)} within {timeout_s:g} s")
        if headers.status(request.answer.header) == (503, ""):
            raise NoAnswer(f"nobody answers on {printable(subject)}")
        return request.answer

    # -- bytes -----------------------------------------------------------------------------------------------------

    def _next(self) -> bytes:
        self._count += 1
        return str(self._count).encode()

    def _send(self, data: bytes) -> None:
        self._out += data
        self._has_out.set()

    async def write(self) -> None:
        """Send what is to be sent, until cancelled. Raises ConnectionLost."""
        while True:
            await self._has_out.wait()
            self._has_out = trio.Event()
            data, self._out = self._out, bytearray()
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionLost(f"the connection to {self.server} broke: {_said(error)}") from None
            self._drained.set()

    async def read(self) -> None:
        """Handle what arrives, until cancelled. Raises ConnectionLost."""
        while True:
            for op in await _read_some(self._stream, self._scanner, self.server):
                self._handle(op)

    async def ping(self) -> None:
        """Ask now and then whether the server is there, until cancelled. Raises ConnectionLost."""
        while True:
            await trio.sleep(PING_S)
            if self._pongs_due:
                raise ConnectionLost(f"{self.server} has not answered for {PING_S:g} s")
            self._pongs_due += 1
            self._send(frames.PING)

    def _handle(self, op: frames.Op) -> None:
        if isinstance(op, frames.Msg):
            subscription = self._subscriptions.get(op.sid)
            if subscription is not None:
                subscription.deliver(op)
            elif (request := self._requests.get(op.subject)) is not None:
                request.answer = op
                request.done.set()
        elif isinstance(op, frames.Ping):
            self._send(frames.PONG)
        elif isinstance(op, frames.Pong):
            self._pongs_due = 0
        elif isinstance(op, frames.Info):
            self.info = info.decode(op.json, info.ServerInfo)
        elif isinstance(op, frames.Err):
            self._refused(op.text)

    def _refused(self, text: str) -> None:
        """Handle -ERR: a subject that is not allowed fails its requests, all else ends the connection. Raises ConnectionLost."""
        denied = _DENIED.search(text)
        if denied is None:
            raise ConnectionLost(f"{self.server} says: {printable(text)}")
        log.warning("%s says: %s", self.server, printable(text))
        for request in self._requests.values():
            if request.subject == denied[1]:
                request.refused = f"the hub does not allow this service to publish to {printable(denied[1])}"
                request.done.set()


@asynccontextmanager
async def connected(login: Login, name: str = CLIENT_NAME) -> AsyncIterator[Connection]:
    """Connect to the first server that answers, for the time of the block.

    Raises ConnectionLost (also when the connection breaks within the block), Refused and ConfigError.
    """
    connection = await _dial(login, name)
    lost: list[ConnectionLost] = []
    failed: list[FleetError] = []
    # A block that is cancelled from outside may have something to say at its end, and hear the answer.
    serving = trio.CancelScope(shield=True)
    try:
        async with trio.open_nursery() as nursery:

            async def run(task: object) -> None:
                try:
                    await task()  # type: ignore[operator]
                except (ConnectionLost, msgspec.DecodeError) as error:
                    cut_cycles(error)
                    lost.append(error if isinstance(error, ConnectionLost) else ConnectionLost(str(error)))
                    connection.is_open = False
                nursery.cancel_scope.cancel()  # not above: each error of the cancelled would refer to the one that is handled

            async def serve() -> None:
                with serving:
                    async with trio.open_nursery() as tasks:
                        for task in (connection.read, connection.write, connection.ping):
                            tasks.start_soon(run, task)

            nursery.start_soon(serve)
            try:
                yield connection
            except FleetError as error:  # a nursery would wrap it
                failed.append(error)
            finally:
                serving.cancel()
                nursery.cancel_scope.cancel()
    finally:  # not within the nursery: a task that still reads would take the end for a broken connection
        with trio.CancelScope(shield=True), trio.move_on_after(1.0):
            await trio.aclose_forcefully(connection._stream)
    ended = lost[:1] or failed[:1]
    lost.clear()  # an error's traceback refers to the frames that refer to the list: together they are a reference cycle
    failed.clear()
    try:
        if ended:
            raise ended.pop()
    except FleetError as error:
        cut_cycles(error)  # also of what cancelled the block
        raise


async def _dial(login: Login, name: str) -> Connection:
    problems = []
    for server in login.servers:
        scheme, host, port = split_server(server)
        try:
            with trio.fail_after(DIAL_S):
                return await _dial_one(login, name, scheme == "tls", host, port)
        except (OSError, trio.TooSlowError, ConnectionLost) as error:
            cut_cycles(error)
            problems.append(f"{host}:{port}: {_said(error)}")
    raise ConnectionLost(f"no server can be reached: {'; '.join(problems)}: `servers` of [hub] names them")


async def _dial_one(login: Login, name: str, tls: bool, host: str, port: int) -> Connection:
    stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
    try:
        tls = tls or login.wants_tls
        scanner, server = Scanner("client"), f"{host}:{port}"
        if login.tls_first:
            stream = await _encrypted(stream, login, host)
        said = info.ServerInfo()
        while not said.server_id:
            for op in await _read_some(stream, scanner, server):
                if isinstance(op, frames.Info):
                    said = info.decode(op.json, info.ServerInfo)
        if (tls or said.tls_required) and not login.tls_first:
            if not (said.tls_required or said.tls_available):
                raise Refused(f"{server} does not offer TLS")
            stream = await _encrypted(stream, login, host)
        connect = login.connect(said, name, tls=isinstance(stream, trio.SSLStream))
        await stream.send_all(frames.encode_connect(connect) + frames.PING)
        while True:
            for op in await _read_some(stream, scanner, server):
                if isinstance(op, frames.Err):
                    raise Refused(f"{server} says: {printable(op.text)}")
                if isinstance(op, frames.Pong):
                    return Connection(stream, server, scanner, said)
    except BaseException as error:
        cut_cycles(error)
        await trio.aclose_forcefully(stream)
        raise


async def _encrypted(stream: trio.abc.Stream, login: Login, host: str) -> trio.SSLStream[trio.abc.Stream]:
    made = trio.SSLStream(stream, login.context(), server_hostname=host, https_compatible=True)
    try:
        await handshake(made)
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        why = getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or cause
        raise Refused(f"TLS with {host}: {why}") from None
    return made


async def _read_some(stream: trio.abc.Stream, scanner: Scanner, server: str) -> list[frames.Op]:
    """Return the operations of one read. Raises ConnectionLost."""
    try:
        data = await stream.receive_some(_READ_BYTES)
    except (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError) as error:
        raise ConnectionLost(f"the connection to {server} broke: {_said(error)}") from None
    if not data:
        raise ConnectionLost(f"{server} closed the connection")
    try:
        return scanner.feed(bytes(data))
    except ProtocolError as error:
        raise ConnectionLost(f"{server} does not speak the NATS protocol: {error}") from None


def _said(error: BaseException) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {DIAL_S:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    cause = error.__cause__
    if isinstance(error, OSError):  # of trio, which does not say why: one error for each address of the name
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
            return os.strerror(cause.errno)
    return str(error) or (str(cause) if cause is not None else type(error).__name__)


class Backoff:
    """Pauses between dials: they double from `first_s` to `longest_s`, and begin again after a connection that held."""

    def __init__(self, first_s: float = 0.5, longest_s: float = 15.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s, self._begun = first_s, math.inf

    def begin(self, now: float) -> None:
        """Note that a connection is up."""
        self._begun = now

    def pause_s(self, now: float) -> float:
        """Return how long to wait before the next dial."""
        held = now - self._begun > self._longest_s
        self._begun = math.inf
        pause = self._first_s if held else self._next_s
        self._next_s = min(2 * pause, self._longest_s)
        return pause
