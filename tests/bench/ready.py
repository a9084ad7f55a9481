"""From the start of the process to `Server is ready`: eyotd and Debian's nats-server, alternating.

    .venv/bin/python tests/bench/ready.py [--rounds 15]

With bytecode in place (`make venv`, and the Debian package, see to that). CPU time is what a start takes when nothing else runs.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import write_section
from table import machine

FLAGS = {"plain": [], "with monitoring": ["-m", "-1"], "with JetStream": ["-js", "-sd", "STORE"]}


def start(server: str, flags: list[str]) -> tuple[float, float]:
    """Seconds until it is ready, and seconds of CPU time until then."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as place:
        command = [server, "-a", "127.0.0.1", "-p", str(port), *(place if flag == "STORE" else flag for flag in flags)]
        begun = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, bufsize=1)
        assert process.stderr is not None
        try:
            if not any("Server is ready" in line for line in process.stderr):
                raise RuntimeError(f"{command} did not start")
            elapsed = time.perf_counter() - begun
            used = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9
        finally:
            process.terminate()
            process.stderr.read()
            process.wait()
    return elapsed, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", type=Path, help="the page to note it on")
    chosen = parser.parse_args()
    servers = (str(Path(sys.executable).with_name("eyotd")), shutil.which("nats-server") or "/usr/sbin/nats-server")
    rows = []
    for what, flags in FLAGS.items():
        for server in servers:
            times = [start(server, flags) for _ in range(chosen.rounds)]
            wall, cpu = (sorted(column) for column in zip(*times, strict=True))
            figures = (wall[0], statistics.median(wall), cpu[0])
            rows.append(f"| {Path(server).name}, {what} | " + " | ".join(f"{each:.3f}" for each in figures) + " |")
            print(rows[-1], flush=True)
    if chosen.write:
        table = "\n".join(("| server | least, s | median, s | least CPU, s |", "| --- | --- | --- | --- |", *rows))
        text = f"`python tests/bench/ready.py`: {chosen.rounds} starts each."
        write_section(chosen.write, "Start to ready", f"{text}\n\n{machine()}\n\n{table}\n")


if __name__ == "__main__":
    main()
