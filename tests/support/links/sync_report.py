"""What a leaf node tells of its copies at the hub, in its monitoring and by the operator's tool."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from support.links.leaf_pair import LeafPair


def syncz(pair: LeafPair) -> dict[str, Any]:
    found: dict[str, Any] = pair.leaf.monitor("/eyot/syncz")
    return found


def until(holds: Callable[[], bool], what: str, within_s: float = 300.0) -> None:
    """Wait for it. After several requests in vain nats-server waits up to two minutes before it asks its origin again."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def eyot(pair: LeafPair, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the operator's tool against the leaf node."""
    where = ["--control", f"http://{pair.leaf.host}:{pair.leaf.monitor_port}", "--server", pair.leaf.client_url("acc")]
    return subprocess.run([sys.executable, "-m", "eyot_cli.main", *where, *words], capture_output=True, text=True)


def wait(pair: LeafPair, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run `eyot sync wait` against the leaf node."""
    return eyot(pair, "sync", "wait", "--timeout", str(timeout_s))
