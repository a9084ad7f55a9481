"""Fuzzing of MQTT on running brokers, one with each twin of the hot room: conversations from the grammar, forbidden packets
and damaged bytes, each answer checked, beside clients that must not notice. A seed repeats a conversation.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from support.clients import hostile
from support.clients.raw_client import RawClient
from support.clients.unknown_peers import own_bytes
from support.mqtt.answers import AnswerChecker, Illegal, PollingMqtt, check_form
from support.mqtt.faults import faults, faulty_connects
from support.mqtt.grammar import USERS, Grammar, Step
from support.mqtt.raw_mqtt import Closed, Got, RawMqtt
from support.servers.eyotd import Eyotd, PlainEyotd
from support.servers.server_process import free_port

CONFIG = """
server_name: mqtt
jetstream { store_dir: "%WORKDIR%/js" }
authorization { users: [
    { user: all, password: all }
    { user: few, password: few, permissions: { publish: "few.>", subscribe: ["few.>", "few"] } }
] }
mqtt { listen: "127.0.0.1:%MQTT_PORT%" }
eyot { mqtt { packet3_refusal_pause: 50ms, session_expiry_max: 2s } }
"""
STREAMS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "S", "subjects": ["s.>"], "max_msgs": 200},
    {"name": "FULL", "subjects": ["full.>"], "max_msgs": 5, "discard": "new"},
)
PATIENCE_S: Final = 60.0
#: Growth of a process that needs explaining, after a first phase in which caches and queues fill.
GROWTH_MAX: Final = 40 << 20
WARM_UP_STEPS: Final = 300
_RESET: Final = struct.pack("ii", 1, 0)


class Broker:
    """A broker with a pair of well-behaved clients, whose connections last and whose messages arrive."""

    def __init__(self, make: type[Eyotd], folder: Path) -> None:
        self.port = free_port()
        self.eyotd = make(CONFIG.replace("%MQTT_PORT%", str(self.port)), folder)
        self.warm = 0
        self._said = 0

    def start(self) -> None:
        self.eyotd.start()
        with RawClient(self.eyotd.client_port, user="all", **{"pass": "all"}) as nats:
            nats.send(b"SUB in 1\r\n")
            for stream in STREAMS:
                subject, body = b"$JS.API.STREAM.CREATE." + stream["name"].encode(), json.dumps(stream).encode()
                nats.send(b"PUB %b in %d\r\n%b\r\n" % (subject, len(body), body))
                assert b'"error"' not in nats.until(b"}\r\n")
        self._hears, self._says = RawMqtt(self.port, level=5), RawMqtt(self.port)
        for client, name in ((self._hears, "hears"), (self._says, "says")):
            client.sock.settimeout(PATIENCE_S)
            assert client.connect(name, user="all", password=b"all").reason == 0
        assert self._hears.subscribe("innocent", qos=2).codes == [2]

    def check(self) -> None:
        """Nobody else was harmed: the pair's message arrives over its connections, and the log has no exception."""
        assert self.eyotd.running, self.eyotd.log()[-4000:]
        self._said += 1
        payload = b"%d" % self._said
        try:
            assert self._says.publish_acked("innocent", payload, qos=1 + self._said % 2) == 0
            assert self._hears.message().payload == payload
        except Closed:
            raise AssertionError(f"a well-behaved client was hung up on\n{self.eyotd.log()[-4000:]}") from None

    def check_process(self, *, warm: bool) -> None:
        """No connection is left behind, no exception is in the log, and memory does not grow once it is warm."""
        log = self.eyotd.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:6000]
        deadline = time.monotonic() + PATIENCE_S
        while self.eyotd.monitor("/varz")["connections"] != 2:
            assert time.monotonic() < deadline, f"connections left behind: {self.eyotd.monitor('/connz')}"
            time.sleep(0.05)
        size = own_bytes(self.eyotd.pid)
        if warm or not self.warm:
            self.warm = size
        assert size - self.warm < GROWTH_MAX, f"grew from {self.warm} to {size} bytes"


class Brokers:
    """Both twins, and the steps of fuzzing. Usable as a context manager."""

    def __init__(self, folder: Path, *, compiled: type[Eyotd] = Eyotd, plain: type[Eyotd] = PlainEyotd) -> None:
        self.brokers = (Broker(compiled, folder / "mqtt-compiled"), Broker(plain, folder / "mqtt-plain"))
        self._steps = 0

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.eyotd.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def converse(self, seed: int) -> None:
        """A few clients at once that keep to the grammar, up to the forbidden packet with which some of them end."""
        rng = Random(seed)
        broker = rng.choice(self.brokers)
        conversations = [conversation(rng, broker.port, number) for number in range(rng.choice((1, 1, 2, 3)))]
        while conversations:
            one = rng.choice(conversations)
            if next(one, None) is None:
                conversations.remove(one)
        self._check(broker)

    def damage(self, seed: int) -> None:
        """Conversations with bytes changed, lost and doubled, in pieces of any size: what is answered has a legal form."""
        rng = Random(seed)
        broker = rng.choice(self.brokers)
        level = rng.choice((4, 5))
        connect = Grammar(rng, level, user="all").connect(rng.choice(("", "d-1", "d-2")))
        steps = Grammar(rng, level, aliases_max=5)
        data = b"".join(steps.step().data for _ in range(rng.randrange(1, 25)))
        data = damaged(rng, data)
        if rng.random() < 0.2:
            damaged_connect(rng, broker.port, encoder.connect(connect) + data)
        else:
            client = PollingMqtt(broker.port, level=level)
            client.send(encoder.connect(connect))
            client.sock.settimeout(PATIENCE_S)
            refused = client.packet().reason
            assert not refused, f"{connect} is refused with {refused:#x}: {broker.eyotd.log()[-3000:]}"
            with suppress(OSError):
                for piece in hostile.cut(rng, data):
                    client.send(piece)
                client.sock.shutdown(socket.SHUT_WR)
            with suppress(Closed):
                while True:
                    check_form(client.packet(), level)
            client.sock.close()
        self._check(broker)

    def faults(self, seed: int) -> None:
        """A first packet that cannot be, and a forbidden packet behind CONNECT, of each kind in turn."""
        broker = self.brokers[seed % 2]
        rng = Random(seed)
        connects, level = faulty_connects(), 4 + seed // 2 % 2
        refused_connect(broker.port, connects[sorted(connects)[seed % len(connects)]])
        forbidden = faults(level)
        name = sorted(forbidden)[seed // 4 % len(forbidden)]
        connect = Grammar(rng, level).connect("")
        connect.properties = None
        client = PollingMqtt(broker.port, level=level)
        client.sock.settimeout(PATIENCE_S)
        client.send(encoder.connect(connect))
        checker = AnswerChecker(connect, client.packet(), client.size)
        end_by_fault(rng, client, checker, name, *forbidden[name])
        self._check(broker)

    def _check(self, broker: Broker) -> None:
        broker.check()
        self._steps += 1
        if self._steps % 100 == 0:
            self.check_processes()

    def check_processes(self) -> None:
        for broker in self.brokers:
            broker.check_process(warm=self._steps <= WARM_UP_STEPS)


# -- conversations -------------------------------------------------------------------------------------------------------


def conversation(rng: Random, port: int, number: int) -> Iterator[str]:
    """One client, step by step; yields the names of its steps. Client ids are its own: `number` is among the crowd's."""
    level, user = rng.choice((3, 4, 4, 5, 5, 5)), rng.choice(USERS)
    grammar = Grammar(rng, level, user)
    connect = grammar.connect(
        rng.choice(("" if level > 3 else f"old-{user}-{number}", f"{user}-{number}", f"{user} {number}/+.#"))
    )
    client = PollingMqtt(port, level=level)
    client.sock.settimeout(PATIENCE_S)
    checker: AnswerChecker | None = None
    try:
        for piece in hostile.cut(rng, encoder.connect(connect)):
            client.send(piece)
        connack = client.packet()
        checker = AnswerChecker(connect, connack, client.size)
        assert connack.reason == 0, f"{connect} is refused with {connack.reason:#x}"
        if level == 5:
            grammar.aliases_max = (connack.properties.topic_alias_maximum or 1) - 1  # the last one stays unset
        if not checker.is_new:
            grammar.subs = None
        yield "connect"
        steps = [grammar.step() for _ in range(rng.randrange(1, 30))]
        may_end = False
        for step in steps:
            may_end |= step.may_end
            if not say(rng, client, checker, step):
                assert may_end, f"closed with {checker.ended:#x} at {step}"
                return
            yield step.name
        finish(rng, client, checker, grammar, may_end=may_end)
    except (Illegal, TimeoutError) as error:
        owes = checker.owes if checker is not None else "CONNACK"
        raise AssertionError(f"{error}; owed: {owes}\nCONNECT: {connect}") from error
    finally:
        client.sock.close()


def say(rng: Random, client: PollingMqtt, checker: AnswerChecker, step: Step) -> bool:
    """Send a step and check what came; False: the server closed."""
    while step.received and checker.awaits(PacketType.PUBREC, step.received):
        if not listen(client, checker, wait=True):
            return False
    checker.sent(step)
    pieces = hostile.cut(rng, step.data) if rng.random() < 0.1 else [step.data]
    try:
        for piece in pieces:
            client.send(piece)
    except OSError:
        drain(client, checker)
        return False
    return listen(client, checker)


def listen(client: PollingMqtt, checker: AnswerChecker, *, wait: bool = False) -> bool:
    """Check what came and answer it; False: the server closed."""
    is_open = client.arrived(wait=wait)
    while (got := client.next()) is not None:
        reply = checker.got(got, client.size)
        if reply and is_open:
            checker.replied(reply)
            with suppress(OSError):
                client.send(reply)
    return is_open and not checker.ended


def drain(client: PollingMqtt, checker: AnswerChecker) -> None:
    """Check everything until the server closes."""
    while client.arrived(wait=True):
        while (got := client.next()) is not None:
            checker.got(got, client.size)
    while (got := client.next()) is not None:
        checker.got(got, client.size)


def finish(rng: Random, client: PollingMqtt, checker: AnswerChecker, grammar: Grammar, *, may_end: bool) -> None:
    """Wait for all that is owed, then leave: by DISCONNECT, by a forbidden packet, or without a word."""
    while checker.owes:
        if not listen(client, checker, wait=True):
            assert may_end, f"closed with {checker.ended:#x}, owing {checker.owes}"
            return
    kind = rng.random()
    if kind < 0.3:
        say(rng, client, checker, grammar.leave())
        drain(client, checker)
    elif kind < 0.8:
        forbidden = faults(grammar.level)
        name = rng.choice(sorted(forbidden))
        end_by_fault(rng, client, checker, name, *forbidden[name])
    elif kind < 0.9:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def end_by_fault(
    rng: Random, client: PollingMqtt, checker: AnswerChecker, name: str, data: bytes, reasons: frozenset[int]
) -> None:
    """Send a forbidden packet and more behind it: the server closes, MQTT 5 with a reason, and answers nothing more."""
    behind = encoder.PINGREQ + encoder.publish(checker.level, "s/behind", b"", qos=1, packet_id=64_999)
    with suppress(OSError):
        for piece in hostile.cut(rng, data + behind):
            client.send(piece)
        client.sock.shutdown(socket.SHUT_WR)  # a packet that is only announced ends with this
    try:
        drain(client, checker)
    except Illegal as error:
        raise Illegal(f"behind {name}: {error}") from None
    if checker.level == 5:
        assert checker.ended in reasons, (
            f"{name}: closed with {checker.ended:#x} instead of {[hex(each) for each in reasons]}"
        )


def refused_connect(port: int, data: bytes) -> None:
    """Send a first packet that cannot be: the server closes, with nothing or with a CONNACK that refuses."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(data + encoder.PINGREQ)
        got = read_all(sock)
    assert not got or (got[0] == 0x20 and got[2] == 0 and got[3] != 0), f"{data!r} is answered with {got!r}"


def read_all(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    got = b""
    with suppress(ConnectionError):
        while data := sock.recv(65_536):
            got += data
    return got


# -- damage --------------------------------------------------------------------------------------------------------------


def damaged(rng: Random, data: bytes) -> bytes:
    """The bytes with some of them changed, lost, doubled or new."""
    made = bytearray(data)
    for _ in range(rng.randrange(1, 8)):
        at, kind = rng.randrange(len(made) + 1), rng.randrange(5)
        if kind == 0 and at < len(made):
            made[at] = rng.randrange(256)
        elif kind == 1 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del made[at : at + rng.randrange(1, 10)]
        elif kind == 3:
            made[at:at] = made[at : at + rng.randrange(1, 40)]
        else:
            made[at:at] = rng.randbytes(rng.randrange(1, 6))
    return bytes(made)


def damaged_connect(rng: Random, port: int, data: bytes) -> None:
    """Damage CONNECT too: whatever the level became, what is answered has the form of some level."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        with suppress(OSError):
            for piece in hostile.cut(rng, damaged(rng, data)):
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
        got = read_all(sock)
    problems = []
    for level in (4, 5):
        try:
            for packet in packets_of(got, level):
                check_form(packet, level)
            return
        except ValueError as error:  # not a packet of this level
            problems.append(error)
        except Illegal as error:
            problems.append(error)
    raise AssertionError(f"{got[:200]!r} is of no level: {problems}")


def packets_of(data: bytes, level: int) -> Iterator[Got]:
    """The whole packets of a server's bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = RawMqtt(0, level=level, sock=ours)
        reader._read += data
        while (got := reader._cut()) is not None:
            yield got
