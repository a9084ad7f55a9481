"""The two ends of an enrolment in one process: a hub's store with its registrar, and the folders of a device."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec

from eyot_cli.connection.target import Target, TlsFiles
from eyot_cli.enrol import command
from eyot_cli.enrol.files import DeviceFiles
from eyot_cli.enrol.fragment import write_fragment
from eyot_cli.fleet.records import Records
from eyot_cli.fleet.registrar import Registrar
from eyot_cli.trust.directories import Directories, Environment
from eyot_cli.trust.session import Report, Session
from eyot_wire.trust.enrolment import EnrolmentAnswer, Token, parse_token
from support.trust.trust_tool import TrustTool

URLS = ("nats-leaf://hub:7422",)
T = TypeVar("T")


class Hub:
    """A store, and the registrar that answers from it."""

    def __init__(self, folder: Path) -> None:
        self.trust = made = TrustTool(folder)
        made.run("add", "operator", "-n", "OP", "--generate-signing-key", "--sys")
        made.run("edit", "operator", "--require-signing-keys")
        made.run("add", "account", "A")
        made.run("edit", "account", "A", "--sk", "generate")
        made.run(
            "edit", "signing-key", "-a", "A", "--sk", "generate", "--role", "device", "--allow-pub", "d.{{name()}}.>"
        )

    def registrar(self) -> Registrar:
        """A registrar as after a restart: nothing is kept in memory."""
        environment = Environment(Directories.of(self.trust.folder, None, None, None))
        return Registrar(Session(environment, "", Report(as_json=True)), "A", URLS)

    def token(self, *words: str) -> Token:
        made = self.trust.json("fleet", "enrol", *words, "-a", "A")["tokens"][0]
        return parse_token(made["token"])

    def records(self) -> Records:
        store = Environment(Directories.of(self.trust.folder, None, None, None)).store()
        return Records(store, "A")

    def audit(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.records().folder / "audit.log").read_text().splitlines()]


@dataclasses.dataclass(frozen=True)
class Wired(Target):
    """A target whose requests reach the hub's registrar, or `instead` of it."""

    hub: Any = None
    instead: Callable[[EnrolmentAnswer], EnrolmentAnswer] = lambda answer: answer

    def with_client(self, action: Callable[[Any], Awaitable[T]]) -> T:
        async def request(subject: str, payload: bytes, *, timeout: float, headers: dict[str, str]) -> Any:
            answer, _ = self.hub.registrar().answer(subject, payload, headers)
            return SimpleNamespace(data=msgspec.json.encode(self.instead(answer)))

        running = action(SimpleNamespace(request=request))
        try:
            running.send(None)  # type: ignore[attr-defined]
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        raise AssertionError("nothing here waits")


def target(hub: Hub, **members: Any) -> Wired:
    return Wired("", None, None, None, None, None, None, False, TlsFiles(), hub=hub, **members)


class Places:
    """The folders of a device."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "eyotd.conf"
        self.fragment = folder / "conf.d" / "50-enrolled.conf"
        self.files = DeviceFiles(folder / "enrolled")
        self.fragment.parent.mkdir(parents=True)
        self.config.write_text('listen: "127.0.0.1:4222"\njetstream {}\ninclude "conf.d/*.conf"\n')

    def enrol(self, target: Target, token: Token, *, new_key: bool = False) -> dict[str, object]:
        places = command._Places(self.config, self.fragment, start=False, new_key=new_key)
        return command._enrol(target, self.files, places, "nats://hub:4222", token, "")

    def write(self, name: str = "pump", urls: tuple[str, ...] = URLS) -> list[str]:
        return write_fragment(self.config, self.fragment, name, self.files.creds, urls)
