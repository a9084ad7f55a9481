"""A storm of statuses at `eyot-fleet`: what one costs it, and what it holds in memory.

    python tests/bench/fleet_storm.py --devices 10000 --rounds 3

Prints one line of JSON: statuses applied, processor microseconds of the service for each, its resident memory, and
milliseconds of a question over all devices.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import msgspec
import psutil
import trio

from eyot_fleet.connection import connected
from eyot_fleet.device_index import DeviceIndex
from eyot_fleet.device_query import DeviceQuery
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.jetstream import JetStream
from eyot_fleet.login import Login
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import DeviceStatus, DeviceStreamStatus
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import free_port

FLEET = str(Path(sys.executable).with_name("eyot-fleet"))
STREAMS = 5


def status(number: int, turn: int) -> tuple[str, bytes]:
    """A status as a device of five streams makes it, about 1.5 KB."""
    name = f"gateway-{number:05}"
    streams = [
        DeviceStreamStatus(
            name=f"READINGS-{each}", messages=100_000, last_seq=100_000 + turn, peer="hub", confirmed_seq=100_000,
            backlog=turn, backlog_bytes=turn * 100, oldest_s=float(turn), eta_s=1.0,
        )
        for each in range(STREAMS)
    ]  # fmt: skip
    made = DeviceStatus(
        device=name, domain=name, at=ns_to_rfc3339(time.time_ns()), every_s=60.0, boot=f"N{number:050}", number=turn + 1,
        version="0.1.0", uptime_s=60.0 * turn, linked=True, rtt_ms=20.0, backlog=turn, backlog_bytes=turn * 100,
        oldest_s=float(turn), eta_s=1.0, messages=500_000, streams=streams, disk_free_bytes=1 << 30,
        disk_total_bytes=1 << 33, memory_bytes=60 << 20, memory_free_bytes=300 << 20, clock_synchronized=True,
        synced=turn == 0,
    )  # fmt: skip
    return f"fleet.{name}.status", msgspec.json.encode(made)


class Storm:
    """A hub, the service, and as many statuses as devices in each round."""

    def __init__(self, folder: Path, devices: int, rounds: int) -> None:
        self.hub = NewerNatsServer('jetstream { store_dir: "%WORKDIR%/js" }', folder / "hub")
        self.folder, self.devices, self.rounds = folder, devices, rounds
        self.port = free_port()

    def run(self) -> dict[str, Any]:
        self.hub.start()
        config = self.folder / "fleet.toml"
        config.write_text(
            f'[hub]\nservers = ["{self.hub.client_url()}"]\n[http]\nlisten = "127.0.0.1:{self.port}"\n'
            '[devices]\nstatus_streams = []\n'
        )  # fmt: skip
        service = subprocess.Popen([FLEET, "-c", str(config), "serve"])
        try:
            return trio.run(self._storm, psutil.Process(service.pid))
        finally:
            service.terminate()
            service.wait()
            self.hub.kill()

    async def _storm(self, service: psutil.Process) -> dict[str, Any]:
        async with connected(Login(servers=(self.hub.client_url(),))) as connection:
            while not await trio.to_thread.run_sync(self._metric, "eyot_fleet_leader"):
                await trio.sleep(0.2)
            before = sum(service.cpu_times()[:2])
            begun = time.monotonic()
            applied = 0
            for turn in range(self.rounds):
                for number in range(self.devices):
                    await connection.publish(*status(number, turn))
                    if number % 500 == 499:
                        await JetStream(connection).api("INFO")  # a device publishes, it does not flood
                while applied < (turn + 1) * self.devices:
                    await trio.sleep(0.5)
                    applied = int(
                        await trio.to_thread.run_sync(self._metric, 'eyot_fleet_statuses_total{outcome="applied"}')
                    )
            heard_s = time.monotonic() - begun
            heard = sum(service.cpu_times()[:2]) - before
            while await trio.to_thread.run_sync(self._metric, "eyot_fleet_unwritten_devices") > self.devices * 0.9:
                await trio.sleep(1.0)
            return {
                "devices": self.devices,
                "applied": applied,
                "us_a_status": round(heard * 1e6 / applied, 1),
                "seconds": round(heard_s, 1),
                "mib": service.memory_info().rss >> 20,
                "dropped": int(self._metric("eyot_fleet_statuses_dropped")),
                "query_ms": self._query_ms(),
            }
        raise AssertionError("the block returns")

    def _query_ms(self) -> float:
        index = DeviceIndex()
        for number in range(self.devices):
            index.put(DeviceRecord(name=f"gateway-{number:05}", backlog=number, heard_at=time.time()), time.time())
        begun = time.process_time()
        for _ in range(10):
            index.query(DeviceQuery(text="00", sort="backlog", descending=True))
        return round((time.process_time() - begun) * 100, 1)

    def _metric(self, name: str) -> float:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=10_000, help="how many (default 10000)")
    parser.add_argument("--rounds", type=int, default=3, help="statuses of each (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eyot-fleet-storm-") as folder:
        print(json.dumps(Storm(Path(folder), options.devices, options.rounds).run()))


if __name__ == "__main__":
    main()
