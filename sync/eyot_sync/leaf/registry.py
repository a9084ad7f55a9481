"""The leaf links of one account: its loop subject, and the detection of duplicates and loops.

Every account has one random subject `$LDS.<id>` that it announces on each of its links. Brokers forward loop subjects
like any interest, so when an account's own one returns over a link, that link closes a loop. Two links to the same
remote cluster are a loop as well, which interest rules would hide.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from eyot_sync.leaf.interest import LOOP_PREFIX
from eyot_wire.nuid import nuid


class LinkIdentity(Struct, frozen=True):
    """The identity of a link within an account. Empty `remote_account`: the peer does not send it (before 2.10)."""

    server_name: str
    cluster: str
    remote_account: str
    solicited: bool
    #: Its JetStream domain, "" without JetStream; and whether its servers may share that, being a cluster.
    domain: str = ""
    is_cluster: bool = False


class RegisteredLink(Protocol):
    """A link as the registry sees it."""

    @property
    def link_identity(self) -> LinkIdentity: ...


L = TypeVar("L", bound=RegisteredLink)


class LeafRegistry(Generic[L]):
    """Established links of one account, in order of arrival."""

    __slots__ = ("_links", "loop_subject")

    def __init__(self, rng: random.Random) -> None:
        self.loop_subject = LOOP_PREFIX + nuid(rng).encode()
        self._links: dict[int, L] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[L]:
        return iter(tuple(self._links.values()))

    def add(self, link: L) -> None:
        self._links[id(link)] = link

    def remove(self, link: L) -> None:
        """Remove a link; an unknown one is no error."""
        self._links.pop(id(link), None)

    def is_own_loop(self, subject: bytes) -> bool:
        """Return whether the subject of interest from a link is this account's own loop subject."""
        return subject == self.loop_subject

    def duplicate_of(self, newcomer: LinkIdentity) -> L | None:
        """Return the accepted link that a new one replaces: same server, cluster and account on the other side.

        A peer that does not name its account (before 2.10) is never a duplicate: it may deliberately have two remotes
        here, from two of its accounts, which would disconnect each other forever.
        """
        if newcomer.solicited or not newcomer.remote_account:
            return None
        for link in self._links.values():
            identity = link.link_identity
            if (
                not identity.solicited
                and identity.server_name == newcomer.server_name
                and identity.cluster == newcomer.cluster
                and identity.remote_account == newcomer.remote_account
            ):
                return link
        return None

    def same_domain_as(self, newcomer: LinkIdentity) -> L | None:
        """Return the accepted link of another server with the new one's JetStream domain.

        Requests for that domain would reach both servers, and each would apply confirmations for the other's messages
        to its own. Servers of clusters may share a domain.
        """
        if newcomer.solicited or not newcomer.domain or newcomer.is_cluster:
            return None
        for link in self._links.values():
            other = link.link_identity
            is_other = not other.solicited and not other.is_cluster and other.server_name != newcomer.server_name
            if is_other and other.domain == newcomer.domain:
                return link
        return None

    def closes_circle(self, newcomer: LinkIdentity) -> bool:
        """Return whether a solicited new link leads to a cluster that this account is already linked to."""
        if not newcomer.solicited or not newcomer.cluster:
            return False
        return any(link.link_identity.cluster == newcomer.cluster for link in self._links.values())
