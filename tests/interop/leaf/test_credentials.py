"""Remotes that prove who they are with a key: a credentials file at a real nats-server in operator mode, an nkey seed at eyotd."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import nats

from eyot_wire.trust import nkey
from support.links.leaf_pair import Clients, Inbox, LeafPair, eventually, reaches
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer


class Key:
    """A key pair of a role, from a fixed seed."""

    def __init__(self, role: str, number: int) -> None:
        self.seed = nkey.encode_seed(role, bytes([number] * 32))
        self.signer = nkey.Signer(self.seed)
        self.public = self.signer.public_key

    def jwt(self, subject: str, name: str, claims: dict[str, Any]) -> str:
        """A version 2 JWT about `subject`, signed by this key."""
        body: dict[str, Any] = {"iat": int(time.time()), "iss": self.public, "name": name, "sub": subject}
        body["nats"] = claims | {"version": 2}
        digest = hashlib.sha256(json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        head = _b64(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        payload = _b64(json.dumps(body).encode())
        return f"{head}.{payload}.{_b64(self.signer.sign(f'{head}.{payload}'.encode()))}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = UNLIMITED | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}


def creds(jwt: str, seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def test_credentials_file_at_a_nats_server_in_operator_mode(tmp_path: Path) -> None:
    operator, system, account, user = Key("O", 1), Key("A", 2), Key("A", 3), Key("U", 4)
    operator_jwt = operator.jwt(operator.public, "op", {"type": "operator", "system_account": system.public})
    accounts = {
        key.public: operator.jwt(key.public, name, {"type": "account", "limits": ACCOUNT_LIMITS})
        for key, name in ((system, "SYS"), (account, "ACC"))
    }
    user_jwt = account.jwt(user.public, "device", {"type": "user"} | UNLIMITED)
    client_jwt = account.jwt(user.public, "client", {"type": "user"} | UNLIMITED)
    (tmp_path / "device.creds").write_text(creds(user_jwt, user.seed))
    (tmp_path / "client.creds").write_text(creds(client_jwt, user.seed))
    preload = "\n".join(f"{public}: {jwt}" for public, jwt in accounts.items())
    hub_config = f"""
        server_name: hub-server
        operator: {operator_jwt}
        resolver: MEMORY
        resolver_preload {{ {preload} }}
        leafnodes {{ listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }}
    """
    with NatsServer(hub_config, tmp_path / "hub") as hub:
        leaf_config = f"""
            server_name: leaf-server
            accounts {{ ACC: {{ users: [{{user: acc, password: acc}}] }} }}
            leafnodes {{ remotes = [ {{
                urls: ["nats-leaf://127.0.0.1:{hub.leaf_port}"], account: ACC, credentials: "{tmp_path}/device.creds"
            }} ] }}
        """
        with Eyotd(leaf_config, tmp_path / "leaf") as leaf:

            async def run() -> None:
                at_hub = await nats.connect(hub.client_url(), user_credentials=str(tmp_path / "client.creds"))
                async with Clients(leaf) as (at_leaf,):
                    await reaches(at_leaf, at_hub)
                    inbox = await Inbox.on(at_leaf, "down")
                    await reaches(at_hub, at_leaf)
                    await at_hub.publish("down", b"x")
                    assert await inbox.wait(1) == [b"x"]
                await at_hub.close()

            asyncio.run(run())
            state = leaf.monitor("/eyot/status")["links"][0]
            assert (state["state"], state["last_error"]) == ("up", None)


HUB = """
server_name: hub-server
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
accounts { ACC: { users: [ {user: acc, password: acc}, {nkey: PUBLIC} ] } }
"""
LEAF = """
server_name: leaf-server
accounts { ACC: { users: [{user: acc, password: acc}] } }
leafnodes { reconnect: 1, remotes = [ { urls: ["nats-leaf://127.0.0.1:HUB_PORT"], account: ACC, nkey: "SEED" } ] }
"""


def test_nkey_seed(tmp_path: Path) -> None:
    user = Key("U", 5)
    config = {"hub_config": HUB.replace("PUBLIC", user.public), "leaf_config": LEAF.replace("SEED", user.seed)}
    with LeafPair("eyotd", "eyotd", tmp_path, accounts="", **config) as pair:
        pair.play(_nothing_more)
        (leaf,) = pair.hub.monitor("/leafz")["leafs"]
        assert (leaf["name"], leaf["account"], leaf["is_spoke"]) == ("leaf-server", "ACC", False)
        assert user.seed not in pair.leaf.log()


async def _nothing_more(hub: object, leaf: object) -> None:
    """That messages pass is all there is to see."""


def test_wrong_nkey_seed(tmp_path: Path) -> None:
    config = {
        "hub_config": HUB.replace("PUBLIC", Key("U", 5).public),
        "leaf_config": LEAF.replace("SEED", Key("U", 6).seed),
    }
    with LeafPair("eyotd", "eyotd", tmp_path, accounts="", **config) as pair:

        async def refused() -> None:
            await eventually(lambda: bool(pair.leaf.monitor("/eyot/status")["links"][0]["last_error"]))

        asyncio.run(refused())
        link = pair.leaf.monitor("/eyot/status")["links"][0]
        assert link["last_error"] == "Authorization Violation"
        assert "check" in link["remedy"]
        assert link["attempts"] >= 1
        assert pair.hub.monitor("/leafz")["leafs"] == []


def test_status_pages_of_a_pair(tmp_path: Path) -> None:
    """`/leafz` of eyotd says what nats-server's says."""
    leafz = {}
    for hub in ("nats-server", "eyotd"):
        with LeafPair(hub, "eyotd", tmp_path / hub) as pair:
            pair.play(_one_each_way)
            page = pair.hub.monitor("/leafz?subs=1")
            entries = {entry["account"]: entry for entry in page["leafs"]}
            assert page["leafnodes"] == len(entries) == 2
            leafz[hub] = entries
            status = pair.leaf.monitor("/eyot/status")
            links = {link["account"]: link for link in status["links"]}
            assert {link["state"] for link in links.values()} == {"up"}
            assert links["ACC"]["role"] == "spoke"
            assert links["ACC"]["peer_domain"] == "hub"
            assert links["ACC"]["rtt_ms"] > 0
            assert links["ACC"]["in_msgs"] >= 1
            assert links["ACC"]["out_msgs"] >= 1
    assert leafz["eyotd"]["ACC"].keys() >= leafz["nats-server"]["ACC"].keys() - {"rtt"}
    ours, theirs = leafz["eyotd"]["ACC"], leafz["nats-server"]["ACC"]
    assert {subject for subject in ours["subscriptions_list"] if not subject.startswith(("$LDS", "_INBOX"))} == {
        subject for subject in theirs["subscriptions_list"] if not subject.startswith(("$LDS", "_INBOX"))
    }


async def _one_each_way(hub: object, leaf: object) -> None:
    """`LeafPair.play` has sent messages both ways before it comes here."""
