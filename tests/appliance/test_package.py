"""The Debian package: built, unpacked, and run from where it was unpacked, with nothing of this checkout in reach."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from support.server_process import ServerProcess

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's files, as dpkg would lay them out."""
    built = subprocess.run([TOP / "packaging" / "build-deb"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (package,) = (TOP / "dist").glob("eyot_*.deb")
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


class Unpacked(ServerProcess):
    """The daemon of the package."""

    name = "eyotd"

    def __init__(self, root: Path, workdir: Path) -> None:
        self.root = root
        super().__init__(
            'jetstream { store_dir: "%WORKDIR%/store" }\neyot { control_socket: "%WORKDIR%/control.sock" }\n', workdir
        )

    def command(self) -> list[str]:
        return [str(self.root / "usr/bin/eyotd"), "-c", str(self.config_path)]


@pytest.fixture
def daemon(unpacked: Path, tmp_path: Path) -> Iterator[Unpacked]:
    process = Unpacked(unpacked, tmp_path)
    process.start()
    yield process
    assert process.stop() == 0


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_its_configuration_is_valid(unpacked: Path) -> None:
    assert "is valid" in run(unpacked / "usr/bin/eyotd", "-t", "-c", unpacked / "etc/eyot/eyotd.conf")


def test_its_configuration_is_not_for_everybody(unpacked: Path) -> None:
    assert (unpacked / "etc/eyot/eyotd.conf").stat().st_mode & 0o007 == 0


def test_its_unit_starts_what_it_ships(unpacked: Path) -> None:
    unit = (unpacked / "lib/systemd/system/eyotd.service").read_text()
    assert "Type=notify" in unit
    assert "ExecStart=/usr/bin/eyotd -c /etc/eyot/eyotd.conf" in unit
    assert "StateDirectory=eyot" in unit
    assert "Documentation=man:eyotd(8) " in unit


def test_its_programs_have_pages_that_man_shows(unpacked: Path) -> None:
    pages = {page.name.split(".")[0]: page for page in (unpacked / "usr/share/man").glob("man*/*.gz")}
    assert pages.keys() == {program.name for program in (unpacked / "usr/bin").iterdir()}
    for name, page in pages.items():
        # -Z: warnings of what shows pages in a terminal are none of the page's
        shown = subprocess.run(
            ["man", "--warnings=w", "-E", "UTF-8", "-Tutf8", "-Z", "-l", page],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANROFFSEQ": ""},
        )
        assert shown.stderr == "", page
        named = subprocess.run(["lexgrog", page], capture_output=True, text=True, check=True).stdout
        assert f'"{name} - ' in named, page  # what apropos finds it by


def test_it_leaves_the_hub_to_the_hub(unpacked: Path) -> None:
    carried = {path.name for path in (unpacked / "usr/lib/eyot/python").iterdir()}
    assert {"eyot_daemon", "trio", "lmdb", "msgspec"} <= carried
    assert carried.isdisjoint({"eyot_hub", "pyspark_jetstream", "pyspark", "pyarrow"})


def test_it_brings_bytecode_that_depends_on_no_time_of_files(unpacked: Path) -> None:
    python = unpacked / "usr/lib/eyot/python"
    for source in ("eyot_daemon/server.py", "eyot_wire/conf/values.py", "trio/__init__.py", "msgspec/__init__.py"):
        (compiled,) = (python / source).parent.glob(f"__pycache__/{Path(source).stem}.cpython-*.pyc")
        flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
        assert flags == 0b01, source  # by hash (PEP 552), and not even that is looked at


def test_it_stores_and_tells(unpacked: Path, daemon: Unpacked, tmp_path: Path) -> None:
    async def store() -> int:
        client = await nats.connect(daemon.client_url())
        jetstream = client.jetstream()
        await jetstream.add_stream(name="READINGS", subjects=["readings.>"])
        ack = await jetstream.publish("readings.a", b"21.5")
        await client.close()
        return ack.seq

    assert asyncio.run(store()) == 1
    eyot = unpacked / "usr/bin/eyot"
    assert "READINGS" in run(eyot, "--control", tmp_path / "control.sock", "status")
    assert "READINGS" in run(eyot, "-s", daemon.client_url(), "stream", "ls")
