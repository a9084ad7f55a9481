"""`eyotd` without Python's collector, as a program that reports the number of its objects by class.

A connection to `<configuration>.objects`, a socket of the file system, receives the numbers as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
from collections import Counter
from contextlib import suppress
from itertools import chain, starmap
from pathlib import Path

from eyot_daemon import launch
from support.servers.eyotd import Eyotd

#: Classes of libraries of which each connection has its own.
STREAMS = ("trio.SocketStream", "trio.SSLStream", "trio._socket._SocketType", "ssl.SSLObject", "socket.socket")


def counts() -> Counter[str]:
    """Objects by class: the project's, and streams. What reference counts do not free is still there: nobody collects.

    From Python 3.12 on, an exception that leaves a context manager of `contextlib` as another one stays in a cycle with
    its frames, and so does what these hold: each connection that Trio ends with an error. There the collector runs first.
    """
    if sys.version_info >= (3, 12):
        gc.collect()
    # All of it is one call: were another thread to run while the objects are listed, a tuple that it is making would have a second
    # owner, and Python refuses to complete such a one.
    kinds = list(map(type, chain.from_iterable(starmap(gc.get_objects, [()]))))
    found: Counter[str] = Counter()
    for kind, count in Counter(kinds).items():
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.startswith("eyot_") or name in STREAMS:
            found[name] += count
    return found


def answer(path: Path) -> None:
    """Tell the numbers to whoever connects."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        while True:
            asker, _ = listener.accept()
            with asker:
                asker.sendall(json.dumps(counts()).encode())


class CountedEyotd(Eyotd):
    """The process, and the questions."""

    def command(self) -> list[str]:
        tests = str(Path(__file__).parents[2])
        return ["env", f"PYTHONPATH={tests}", sys.executable, __file__, "-c", str(self.config_path)]

    def objects(self) -> Counter[str]:
        """Objects by class, as the process has them now."""
        told = b""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(str(self.config_path.with_suffix(".objects")))
            while data := sock.recv(65536):
                told += data
        return Counter(json.loads(told))

    def connections(self) -> int:
        """Sockets that the process has, the listening ones among them."""
        found = 0
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                found += os.readlink(f"/proc/{self.pid}/fd/{name}").startswith("socket:")
        return found


if __name__ == "__main__":
    gc.__dict__["enable"] = lambda: None  # the daemon would call it once it is ready
    threading.Thread(target=answer, args=(Path(sys.argv[-1]).with_suffix(".objects"),), daemon=True).start()
    sys.exit(launch.main())
