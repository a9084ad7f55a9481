"""Leaf sessions for tests: with fixed identities, and wired back to back."""

from __future__ import annotations

import json
import random
from typing import Any

from eyot_sync.leaf.events import (
    ConnectReceived,
    LeafEvent,
    LeafIdentity,
    LeafOptions,
    LeafTimes,
    Role,
    UserRules,
)
from eyot_sync.leaf.session import LeafSession

HUB = LeafIdentity(
    server_id="NHUB",
    server_name="hub-server",
    version="2.12.0",
    host="10.0.0.1",
    port=7422,
    domain="hub",
    jetstream=True,
)
LEAF = LeafIdentity(
    server_id="NLEAF", server_name="leaf-server", version="2.12.0", cluster="leaf-server", domain="leaf", jetstream=True
)


def accepting(identity: LeafIdentity = HUB, **options: Any) -> LeafSession:
    """An accepting session that has sent its first INFO, at time 0."""
    options.setdefault("leafnode_urls", ("10.0.0.1:7422",))
    session = LeafSession(identity, LeafOptions(role=Role.ACCEPT, client_id=7, **options), random.Random(1))
    session.start(0.0)
    return session


def soliciting(identity: LeafIdentity = LEAF, **options: Any) -> LeafSession:
    """A soliciting session that waits for INFO, at time 0."""
    options.setdefault("account", "ACC")
    session = LeafSession(identity, LeafOptions(role=Role.SOLICIT, client_id=5, **options), random.Random(2))
    session.start(0.0)
    return session


def first_info(**changes: Any) -> bytes:
    """The opening INFO of a hub."""
    info = {
        "server_id": "NHUB",
        "server_name": "hub-server",
        "version": "2.9.10",
        "proto": 1,
        "host": "0.0.0.0",
        "port": 7422,
        "headers": True,
        "auth_required": True,
        "max_payload": 1048576,
        "jetstream": True,
        "client_id": 6,
        "nonce": "fqqCuB8Cx4LW0qU",
        "domain": "hub",
        "leafnode_urls": ["10.0.0.1:7422"],
        "info_on_connect": True,
    } | changes
    return b"INFO " + json.dumps({key: value for key, value in info.items() if value is not None}).encode() + b" \r\n"


def second_info(**changes: Any) -> bytes:
    """The INFO that answers CONNECT."""
    return first_info(nonce=None, connect_info=True, remote_account="ACC", **changes)


def connect(**changes: Any) -> bytes:
    """The CONNECT of a nats-server leaf."""
    fields = {
        "version": "2.9.10",
        "server_id": "NLEAF",
        "name": "leaf-server",
        "cluster": "leaf-server",
        "domain": "leaf",
        "headers": True,
        "jetstream": True,
        "user": "acc",
        "pass": "acc",
    } | changes
    return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"


def established_hub(
    user: UserRules | None = None, connect_fields: dict[str, Any] | None = None, **options: Any
) -> LeafSession:
    """An accepting session past its handshake, nothing left to send."""
    session = accepting(**options)
    session.receive(connect(**(connect_fields or {})), 0.1)
    session.accept_connect(0.1, account="ACC", is_system=False, user=user or UserRules())
    session.data_to_send()
    return session


def established_leaf(info: dict[str, Any] | None = None, **options: Any) -> LeafSession:
    """A soliciting session past its handshake, nothing left to send."""
    session = soliciting(**options)
    session.receive(first_info(), 0.1)
    session.receive(second_info(**(info or {})), 0.2)
    session.data_to_send()
    return session


class BackToBack:
    """A soliciting and an accepting session joined by a perfect wire; the hub takes everybody as user of ACC."""

    def __init__(self, leaf: LeafSession, hub: LeafSession, user: UserRules | None = None) -> None:
        self.leaf = leaf
        self.hub = hub
        self.user = user or UserRules()
        self.leaf_events: list[LeafEvent] = []
        self.hub_events: list[LeafEvent] = []

    def run(self, now: float = 1.0, chunk: int = 1 << 20) -> None:
        """Carry bytes, at most `chunk` at a time, until neither side has any."""
        moved = True
        while moved:
            moved = self._carry(self.hub, self.leaf, self.leaf_events, now, chunk)
            moved = self._carry(self.leaf, self.hub, self.hub_events, now, chunk) or moved

    def _carry(self, source: LeafSession, target: LeafSession, events: list[LeafEvent], now: float, chunk: int) -> bool:
        data = source.data_to_send()
        for start in range(0, len(data), chunk):
            for event in target.receive(data[start : start + chunk], now):
                events.append(event)
                if isinstance(event, ConnectReceived):
                    events += target.accept_connect(now, account="ACC", is_system=False, user=self.user)
        return bool(data)


def quick_times(**changes: float) -> LeafTimes:
    """Times with the long waits shortened."""
    return LeafTimes(**({"ping_interval_s": 2.0} | changes))  # type: ignore[arg-type]
