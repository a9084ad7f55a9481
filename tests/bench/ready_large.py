"""`make bench-start`: how soon the daemon is READY for systemd with so many gigabytes stored.

    .venv/bin/python tests/bench/ready_large.py [--gigabytes 10] [--rounds 5] [--nice -20]

Each round starts the daemon with an empty store, after a stop, and after a SIGKILL while clients publish. The page cache has nothing of
the store. Prints a table for docs/measured.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import wire
from idle_rows import forget_pages

from eyot_store import Store, StoreOptions
from eyot_store.txn import Txn
from support.servers.server_process import free_port

STREAMS = 4
SUBJECTS = 250
UNLIMITED = dict.fromkeys(("max_msgs", "max_bytes", "max_msg_size", "max_msgs_per_subject", "max_consumers"), -1)
#: Messages of a transaction while the store is made, and the bytes of one that is published later.
BATCH = 2000
PUBLISHED_BYTES = 1000
READY_S_MAX = 300.0


class Daemon:
    """`eyotd` with a socket of systemd's protocol."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._notify = folder / "notify"
        self._process: subprocess.Popen[bytes] | None = None
        config = f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder}/js" }}\n'
        (folder / "eyotd.conf").write_text(config)

    def start(self, nice: int = 0) -> tuple[float, float, float]:
        """Start; return the seconds until READY=1, the processor's of them, and the MB read from the disk. Raises TimeoutError."""
        self._notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said, (self.folder / "log").open("ab") as log:
            said.bind(str(self._notify))
            said.settimeout(READY_S_MAX)
            eyotd = [Path(sys.executable).with_name("eyotd"), "-c", self.folder / "eyotd.conf"]
            command = [*(["nice", "-n", str(nice)] if nice else []), *eyotd]
            began = time.monotonic()
            self._process = subprocess.Popen(
                command, env=os.environ | {"NOTIFY_SOCKET": str(self._notify)}, stdout=log, stderr=log
            )
            while b"READY=1" not in said.recv(4096):
                pass
            return time.monotonic() - began, _cpu_s(self._process.pid), _read_mb(self._process.pid)

    def end(self, *, kill: bool = False) -> None:
        """Stop, or kill."""
        assert self._process is not None
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait()

    def messages(self) -> int:
        """What all streams hold."""
        asking = wire.Peer(self.port)
        states = [asking.request(f"$JS.API.STREAM.INFO.S{number}")["state"] for number in range(STREAMS)]
        asking.close()
        return sum(state["messages"] for state in states if isinstance(state, dict))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_mb(pid: int) -> float:
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["read_bytes"]) / 1e6


def build(path: Path, gigabytes: float, payload_bytes: int) -> int:
    """Make the store, in large transactions; return how many messages it has."""
    options = StoreOptions(inline=True, flush=False, map_size=64 << 20)
    store = Store.open(path, notify=lambda fn: fn(), options=options)
    payload = os.urandom(payload_bytes)
    per_stream = int(gigabytes * 1e9 / payload_bytes / STREAMS)
    for number in range(STREAMS):
        config = {"name": f"S{number}", "subjects": [f"s{number}.>"], "storage": "file", "num_replicas": 1} | UNLIMITED
        txn = store.begin()
        log = store.create_stream(txn, "$G", f"S{number}", json.dumps(config).encode(), time.time_ns())
        _commit(store, txn)
        for first in range(0, per_stream, BATCH):
            txn = store.begin()
            now_ns = time.time_ns()
            for place in range(first, min(first + BATCH, per_stream)):
                log.append(txn, b"s%d.%d" % (number, place % SUBJECTS), b"", payload, now_ns + place - first)
            _commit(store, txn)
        while store._committer.untidy:
            store.commit_now()
    store.close()
    return per_stream * STREAMS


def _commit(store: Store, txn: Txn) -> None:
    store.submit(txn)
    store.commit_now()


def publish(port: int) -> None:
    """Publish without end."""
    names = [f"s{number % STREAMS}.{number}" for number in range(SUBJECTS * STREAMS)]
    wire.publish_to(port, names, os.urandom(PUBLISHED_BYTES // 2).hex().encode(), 10_000_000, 2048)


def stored_bytes(folder: Path) -> int:
    """What the store's files take of the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def killed_while_publishing(daemon: Daemon) -> None:
    def until_killed() -> None:
        with suppress(OSError):
            publish(daemon.port)

    publisher = threading.Thread(target=until_killed, daemon=True)
    publisher.start()
    time.sleep(2)
    daemon.end(kill=True)
    publisher.join(10)


def measure(folder: Path, gigabytes: float, payload_bytes: int, rounds: int, nice: int) -> None:
    empty, full = folder / "empty", folder / "full"
    empty.mkdir()
    full.mkdir()
    daemon, bare = Daemon(full), Daemon(empty)
    count = build(full / "js/eyot", gigabytes, payload_bytes)
    forget_pages(full)  # else the first start waits until all of it is written
    taken: dict[str, list[tuple[float, float, float]]] = {
        "an empty store": [],
        "after a stop": [],
        "after a SIGKILL": [],
    }
    held = count
    for _ in range(rounds):
        shutil.rmtree(empty / "js", ignore_errors=True)
        taken["an empty store"].append(bare.start(nice))
        bare.end()
        forget_pages(full)
        taken["after a stop"].append(daemon.start(nice))
        killed_while_publishing(daemon)
        forget_pages(full)
        taken["after a SIGKILL"].append(daemon.start(nice))
        now = daemon.messages()
        assert now > held, f"{now} messages, and there were {held}"
        held = now
        daemon.end()
    print(
        f"{stored_bytes(full / 'js') / 1e9:.1f} GB on disk, {count:,} messages of {payload_bytes:,} bytes and {held - count:,} later ones, {STREAMS} streams"
    )
    print(
        "| start | ready after, median | fastest | slowest | processor, median | read, median |\n|---|---|---|---|---|---|"
    )
    for what, starts in taken.items():
        seconds, cpu, read = zip(*starts, strict=True)
        shown = (median(seconds), min(seconds), max(seconds), median(cpu))
        print(f"| {what} | " + " | ".join(f"{each:.2f} s" for each in shown) + f" | {median(read):.1f} MB |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--payload", type=int, default=4000, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--nice", type=int, default=0, help="of the starts that are measured, on a machine that others use"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eyot-start-", dir="/var/tmp") as name:
        measure(Path(name), options.gigabytes, options.payload, options.rounds, options.nice)


if __name__ == "__main__":
    main()
