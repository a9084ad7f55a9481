"""A client's subscriptions: SUB and UNSUB as nats-server answers them, and the effect of changed permissions."""

from __future__ import annotations

import logging
from itertools import islice

from eyot_daemon.client.state import ClientState
from eyot_daemon.router.subscription import Subscription
from eyot_wire.frames import OK, Sub, Unsub
from eyot_wire.quoting import quoted
from eyot_wire.subject import is_valid

log = logging.getLogger("eyot.client")

#: Queue group that nats-server keeps for itself.
SYSTEM_QUEUE = b"_sys_"
#: Subscriptions that one turn reviews after a change of permissions: each that ends is logged, and told to the client.
REVIEWED_MAX = 256
MAX_SUBSCRIPTIONS = "maximum subscriptions exceeded"


def subscribe(client: ClientState, op: Sub) -> None:
    """SUB. A sid that is in use keeps its subscription."""
    account = client.account
    assert account is not None
    subject, queue = op.subject, op.queue
    access = client.access
    if queue == SYSTEM_QUEUE or (access is not None and not access.may_subscribe(subject, queue)):
        using = f" using queue {quoted(queue)}" if queue else ""
        client.send_error(f"Permissions Violation for Subscription to {quoted(subject)}{using}")
        client.clients.violations.subscribe(client, subject, queue, op.sid)
        return
    if not _may_add(client, subject, op.sid):
        return
    if op.sid not in client.subs:
        if not is_valid(subject):
            client.send_error("Invalid Subject")
            return
        sub = Subscription(account, subject, client, queue, op.sid)
        sub.deny_filter = access is not None and access.needs_deny_filter(subject, queue)
        sub.slow = is_slow(client, sub)
        client.subs[op.sid] = sub
        account.attach(sub)
    if client.verbose:
        client.queue_output(OK)


def _may_add(client: ClientState, subject: bytes, sid: bytes) -> bool:
    """Check a new subscription against the limits; log the reason of a refusal."""
    tokens_max = client.clients.options.max_sub_tokens
    if tokens_max and subject.count(b".") >= tokens_max:
        client.send_error(f"Permissions Violation for Subscription to {quoted(subject)}, too many tokens")
        client.clients.violations.subscribe(client, subject, b"", sid, " Too Many Tokens")
        return False
    limits = [client.clients.options.max_subscriptions or -1]
    if client.account is not None:
        limits.append(client.account.subscriptions_max)
    if client.token is not None:
        limits.append(client.token.grant.subs)
    most = min((limit for limit in limits if limit >= 0), default=-1)
    if 0 <= most <= len(client.subs):
        client.send_error(MAX_SUBSCRIPTIONS)
        return False
    return True


def unsubscribe(client: ClientState, op: Unsub) -> None:
    """Handle UNSUB: at once, or after a number of messages."""
    sub = client.subs.get(op.sid)
    if sub is not None:
        if op.max_msgs > sub.delivered:
            sub.max_msgs = op.max_msgs
            sub.slow = True
        else:
            remove(client, sub)
    if client.verbose:
        client.queue_output(OK)


def remove(client: ClientState, sub: Subscription) -> None:
    """End a subscription."""
    client.subs.pop(sub.sid, None)
    client.unreviewed.pop(sub, None)
    sub.account.unsubscribe(sub)


def is_slow(client: ClientState, sub: Subscription) -> bool:
    """Return whether each message for `sub` must be checked individually."""
    tracked = client.access is not None and client.access.replies is not None
    traced = client.clients.trace is not None
    is_checked = bool(sub.max_msgs) or sub.deny_filter or sub in client.unreviewed
    return is_checked or tracked or traced or not client.echo


def trace_changed(client: ClientState) -> None:
    """Update the subscriptions when tracing starts or stops: it decides the path of deliveries."""
    for sub in client.subs.values():
        sub.slow = is_slow(client, sub)


def look_again(client: ClientState) -> None:
    """Apply changed permissions: end subscriptions that are no longer allowed, and inform the client.

    Those beyond `REVIEWED_MAX` are reviewed in later turns, or when a message for one of them comes.
    """
    goes_on = bool(client.unreviewed)
    client.unreviewed = dict.fromkeys(reversed(client.subs.values()))
    for sub in client.unreviewed:
        sub.slow = True
    if not goes_on:
        _review_some(client)


def _review_some(client: ClientState) -> None:
    for sub in list(islice(reversed(client.unreviewed), REVIEWED_MAX)):
        review(client, sub)
    if client.unreviewed:
        client.clients.broker.later_turns.add(lambda: _review_some(client))


def review(client: ClientState, sub: Subscription) -> None:
    """Apply changed permissions to one subscription."""
    client.unreviewed.pop(sub, None)
    access = client.access
    if access is not None and not access.may_subscribe(sub.subject, sub.queue):
        using = f" using queue {quoted(sub.queue)}" if sub.queue else ""
        named = f"{quoted(sub.subject)}{using} (sid {quoted(sub.sid)})"
        log.info("Removed sub %s for %r - not authorized", named, client)
        remove(client, sub)
        client.send_error(f"Permissions Violation for Subscription to {named}")
        return
    sub.deny_filter = access is not None and access.needs_deny_filter(sub.subject, sub.queue)
    sub.slow = is_slow(client, sub)
