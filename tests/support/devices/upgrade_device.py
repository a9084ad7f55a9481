"""A device that is upgraded, in a folder: dpkg with a root of its own, small packages, and a daemon that is as the installed package says."""

from __future__ import annotations

import json
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eyot_cli.upgrade.install.begin import begin
from eyot_cli.upgrade.install.machine import Machine
from eyot_cli.upgrade.manifest import Manifest
from eyot_cli.upgrade.package import read_package
from eyot_cli.upgrade.signing import sign
from eyot_wire.status import LinkStatus, SourcingStatus, StatusReport, StoreStatus, StreamStatus
from support.devices.upgrade_process import SETTINGS, PassingClock, dpkg_of, places_of, systemctl_of

FORMER, NEW = "0.2.0+deb12", "0.3.0+deb12"
#: How the daemon of a package is; a package overrides some of it.
WELL: Final[dict[str, Any]] = {
    "answers": True, "store_error": None, "offline": [], "link": "up", "publishing": True, "clients": 2, "last_seq": 1000,
    "jetstream": True,
}  # fmt: skip
_CONTROL: Final = """\
Package: eyot
Version: {version}
Architecture: {architecture}
Maintainer: Nobody <nobody@example.com>
Installed-Size: 10
Description: a package for tests
"""


def build(folder: Path, version: str, *, scripts: dict[str, str] | None = None, **health: Any) -> Path:
    """A package by dpkg-deb. `health`: what its daemon does otherwise than `WELL`; `scripts`: maintainer scripts by their names."""
    tree = Path(tempfile.mkdtemp(dir=folder))
    tree.chmod(0o755)
    (tree / "DEBIAN").mkdir(mode=0o755)
    (tree / "DEBIAN/control").write_text(_CONTROL.format(version=version, architecture=architecture()))
    for name, text in (scripts or {}).items():
        (tree / "DEBIAN" / name).write_text(f"#!/bin/sh\nset -e\n{text}\n")
        (tree / "DEBIAN" / name).chmod(0o755)
    lib = tree / "usr/lib/eyot"
    lib.mkdir(parents=True)
    (lib / "health.json").write_text(json.dumps(WELL | health))
    (lib / "version").write_text(version)
    (lib / "version").chmod(0o755)
    (lib / "link").symlink_to("version")
    (lib / f"only-in-{version}").write_text(version)
    package = folder / f"eyot_{version}_{architecture()}.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", str(tree), str(package)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)
    return package


def architecture() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


class Daemon:
    """Answers on a control socket as the package says that is installed below `root`."""

    def __init__(self) -> None:
        self.root = Path("/nonexistent")
        self._asked = 0
        self._peer = socket.create_server(("127.0.0.1", 0))  # of the link: it can be reached
        self._folder = tempfile.TemporaryDirectory(prefix="eyot-")  # a socket's path is short
        self.control = Path(self._folder.name) / "control.sock"
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = daemon.page(self.path)
                if page is not None:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

        self._server = socketserver.ThreadingUnixStreamServer(str(self.control), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._peer.close()
        self._folder.cleanup()

    def page(self, path: str) -> bytes | None:
        """None: the daemon does not answer."""
        try:
            health = json.loads((self.root / "usr/lib/eyot/health.json").read_text())
        except FileNotFoundError:
            return None
        if not health["answers"]:
            return None
        if path == "/varz":
            return msgspec.json.encode({"connections": health["clients"]})
        self._asked += 1
        address = f"nats-leaf://127.0.0.1:{self._peer.getsockname()[1]}"
        last_seq = health["last_seq"] + (self._asked if health["publishing"] else 0)
        streams = [("READINGS", last_seq), ("COPY", 1 + self._asked)]
        return msgspec.json.encode(
            StatusReport(
                server_name="device", server_id="ID", version="0", now="2026-06-01T00:00:00Z", uptime_s=float(self._asked),
                links=[LinkStatus(name="hub", account="$G", role="spoke", state=health["link"], url=address)],
                streams=[StreamStatus(account="$G", name=name, messages=1, bytes=1, first_seq=1, last_seq=seq, committed_seq=seq)
                         for name, seq in streams],
                copies=[SourcingStatus(account="$G", stream="COPY", kind="mirror", origin="X", api_prefix="", phase="live")],
                store=StoreStatus(path="/x", error=health["store_error"], offline=health["offline"]) if health["jetstream"] else None,
            )
        )  # fmt: skip


class Device:
    """Below `folder`: what is installed, what has arrived, what root keeps; the release key is pinned."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.folder, self.daemon, self.clock = folder, daemon, PassingClock()
        self.places = places_of(folder)
        daemon.root = self.places.root
        self.told: list[str] = []
        self.settings = replace(SETTINGS, control=daemon.control)
        self.dpkg, self.systemctl = dpkg_of(self.places), systemctl_of(folder)

    def set_up(self, package: Path, key: Ed25519PrivateKey) -> None:
        """Install a package, and pin a key."""
        for each in (self.places.incoming, self.places.keys, self.places.units, self.places.state):
            each.mkdir(mode=0o755, parents=True)
        admin = self.places.root / "var/lib/dpkg"
        for name in ("info", "updates"):
            (admin / name).mkdir(parents=True)
        (admin / "status").touch()
        self.places.os_release.write_text('VERSION_ID="12"\n')
        public = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
        (self.places.keys / "release.pub").write_bytes(public)
        (self.places.keys / "release.pub").chmod(0o644)
        with self.dpkg.locked():
            said = self.dpkg.install(package)
        assert self.dpkg.installed("eyot")[0] == "installed", said

    def arrives(self, package: Path, key: Ed25519PrivateKey, **members: Any) -> None:
        """Put a package and its signed manifest where `eyot upgrade fetch` puts them."""
        found = read_package(package)
        described = {"format": 1, "package": found.name, "version": found.version, "architecture": found.architecture,
                     "release": "deb12", "sha256": found.sha256, "size": found.size, "rings": ["canary", "field"],
                     "issued": "2026-01-01T00:00:00Z", "expires": "2199-01-01T00:00:00Z"}  # fmt: skip
        manifest = msgspec.convert(described | members, Manifest, strict=False)
        shutil.copy(package, self.places.incoming / manifest.object_name)
        (self.places.incoming / f"{manifest.object_name}.signed").write_bytes(sign(manifest, key))

    def begin(self) -> str:
        return begin(self.places, self.dpkg, self.settings, self.clock, self.systemctl)

    def go_on(self) -> None:
        """What the unit runs that the upgrade has written."""
        Machine(self.places, self.dpkg, self.clock, self.systemctl, self.told.append).run()

    def upgrade(self) -> dict[str, str]:
        """Both; return how it ended."""
        self.begin()
        self.go_on()
        return self.last()

    def last(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.places.last_file.read_text())
        return found

    def version(self) -> str:
        """What is installed: as dpkg says, and as the files are."""
        state, version = self.dpkg.installed("eyot")
        assert state == "installed", state
        lib = self.places.root / "usr/lib/eyot"
        assert (lib / "version").read_text() == version
        assert [each.name for each in lib.glob("only-in-*")] == [f"only-in-{version}"]
        return version

    def is_tidy(self) -> None:
        """Nothing of an upgrade is left but what is meant to stay."""
        assert list(self.places.incoming.iterdir()) == []
        assert not self.places.unit.exists()
        assert not self.places.unit_link.is_symlink()
        assert {each.name for each in self.places.state.iterdir()} <= {
            "kept",
            "lock",
            "last.json",
            "dpkg.log",
            "refused",
        }
        assert len(list(self.places.kept.iterdir())) <= 1
