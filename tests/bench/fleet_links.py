"""`make bench-fleet`: thousands of devices at a cluster of three nats-servers, over light real leaf connections.

Measured for each number of devices: the first links of all, idle links, status messages every minute, the loss of one server, and the
restart of all three. Figures of the servers are their processor time and memory from the kernel: the devices run on the same machine and
take their share of it, so the seconds until all are linked are an upper bound, and the model of docs/scale.md uses processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import nats
from light_leaf import Figures, Plan, run
from processes import cpu_s, resident_bytes
from rich.console import Console
from table import machine, percentile

from support.servers.newer_nats_server import VERSION, binary
from support.servers.server_process import ServerProcess, free_port
from support.trust.certificates import Authority
from support.trust.trust_tool import TrustTool

CONFIG = """
server_name: {name}
listen: "127.0.0.1:%CLIENT_PORT%"
http: "127.0.0.1:%MONITOR_PORT%"
max_connections: 100000
jetstream {{ store_dir: "%WORKDIR%/store", domain: hub }}
leafnodes {{ listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true, isolate_leafnode_interest: {isolate}, authorization {{ timeout: 30 }}{tls} }}
{cluster}{accounts}
"""
ACCOUNTS = """accounts {
    FLEET { users: [{user: fleet, password: fleet}], jetstream: enabled }
    SYS { users: [{user: admin, password: admin}] }
}
system_account: SYS
"""
PATIENCE_S = 900.0
SETTLED_S = 10.0
console = Console(highlight=False, width=200)


class Hub(ServerProcess):
    """One server of the cluster."""

    def __init__(self, kind: str, name: str, config: str, folder: Path) -> None:
        self.name, self._program = name, kind
        super().__init__(config, folder)

    def command(self) -> list[str]:
        return [self._program, "-c", str(self.config_path)]


class Cluster:
    """The servers. `kind`: "eyotd" for one alone, else the program of the three nats-servers."""

    def __init__(self, kind: str, folder: Path, *, isolate: bool, accounts: str = ACCOUNTS, tls: str = "") -> None:
        routes = [free_port() for _ in range(1 if kind == "eyotd" else 3)]
        urls = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
        self.hubs = []
        program = str(Path(sys.executable).with_name("eyotd")) if kind == "eyotd" else kind
        for number, port in enumerate(routes):
            cluster = (
                f"cluster {{ name: hub, listen: 127.0.0.1:{port}, routes: [{urls}] }}\n" if len(routes) > 1 else ""
            )
            name = f"hub-{number}"
            config = CONFIG.format(name=name, isolate=str(isolate).lower(), tls=tls, cluster=cluster, accounts=accounts)
            self.hubs.append(Hub(program, name, config, folder / name))

    def start(self) -> None:
        for hub in self.hubs:
            hub.start(wait=False)
        for hub in self.hubs:
            hub.wait_ready(120)

    def kill(self) -> None:
        for hub in self.hubs:
            hub.kill()

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time of each server that runs."""
        return {hub.name: cpu_s(hub) for hub in self.hubs if hub.process is not None}

    def resident(self) -> int:
        return sum(resident_bytes(hub) for hub in self.hubs if hub.process is not None)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(hub.leaf_port for hub in self.hubs)


class Devices:
    """The processes that simulate devices."""

    def __init__(self, count: int, processes: int, ports: tuple[int, ...], **plan: object) -> None:
        self.count = count
        self._workers: list[tuple[multiprocessing.Process, Connection]] = []
        share = -(-count // processes)
        creds: tuple[tuple[str, str], ...] = plan.pop("creds", ())  # type: ignore[assignment]
        for first in range(0, count, share):
            numbers = range(first, min(first + share, count))
            mine, theirs = multiprocessing.Pipe()
            own = Plan(numbers, ports, creds=creds[numbers.start : numbers.stop], **plan)  # type: ignore[arg-type]
            process = multiprocessing.Process(target=run, args=(own, theirs), daemon=True)
            process.start()
            self._workers.append((process, mine))

    def ask(self, order: str = "figures", value: float = 0.0) -> Figures:
        for _, pipe in self._workers:
            pipe.send((order, value))
        found = [pipe.recv() for _, pipe in self._workers]
        total = Figures()
        for each in found:
            for name in ("linked", "attempts", "read_bytes", "written_bytes", "reads", "writes"):
                setattr(total, name, getattr(total, name) + getattr(each, name))
            total.linked_after += each.linked_after
        return total

    def all_linked(self) -> Figures:
        """Wait until all are linked; return the figures since the last question."""
        deadline = time.monotonic() + PATIENCE_S
        total = Figures()
        while time.monotonic() < deadline:
            found = self.ask()
            total.attempts += found.attempts
            total.read_bytes += found.read_bytes
            total.linked_after += found.linked_after
            total.linked = found.linked
            if found.linked == self.count:
                return total
            time.sleep(0.25)
        raise RuntimeError(f"only {total.linked} of {self.count} devices are linked after {PATIENCE_S:g} s")

    def stop(self) -> None:
        for process, pipe in self._workers:
            pipe.close()
            process.terminate()
            process.join()


@dataclass
class Row:
    what: str
    devices: int
    figures: dict[str, float]

    def line(self) -> str:
        shown = " | ".join(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in self.figures.values())
        return f"| {self.what} | {self.devices:,} | {shown} |"


def storm(
    cluster: Cluster, devices: Devices, before: Callable[[], None], *, restarted: bool = False
) -> dict[str, float]:
    """Do `before`, wait until all are linked; seconds, processor time of the servers for each device that linked, attempts."""
    devices.ask()
    devices.ask("begin")
    used = cluster.cpu_s()
    before()
    found = devices.all_linked()
    # A server that was started meanwhile began at 0.
    spent = sum(now - (0.0 if restarted else used.get(name, 0.0)) for name, now in cluster.cpu_s().items())
    after = found.linked_after or [0.0]
    return {
        "linked again": float(len(found.linked_after)),
        "half, s": percentile(after, 0.5),
        "99 %, s": percentile(after, 0.99),
        "all, s": max(after),
        "attempts a link": found.attempts / max(1, len(found.linked_after)),
        "CPU ms a link": 1e3 * spent / max(1, len(found.linked_after)),
        "KiB heard a link": found.read_bytes / 1024 / max(1, len(found.linked_after)),
    }


def steady(cluster: Cluster, devices: Devices, seconds: float) -> dict[str, float]:
    """The figures of links that nobody uses, or that carry what the devices publish."""
    devices.ask()
    used, begun = sum(cluster.cpu_s().values()), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    found, used = devices.ask(), sum(cluster.cpu_s().values()) - used
    day = 86400 / elapsed / devices.count
    return {
        "CPU ms/s": 1e3 * used / elapsed,
        "of that a device, us/s": 1e6 * used / elapsed / devices.count,
        "KiB up a day": found.written_bytes * day / 1024,
        "KiB down a day": found.read_bytes * day / 1024,
        "segments a day": (found.reads + found.writes) * day,
        "MiB in all": cluster.resident() / 2**20,
    }


async def make_stream(port: int, replicas: int) -> None:
    """The stream that keeps the devices' status."""
    client = await nats.connect(f"nats://fleet:fleet@127.0.0.1:{port}")
    js = client.jetstream(timeout=30)
    for _ in range(60):
        try:
            await js.add_stream(
                name="STATUS", subjects=["fleet.*.status"], num_replicas=replicas, max_msgs_per_subject=1
            )
            break
        except Exception:  # the cluster has no leader yet
            await asyncio.sleep(0.5)
    else:
        raise RuntimeError("the stream could not be made")
    await client.close()


def play(kind: str, count: int, options: argparse.Namespace, *, isolate: bool, cluster_name: str) -> list[Row]:
    """All scenarios with so many devices."""
    rows: list[Row] = []
    name = "eyotd, one" if kind == "eyotd" else f"nats-server {options.version}, three"
    name += ", isolated" if isolate else ""
    name += ", one cluster name" if cluster_name else ""

    def note(what: str, figures: dict[str, float]) -> None:
        rows.append(Row(f"{name}: {what}", count, figures))
        console.print(rows[-1].line(), "  ", json.dumps({key: round(value, 2) for key, value in figures.items()}))

    with tempfile.TemporaryDirectory(prefix="eyot-fleet-", dir="/var/tmp") as folder:
        cluster = Cluster(kind, Path(folder), isolate=isolate)
        cluster.start()
        asyncio.run(make_stream(cluster.hubs[0].client_port, len(cluster.hubs)))
        empty = cluster.resident()
        devices = Devices(
            count, options.processes, cluster.ports, cluster=cluster_name, ramp=options.ramp / options.processes
        )
        try:
            note("all link", storm(cluster, devices, lambda: None))
            time.sleep(SETTLED_S)
            note("memory", {"KiB a link, all servers": (cluster.resident() - empty) / 1024 / count})
            note("idle", steady(cluster, devices, options.seconds))
            devices.ask("status", 60.0)
            time.sleep(5.0)
            note("a status each minute", steady(cluster, devices, options.seconds / 2))
            devices.ask("status", 0.0)
            if len(cluster.hubs) > 1:
                note("one server is lost", storm(cluster, devices, cluster.hubs[-1].kill))
                cluster.hubs[-1].start()
            note(
                "all servers restart",
                storm(cluster, devices, lambda: (cluster.kill(), cluster.start())[1], restarted=True),
            )
        finally:
            devices.stop()
            cluster.kill()
    return rows


def tokens(count: int, options: argparse.Namespace) -> Row:
    """The first links of devices with TLS and a token each, as after `eyot enrol`."""
    with tempfile.TemporaryDirectory(prefix="eyot-fleet-", dir="/var/tmp") as name:
        folder = Path(name)
        trust = TrustTool(folder / "store")
        trust.run("add", "operator", "-n", "OP", "--generate-signing-key", "--sys")
        trust.run("add", "account", "FLEET")
        trust.run("edit", "account", "FLEET", "--sk", "generate")
        creds = asyncio.run(_tokens(trust, count))
        accounts = trust.run("generate", "config", "--mem-resolver")
        certificate, key = Authority(folder / "tls").issue("hub")
        tls = f', tls {{ cert_file: "{certificate}", key_file: "{key}", timeout: 30 }}'
        cluster = Cluster(binary(options.version), folder, isolate=True, accounts=accounts, tls=tls)
        cluster.start()
        devices = Devices(count, options.processes, cluster.ports, tls_ca=str(folder / "tls" / "ca.pem"), creds=creds)
        try:
            figures = storm(cluster, devices, lambda: None)
        finally:
            devices.stop()
            cluster.kill()
    row = Row(f"nats-server {options.version}, three: all link with TLS and tokens", count, figures)
    console.print(row.line())
    return row


async def _tokens(trust: TrustTool, count: int) -> tuple[tuple[str, str], ...]:
    """One user's token and seed for each device."""
    from eyot_cli.trust.claims import new_user
    from eyot_cli.trust.directories import Directories, Environment
    from eyot_cli.trust.keystore import new_pair
    from eyot_cli.trust.session import Report, Session

    session = Session(Environment(Directories.of(trust.folder, None, None, None)), "", Report(as_json=True))
    account = session.store.account("FLEET")
    signer = session.account_signer(account)
    made = []
    for number in range(count):
        pair = new_pair("U")
        claims = new_user(pair.public, f"leaf{number}", scoped=False)
        claims["nats"]["issuer_account"] = account["sub"]
        made.append((session.sign(claims, signer), pair.seed))
    return tuple(made)


def tables(rows: list[Row]) -> str:
    """All rows, those with the same figures in one table."""
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row.figures), []).append(row)
    text = []
    for heads, each in parts.items():
        text.append("| what | devices | " + " | ".join(heads) + " |\n" + "| --- " * (len(heads) + 2) + "|")
        text += [row.line() for row in each]
        text.append("")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="*", default=[1000, 3000, 10000])
    parser.add_argument(
        "--ramp", type=float, default=0.0, help="devices that dial for the first time in a second; 0: at once"
    )
    parser.add_argument("--processes", type=int, default=2, help="that simulate devices")
    parser.add_argument("--seconds", type=float, default=240.0, help="of idle links: two PINGs of each side and more")
    parser.add_argument("--version", default=VERSION, help="of nats-server")
    parser.add_argument(
        "--crowded", type=int, default=300, help="devices that hear each other's interest; 0: not played"
    )
    parser.add_argument("--tokens", type=int, default=1000, help="devices with TLS and tokens; 0: not played")
    parser.add_argument("--eyotd", type=int, nargs="*", default=[1000, 3000], help="devices at one eyotd")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    console.print(f"{machine()}; load {os.getloadavg()[0]:.1f}; {soft} -> {hard} open files")
    nats_server = binary(options.version)
    rows: list[Row] = []
    try:
        if options.tokens:
            rows.append(tokens(options.tokens, options))
        if options.crowded:
            rows += play(nats_server, options.crowded, options, isolate=False, cluster_name="")
            rows += play(nats_server, options.crowded, options, isolate=True, cluster_name="")
        for count in options.devices:
            rows += play(nats_server, count, options, isolate=True, cluster_name="devices")
        for count in options.eyotd:
            rows += play("eyotd", count, options, isolate=True, cluster_name="devices")
    finally:
        console.print(tables(rows), markup=False)
        console.print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as error:
        sys.exit(str(error))
