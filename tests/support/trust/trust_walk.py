"""`make trust-walk NSC=PATH`: the security chapters of NATS's documentation, walked with `nsc` and `eyot trust` in turn on one store.

Each step is one command that both tools have, by the names and flags of nsc. The tools take turns, and a second walk exchanges them, so
that each step follows one of the other tool. After every step both describe everything in the store, and must read the same. At the
end one tool writes the configuration, servers of both kinds are started with it, the other tool pushes, and clients with the credentials
files of the store hear what the accounts share: a public stream, a private one by an activation token, a private service. Then a user is revoked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

import nats

from support.links.leaf_pair import server
from support.servers.server_process import ServerProcess

EYOT = str(Path(sys.executable).with_name("eyot"))
WAIT_S = 30.0

#: The steps. {A}, {B}: public keys of the accounts, {SK}: that of a signing key, {dir}: a folder for files.
STEPS = """
add operator MyOperator --generate-signing-key --sys
edit operator --service-url nats://localhost:4222
edit operator --sk generate
edit operator --require-signing-keys
add account A
edit account A --sk generate
add user U
add user s --allow-pub _INBOX.> --allow-sub q
add user c --allow-pub q --allow-sub _INBOX.>
add account B
edit account B --sk generate
add user b -a B
add export --name abc --subject a.b.c.> --account A
add import --src-account {A} --remote-subject a.b.c.> --account B
add export --subject private.abc.* --private --account A
generate activation --account A --target-account {B} --subject private.abc.{B} -o {dir}/stream.jwt
add import --account B --token {dir}/stream.jwt
add export --name help --subject help --service --account A
add import --src-account {A} --remote-subject help --service --account B
add export --subject private.help.* --private --service --account A
generate activation --account A --target-account {B} --subject private.help.{B} -o {dir}/service.jwt
add import --account B --token {dir}/service.jwt --local-subject private.help
generate nkey --account --store
edit account A --sk generate
add user signed --account A -K {SK}
edit account A --sk generate
edit signing-key --account A --role service --sk generate --allow-pub q --deny-pub >.x --allow-sub _INBOX.> --allow-pub-response
add user scoped --account A -K service
edit signing-key --account A --role team --sk generate --allow-sub {{{{account-name()}}}}.{{{{tag(team)}}}}.{{{{name()}}}}.> --allow-pub-response --allow-pub {{{{account-name()}}}}.{{{{tag(team)}}}}.{{{{name()}}}}.>
add user pam -a A -K team --tag team:support
add user joe -a A -K team --tag team:leads
edit user joe -a A --tag team:deputies
edit account A --js-disk-storage 1G --js-mem-storage 10M --js-streams 10 --conns 500 --leaf-conns 100
edit account B --description two --info-url https://example.com/b
add mapping -a B --from in.* --to out.$1 --weight 50
edit export -a A --subject help --service --latency lat.help --sampling 50
edit authcallout -a B --auth-user {U} --allowed-account {A}
edit authcallout -a B --disable
add account C --expiry 1y
edit account C --sk generate
add user t -a C --expiry 30d --source-network 10.0.0.0/8
edit user t -a C --subs 10 --data 1M --payload 64K --conn-type standard --conn-type leafnode
delete user t -a C --rm-creds --rm-nkey
rename account C D
delete mapping -a B --from in.*
delete account D --rm-creds --rm-nkey --force
revocations add-user -a A --name s
revocations delete-user -a A --name s
revocations add_activation -a A --subject private.abc.* --target-account {X}
revocations delete_activation -a A --subject private.abc.* --target-account {X}
export keys --all --dir {dir}/keys
import keys --dir {dir}/keys
validate -A
"""


@dataclass
class Walk:
    """One store, and the tools in the order in which they take turns."""

    folder: Path
    tools: Sequence[Sequence[str]]
    #: which tool takes the first step: 0 nsc, 1 eyot
    first: int = 0
    steps: int = 0
    #: content of the JWT files that both tools have described
    seen: dict[Path, bytes] = field(default_factory=dict)

    def run(self, *words: str, tool: int | None = None) -> str:
        """Run a command with the tool whose turn it is, or the named one (0: nsc). Raises AssertionError."""
        which = (self.first + self.steps) % 2 if tool is None else tool
        program = self.tools[which]
        command = [*program, "--all-dirs", str(self.folder / "store"), *words]
        if os.path.basename(program[0]) == "nsc":
            words = (*words, "--OK") if words[0] == "rename" else words  # nsc asks for it
            command = [*program, *words, "--all-dirs", str(self.folder / "store")]
        env = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "NSC_NO_GIT_IGNORE": "true"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def key(self, *words: str) -> str:
        return str(json.loads(self.run("describe", *words, "--json", tool=0))["sub"])

    def step(self, line: str, keys: dict[str, str]) -> None:
        """Run one step, and have both tools describe the store."""
        self.run(*(word.format(**keys) for word in line.split(" ")))
        self.steps += 1
        try:
            self.same()
        except AssertionError as error:
            raise AssertionError(
                f"after `{line}` by {self.tools[(self.first + self.steps - 1) % 2][0]}: {error}"
            ) from error

    def same(self) -> None:
        """Both tools read the same claims of everything that has changed."""
        for path, words in self.entities():
            content = path.read_bytes()
            if self.seen.get(path) == content:
                continue
            self.seen[path] = content
            nsc, eyot = (json.loads(self.run("describe", *words, "--json", tool=tool)) for tool in (0, 1))
            assert nsc == eyot, f"describe {' '.join(words)}:\n{nsc}\n{eyot}"

    def entities(self) -> list[tuple[Path, list[str]]]:
        """Return each JWT file of the store, and the words that describe it."""
        operator = next(self.folder.glob("store/*/*.jwt"))
        found = [(operator, ["operator"])]
        for account in sorted((operator.parent / "accounts").glob("*/*.jwt")):
            found.append((account, ["account", "--name", account.stem]))
            users = sorted(account.parent.glob("users/*.jwt"))
            found += [(user, ["user", "-a", account.stem, "--name", user.stem]) for user in users]
        return found


def walk(folder: Path, tools: Sequence[Sequence[str]], first: int, say: Callable[[str], None]) -> Walk:
    """Walk all steps. `tools`: nsc and eyot; `first`: which of them begins."""
    made = Walk(folder, tools, first)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "files").mkdir(exist_ok=True)
    keys = {"dir": str(folder / "files"), "X": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
    for line in STEPS.strip().splitlines():
        if "{A}" in line:
            keys["A"] = made.key("account", "--name", "A")
        if "{B}" in line:
            keys["B"] = made.key("account", "--name", "B")
        if "{U}" in line:
            keys["U"] = made.key("user", "-a", "B", "--name", "b")
        if "{X}" in line:
            keys["X"] = keys["B"]
        if "{SK}" in line:
            account = json.loads(made.run("describe", "account", "--name", "A", "--json", tool=0))
            keys["SK"] = next(each for each in account["nats"]["signing_keys"] if isinstance(each, str))
        if line.startswith("revocations delete-user"):
            time.sleep(1.1)  # revocations have whole seconds
        made.step(line, keys)
    say(f"{made.steps} steps, {len(made.entities())} entities: both tools read the same after each")
    return made


async def play(made: Walk, kind: str, folder: Path, say: Callable[[str], None]) -> None:
    """A server that one tool configured and the other one filled."""
    config = made.run("generate", "config", "--nats-resolver", tool=0).replace("'./jwt'", "'%WORKDIR%/jwt'")
    process: ServerProcess = server(kind, config, folder)
    process.start()
    try:
        url = process.client_url()
        for tool in (1, 0):
            made.run("push", "-A", "-u", url, tool=tool)
        connections = [await enter(made, url, account, user) for account, user in (("A", "U"), ("B", "b"))]
        a, b = connections
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await b.subscribe(">", cb=heard.put)
        await b.flush()
        key = made.key("account", "--name", "B")
        await a.publish("a.b.c.hello", b"world")
        await a.publish(f"private.abc.{key}", b"secret")
        got = {(await asyncio.wait_for(heard.get(), WAIT_S)).data for _ in range(2)}
        assert got == {b"world", b"secret"}, got

        async def helps(message: Any) -> None:
            await message.respond(b"help is here")

        for subject in ("help", "private.help.*"):
            await a.subscribe(subject, cb=helps)
        await a.flush()
        for subject in ("help", "private.help"):
            assert (await b.request(subject, b"me", timeout=WAIT_S)).data == b"help is here"
        pam = await enter(made, url, "A", "pam")
        listening = await a.subscribe("A.support.>")
        await a.flush()
        await pam.publish("A.support.pam.x", b"mine")
        assert (await listening.next_msg(WAIT_S)).data == b"mine"
        # one tool revokes, the other one pushes
        made.run("revocations", "add-user", "-a", "A", "--name", "pam", tool=0)
        made.run("push", "-a", "A", "-u", url, tool=1)
        await until(lambda: pam.is_closed)
        made.run("revocations", "delete-user", "-a", "A", "--name", "pam", tool=1)
        made.run("push", "-a", "A", "-u", url, tool=0)
        await (await enter(made, url, "A", "pam")).close()
        for each in connections:
            await each.close()
    finally:
        process.kill()
    say(f"{kind}: streams, services, activations, templates and revocations hold")


async def enter(made: Walk, url: str, account: str, user: str) -> Any:
    path = next(made.folder.glob(f"store/creds/*/{account}/{user}.creds"))
    return await nats.connect(url, user_credentials=str(path), allow_reconnect=False, connect_timeout=int(WAIT_S))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nsc", required=True, metavar="PATH", help="nsc 2.12 or later")
    parser.add_argument("--servers", nargs="*", default=["2.14.6", "eyotd"])
    options = parser.parse_args()
    nsc = shutil.which(options.nsc)
    if nsc is None:
        parser.error(f"there is no program {options.nsc}: NSC=PATH names an nsc")
    tools = ([os.path.abspath(nsc)], [EYOT, "trust"])
    for first, begins in enumerate(("nsc", "eyot trust")):
        with tempfile.TemporaryDirectory(prefix="eyot-walk-") as name:
            print(f"{begins} begins")
            made = walk(Path(name), tools, first, print)
            for kind in options.servers:
                asyncio.run(play(made, kind, Path(name) / kind, print))


if __name__ == "__main__":
    main()
