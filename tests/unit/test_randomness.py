"""Unpredictable values come from the system's randomness: nonces, ids, inboxes."""

from __future__ import annotations

import ast
import json
import random
import secrets
from pathlib import Path

import pytest

from eyot_daemon.router.broker import Broker
from eyot_sync.leaf.events import LeafIdentity, LeafOptions, Role
from eyot_sync.leaf.session import LeafSession

ROOT = Path(__file__).parents[2]
#: Who draws from a generator that is not the system's, and what for. None of it is a secret.
CHANCES = {
    "cli/eyot_cli/messages/templates.py": "random texts in the answers of `eyot reply`",
    "daemon/eyot_daemon/router/broker.py": "members of queue groups, samples, jitter, shares of mappings; the others are handed it",
    "daemon/eyot_daemon/router/core.py": "members of queue groups, samples, jitter, shares of mappings; the others are handed it",
    "daemon/eyot_daemon/monitor/system_events.py": "ids of events",
    "sync/eyot_sync/leaf/liveness.py": "the moment of the first ping",
    "sync/eyot_sync/leaf/registry.py": "the name of the subject that finds loops",
    "sync/eyot_sync/leaf/session.py": "handed to liveness",
    "sync/eyot_sync/link/backoff.py": "pauses between dials",
    "sync/eyot_sync/link/dialer.py": "the order of addresses",
    "sync/eyot_sync/link/supervisor.py": "handed to backoff and urls",
    "sync/eyot_sync/link/urls.py": "the order of servers",
    "wire/eyot_wire/mapping.py": "shares of mappings",
    "wire/eyot_wire/transform.py": "random() of a mapping",
    "wire/eyot_wire/nuid.py": "names; the system's unless somebody hands in another",
    "hub/eyot_hub/connection.py": "pauses between dials",
}


def nonce(seed: int) -> str:
    identity = LeafIdentity(server_id="N", server_name="n", version="2.14.0")
    session = LeafSession(identity, LeafOptions(role=Role.ACCEPT, client_id=1), random.Random(seed))
    session.start(0.0)
    info = session.data_to_send(now=0.0).removeprefix(b"INFO ").split(b"\r\n")[0]
    return str(json.loads(info)["nonce"])


def test_a_leafs_nonce_does_not_come_from_what_is_handed_in() -> None:
    assert len({nonce(seed=1) for _ in range(20)}) == 20


def test_a_broker_names_things_by_the_systems_randomness() -> None:
    assert isinstance(Broker().ids, secrets.SystemRandom)


def imports_random(path: Path) -> bool:
    """Whether a module imports `random`, besides for types."""
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return "random" in names


@pytest.mark.parametrize("folder", ["wire", "serving", "store", "sync", "daemon", "cli", "fleet", "hub"])
def test_who_draws_from_a_generator(folder: str) -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py") if imports_random(path)}
    assert found == {name for name in CHANCES if name.startswith(f"{folder}/")}
