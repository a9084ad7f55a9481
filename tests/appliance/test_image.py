"""The OCI archive that `make image` writes, and the health check in it; `make image-run` runs the whole image."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from support.servers.eyotd import Eyotd

PACKAGING = Path(__file__).parents[2] / "packaging"
CREATED = 1_700_000_000


def root_tar(folder: Path) -> Path:
    root = folder / "root.tar"
    with tarfile.open(root, "w") as tar:
        entry = tarfile.TarInfo("./etc/os-release")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"ID\n"))
    return root


def write(root: Path, image: Path, architecture: str = "amd64") -> None:
    described = ["--version", "0.1.0+deb12", "--architecture", architecture, "--created", str(CREATED)]
    subprocess.run([sys.executable, PACKAGING / "write-image", root, image, *described], check=True)


class Archive:
    """An OCI archive whose blobs are compared with the digests and sizes by which they are named."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        content = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert hashlib.sha256(content).hexdigest() == descriptor["digest"].removeprefix("sha256:")
        assert len(content) == descriptor["size"]
        return content

    def manifest(self) -> dict[str, Any]:
        index = json.loads(self.files["index.json"])
        (descriptor,) = index["manifests"]
        assert descriptor["annotations"]["org.opencontainers.image.ref.name"] == "0.1.0-deb12"
        manifest: dict[str, Any] = json.loads(self.blob(descriptor))
        return manifest


def test_an_image_names_its_parts_by_their_digests(tmp_path: Path) -> None:
    root = root_tar(tmp_path)
    write(root, tmp_path / "image.tar")
    archive = Archive(tmp_path / "image.tar")
    assert json.loads(archive.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    manifest = archive.manifest()
    config = json.loads(archive.blob(manifest["config"]))
    (layer,) = manifest["layers"]
    assert gzip.decompress(archive.blob(layer)) == root.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(root.read_bytes()).hexdigest()}"]


def test_an_image_runs_as_nobody_special_with_its_store_on_a_volume(tmp_path: Path) -> None:
    write(root_tar(tmp_path), tmp_path / "image.tar", "armhf")
    archive = Archive(tmp_path / "image.tar")
    config = json.loads(archive.blob(archive.manifest()["config"]))
    assert (config["architecture"], config["variant"], config["os"]) == ("arm", "v7", "linux")
    run = config["config"]
    user, group = run["User"].split(":")
    assert int(user) > 0 < int(group), "numbers, so that an engine can see that it is not root"
    assert list(run["Volumes"]) == ["/var/lib/eyot"]
    assert "STATE_DIRECTORY=/var/lib/eyot" in run["Env"]


def test_the_same_root_makes_the_same_image(tmp_path: Path) -> None:
    root = root_tar(tmp_path)
    write(root, tmp_path / "one.tar")
    os.utime(root, (1, 1))
    write(root, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_the_health_check_tells_a_daemon_that_serves(tmp_path: Path) -> None:
    socket = tmp_path / "control.sock"

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PACKAGING / "container-health"],
            env={"EYOT_CONTROL": str(socket)},
            capture_output=True,
            text=True,
            check=False,
        )

    absent = check()
    assert absent.returncode == 1
    assert str(socket) in absent.stderr
    with Eyotd(
        f'jetstream {{ store_dir: "%WORKDIR%/js" }}\neyot {{ control_socket: "{socket}" }}\n', tmp_path / "d"
    ) as daemon:
        assert daemon.running
        serving = check()
        assert serving.returncode == 0, serving.stderr
    assert check().returncode == 1
