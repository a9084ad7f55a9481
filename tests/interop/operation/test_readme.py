"""README.md, line by line: its configurations start unchanged, its commands work as described, and the files that it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.server_process import free_port

TOP = Path(__file__).parents[3]
TEXT = (TOP / "README.md").read_text()
BIN = str(Path(sys.executable).parent)


def sections() -> dict[str, list[str]]:
    """The indented blocks below each heading of the second level, without their indentation."""
    found = {}
    for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        blocks = re.findall(r"(?:^    [^\n]*\n(?:^\n(?=    ))?)+", body, re.MULTILINE)
        found[heading] = [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks]
    return found


PORTS = {port: str(free_port()) for port in ("4222", "4333", "7422", "8222")}


def here(text: str) -> str:
    """With ports that are free on this machine."""
    for port, free in PORTS.items():
        text = text.replace(f":{port}", f":{free}")
    return text


def shell(commands: str, folder: Path) -> str:
    """What the commands say; each must succeed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NATS_", "EYOT_"))}
    env |= {"PATH": f"{BIN}:{env['PATH']}", "NATS_URL": f"nats://127.0.0.1:{PORTS['4222']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", here(commands)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the configurations of README, and both servers running there."""
    folder = tmp_path_factory.mktemp("readme")
    hub, gateway, start, *_ = sections()["A hub and a gateway"]
    (folder / "hub.conf").write_text(here(hub))
    (folder / "gateway.conf").write_text(here(gateway))
    servers = []
    for line in start.splitlines():
        name = re.fullmatch(r"eyotd -c (\w+\.conf) &", line)
        assert name is not None, line
        shell(f"eyotd -t -c {name[1]}", folder)
        log = (folder / f"{name[1]}.log").open("wb")
        servers.append(subprocess.Popen([f"{BIN}/eyotd", "-c", name[1]], cwd=folder, stdout=log, stderr=log))
        while b"Server is ready" not in (folder / f"{name[1]}.log").read_bytes():
            assert servers[-1].poll() is None, (folder / f"{name[1]}.log").read_text()
            time.sleep(0.02)
    yield folder
    for server in servers:
        server.terminate()
        server.wait()


def test_a_hub_and_a_gateway(folder: Path) -> None:
    _, _, _, gather, look, *rest = sections()["A hub and a gateway"]
    assert rest == []
    login = next(line for line in gather.splitlines() if line.startswith("export "))
    shell(gather, folder)
    said = {}
    for line in look.splitlines():
        command = line.split("  #")[0].strip()
        if " sub " in command:  # it waits for a message: here comes one every tenth of a second
            more = f"(while sleep 0.1; do eyot pub readings.x 1; done) & trap 'kill $!' EXIT; {command}"
            said[command] = shell(f"{login}\n{more}", folder)
        else:
            said[command] = shell(f"{login}\n{command}", folder)
    assert "gateway-17" in said["eyot status"]
    assert said["eyot stream ls --json"].startswith("[")
    assert (folder / "backup").is_dir()


def test_into_spark_tables(folder: Path) -> None:
    install, config, jobs = sections()["Into Spark tables"]
    extra = re.match(r"pip install '\.\[(\w+)\]'", install)
    assert extra is not None
    assert extra[1] in tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    login = "export NATS_USER=app NATS_PASSWORD=app-secret"
    reading = '{"device": "d1", "metric": "t", "at": "2026-01-01T00:00:01Z", "value": 1}'
    shell(f"{login}\neyot pub --ack readings.d1 '{reading}'", folder)
    (folder / "hub.toml").write_text(here(config))
    said = shell(jobs, folder)
    assert "rows in" in said
    assert "no gaps" in said


def test_targets_and_pages_are_there() -> None:
    makefile = (TOP / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for page in set(re.findall(r"\b(?:docs|packaging)/[\w./-]+\w", TEXT)):
        assert (TOP / page).exists(), page


def test_every_block_is_run() -> None:
    """A block that is added is run by a test above, or is no command."""
    counts = {heading: len(blocks) for heading, blocks in sections().items() if blocks}
    assert counts == {"A hub and a gateway": 5, "Into Spark tables": 3}
