"""The steps of fuzzing that need running daemons: one with each twin of the hot room.

Their memory allocator checks every block's borders (PYTHONMALLOC=debug), so that a write beyond a buffer ends the process.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from listeners import Listeners
from services import Services

from support.clients import hostile
from support.clients.conversation import CONFIG, Listener, play, script
from support.links.transport_crowd import TransportCrowd
from support.mqtt.fuzz import Brokers
from support.servers.eyotd import Eyotd, PlainEyotd

#: Growth of a process that needs explaining, after a first phase in which caches fill.
GROWTH_KB_MAX = 40_000
WARM_UP_STEPS = 300

_LEAF_NODES = 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }\n'
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


class Daemons:
    """Both daemons, and the innocent clients that one through them meanwhile."""

    def __init__(self, folder: Path) -> None:
        config = CONFIG + _LEAF_NODES
        self._servers = (_Checked(config, folder / "compiled"), _CheckedPlain(config, folder / "plain"))
        self._mqtt = Brokers(folder, compiled=_Checked, plain=_CheckedPlain)
        self._services = Services(folder / "services")
        self._listeners = Listeners(folder, compiled=_Checked, plain=_CheckedPlain)
        self._transports = TransportCrowd(folder / "transports", compression="s2_fast")
        self._innocent: list[tuple[Listener, Listener]] = []
        self._warm_kb: list[int] = []
        self._steps = 0
        self._said = 0

    def __enter__(self) -> Self:
        for server in self._servers:
            server.start()
            hears = Listener(server.client_port, b"SUB innocent.%d 1\r\n" % server.client_port)
            self._innocent.append((hears, Listener(server.client_port, b"")))
        self._services.start()
        self._listeners.start()
        self._mqtt.start()
        self._transports.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.kill()
        self._services.kill()
        self._listeners.kill()
        self._mqtt.kill()
        self._transports.__exit__(kind, error, trace)

    def steps(self) -> dict[str, Callable[[int], None]]:
        return {
            "conversations": self.conversation,
            "compressed_links": self._listeners.compressed_links,
            "crowds": self.crowd,
            "leafs": self.leaf,
            "mqtt": self._mqtt.converse,
            "mqtt_damage": self._mqtt.damage,
            "mqtt_faults": self._mqtt.faults,
            "pages": self._listeners.pages,
            "services": self._services.ask,
            "transports": self._transports.exchange,
            "web_sockets": self._listeners.web_sockets,
        }

    def conversation(self, seed: int) -> None:
        """A whole conversation sounds the same with both twins."""
        pieces = script(seed)
        compiled, plain = (play(server.client_port, pieces) for server in self._servers)
        assert compiled.agrees(plain), f"{compiled}\n{plain}"
        self._check()

    def crowd(self, seed: int) -> None:
        """Many connections at once: silent ones, half-open ones, dribbling ones, endless lines, all of them hostile."""
        rng = Random(seed)
        port = self._servers[0].client_port
        connections: list[tuple[socket.socket, list[bytes]]] = []
        for _ in range(rng.randrange(2, 30)):
            sock = socket.create_connection(("127.0.0.1", port), timeout=20)
            pieces = rng.choice([script, _dribble, _endless, lambda _: []])(rng.randrange(1 << 40))
            connections.append((sock, pieces))
        while connections:
            index = rng.randrange(len(connections))
            sock, pieces = connections[index]
            try:
                if not pieces:
                    self._end(rng, sock)
                    del connections[index]
                    continue
                for _ in range(min(len(pieces), rng.randrange(1, 20))):
                    sock.sendall(pieces.pop(0))
            except OSError:  # hung up on
                sock.close()
                del connections[index]
        self._check()

    def leaf(self, seed: int) -> None:
        """Hostile bytes on the port for leaf links."""
        rng = Random(seed)
        port = self._servers[0].leaf_port
        pieces = hostile.cut(rng, hostile.hostile(rng, rng.choice(["LMSG", "LMSG", "PUB"])))
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock, suppress(OSError):
            if rng.random() < 0.7:
                user = rng.choice([b"all", b"few", b"nobody"])
                sock.sendall(b'CONNECT {"user":"%b","pass":"%b","name":"x","headers":true}\r\n' % (user, user))
            for piece in pieces:
                sock.sendall(piece)
            self._end(rng, sock)
        self._check()

    @staticmethod
    def _end(rng: Random, sock: socket.socket) -> None:
        if rng.random() < 0.3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif rng.random() < 0.5:
            sock.shutdown(rng.choice([socket.SHUT_WR, socket.SHUT_RDWR]))
        sock.close()

    def _check(self) -> None:
        """Nobody else was harmed."""
        self._steps += 1
        for server, (hears, says) in zip(self._servers, self._innocent, strict=True):
            assert server.running, f"{server.name} died:\n{server.log()[-3000:]}"
            self._said += 1
            frame = b"innocent.%d 9\r\n%09d\r\n" % (server.client_port, self._said)
            says.sock.sendall(b"PUB " + frame)
            says.heard()
            expected, heard = b"MSG " + frame.replace(b" ", b" 1 ", 1), hears.heard()
            assert heard == expected, f"heard {heard!r} instead of {expected!r}"
        if self._steps % 100 == 0:
            self._check_processes()

    def _check_processes(self) -> None:
        for server in self._servers:
            assert "Traceback" not in server.log(), server.log()[-4000:]
            deadline = time.monotonic() + 10
            while server.monitor("/varz")["connections"] != 2:
                assert time.monotonic() < deadline, f"connections left behind: {server.monitor('/connz')}"
                time.sleep(0.05)
        sizes = [_resident_kb(server.pid) for server in self._servers]
        if self._steps <= WARM_UP_STEPS:
            self._warm_kb = sizes
        for size, warm in zip(sizes, self._warm_kb, strict=True):
            assert size - warm < GROWTH_KB_MAX, f"grew from {warm} to {size} kB"


class _Checked(Eyotd):
    def command(self) -> list[str]:
        return ["env", "PYTHONMALLOC=debug", *super().command()]


class _CheckedPlain(PlainEyotd):
    def command(self) -> list[str]:
        return ["env", "PYTHONMALLOC=debug", *super().command()]


def _dribble(seed: int) -> list[bytes]:
    """A byte at a time, and never a whole line."""
    rng = Random(seed)
    return [rng.choice([b"P", b"PUB a", b"CONNECT {"])] + [
        bytes([rng.choice(b"a1 \t{")]) for _ in range(rng.randrange(60))
    ]


def _endless(seed: int) -> list[bytes]:
    """Long lines, and payloads that are announced but never come."""
    rng = Random(seed)
    start = rng.choice([b"PUB ", b"PUB a", b"CONNECT ", b"PING", b"SUB ", b"PUB a 65536\r\n", b"HPUB a 5 65000\r\n"])
    return [start] + [rng.choice([b" ", b"a", b"\t", b"1"]) * rng.choice([100, 4096, 65536])] * rng.randrange(1, 5)


def _resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"no VmRSS for {pid}")
