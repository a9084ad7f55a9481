"""Loops and duplicates among the links of one account."""

from __future__ import annotations

import random
from dataclasses import dataclass

from eyot_sync.leaf.registry import LeafRegistry, LinkIdentity


@dataclass(eq=False)
class Link:
    link_identity: LinkIdentity


def accepted(name: str = "leaf", cluster: str = "leaf", account: str = "A") -> Link:
    return Link(LinkIdentity(name, cluster, account, solicited=False))


def solicited(cluster: str) -> Link:
    return Link(LinkIdentity("hub", cluster, "A", solicited=True))


def test_loop_subject_is_random_and_recognised() -> None:
    registry: LeafRegistry[Link] = LeafRegistry(random.Random(1))
    other: LeafRegistry[Link] = LeafRegistry(random.Random(2))
    assert registry.loop_subject.startswith(b"$LDS.")
    assert len(registry.loop_subject) == 27
    assert registry.is_own_loop(registry.loop_subject)
    assert not registry.is_own_loop(other.loop_subject)


def test_same_server_same_account_replaces() -> None:
    registry: LeafRegistry[Link] = LeafRegistry(random.Random(1))
    first = accepted()
    registry.add(first)
    assert registry.duplicate_of(accepted().link_identity) is first
    for different in (accepted(name="x"), accepted(cluster="y"), accepted(account="B"), solicited("leaf")):
        assert registry.duplicate_of(different.link_identity) is None
    registry.remove(first)
    registry.remove(first)
    assert registry.duplicate_of(accepted().link_identity) is None
    assert len(registry) == 0


def test_peer_that_does_not_name_its_account_is_no_duplicate() -> None:
    registry: LeafRegistry[Link] = LeafRegistry(random.Random(1))
    registry.add(accepted(account=""))
    assert registry.duplicate_of(accepted(account="").link_identity) is None


def test_second_way_into_one_cluster_closes_a_circle() -> None:
    registry: LeafRegistry[Link] = LeafRegistry(random.Random(1))
    registry.add(solicited("C1"))
    assert registry.closes_circle(solicited("C1").link_identity)
    assert not registry.closes_circle(solicited("C2").link_identity)
    assert not registry.closes_circle(solicited("").link_identity)
    assert not registry.closes_circle(accepted(cluster="C1").link_identity)
