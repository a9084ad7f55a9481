"""What goes wrong at the hub of `eyot-fleet`: a full bucket, TLS that does not fit, a cluster that loses its leader."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from eyot_fleet.connection import connected
from eyot_fleet.errors import FleetError
from eyot_fleet.jetstream import JetStream
from eyot_fleet.login import Login
from support.devices.fleet_service import FLEET, Service, eventually, fleet_service, status
from support.links.leaf_pair import server
from support.servers.server_process import ServerProcess, free_port
from support.trust.certificates import Authority

NATS_SERVER = "2.14.6"
ACCOUNTS = """
accounts { A { users: [{user: a, password: a}], jetstream: enabled }, SYS { users: [{user: s, password: s}] } }
system_account: SYS
"""
BUCKET = "KV_EYOT_FLEET_DEVICES"
NODES = 3


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with fleet_service(NATS_SERVER, tmp_path) as made:
        yield made


def names(service: Service) -> set[str]:
    return set(service.devices())


def said(service: Service, *words: str) -> Any:
    """What a command prints, None while the servers elect: it says so, and can be run again."""
    done = subprocess.run([FLEET, "-c", str(service.config), "--json", *words], capture_output=True, check=False)
    assert done.returncode == 0 or done.stderr
    return json.loads(done.stdout or b"[]") if done.returncode == 0 else None


def known(service: Service) -> dict[str, Any]:
    return {each["name"]: each for each in (said(service, "ls") or {"devices": []})["devices"]}


def test_a_full_bucket_is_told_and_filled_when_there_is_room(service: Service) -> None:
    service.hub.start()
    config: dict[str, Any] = {"name": BUCKET, "subjects": ["$KV.EYOT_FLEET_DEVICES.>"], "max_msgs_per_subject": 1}
    config |= {"discard": "new", "max_bytes": 1500, "allow_direct": True, "allow_rollup_hdrs": True}
    service.api(f"STREAM.CREATE.{BUCKET}", config)
    service.start()
    service.publish([(f"fleet.pump{number}.status", status(f"pump{number}")) for number in range(8)])
    eventually(lambda: service.metric("eyot_fleet_write_errors") > 0)
    assert service.health() == 200
    assert service.metric('eyot_fleet_statuses_total{outcome="applied"}') == 8  # in memory nothing is lost
    assert 0 < len(names(service)) < 8
    service.api(f"STREAM.UPDATE.{BUCKET}", config | {"max_bytes": -1})
    eventually(lambda: len(names(service)) == 8)


def test_tls_to_the_hub_and_certificates_that_do_not_fit(service: Service, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    for each in (authority, stranger):
        Path(each.ca_file).parent.mkdir(exist_ok=True)
    text = ACCOUNTS + 'server_name: hub\njetstream { store_dir: "%WORKDIR%/js" }\n' + authority.block("localhost")
    service.hub = server(NATS_SERVER, text, tmp_path / "tls")
    service.hub.start()
    port = service.hub.client_port

    def configure(url: str, ca: str) -> None:
        service.config.write_text(
            f'[hub]\nservers = ["{url}"]\nuser = "a"\npassword_file = "{password}"\nca = "{ca}"\n'
            f'[http]\nlisten = "127.0.0.1:{service.port}"\n'
        )

    password = tmp_path / "password"
    password.write_text("a\n")
    configure(f"tls://localhost:{port}", str(stranger.ca_file))
    assert "certificate" in service.run("check", status=1).lower()
    configure(f"tls://localhost:{port}", str(authority.ca_file))
    assert service.json("check")["hub"].startswith("hub ")
    service.start()
    assert service.json("ls")["devices"] == []
    service.stop()
    password.write_text("wrong\n")
    text = service.run("check", status=1)
    assert "wrong" not in text
    assert "authorization" in text.lower()


class Cluster:
    """Three servers of one cluster, and a fleet service with buckets of three replicas."""

    def __init__(self, service: Service, folder: Path) -> None:
        ports = [free_port() for _ in range(NODES)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.nodes: list[ServerProcess] = [
            server(
                NATS_SERVER,
                f'{ACCOUNTS}server_name: n{number}\njetstream {{ store_dir: "%WORKDIR%/js" }}\n'
                f'cluster {{ name: hub, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n',
                folder / f"n{number}",
            )
            for number, port in enumerate(ports)
        ]
        for node in self.nodes:
            node.start()
        self.service = service
        service.hub = self.nodes[0]
        urls = ", ".join(f'"{node.client_url()}"' for node in self.nodes)
        service.config.write_text(
            f'[hub]\nservers = [{urls}]\nuser = "a"\npassword = "a"\n[state]\nreplicas = 3\n'
            f'[http]\nlisten = "127.0.0.1:{service.port}"\n'
        )

    def leader(self) -> int:
        """The number of the server that leads the devices' bucket."""
        for node in self.nodes:
            if node.running:
                try:
                    found = trio.run(_info, node.client_url())
                except FleetError:
                    continue
                leader = (found.get("cluster") or {}).get("leader") or ""
                if leader:
                    return int(leader.removeprefix("n"))
        return -1

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


async def _info(url: str) -> dict[str, Any]:
    async with connected(Login(servers=(url,), user="a", password="a")) as connection:
        return await JetStream(connection).stream_info(BUCKET) or {}
    raise AssertionError("the block returns")


def test_a_cluster_that_loses_the_leader_of_the_state(service: Service, tmp_path: Path) -> None:
    cluster = Cluster(service, tmp_path)
    try:
        service.start()
        eventually(lambda: cluster.leader() >= 0)
        service.publish([("fleet.pump.status", status("pump"))], login(cluster))
        eventually(lambda: set(known(service)) == {"pump"})
        leader = cluster.leader()
        cluster.nodes[leader].kill()
        eventually(lambda: cluster.leader() not in (-1, leader))
        eventually(lambda: service.health() == 200)
        service.publish([("fleet.valve.status", status("valve"))], login(cluster))
        eventually(lambda: service.metric("eyot_fleet_leader") == 1 and set(known(service)) == {"pump", "valve"})
        cluster.nodes[leader].start()
        eventually(lambda: said(service, "label", "pump", "site:oslo") is not None)
        eventually(lambda: known(service).get("pump", {}).get("labels") == ["site:oslo"])
        lines = eventually(lambda: said(service, "audit"))
        assert {(line["event"], line["target"]) for line in lines} == {("device", "pump")}
    finally:
        cluster.close()


def login(cluster: Cluster) -> Login:
    return Login(servers=tuple(node.client_url() for node in cluster.nodes if node.running), user="a", password="a")
