"""The JetStream subjects that never cross a leaf link, by account and domain.

Two JetStream domains joined by a link must not answer each other's `$JS.API` requests, and a KV put for the local
bucket must not reach the other side's: each side sends requests to the other only through `$JS.<domain>.API.>`. Both
ends evaluate the table with their own options and the peer's domain. The result is denied in both directions, apart
from the own domain's API, which is only denied outwards.

nats-server extends JetStream over a system-account link between equal domains by letting the leaf node join the hub's
raft group. Eyot is in no raft group, so its system account always gets the full list.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

CLIENT_DENIES: tuple[bytes, ...] = (b"$JS.API.>", b"$KV.>", b"$OBJ.>")
SYSTEM_DENIES: tuple[bytes, ...] = (b"$JSC.>", b"$NRG.>", b"$JS.API.>", b"$KV.>", b"$OBJ.>")


class LinkDenies(Struct, frozen=True):
    """Subject patterns denied on one link: `send` towards the peer, `receive` from it."""

    send: tuple[bytes, ...] = ()
    receive: tuple[bytes, ...] = ()


def jetstream_denies(
    *,
    account: str,
    is_system: bool,
    own_domain: str,
    own_jetstream: bool,
    peer_domain: str,
    default_js_domains: Mapping[str, str],
) -> LinkDenies:
    """Return the denies of one link.

    `own_jetstream`: JetStream is enabled on this server. `default_js_domains`: account name to domain; an account
    mapped to "" has no denies, because its clients use the peer's `$JS.API` as their own.
    """
    if is_system:
        return LinkDenies(SYSTEM_DENIES, SYSTEM_DENIES)
    if default_js_domains.get(account) == "":
        return LinkDenies()
    send = CLIENT_DENIES
    if own_domain and own_jetstream and own_domain != peer_domain:
        send = (*send, b"$JS.%b.API.>" % own_domain.encode())
    return LinkDenies(send, CLIENT_DENIES)
