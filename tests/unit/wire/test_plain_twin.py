"""The plain twin of the compiled modules passes the same tests: they run once more in a process that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
SAME_TESTS = [
    "unit/wire/test_scanner.py",
    "unit/wire/test_leaf_scanner.py",
    "unit/wire/test_sublist.py",
    "unit/wire/mqtt/test_mqtt_packets.py",
    "unit/daemon/test_account.py",
    "unit/daemon/test_fan_out_paths.py",
    "unit/daemon/test_client_protocol.py",
    "unit/daemon/test_client_fuzz.py",
    "unit/daemon/test_imports.py",
    "unit/jetstream/test_consumer_push_delivery.py",
]


@pytest.mark.slow
def test_the_plain_twin_passes_the_same_tests() -> None:
    environment = {**os.environ, "EYOT_PLAIN": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(str(TESTS / name) for name in SAME_TESTS),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=TESTS.parent, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_environment_forces_the_plain_twin() -> None:
    program = "from eyot_wire import native; print(native.COMPILED, native.FrameScanner.__module__)"
    for value, compiled in (("1", False), ("0", True), ("", True)):
        environment = {**os.environ, "EYOT_PLAIN": value}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[0] == str(compiled)
