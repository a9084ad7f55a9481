"""`eyot doctor` names the missing one of the five subjects that a mirror or source across accounts needs; links and domains."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import nats
import pytest

from support.links.leaf_pair import HUB, LEAF, LeafPair
from support.servers.eyot_tool import doctor
from support.servers.eyotd import Eyotd

#: What the importing accounts import, by the part of the way that it is.
IMPORTS = {
    "API prefix": '{service: {account: ORIGIN, subject: "$JS.API.STREAM.INFO.>"}, to: "JS.origin.API.STREAM.INFO.>"}',
    "consumer API": '{service: {account: ORIGIN, subject: "$JS.API.CONSUMER.CREATE.>"}, to: "JS.origin.API.CONSUMER.CREATE.>"}',
    "delivery subject": '{stream: {account: ORIGIN, subject: "dlv.>"}}',
    "flow control": '{service: {account: ORIGIN, subject: "$JS.FC.>"}}',
    "acknowledgements": '{service: {account: ORIGIN, subject: "$JS.ACK.>"}}',
}
PULL = (
    '{service: {account: ORIGIN, subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"}, to: "JS.origin.API.CONSUMER.MSG.NEXT.S.C"}'
)
ORIGIN = """
    ORIGIN: {
        users: [{user: origin, password: origin}], jetstream: enabled
        exports: [
            {service: "$JS.API.STREAM.INFO.>"}, {service: "$JS.API.CONSUMER.CREATE.>", response_type: "stream"},
            {service: "$JS.API.CONSUMER.MSG.NEXT.>", response_type: "stream"}
            {stream: "dlv.>"}, {service: "$JS.FC.>"}, {service: "$JS.ACK.>"}
        ]
    }
"""


def account(name: str, *imports: str) -> str:
    user = f"users: [{{user: {name.lower()}, password: {name.lower()}}}]"
    return f"    {name}: {{ {user}, jetstream: enabled, imports: [{', '.join(imports)}] }}\n"


def without(*parts: str) -> list[str]:
    return [text for part, text in IMPORTS.items() if part not in parts]


ACCOUNTS = {
    "NONE_MISSING": without(),
    "NO_API": without("API prefix", "consumer API"),
    "NO_CONSUMER": without("consumer API"),
    "NO_DELIVERY": without("delivery subject"),
    "NO_FLOW": without("flow control"),
    "NO_ACK": without("acknowledgements"),
    "PULL": [PULL, IMPORTS["acknowledgements"]],
    "PULL_NO_ACK": [PULL],
}
FOUND = {
    "NONE_MISSING": None,
    "NO_API": "API prefix",
    "NO_CONSUMER": "consumer API",
    "NO_DELIVERY": "delivery subject",
    "NO_FLOW": "flow control",
    "NO_ACK": None,
    "PULL": None,
    "PULL_NO_ACK": "acknowledgements",
}


def test_the_missing_subject_is_named_and_the_lines_that_would_add_it(tmp_path: Path) -> None:
    accounts = "".join(account(name, *imports) for name, imports in ACCOUNTS.items())
    config = f'jetstream {{ store_dir: "%WORKDIR%/store", domain: here }}\naccounts {{ {ORIGIN}{accounts} }}'

    async def run(server: Eyotd) -> None:
        client = await nats.connect(server.client_url("origin"))
        await client.jetstream().add_stream(name="S", subjects=["s.>"])
        await client.jetstream().add_consumer("S", durable_name="C", ack_policy="explicit")
        await client.close()
        limit = asyncio.Semaphore(2)

        async def one(name: str) -> None:
            asked = ["--origin", "S", "--api-prefix", "JS.origin.API", "--deliver-prefix", "dlv"]
            if name.startswith("PULL"):
                asked += ["--consumer", "C"]
            async with limit:
                code, checks = await doctor(server, name.lower(), *asked)
            failures = [check for check in checks if check["state"] == "failure"]
            assert [str(each["name"]).rpartition(": ")[2] for each in failures] == (
                [FOUND[name]] if FOUND[name] else []
            ), (name, checks)
            assert (code == 4) == bool(failures)
            for each in failures:
                lines = each["lines"]
                assert isinstance(lines, list)
                assert len(lines) == 2
                assert lines[0].startswith("accounts.ORIGIN.exports: {")
                assert lines[1].startswith(f"accounts.{name}.imports: {{")

        await asyncio.gather(*(one(name) for name in ACCOUNTS))

    with Eyotd(config, tmp_path) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("same_domain", [False, True])
def test_a_leaf_of_a_real_hub(same_domain: bool, tmp_path: Path) -> None:
    leaf = LEAF.replace("domain: leaf", "domain: hub") if same_domain else LEAF

    async def run(pair: LeafPair) -> None:
        hub = await nats.connect(pair.hub.client_url("acc"))
        await hub.jetstream().add_stream(name="R", subjects=["r.>"])
        await hub.close()
        code, checks = await doctor(pair.leaf, "acc", "--origin", "R", "--api-prefix", "$JS.hub.API")
        states = {str(each["name"]): each["state"] for each in checks}
        if same_domain:
            assert (code, states["domain"]) == (4, "failure")
        else:
            assert states["domain"] == "ok", checks
            assert [name for name, state in states.items() if state == "failure"] == []
            assert states["origin $JS.hub.API R: delivery subject"] == "ok"
        # Nobody at the other end.
        pair.hub.kill()
        code, checks = await doctor(pair.leaf, "acc")
        broken = [each for each in checks if each["state"] == "failure"]
        assert code == 4
        assert all(str(each["name"]).startswith(("link ", "domain")) for each in broken)
        assert any("refused" in str(each["detail"]).lower() for each in broken)

    with LeafPair("nats-server", "eyotd", tmp_path, hub_config=HUB, leaf_config=leaf) as pair:
        pair.leaf.wait_log("Leafnode connection created for account: ACC")
        asyncio.run(run(pair))


def test_no_daemon_no_diagnosis() -> None:
    async def run() -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "eyot_cli.main", "--control", "http://127.0.0.1:9", "doctor",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await process.communicate()
        return process.returncode or 0

    assert asyncio.run(run()) == 1
