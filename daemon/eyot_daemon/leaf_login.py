"""Who a leaf is that dialled us: credentials, the account's limit, and the permissions of its user as rules of the link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.account import Account
from eyot_daemon.login import Applicant, Deferred, Login, Peer, UserToken
from eyot_sync import leaf_errors as errors
from eyot_sync.leaf_events import ReplyRule, UserRules
from eyot_sync.leaf_permissions import SubjectRule
from eyot_wire.info import LeafConnect

if TYPE_CHECKING:
    from eyot_daemon.broker import Broker

Authenticate = Callable[[LeafConnect, str, Peer, Applicant], Login | Deferred | None]


class Admission(NamedTuple):
    """The verdict on a CONNECT: an account, or the words of the refusal."""

    account: Account | None
    user: str = ""
    rules: UserRules = UserRules()
    refusal: str = ""
    expires_in_s: float = 0.0  # 0: never
    token: UserToken | None = None  # in operator mode
    external: bool = False  # decided by an auth callout


def admit(login: Login | None, broker: Broker) -> Admission:
    """What becomes of a leaf that was found to be `login`; None: nobody we know."""
    if login is None:
        return Admission(None, refusal=errors.AUTHORIZATION_VIOLATION)
    account = broker.add_account(login.account)
    if 0 <= account.leafnodes_max <= len(account.leafnodes):
        return Admission(None, login.user, refusal=errors.MAX_ACCOUNT_CONNECTIONS)
    return Admission(account, login.user, _rules(login), "", login.expires_in_s, login.token, login.external)


def _rules(login: Login) -> UserRules:
    permissions = login.permissions
    if permissions is None:
        return UserRules()
    responses = permissions.allow_responses
    return UserRules(
        publish=SubjectRule(permissions.publish.allow, permissions.publish.deny),
        subscribe=SubjectRule(permissions.subscribe.allow, permissions.subscribe.deny),
        replies=None if responses is None else ReplyRule(responses.max_messages, responses.expires_s),
    )
