"""`eyot` in front of one server, run in this process."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, cast

import nats
import pytest
from nats.js import JetStreamContext

from eyot_cli.main import main
from support.servers.server_process import ServerProcess


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Tool:
    """`eyot` in front of one server."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self._folder = folder

    def run(self, *arguments: str, data: bytes = b"") -> Done:
        """Run the command here, as `eyot` in a pipe: a process for each takes most of a second."""
        out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self._folder)
            patch.setattr(sys, "argv", ["eyot", "-s", self.server.client_url(), *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            code = main()
        return Done(code, *(cast("io.BytesIO", each.buffer).getvalue() for each in (out, err)))

    def __call__(self, *arguments: str, data: bytes = b"") -> str:
        done = self.run(*arguments, data=data)
        assert (done.returncode, done.stderr.decode()) == (0, ""), (arguments, done)
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def fails(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (1, b""), arguments
        assert done.stderr.startswith(b"eyot: ")
        return done.stderr.decode().removeprefix("eyot: ").strip()

    def nats_py(self, action: Callable[[JetStreamContext], Any]) -> Any:
        async def run() -> Any:
            client = await nats.connect(self.server.client_url(), allow_reconnect=False)
            try:
                return await action(client.jetstream(timeout=30))
            finally:
                await client.close()

        return asyncio.run(run())


async def doctor(server: ServerProcess, user: str, *arguments: str) -> tuple[int, list[dict[str, object]]]:
    """Run `eyot doctor` on an `eyotd` in a process of its own. Returns its exit status and the objects that it printed."""
    control = f"http://{server.host}:{server.monitor_port}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "eyot_cli.main", "--control", control, "--server", server.client_url(user), "--json",
        "doctor", *arguments, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out) if out else []
