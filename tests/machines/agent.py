"""Runs in the virtual machine: a line of JSON with a shell command comes in, its exit status and what it printed go back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Serve the port until the machine ends."""
    port = Path(sys.argv[1])
    while not port.exists():
        time.sleep(0.1)
    with port.open("r+b", buffering=0) as opened:
        received = b""
        while True:
            data = opened.read(65536)
            if not data:
                time.sleep(0.05)
                continue
            received += data
            while b"\n" in received:
                line, _, received = received.partition(b"\n")
                done = subprocess.run(
                    ["bash", "-c", json.loads(line)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                answer = json.dumps([done.returncode, done.stdout.decode(errors="replace")]).encode() + b"\n"
                while answer:
                    answer = answer[opened.write(answer) :]


if __name__ == "__main__":
    main()
