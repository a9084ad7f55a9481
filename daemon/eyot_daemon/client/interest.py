"""What a client subscribes to: SUB and UNSUB as nats-server answers them, and what a change of permissions leaves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eyot_daemon.router.subscription import Subscription
from eyot_wire.frames import OK, Sub, Unsub
from eyot_wire.quoting import quoted
from eyot_wire.subject import is_valid

if TYPE_CHECKING:
    from eyot_daemon.client.connection import ClientConnection

log = logging.getLogger("eyot.client")

#: Queue group that nats-server keeps for itself.
SYSTEM_QUEUE = b"_sys_"


def subscribe(client: ClientConnection, op: Sub) -> None:
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
    if not client.clients.may_add_subscription(client, subject, op.sid):
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


def unsubscribe(client: ClientConnection, op: Unsub) -> None:
    """UNSUB: at once, or after so many messages."""
    sub = client.subs.get(op.sid)
    if sub is not None:
        if op.max_msgs > sub.delivered:
            sub.max_msgs = op.max_msgs
            sub.slow = True
        else:
            remove(client, sub)
    if client.verbose:
        client.queue_output(OK)


def remove(client: ClientConnection, sub: Subscription) -> None:
    """The subscription ends."""
    client.subs.pop(sub.sid, None)
    sub.account.unsubscribe(sub)


def is_slow(client: ClientConnection, sub: Subscription) -> bool:
    """Must each message for `sub` be looked at one by one?"""
    tracked = client.access is not None and client.access.replies is not None
    traced = client.clients.trace is not None
    return bool(sub.max_msgs) or sub.deny_filter or tracked or traced or not client.echo


def trace_changed(client: ClientConnection) -> None:
    """Tracing began or ended: it decides which way deliveries take."""
    for sub in client.subs.values():
        sub.slow = is_slow(client, sub)


def look_again(client: ClientConnection) -> None:
    """The client's permissions changed: what it may no longer subscribe to ends, and it is told."""
    access = client.access
    for sub in tuple(client.subs.values()):
        if access is not None and not access.may_subscribe(sub.subject, sub.queue):
            named = f"{quoted(sub.subject)} (sid {quoted(sub.sid)})"
            log.info("Removed sub %s for %r - not authorized", named, client)
            remove(client, sub)
            client.send_error(f"Permissions Violation for Subscription to {named}")
            continue
        sub.deny_filter = access is not None and access.needs_deny_filter(sub.subject, sub.queue)
        sub.slow = is_slow(client, sub)
