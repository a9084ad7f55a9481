"""`eyot trust` on a store of its own, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from eyot_cli.main import cli
from eyot_cli.terminal.failure import Failure

#: Variables that would lead to other stores, or to other servers.
_NONE = (
    "NSC_HOME",
    "NKEYS_PATH",
    "NSC_CWD_ONLY",
    "NSC_NO_GIT_IGNORE",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "NATS_URL",
    "NATS_CREDS",
    "NATS_CA",
)


class TrustTool:
    """Runs commands of `eyot trust`, and of `eyot fleet` if that is the first word, with `--all-dirs` on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def result(self, *arguments: str | Path) -> Result:
        environment: dict[str, str | None] = dict.fromkeys(_NONE)
        group, rest = ("fleet", arguments[1:]) if arguments[:1] == ("fleet",) else ("trust", arguments)
        words = [group, "--all-dirs", str(self.folder), *map(str, rest)]
        return CliRunner(env=environment | {"HOME": str(self.folder)}).invoke(cli, words)

    def run(self, *arguments: str | Path) -> str:
        """Run a command that succeeds; its output."""
        result = self.result(*arguments)
        if result.exception is not None:
            raise result.exception
        return result.stdout

    def json(self, *arguments: str | Path) -> Any:
        """Run a command that succeeds; the document that `--json` prints."""
        return json.loads(self.run(*arguments, "--json"))

    def refused(self, *arguments: str | Path) -> str:
        """Run a command that fails; what it says."""
        result = self.result(*arguments)
        assert isinstance(result.exception, Failure), (result.output, result.exception)
        return "\n".join(result.exception.lines)

    def key(self, kind: str, *name: str) -> str:
        """The public key of an operator, account or user."""
        return str(self.json("describe", kind, *name)["sub"])

    def creds(self, operator: str, account: str, user: str) -> Path:
        return self.folder / "creds" / operator / account / f"{user}.creds"
