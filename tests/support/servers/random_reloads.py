"""Random configurations, one reloaded after the other, on eyotd and nats-server at once, with clients connected.

A seed gives the configurations: accounts that come and go, exports and imports, users with permissions, mappings, limits. Before the
first reload and after each one every client that is there publishes on every subject while all listen. Compared: which clients are
still there, the errors, INFO and events that they were sent, and what each of them gets.
"""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

ACCOUNTS = ("A", "B", "C")
USERS = tuple(f"{account.lower()}{number}" for account in ACCOUNTS for number in range(2))
#: What is published, and who listens to what.
SUBJECTS = ("s.a", "s.b", "t.a", "t.b", "u.a.b", "q.a", "q.b", "m.a", "i.s.a", "i.t.a", "i.q.a", "m.b")
PATTERNS = ("s.*", "s.a", "t.>", "u.*.b", "q.a", ">", "i.>", "i.s.a", "m.a", "*.b")
NOT_IMPORTED = ("q.a", "u.*.b", "m.a")
STREAMS, SERVICES = ("s.a", "s.*", "t.>", "u.*.*", ">"), ("q.a", "q.*", "q.>")
WAIT_S = 20.0
VIOLATION = "-ERR 'Authorization Violation'"


class Maker:
    """Configurations of one seed, each a change of the one before."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._accounts: dict[str, dict[str, Any]] = {name: self._account(name) for name in ACCOUNTS}
        self._globals = self._global()

    def text(self) -> str:
        """The configuration as it stands. Imports of what nobody exports are left out: both servers refuse them."""
        accounts = {}
        for name, account in self._accounts.items():
            if account is None:
                continue
            imports = [each for each in account["imports"] if self._is_exported(each)]
            accounts[name] = {**account, "imports": imports}
        members = {key: value for key, value in self._globals.items() if value is not None}
        return "\n".join(
            [
                'listen: "127.0.0.1:%CLIENT_PORT%"',
                'http: "127.0.0.1:%MONITOR_PORT%"',
                *(f"{key}: {json.dumps(value)}" for key, value in members.items()),
                f"accounts: {json.dumps(accounts)}",
            ]
        )

    def change(self) -> None:
        pick = self._random
        for _ in range(pick.randint(1, 3)):
            name = pick.choice(ACCOUNTS)
            kind = pick.random()
            if kind < 0.12:
                present = sum(1 for each in self._accounts.values() if each is not None)
                gone = self._accounts[name] is None
                self._accounts[name] = self._account(name) if gone else None if present > 1 else self._account(name)
            elif kind < 0.3:
                self._globals = self._global()
            elif self._accounts[name] is not None:
                fresh = self._account(name)
                part = pick.choice(("users", "exports", "imports", "mappings", "default_permissions", "limits"))
                self._accounts[name].pop(part, None)
                if part in fresh:
                    self._accounts[name][part] = fresh[part]

    def _is_exported(self, wanted: dict[str, Any]) -> bool:
        ((kind, source),) = ((key, value) for key, value in wanted.items() if key in ("stream", "service"))
        exporter = self._accounts[source["account"]]
        if exporter is None:
            return False
        return any(_covers(export[kind], source["subject"]) for export in exporter["exports"] if kind in export)

    def _global(self) -> dict[str, Any]:
        pick = self._random
        return {
            "max_payload": pick.choice((None, None, 64, 100, 4096)),
            "max_subscriptions": pick.choice((None, None, None, 6, 12)),
            "no_auth_user": pick.choice((None, None, None, "a0")),
            "max_subscription_tokens": pick.choice((None, None, None, None, 2)),
        }

    def _account(self, name: str) -> dict[str, Any]:
        pick = self._random
        account: dict[str, Any] = {
            "users": [self._user(each) for each in USERS if each.startswith(name.lower()) and pick.random() < 0.9],
            "exports": self._exports(),
            "imports": [self._import(name) for _ in range(pick.randint(0, 3))],
        }
        if pick.random() < 0.3:
            account["mappings"] = {pick.choice(("m.a", "s.a", "i.s.a")): pick.choice(("s.b", "t.b", "m.b", "q.a"))}
        if pick.random() < 0.2:
            account["default_permissions"] = self._permissions()
        if pick.random() < 0.1:
            account["limits"] = {"max_subscriptions": pick.choice((6, 45))}
        return account

    def _user(self, name: str) -> dict[str, Any]:
        pick = self._random
        user: dict[str, Any] = {"user": name, "password": name if pick.random() < 0.95 else "other"}
        if pick.random() < 0.5:
            user["permissions"] = self._permissions()
        return user

    def _permissions(self) -> dict[str, Any]:
        pick = self._random
        found: dict[str, Any] = {}
        for side in ("publish", "subscribe"):
            members = {}
            for kind in ("allow", "deny"):
                if pick.random() < 0.4:
                    # nats-server holds denials against the exporter's subject of an imported stream, Eyot against the own one.
                    patterns = NOT_IMPORTED if (side, kind) == ("subscribe", "deny") else PATTERNS
                    members[kind] = pick.sample(patterns, pick.randint(1, 3))
            if members:
                found[side] = members
        if pick.random() < 0.2:
            found["allow_responses"] = True
        return found

    def _exports(self) -> list[dict[str, Any]]:
        """Private exports stand alone: of several that cover an import, nats-server asks one by the order of a Go map."""
        pick = self._random
        found: list[dict[str, Any]] = []
        for kind, subjects in (("stream", STREAMS), ("service", SERVICES)):
            if pick.random() < 0.3:
                found.append({kind: pick.choice(subjects), "accounts": pick.sample(ACCOUNTS, pick.randint(1, 2))})
            else:
                found += [{kind: pick.choice(subjects)} for _ in range(pick.randint(0, 3))]
        return found

    def _import(self, name: str) -> dict[str, Any]:
        pick = self._random
        kind = pick.choice(("stream", "service"))
        #: Rings of streams are fine with both; rings of services are refused by the order of a Go map.
        others = [each for each in ACCOUNTS if each != name and (kind == "stream" or each < name)]
        if not others:
            kind, others = "stream", [each for each in ACCOUNTS if each != name]
        subject = pick.choice(("s.a", "t.a", "s.*", "t.>") if kind == "stream" else ("q.a", "q.b"))
        wanted: dict[str, Any] = {kind: {"account": pick.choice(others), "subject": subject}}
        if pick.random() < 0.5:
            wanted["to" if kind == "service" or pick.random() < 0.5 else "prefix"] = "i." + subject
            if "prefix" in wanted:
                wanted["prefix"] = "i"
        return wanted


def _covers(pattern: str, subject: str) -> bool:
    mine, theirs = pattern.split("."), subject.split(".")
    for at, token in enumerate(mine):
        if token == ">":
            return len(theirs) > at
        if at >= len(theirs) or theirs[at] == ">" or (token != "*" and token != theirs[at]):
            return False
    return len(mine) == len(theirs)


class Connection:
    """One user's connection that hears everything it may hear."""

    def __init__(self, port: int, user: str, patterns: list[tuple[str, str]]) -> None:
        self.user, self.there = user, True
        self._data = b""
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        hello = {
            "user": user,
            "pass": user,
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
        }
        lines = [b"CONNECT " + json.dumps(hello).encode()]
        lines += [f"SUB {pattern} {queue} {sid}".encode() for sid, (pattern, queue) in enumerate(patterns)]
        self.send(b"\r\n".join(lines) + b"\r\n")

    def send(self, data: bytes) -> None:
        with suppress(OSError):
            self._sock.sendall(data)

    def sync(self) -> list[str]:
        """What came until the answer to a PING, or the end."""
        self.send(b"PING\r\n")
        found: list[str] = []
        while self.there:
            frame = self._frame()
            if frame == "PONG":
                break
            if frame.startswith("INFO "):
                info = json.loads(frame[5:])
                found.append(f"INFO max_payload {info['max_payload']} auth {info.get('auth_required', False)}")
            elif frame != "PING":
                found.append(frame)
        return found

    def close(self) -> None:
        self.there = False
        self._sock.close()

    def _frame(self) -> str:
        line = self._take(b"\r\n")
        if not line.startswith((b"MSG ", b"HMSG ")):
            return line.decode()
        size = int(line.split()[-1])
        while self.there and len(self._data) < size + 2:
            self._read()
        payload, self._data = self._data[:size], self._data[size + 2 :]
        return (line + b" | " + payload).decode()

    def _take(self, end: bytes) -> bytes:
        while end not in self._data:
            self._read()
            if not self.there:
                return b"END"
        taken, _, self._data = self._data.partition(end)
        return taken

    def _read(self) -> None:
        try:
            data = self._sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.close()
        self._data += data


class Side:
    """One server and the connections to it."""

    def __init__(self, server: ServerProcess, listeners: dict[str, list[tuple[str, str]]]) -> None:
        self.server = server
        self._listeners = listeners
        self._connections: dict[str, Connection] = {}

    def reload(self, text: str) -> bool:
        """True if the server took the configuration."""
        self.server.set_config(text)
        before = self.server.log()
        self.server.signal(signal.SIGHUP)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            fresh = self.server.log()[len(before) :]
            if "Reloaded server configuration" in fresh:
                return True
            if "Failed to reload" in fresh:
                return False
            time.sleep(0.02)
        raise RuntimeError(f"no reload within {WAIT_S} s: {self.server.log()[len(before) :]}")

    def round(self) -> dict[str, list[str]]:
        """What each user was told since the last round, and gets now, in any order."""
        found: dict[str, list[str]] = {}
        time.sleep(0.15)
        for user, connection in self._connections.items():
            found[f"{user} meanwhile"] = sorted(connection.sync())
        for user in USERS:
            if user not in self._connections or not self._connections[user].there:
                fresh = self._connections[user] = Connection(self.server.client_port, user, self._listeners[user])
                found[f"{user} connects"] = sorted(fresh.sync())
        for user, connection in self._connections.items():
            for subject in SUBJECTS:
                connection.send(f"PUB {subject} r.{user} 4\r\n{user}  \r\n".encode())
            connection.send(f"PUB s.b 80\r\n{user:<80}\r\n".encode())
            found[f"{user} publishes"] = sorted(connection.sync())
        for _ in range(2):
            for user, connection in self._connections.items():
                found.setdefault(f"{user} gets", []).extend(connection.sync())
        return {name: sorted(_told(each) for each in lines) for name, lines in found.items()}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _told(line: str) -> str:
    """Without what a server makes up. The header's size goes with the round trip in it."""
    if "$SYS.ACCOUNT.CLIENT.AUTH.ERR" in line:
        event = json.loads(line.partition(" | ")[2])
        return f"AUTH.ERR {event['client']['user']} {event['client']['acc']} {event['reason']}"
    line = re.sub(r"_R_\.\S+", "_R_", line)
    return re.sub(r" \d+ \d+ \| ", " | ", re.sub(r'"rtt":\d+', '"rtt":0', line)) if '"rtt"' in line else line


def _difference(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> list[str]:
    found = []
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = list(ours.get(name, ["nothing"])), list(theirs.get(name, ["nothing"]))
        if VIOLATION in mine and "END" in other:  # nats-server does not tell a user that is gone
            mine.remove(VIOLATION)
            other = [line for line in other if line != VIOLATION]
        if "END" in mine and "END" in other:  # events of others may come before
            mine, other = ([line for line in lines if not line.startswith("AUTH.ERR")] for lines in (mine, other))
        for line in list(mine):
            if line in other:
                mine.remove(line)
                other.remove(line)
        if mine or other:
            found.append(f"{name}: eyotd {mine} | nats-server {other}")
    return found


def _refusal(server: ServerProcess) -> str:
    """Why it does not start, or nothing."""
    try:
        server.start()
    except RuntimeError as error:
        return str(error)
    server.kill()
    return ""


def play(seed: int, reloads: int, folder: Path) -> list[str]:
    """The first round that differs, line by line."""
    maker = Maker(seed)
    pick = random.Random(seed + 1)
    listeners = {
        # Each queue group has one member: of several, a random one gets the message.
        user: [(each, pick.choice(("", "", f"q.{user}.{at}"))) for at, each in enumerate(pick.sample(PATTERNS, 5))]
        for user in USERS
    }
    text = maker.text()
    refused = {kind.name: _refusal(kind(text, folder / "first")) for kind in (Eyotd, NewerNatsServer)}
    if any(refused.values()):
        return [] if all(refused.values()) else [f"refused at the start: {refused}"]
    with Eyotd(text, folder / "eyotd") as ours, NewerNatsServer(text, folder / "nats") as theirs:
        sides = Side(ours, listeners), Side(theirs, listeners)
        try:
            for number in range(reloads + 1):
                if number:
                    maker.change()
                    taken = [side.reload(maker.text()) for side in sides]
                    if taken[0] != taken[1]:
                        return [f"reload {number}: taken by eyotd {taken[0]}, nats-server {taken[1]}", maker.text(),
                                ours.log()[-300:], theirs.log()[-300:]]  # fmt: skip
                found = _difference(*(side.round() for side in sides))
                if found:
                    return [f"round {number}", *found]
        finally:
            for side in sides:
                side.close()
        if "Traceback" in ours.log():
            return ["a traceback", ours.log()[-3000:]]
    return []
