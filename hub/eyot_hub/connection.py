"""One blocking connection to a NATS server: connect, authenticate, request, and access to the raw socket for bulk reads.

Spark's drivers and executors are plain processes that do one thing at a time, so this is a socket and a scanner,
without threads or an event loop. A broken connection stays broken: the user opens another one.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from eyot_hub.errors import ConnectionFailed, NoAnswer, NoResponders, OptionError, Refused
from eyot_wire import frames, headers, info
from eyot_wire.nuid import nuid
from eyot_wire.scanner import ProtocolError, Scanner
from eyot_wire.trust.creds import Credentials, parse_creds
from eyot_wire.trust.nkey import NkeyError
from eyot_wire.trust.tls import verifying_context

DEFAULT_PORT: Final = 4222
READ_BYTES: Final = 256 * 1024
REQUEST_SID: Final = b"q"
CLIENT_NAME: Final = "eyot-hub"
_SCHEMES: Final = ("nats", "tls")


@dataclass(frozen=True)
class ConnectOptions:
    """Servers and credentials. repr() leaves secrets out; files are read when the connection is opened."""

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    creds: str | None = None  # path of a credentials file
    nkey: str | None = None  # path of a file with an nkey seed
    tls: bool = False
    tls_first: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    timeout_s: float = 10.0  # for connecting and for one answer
    retry_s: float = 120.0  # for how long to retry while no server is reachable
    name: str = CLIENT_NAME

    @property
    def wants_tls(self) -> bool:
        """Whether an option requests TLS, whatever the address says: a TLS file does (as in nats.go)."""
        return self.tls or self.tls_first or bool(self.tls_ca or self.tls_cert)

    def named(self, name: str) -> ConnectOptions:
        return replace(self, name=name)


class Connection:
    """An authenticated connection.

    Raises ConnectionFailed when the connection breaks and Refused when the server rejects it.
    """

    def __init__(self, options: ConnectOptions, sock: socket.socket) -> None:
        self.options = options
        self.sock = sock
        self.info = info.ServerInfo()
        self._scanner = Scanner("client")
        self._inbox = b"_INBOX.%b" % nuid().encode()
        self._requests = 0
        self._listen_for = b""
        self._overheard: frames.Msg | None = None

    @classmethod
    def open(cls, options: ConnectOptions) -> Connection:
        """Connect to one of the servers, in random order. Raises ConnectionFailed, Refused, OptionError."""
        problems = []
        for server in random.sample(options.servers, len(options.servers)):
            host, port = split_server(server)
            try:
                return cls._open_one(options, server, host, port)
            except (OSError, ConnectionFailed, NoAnswer) as error:
                text = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
                problems.append(f"{host}:{port}: {text or error}")
        raise ConnectionFailed("no server could be reached: " + "; ".join(problems))

    @classmethod
    def _open_one(cls, options: ConnectOptions, server: str, host: str, port: int) -> Connection:
        sock = socket.create_connection((host, port), timeout=options.timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wants_tls = options.wants_tls or server.lower().startswith("tls://")
            if options.tls_first:
                sock = _wrap(sock, options, host)
            connection = cls(options, sock)
            deadline = time.monotonic() + options.timeout_s
            connection._await_info(deadline)
            if (wants_tls or connection.info.tls_required) and not options.tls_first:
                if not (connection.info.tls_required or connection.info.tls_available):
                    raise Refused(f"{host}:{port} does not offer TLS")
                connection.sock = _wrap(sock, options, host)
            connection._authenticate(deadline)
            return connection
        except ssl.SSLError as error:
            sock.close()
            why = getattr(error, "verify_message", "") or error.reason or error
            raise Refused(f"TLS with {host}:{port}: {why}") from None
        except BaseException:
            sock.close()
            raise

    def _await_info(self, deadline: float) -> None:
        while not self.info.server_id and not self.info.version:
            self._take(deadline)

    def _authenticate(self, deadline: float) -> None:
        connect = info.ClientConnect(
            verbose=False,
            pedantic=False,
            tls_required=isinstance(self.sock, ssl.SSLSocket),
            name=self.options.name,
            lang="python",
            version="1",
            protocol=1,
            headers=True,
            no_responders=True,
            user=self.options.user or "",
            password=self.options.password or "",
            auth_token=self.options.token or "",
        )
        credentials = _credentials(self.options)
        if credentials is not None:
            connect.jwt = credentials.jwt
            connect.nkey = "" if credentials.jwt else credentials.public_key()
            connect.sig = credentials.sign(self.info.nonce) if self.info.nonce else ""
        self.send(frames.encode_connect(connect) + frames.PING)
        while not any(isinstance(op, frames.Pong) for op in self._take(deadline)):
            pass
        self.send(frames.encode_sub(self._inbox + b".*", REQUEST_SID))

    def send(self, data: bytes | bytearray) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise ConnectionFailed(f"the connection to {self.peer} broke: {error}") from None

    def publish(self, subject: bytes, payload: bytes = b"", reply: bytes = b"", header: bytes = b"") -> None:
        self.send(frames.encode_pub(subject, reply, header, payload))

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        header: bytes = b"",
        timeout_s: float | None = None,
        *,
        delivery: bool = False,
    ) -> frames.Msg:
        """Publish a request and return one answer.

        With `delivery` the answer may be a consumer's message, whose subject differs from the reply subject. Raises
        NoAnswer, NoResponders and what `send` raises.
        """
        self._requests += 1
        reply = b"%b.%d" % (self._inbox, self._requests)
        self.publish(subject.encode(), payload, reply, header)
        deadline = time.monotonic() + (self.options.timeout_s if timeout_s is None else timeout_s)
        while True:
            for op in self._take(deadline):
                if not isinstance(op, frames.Msg):
                    continue
                if op.subject == self._listen_for:
                    self._overheard = op
                elif op.subject == reply or (delivery and op.reply.startswith(b"$JS.ACK.")):
                    if headers.status(op.header) == (503, ""):
                        raise NoResponders(f"no responders on {subject}")
                    return op

    def request_behind(self, probe: str, subject: str, payload: bytes = b"") -> tuple[frames.Msg | None, frames.Msg]:
        """Send two requests at once and wait for the second answer only.

        The first answer is None unless it came before the second. Raises what `request` raises for the second.
        """
        self._requests += 1
        reply = b"%b.%d" % (self._inbox, self._requests)
        self.publish(probe.encode(), b"", reply)
        self._overheard = None
        self._listen_for = reply
        try:
            answer = self.request(subject, payload)
            return self._overheard, answer
        finally:
            self._listen_for = b""

    def messages(self, timeout_s: float) -> list[frames.Msg]:
        """Return messages that arrive within `timeout_s`, of any subscription; returns after the first read."""
        return [op for op in self._take(time.monotonic() + timeout_s) if isinstance(op, frames.Msg)]

    def settle(self) -> None:
        """Read until no operation is incomplete, so that raw reads begin at a frame's start."""
        deadline = time.monotonic() + self.options.timeout_s
        while self._scanner.pending:
            self._take(deadline)

    def answer(self, op: frames.Op) -> None:
        """Handle what the server says of the connection itself. Raises Refused or ConnectionFailed for -ERR."""
        match op:
            case frames.Ping():
                self.send(frames.PONG)
            case frames.Info():
                self.info = info.decode(op.json, info.ServerInfo)
            case frames.Err():
                if "authoriz" in op.text.lower() or "authentic" in op.text.lower():
                    who = "the options user and password, token, creds or nkey say who logs in"
                    raise Refused(f"{self.peer} says: {op.text}: {who}")
                if op.text.startswith("Permissions Violation"):
                    raise Refused(f"{self.peer} says: {op.text}")
                raise ConnectionFailed(f"{self.peer} says: {op.text}")
            case _:
                pass

    def close(self) -> None:
        try:
            self.sock.close()
        except OSError:
            pass

    @property
    def peer(self) -> str:
        """`host:port`, for messages."""
        try:
            host, port = self.sock.getpeername()[:2]
        except OSError:
            return "the server"
        return f"{host}:{port}"

    def _take(self, deadline: float) -> list[frames.Op]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoAnswer(f"{self.peer} did not answer in time")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(READ_BYTES)
        except TimeoutError:
            raise NoAnswer(f"{self.peer} did not answer in time") from None
        except OSError as error:
            raise ConnectionFailed(f"the connection to {self.peer} broke: {error}") from None
        if not data:
            raise ConnectionFailed(f"{self.peer} closed the connection")
        try:
            ops = self._scanner.feed(data)
        except ProtocolError as error:
            raise ConnectionFailed(f"{self.peer} does not speak the NATS protocol: {error}") from None
        for op in ops:
            self.answer(op)
        return ops


def split_server(server: str) -> tuple[str, int]:
    """Return host and port of `nats://host:port`, `tls://host` or `host:port`. Raises OptionError."""
    try:
        url = urlsplit(server if "://" in server else f"nats://{server}")
    except ValueError as error:
        raise OptionError("servers", f"contains an invalid URL: {error}") from None
    if url.scheme not in _SCHEMES:
        raise OptionError("servers", f"has a URL of an unknown kind: {url.scheme}:// (known: nats://, tls://)")
    if url.username or url.password:
        raise OptionError("servers", "must not hold a user or password: use the options user and password")
    try:
        port = url.port
    except ValueError:
        raise OptionError("servers", f"has no usable port in {url.netloc!r}") from None
    if not url.hostname:
        raise OptionError("servers", f"has no host in {server!r}")
    return unquote(url.hostname), port or DEFAULT_PORT


def check_files(options: ConnectOptions) -> None:
    """Read the files that the options name. Raises OptionError for one that cannot be used."""
    _credentials(options)
    if options.wants_tls:
        _context(options)


def _credentials(options: ConnectOptions) -> Credentials | None:
    option, path = ("creds", options.creds) if options.creds else ("nkey", options.nkey)
    if not path:
        return None
    try:
        return parse_creds(Path(path).read_text())
    except OSError as error:
        raise OptionError(option, f"names a file that cannot be read: {error.strerror}: {path}") from None
    except (NkeyError, UnicodeDecodeError) as error:
        raise OptionError(option, f"names a file without usable credentials: {error}") from None


def _wrap(sock: socket.socket, options: ConnectOptions, host: str) -> ssl.SSLSocket:
    return _context(options).wrap_socket(sock, server_hostname=host)


def _context(options: ConnectOptions) -> ssl.SSLContext:
    try:
        context = verifying_context(options.tls_ca)
    except OSError as error:
        raise OptionError("tlsCa", f"names a file that cannot be used: {error}") from None
    if options.tls_cert:
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key)
        except OSError as error:
            raise OptionError("tlsCert", f"and tlsKey cannot be used: {error}") from None
    return context
