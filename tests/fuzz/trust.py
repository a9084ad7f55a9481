"""Random operator accounts on eyotd and nats-server 2.14.6: accepted pushes, permissions of users, contents of traces.

A fixture is three accounts with random exports, imports, activations (good ones, and of another subject, kind, account, signer or time),
revocations, mappings, default permissions, and users of their own, of signing keys and of scopes. Its tokens are pushed to both servers
in turn, twice; after each round every user publishes on every subject, asks every service and asks for traces, while all listen.

    .venv/bin/python tests/fuzz/trust.py --seconds 180
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import nats
import nats.errors
from nats.aio.client import Client

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.links.leaf_pair import server
from support.trust.claims import OPERATOR, SYSTEM, Key, creds, operator_conf

KINDS = ("eyotd", "2.14.6")
WAIT_S = 30.0
ACCOUNTS = tuple(Key("A", 60 + number) for number in range(3))
SIGNERS = tuple(Key("A", 70 + number) for number in range(3))
SCOPES = tuple(Key("A", 80 + number) for number in range(3))
USERS = tuple(Key("U", 90 + number) for number in range(9))
ADMIN = Key("U", 110)
STREAMS = ("s.a", "s.b", "t.*", "u.>", "v.*.x")
SERVICES = ("q.a", "q.b", "r.*", "w.>")
#: What is published, and listened to.
SUBJECTS = (
    "s.a",
    "s.b",
    "s.c",
    "t.a",
    "u.a",
    "u.a.b",
    "v.a.x",
    "q.a",
    "q.b",
    "r.a",
    "w.a",
    "loc.a",
    "loc.b",
    "loc.a.b",
    "map.a",
)
NAMES = {key.public: f"account {number}" for number, key in enumerate(ACCOUNTS)} | {
    key.public: f"user {number}" for number, key in enumerate(USERS)
}


class Fixture(NamedTuple):
    """Tokens in the order in which they are pushed, and the users: account, name, credentials."""

    rounds: tuple[tuple[str, ...], ...]
    users: tuple[tuple[int, str, str], ...]


class Maker:
    """Makes a world of a seed. Times are the same for both servers."""

    def __init__(self, seed: int, now_s: int) -> None:
        self._random = random.Random(seed)
        self._now_s = now_s

    def fixture(self) -> Fixture:
        rounds = tuple(tuple(self._account(number) for number in self._random.sample(range(3), 3)) for _ in range(2))
        users = tuple(self._user(number // 3, number) for number in range(9))
        return Fixture(rounds, users)

    def _often(self, share: float) -> bool:
        return self._random.random() < share

    def _account(self, number: int) -> str:
        pick = self._random
        scope = {
            "kind": "user_scope",
            "key": SCOPES[number].public,
            "role": "r",
            "template": {"subs": -1, "data": -1, "payload": -1} | self._permissions(),
        }
        nats_part: dict[str, Any] = {
            "exports": [self._export("stream", one) for one in pick.sample(STREAMS, pick.randint(1, 4))]
            + [self._export("service", one) for one in pick.sample(SERVICES, pick.randint(1, 4))],
            "imports": [self._import(number) for _ in range(pick.randint(1, 4) if number else 0)],
            "signing_keys": [SIGNERS[number].public, scope],
        }
        if self._often(0.3):
            nats_part["mappings"] = {"map.a": [{"subject": pick.choice(("s.a", "loc.a", "q.a"))}]}
        if self._often(0.2):
            nats_part["default_permissions"] = self._permissions()
        if self._often(0.2):
            who = pick.choice([USERS[number * 3 + other].public for other in range(3)] + ["*"])
            nats_part["revocations"] = {who: self._now_s + pick.choice((-100, 100))}
        return OPERATOR.account(ACCOUNTS[number], **nats_part)

    def _export(self, kind: str, subject: str) -> dict[str, Any]:
        pick = self._random
        export: dict[str, Any] = {"type": kind, "subject": subject}
        if self._often(0.5):
            export["token_req"] = True
        if self._often(0.3):
            who = pick.choice([key.public for key in ACCOUNTS] + ["*"])
            export["revocations"] = {who: self._now_s + pick.choice((-100, -10, 100))}
        if kind == "service" and self._often(0.5):
            export["allow_trace"] = True
        if kind == "service" and self._often(0.3):
            export["response_type"] = pick.choice(("Singleton", "Stream", "Chunked"))
        if "*" in subject and self._often(0.1):
            export["account_token_position"] = subject.split(".").index("*") + 1
        return export

    def _import(self, number: int) -> dict[str, Any]:
        pick = self._random
        kind = pick.choice(("stream", "service"))
        # Never in a circle: of several that are one, nats-server leaves out that which could be had last, whatever came before.
        exporter = pick.choice([other for other in range(3) if other < number])
        subject = self._narrowed(pick.choice(STREAMS if kind == "stream" else SERVICES))
        wanted: dict[str, Any] = {"type": kind, "subject": subject, "account": ACCOUNTS[exporter].public}
        if self._often(0.4):
            wanted["local_subject"] = self._renamed(subject)
        if self._often(0.7):
            wanted["token"] = self._activation(number, exporter, kind, subject)
        if kind == "stream" and self._often(0.5):
            wanted["allow_trace"] = True
        if kind == "service" and self._often(0.3):
            wanted["share"] = True
        return wanted

    def _narrowed(self, subject: str) -> str:
        if not self._often(0.6):
            return subject
        return subject.replace("*", "a").replace(">", self._random.choice(("a", "a.b", "a.>", "*")))

    def _renamed(self, subject: str) -> str:
        count = subject.split(".").count("*")
        if subject.endswith(">"):
            return ".".join(["loc", *["*"] * count, ">"])
        return ".".join(["loc", *["*"] * count]) if count else self._random.choice(("loc.a", "loc.b"))

    def _activation(self, importer: int, exporter: int, kind: str, subject: str) -> str:
        pick = self._random
        signer, to, body = (
            ACCOUNTS[exporter],
            ACCOUNTS[importer],
            {"type": "activation", "kind": kind, "subject": subject},
        )
        claims: dict[str, Any] = {"iat": self._now_s - pick.choice((0, 50))}
        if self._often(0.3):
            signer = SIGNERS[exporter]
            body["issuer_account"] = ACCOUNTS[exporter].public
        fault = pick.choice(["none"] * 6 + ["wide", "other", "kind", "to", "signer", "late", "early"])
        if fault == "wide":
            body["subject"] = pick.choice((">", subject.split(".")[0] + ".>"))
        elif fault == "other":
            body["subject"] = pick.choice(STREAMS + SERVICES)
        elif fault == "kind":
            body["kind"] = "service" if kind == "stream" else "stream"
        elif fault == "to":
            to = pick.choice(ACCOUNTS)
        elif fault == "signer":
            signer = pick.choice(ACCOUNTS + SIGNERS)
        elif fault == "late":
            claims["exp"] = self._now_s - 1
        elif fault == "early":
            claims["nbf"] = self._now_s + 1000
        if body["subject"].endswith("*") and subject.endswith(">"):
            body["subject"] = subject  # nats-server takes `a.>` for a part of `a.*`
        return signer.sign(to.public, body, **claims)

    def _permissions(self) -> dict[str, Any]:
        pick = self._random
        found: dict[str, Any] = {}
        for direction in ("pub", "sub"):
            rules = {}
            if self._often(0.3):
                rules["allow"] = [*pick.sample(("s.>", "t.*", "q.>", "loc.>", "map.a"), 3), "_INBOX.>", "told.>"]
            if self._often(0.3):
                rules["deny"] = pick.sample(("s.a", "u.>", "r.*", "loc.b"), 2)
            if rules:
                found[direction] = rules
        return found

    def _user(self, account: int, number: int) -> tuple[int, str, str]:
        key, by = USERS[number], self._random.choice(("account", "signer", "scope"))
        issued = {"iat": self._now_s - 50, "name": f"user {number}"}
        if by == "account":
            token = ACCOUNTS[account].user(key, claims=issued, **(self._permissions() if self._often(0.4) else {}))
        else:
            signer = (SIGNERS if by == "signer" else SCOPES)[account]
            token = signer.user(key, claims=issued, scoped=by == "scope", issuer_account=ACCOUNTS[account].public)
        return account, f"user {number}", creds(token, key)


class Observer:
    """One server: what is answered, heard and told there, in an order that does not depend on chance."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.heard: set[str] = set()
        self.told: list[str] = []

    async def push(self, tokens: tuple[str, ...]) -> list[str]:
        admin = await self._enter("admin", creds(SYSTEM.user(ADMIN), ADMIN))
        assert admin is not None
        said = []
        for token in tokens:
            answer = json.loads((await admin.request("$SYS.REQ.CLAIMS.UPDATE", token.encode(), timeout=WAIT_S)).data)
            said.append("refused" if "error" in answer else answer["data"]["message"])
        await admin.close()
        return said

    async def probe(self, users: tuple[tuple[int, str, str], ...]) -> tuple[list[str], list[str], list[str]]:
        """Who gets in; what each hears of what the others publish, ask and answer; what traces tell."""
        self.heard, self.told = set(), []
        inside: dict[str, Client] = {}
        for _, name, text in users:
            client = await self._enter(name, text)
            if client is not None:
                inside[name] = client
                await self._listen(name, client)
        await self._settle(inside)
        for name, client in inside.items():
            for subject in SUBJECTS:
                await client.publish(subject, f"{name} on {subject}".encode(), reply=f"_INBOX.{name.replace(' ', '')}")
        await self._settle(inside)
        heard = sorted(self.heard)
        for name, client in inside.items():
            for subject in SUBJECTS:
                header = {"Nats-Trace-Dest": f"told.{name.replace(' ', '')}", "Nats-Trace-Only": "true"}
                await client.publish(subject, b"", headers=header)
        await self._settle(inside)
        for client in inside.values():
            await client.close()
        return sorted(inside), heard, sorted(self.told)

    async def _enter(self, name: str, text: str) -> Client | None:
        path = self._folder / f"{name.replace(' ', '')}.creds"
        path.write_text(text)
        try:
            return await nats.connect(
                self._url, name=name, user_credentials=str(path), allow_reconnect=False, error_cb=_ignore
            )
        except (nats.errors.Error, OSError):
            return None

    async def _listen(self, name: str, client: Client) -> None:
        async def hear(msg: Any) -> None:
            if msg.subject.startswith("told."):
                self.told.append(f"{name}: {_shown(json.loads(msg.data))}")
                return
            self.heard.add(f"{name} hears {msg.subject}: {msg.data.decode()} {_asker(msg.headers)}")
            if msg.reply and msg.data:
                # Of several that answer, another is first each time.
                await msg.respond(f"account {int(name.split()[1]) // 3} answers {msg.data.decode()}".encode())

        own = name.replace(" ", "")
        for subject in (
            "s.*",
            "t.*",
            "u.>",
            "v.>",
            "q.*",
            "r.*",
            "w.>",
            "loc.>",
            "map.a",
            f"_INBOX.{own}",
            f"told.{own}",
        ):
            await client.subscribe(subject, cb=hear)

    async def _settle(self, inside: dict[str, Client]) -> None:
        """Until nothing more comes."""
        quiet = 0
        while quiet < 6:
            before = (len(self.heard), len(self.told))
            for client in inside.values():
                await client.flush(timeout=WAIT_S)
            await asyncio.sleep(0.02)
            quiet = quiet + 1 if before == (len(self.heard), len(self.told)) else 0


async def _ignore(error: Exception) -> None:
    """Permissions violations are what is expected."""


def _asker(headers: dict[str, str] | None) -> str:
    """Who asks, as an imported service is told."""
    info = json.loads((headers or {}).get("Nats-Request-Info", "{}"))
    kept = {key: info[key] for key in ("acc", "svc", "user", "name", "kind") if key in info}
    return " ".join(f"{key}={NAMES.get(value, value)}" for key, value in kept.items())


def _shown(report: dict[str, Any]) -> str:
    """A trace without times and numbers. Where a request leads that is not followed, the servers name differently on purpose."""
    events = []
    for event in report["events"]:
        kept = {key: NAMES.get(value, value) for key, value in event.items() if key not in ("ts", "cid", "kind")}
        if kept["type"] == "si":
            kept.pop("to")
        events.append(json.dumps(kept, sort_keys=True))
    return " ".join(sorted(events))


def play(kind: str, fixture: Fixture, folder: Path) -> list[Any]:
    """What happens at a server of this kind."""
    preload = [OPERATOR.account(key) for key in ACCOUNTS]
    resolver = f'{{ type: full, dir: "{folder / "jwt"}", allow_delete: true }}'
    process = server(kind, operator_conf(*preload, resolver=resolver), folder)
    process.start()

    async def run() -> list[Any]:
        found: list[Any] = []
        observer = Observer(process.client_url(), folder)
        for tokens in fixture.rounds:
            found += [await observer.push(tokens), *await observer.probe(fixture.users)]
        return found

    try:
        return asyncio.run(run())
    finally:
        process.kill()


def differences(seed: int, folder: Path) -> list[str]:
    """What one server does and the other does not."""
    fixture = Maker(seed, int(time.time())).fixture()
    ours, theirs = (play(kind, fixture, folder / kind) for kind in KINDS)
    found = []
    for number, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
        what = f"round {number // 4 + 1}, {('pushes', 'logins', 'messages', 'traces')[number % 4]}"
        if number % 4 == 0:
            found += [f"{what}: eyotd {mine}, nats-server {its}"] if mine != its else []
            continue
        found += [f"{what}: eyotd alone: {one}" for one in sorted(set(mine) - set(its))]
        found += [f"{what}: nats-server alone: {one}" for one in sorted(set(its) - set(mine))]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    import logging

    logging.getLogger("nats").setLevel(logging.CRITICAL)
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    until, count = time.monotonic() + options.seconds, 0
    while time.monotonic() < until:
        folder = Path(tempfile.mkdtemp(prefix="trust-"))
        found = differences(seed, folder)
        shutil.rmtree(folder)
        count += 1
        if found:
            print(f"seed {seed}:")
            print("\n".join(f"  {one}" for one in found[:60]))
            return 1
        seed += 1
    print(f"{count} worlds up to seed {seed - 1}: the same at both servers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
