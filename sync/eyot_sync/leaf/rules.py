"""The combined rules of one link: the hub's permissions, this side's own denies, and the JetStream denies.

A spoke enforces everything itself. A hub enforces the user's permissions on received messages, and on sent ones also
the spoke's wishes (`deny_pub` of CONNECT) and the JetStream denies. A hub accepts a spoke's JetStream requests in spite
of the denies: a leaf node that maps its accounts to an empty `default_js_domain` uses the hub's JetStream as its own.
"""

from __future__ import annotations

from msgspec import Struct

from eyot_sync.leaf.denies import LinkDenies, jetstream_denies
from eyot_sync.leaf.events import LeafIdentity, LeafOptions, Role, UserRules
from eyot_sync.leaf.permissions import ALLOW_ALL, UNCHECKED_MESSAGES, RuleChecker, SubjectRule


class RuleSet(Struct, frozen=True):
    """`send`: messages to the peer, and literal interest it may have. `receive`: messages from it, and interest announced to it."""

    send: RuleChecker
    receive: RuleChecker

    def may_announce(self, subject: bytes) -> bool:
        """Return whether to announce interest: not where messages could never arrive; replies under unchecked prefixes always."""
        return subject.startswith(UNCHECKED_MESSAGES) or self.receive.permits_interest(subject)


def open_rules() -> RuleSet:
    """Return rules that allow everything, until the link is established."""
    checker = RuleChecker(ALLOW_ALL)
    return RuleSet(checker, checker)


def link_rules(
    options: LeafOptions,
    identity: LeafIdentity,
    user: UserRules,
    *,
    account: str,
    is_system: bool,
    is_spoke: bool,
    peer_domain: str,
    deny_pub: tuple[bytes, ...],
) -> RuleSet:
    """Return the rules of an established link bound to `account`; `deny_pub`: what an accepted peer asked not to be sent."""
    denies = jetstream_denies(
        account=account,
        is_system=is_system,
        own_domain=identity.domain,
        own_jetstream=identity.jetstream,
        peer_domain=peer_domain,
        default_js_domains=options.default_js_domains,
    )
    if options.role is Role.ACCEPT:
        return accepted_rules(user, denies, is_spoke=is_spoke, deny_pub=deny_pub)
    return solicited_rules(
        user, denies, is_spoke=is_spoke, deny_exports=options.deny_exports, deny_imports=options.deny_imports
    )


def solicited_rules(
    user: UserRules,
    denies: LinkDenies,
    *,
    is_spoke: bool,
    deny_exports: tuple[bytes, ...],
    deny_imports: tuple[bytes, ...],
) -> RuleSet:
    """Return the rules of the soliciting side; `user`: the permissions in the hub's second INFO."""
    receive = user.subscribe.with_denies(*deny_imports, *(denies.receive if is_spoke else ()))
    return _rule_set(send=user.publish.with_denies(*deny_exports, *denies.send), receive=receive)


def accepted_rules(user: UserRules, denies: LinkDenies, *, is_spoke: bool, deny_pub: tuple[bytes, ...]) -> RuleSet:
    """Return the rules of the accepting side; `user`: the peer's permissions, `deny_pub`: what it asked not to be sent."""
    receive = user.publish.with_denies(*(denies.receive if is_spoke else ()))
    return _rule_set(send=user.subscribe.with_denies(*deny_pub, *denies.send), receive=receive)


def _rule_set(*, send: SubjectRule, receive: SubjectRule) -> RuleSet:
    return RuleSet(RuleChecker(send), RuleChecker(receive))
