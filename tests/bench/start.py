"""How long a start takes, and what the first questions cost, with a large store.

    .venv/bin/python tests/bench/start.py [--messages 10000000] [--streams 100] [--subjects 50] [--directory DIR] [--keep]

Builds a store of that many messages of 128 bytes (a few gigabytes for ten million; `--keep` leaves it there, and a second run with
the same directory uses it again), then starts eyotd on it: seconds until it answers, its memory, the seconds that STREAM.INFO of
every stream takes after that and the longest of them, and the last message of a subject of each.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from eyot_store import Store, StoreOptions

CONFIG = """
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{store_dir}" }}
"""


def build(path: Path, messages: int, streams: int, subjects: int) -> None:
    """The store, in a few large transactions for each stream."""
    store = Store.open(path, notify=lambda fn: fn(), options=StoreOptions(inline=True, flush=False, map_size=64 << 20))
    payload = os.urandom(128)
    per_stream = messages // streams
    for index in range(streams):
        name = f"S{index}"
        config = json.dumps({"name": name, "subjects": [f"s{index}.>"], "storage": "file", "num_replicas": 1}).encode()
        txn = store.begin()
        log = store.create_stream(txn, "$G", name, config, time.time_ns())
        store.submit(txn)
        store.commit_now()
        done = 0
        while done < per_stream:
            txn = store.begin()
            now_ns = time.time_ns()
            for number in range(done, min(done + 20_000, per_stream)):
                log.append(txn, b"s%d.device-%d" % (index, number % subjects), b"", payload, now_ns + number - done)
            done = min(done + 20_000, per_stream)
            store.submit(txn)
            store.commit_now()
        while store._committer.untidy:
            store.commit_now()
        print(f"\r{(index + 1) * per_stream:,} messages", end="", file=sys.stderr, flush=True)
    store.close()
    print(file=sys.stderr)


class Client:
    """Requests over one plain connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nSUB _I 1\r\nPING\r\n')
        while (line := self._file.readline()) != b"PONG\r\n":
            if not line or line.startswith(b"-ERR"):
                raise OSError(f"refused: {line!r}")

    def request(self, subject: str, body: bytes = b"") -> dict:
        self._socket.sendall(b"PUB %b _I %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        while (line := self._file.readline()) == b"PING\r\n":
            self._socket.sendall(b"PONG\r\n")
        assert line.startswith(b"MSG"), line
        return json.loads(self._file.read(int(line.split()[-1]) + 2))


def main() -> None:
    parser = argparse.ArgumentParser(description="Starting with a large store.")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--subjects", type=int, default=50, help="in each stream")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp())
    try:
        path = directory / "eyot"
        if not (path / "data.mdb").exists():
            path.mkdir(parents=True)
            build(path, options.messages, options.streams, options.subjects)
        measure(directory, options.streams)
    finally:
        if not options.keep:
            shutil.rmtree(directory)


def measure(directory: Path, streams: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = directory / "eyotd.conf"
    config.write_text(CONFIG.format(port=port, store_dir=directory))
    started = time.perf_counter()
    daemon = subprocess.Popen([sys.executable, "-m", "eyot_daemon.main", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                client = Client(port)
                break
            except OSError:
                assert daemon.poll() is None, "eyotd ended"
                time.sleep(0.005)
        print(f"until it answers:            {time.perf_counter() - started:.2f} s, {memory(daemon.pid)}")
        started, longest, messages = time.perf_counter(), 0.0, 0
        for index in range(streams):
            asked = time.perf_counter()
            answer = client.request(f"$JS.API.STREAM.INFO.S{index}")
            assert "state" in answer, answer
            state = answer["state"]
            longest = max(longest, time.perf_counter() - asked)
            messages += state["messages"]
        print(
            f"STREAM.INFO of {streams} streams:  {time.perf_counter() - started:.2f} s, the longest {longest * 1e3:.1f} ms "
            f"({messages:,} messages, {state['num_subjects']} subjects each), {memory(daemon.pid)}"
        )
        started = time.perf_counter()
        for index in range(streams):
            body = json.dumps({"last_by_subj": f"s{index}.device-7"}).encode()
            assert "message" in client.request(f"$JS.API.STREAM.MSG.GET.S{index}", body)
        print(f"the last of one subject each: {time.perf_counter() - started:.2f} s")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)


def memory(pid: int) -> str:
    """Resident memory, without the pages of the data file that happen to be mapped."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    own = int(fields["RssAnon"].split()[0]) / 1024
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    file_mb = int(fields["VmRSS"].split()[0]) / 1024
    return f"{own:.0f} MB of its own, {file_mb:.0f} MB with the file's pages, {cpu_s:.2f} s of CPU so far"


if __name__ == "__main__":
    main()
