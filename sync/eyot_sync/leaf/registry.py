"""The leaf links of one account: its loop subject, and who is connected twice or in a circle.

Every account has one random subject `$LDS.<id>` that it announces on each of its links. Brokers in between hand loop subjects on like
any interest, so when one's own comes back over a link, that link closes a circle. Two links to the same remote cluster are a circle
as well, one that interest rules would hide.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from eyot_sync.leaf.interest import LOOP_PREFIX
from eyot_wire.nuid import nuid


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """What tells one link of an account from another. Empty `remote_account`: the peer did not say (before 2.10)."""

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
        """Forget a link; one that was never added or is already gone is no error."""
        self._links.pop(id(link), None)

    def is_own_loop(self, subject: bytes) -> bool:
        """Did interest in this account's own loop subject come in over a link?"""
        return subject == self.loop_subject

    def duplicate_of(self, newcomer: LinkIdentity) -> L | None:
        """The accepted link that an accepted newcomer replaces: same server, cluster and account on the other side.

        A peer that does not name its account (before 2.10) is never taken for a duplicate: it may have two remotes here on purpose,
        from two of its accounts, and they would throw each other out for ever.
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
        """The accepted link of another server that has the accepted newcomer's JetStream domain. Requests for that domain would
        reach both, and each takes what is said of the other's messages for its own. Servers of clusters may share a domain."""
        if newcomer.solicited or not newcomer.domain or newcomer.is_cluster:
            return None
        for link in self._links.values():
            other = link.link_identity
            is_other = not other.solicited and not other.is_cluster and other.server_name != newcomer.server_name
            if is_other and other.domain == newcomer.domain:
                return link
        return None

    def closes_circle(self, newcomer: LinkIdentity) -> bool:
        """Does a solicited newcomer lead to a cluster that this account is linked to already?"""
        if not newcomer.solicited or not newcomer.cluster:
            return False
        return any(link.link_identity.cluster == newcomer.cluster for link in self._links.values())
