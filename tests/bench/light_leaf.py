"""Thousands of leaf nodes in one process: each speaks the leaf protocol on a real connection, and nothing else.

A light leaf node does what a device does on an idle link: CONNECT, the interest of a JetStream domain, PING every two minutes, PONG,
and a status message every minute if asked. It dials again by Eyot's own rule (`eyot_sync.link.backoff`). What it hears is counted
and not read, but for INFO, PING and PONG.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import json
import random
import selectors
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from eyot_sync.link.backoff import Backoff
from eyot_wire.trust import nkey

API = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>")
#: As both servers have it by default, seconds.
PING_EVERY_S = 120.0
#: Those of a remote with `reconnect: 1s`, Eyot's default (eyot_sync.link.supervisor), seconds.
BACKOFF_BASE_S, BACKOFF_CAP_S = 0.25, 2.0
CONNECT_TIMEOUT_S = 60.0
_STATUS_BYTES = 600


@dataclass(frozen=True)
class Plan:
    """What one process simulates: the devices' numbers, and the hubs' leaf listeners (ports of 127.0.0.1)."""

    numbers: range
    ports: tuple[int, ...]
    tls_ca: str = ""
    #: credentials by number: JWT and seed; empty: user and password
    creds: tuple[tuple[str, str], ...] = ()
    #: cluster name that all devices give; "": each its own name, as a device alone does
    cluster: str = ""
    #: devices that dial for the first time in a second, in this process; 0: all at once
    ramp: float = 0.0
    #: seconds between two status messages of a device; 0: none
    status_every_s: float = 0.0


@dataclass
class Figures:
    """Since the last question. `linked_after`: seconds since `begun` at which each device was linked."""

    linked: int = 0
    attempts: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0
    linked_after: list[float] = field(default_factory=list)


class Leaf:
    """One device."""

    __slots__ = (
        "backoff",
        "due",
        "greeted",
        "is_linked",
        "number",
        "ping_at",
        "socket",
        "status_at",
        "tail",
        "until",
        "wants",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.backoff = Backoff(BACKOFF_BASE_S, BACKOFF_CAP_S, random.Random(number))
        self.socket: socket.socket | None = None
        self.greeted = 0
        self.is_linked = False
        self.tail = b""
        self.until = self.ping_at = self.status_at = 0.0
        #: when it is to be looked at next; earlier entries of the queue are stale
        self.due = 0.0
        #: what the connection waits for: "connect", "tls", "read"
        self.wants = ""


class Fleet:
    """The devices of one process. `tick` moves all of them on."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.leaves = [Leaf(number) for number in plan.numbers]
        self.figures = Figures()
        self.begun = time.monotonic()
        self._selector = selectors.DefaultSelector()
        #: (when, number in this process) of what is due: an attempt, a PING, a status message
        self._due: list[tuple[float, int]] = []
        for leaf in self.leaves:
            first = leaf.number - plan.numbers.start
            self._in(leaf, self.begun + (first / plan.ramp if plan.ramp else 0.0))
        self._tls = None
        if plan.tls_ca:
            self._tls = ssl.create_default_context(cafile=plan.tls_ca)
            self._tls.check_hostname = False

    def tick(self, wait_s: float = 0.05) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            at, index = heapq.heappop(self._due)
            if at == self.leaves[index].due:
                self._at(self.leaves[index], now)
        for key, _ in self._selector.select(wait_s):
            leaf: Leaf = key.data
            try:
                self._ready(leaf)
            except ssl.SSLWantReadError:
                pass
            except OSError:
                self._lost(leaf)

    # -- time --------------------------------------------------------------------------------------------------------

    def _at(self, leaf: Leaf, now: float) -> None:
        if leaf.socket is None:
            self._dial(leaf)
        elif not leaf.is_linked:
            if now >= leaf.until:
                self._lost(leaf)
            else:
                self._in(leaf, leaf.until)
        else:
            with contextlib.suppress(OSError):
                self._speak(leaf, now)
            if leaf.is_linked:
                self._in(leaf, min(leaf.ping_at, leaf.status_at or leaf.ping_at))

    def _in(self, leaf: Leaf, at: float) -> None:
        leaf.due = at
        heapq.heappush(self._due, (at, leaf.number - self.plan.numbers.start))

    def _speak(self, leaf: Leaf, now: float) -> None:
        if leaf.status_at and now >= leaf.status_at:
            leaf.status_at = now + self.plan.status_every_s
            subject = b"fleet.leaf%d.status" % leaf.number
            self._send(leaf, b"LMSG %b %d\r\n%b\r\n" % (subject, _STATUS_BYTES, b"x" * _STATUS_BYTES))
        if now >= leaf.ping_at:
            leaf.ping_at = now + PING_EVERY_S
            self._send(leaf, b"PING\r\n")

    # -- connections -------------------------------------------------------------------------------------------------

    def _dial(self, leaf: Leaf) -> None:
        self.figures.attempts += 1
        ports = self.plan.ports
        port = ports[(leaf.number + leaf.backoff.failures) % len(ports)]
        leaf.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        leaf.socket.setblocking(False)
        leaf.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Two and more addresses of the loopback: one has fewer ports than ten thousand devices and their earlier connections need.
        leaf.socket.bind((f"127.0.{1 + leaf.number // 4000}.1", 0))
        leaf.greeted, leaf.tail, leaf.wants = 0, b"", "connect"
        leaf.until = time.monotonic() + CONNECT_TIMEOUT_S
        code = leaf.socket.connect_ex(("127.0.0.1", port))
        if code not in (0, errno.EINPROGRESS):
            self._lost(leaf)
            return
        self._selector.register(leaf.socket, selectors.EVENT_WRITE, leaf)
        self._in(leaf, leaf.until)

    def _lost(self, leaf: Leaf) -> None:
        if leaf.socket is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(leaf.socket)
            leaf.socket.close()
        if leaf.is_linked:
            self.figures.linked -= 1
        leaf.socket, leaf.is_linked = None, False
        self._in(leaf, time.monotonic() + leaf.backoff.next_delay_s())

    def _ready(self, leaf: Leaf) -> None:
        sock = leaf.socket
        if sock is None:
            return
        if leaf.wants == "connect":
            if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "no connection")
            leaf.wants = "read"
            self._selector.modify(sock, selectors.EVENT_READ, leaf)
            return
        if leaf.wants == "tls":
            assert isinstance(sock, ssl.SSLSocket)
            sock.do_handshake()
            leaf.wants = "read"
            self._connect(leaf)
            return
        pending = True
        while pending:
            data = sock.recv(65536)
            if not data:
                raise OSError(errno.ECONNRESET, "the hub hung up")
            self.figures.reads += 1
            self.figures.read_bytes += len(data)
            self._heard(leaf, data)
            sock = leaf.socket
            pending = isinstance(sock, ssl.SSLSocket) and leaf.wants == "read" and sock.pending() > 0

    def _heard(self, leaf: Leaf, data: bytes) -> None:
        seen = leaf.tail + data
        if leaf.greeted < 2:
            *lines, leaf.tail = seen.split(b"\r\n")
            for line in lines:
                if line.startswith(b"INFO"):
                    self._greeted(leaf, line)
        else:
            leaf.tail = seen[-5:]
        if not leaf.is_linked and b"PONG\r\n" in seen:
            self._linked(leaf)
        if b"PING\r\n" in seen:
            leaf.tail = b""
            self._send(leaf, b"PONG\r\n")

    def _greeted(self, leaf: Leaf, line: bytes) -> None:
        leaf.greeted += 1
        if leaf.greeted == 2:
            number, name = leaf.number, f"leaf{leaf.number}"
            interest = [f"$JS.{name}.API.{api}" for api in API] + [f"readings.{name}.>", f"$LDS.{number:022}"]
            self._send(leaf, b"".join(b"LS+ %b\r\n" % each.encode() for each in interest) + b"PING\r\n")
            return
        leaf.until = time.monotonic() + CONNECT_TIMEOUT_S
        nonce = json.loads(line[5:]).get("nonce", "")
        leaf.tail = nonce.encode() + b"\n"  # until CONNECT is sent
        if self._tls is None:
            self._connect(leaf)
            return
        assert leaf.socket is not None
        plain = leaf.socket
        self._selector.unregister(plain)
        secure = self._tls.wrap_socket(plain, do_handshake_on_connect=False)
        leaf.socket, leaf.wants = secure, "tls"
        self._selector.register(secure, selectors.EVENT_READ, leaf)
        with contextlib.suppress(ssl.SSLWantReadError):
            secure.do_handshake()

    def _connect(self, leaf: Leaf) -> None:
        number, name = leaf.number, f"leaf{leaf.number}"
        hello: dict[str, Any] = {"version": "2.12.0", "server_id": f"N{number:055}", "name": name, "cluster": self.plan.cluster or name, "domain": name,
                 "jetstream": True, "headers": True, "protocol": 1}  # fmt: skip
        nonce = leaf.tail.partition(b"\n")[0].decode()
        leaf.tail = b""
        if self.plan.creds:
            jwt, seed = self.plan.creds[number - self.plan.numbers.start]
            hello |= {"jwt": jwt, "sig": nkey.encode_signature(nkey.Signer(seed).sign(nonce.encode()))}
        else:
            hello |= {"user": "fleet", "pass": "fleet", "remote_account": "FLEET"}
        self._send(leaf, b"CONNECT " + json.dumps(hello).encode() + b"\r\n")

    def _linked(self, leaf: Leaf) -> None:
        now = time.monotonic()
        leaf.is_linked = True
        leaf.backoff.reset()
        self.figures.linked += 1
        self.figures.linked_after.append(now - self.begun)
        leaf.ping_at = now + random.uniform(1.0, PING_EVERY_S)
        every_s = self.plan.status_every_s
        leaf.status_at = now + random.uniform(0.0, every_s) if every_s else 0.0
        self._in(leaf, min(leaf.ping_at, leaf.status_at or leaf.ping_at))

    def _send(self, leaf: Leaf, data: bytes) -> None:
        assert leaf.socket is not None
        if leaf.socket.send(data) != len(data):
            raise OSError(errno.EAGAIN, "the hub does not read")
        self.figures.writes += 1
        self.figures.written_bytes += len(data)


def run(plan: Plan, orders: Connection) -> None:
    """Simulate until the orders end: `figures` returns those since the last question, `begin` sets the clock's zero."""
    fleet = Fleet(plan)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            fleet.tick()
            if orders.poll():
                order, value = orders.recv()
                if order == "begin":
                    fleet.begun = time.monotonic()
                    fleet.figures.linked_after.clear()
                elif order == "status":
                    _status(fleet, value)
                orders.send(fleet.figures)
                if order == "figures":
                    fleet.figures = Figures(linked=fleet.figures.linked)


def _status(fleet: Fleet, every_s: float) -> None:
    """Let linked devices publish their status that often from now on; 0: not any more."""
    fleet.plan = replace(fleet.plan, status_every_s=every_s)
    now = time.monotonic()
    for leaf in fleet.leaves:
        if leaf.is_linked:
            leaf.status_at = now + random.uniform(0.0, every_s) if every_s else 0.0
            fleet._in(leaf, leaf.status_at or leaf.ping_at)
