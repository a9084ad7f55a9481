"""A start: what is not needed is not loaded, and a process that still loads can be stopped."""

import signal
import subprocess
import sys

NOT_FOR_A_PLAIN_BROKER = {
    "asyncio",
    "cryptography",
    "eyot_daemon.jetstream",
    "eyot_daemon.leaf_remotes",
    "eyot_store",
    "httpx",
    "hypercorn",
    "lmdb",
    "nats",
    "prometheus_client",
    "starlette",
    "wsproto",
}

_INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
from eyot_daemon import launch

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "eyot_daemon.server":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["-a", "127.0.0.1", "-p", "-1"]
sys.exit(launch.main())
"""


def test_a_plain_broker_loads_neither_the_store_nor_the_libraries_of_other_parts() -> None:
    code = "import sys, eyot_daemon.launch, eyot_daemon.main, eyot_daemon.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "eyot_daemon.server" in loaded
    assert not NOT_FOR_A_PLAIN_BROKER.intersection(loaded)


def test_an_interrupt_while_loading_ends_the_process_without_a_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED_WHILE_LOADING], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""
