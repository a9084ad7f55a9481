"""Publishes the messages of one read of a leaf link into the account; runs of one subject are routed once.

Most of a link's traffic comes in runs: the deliveries of a consumer to a mirror, a burst of readings. When a run's
route ends at one plain local subscription, or at client connections only, the run is passed on as a whole. All other
messages go through `Account.publish` one by one. The route is looked up again whenever a delivery may have changed
interest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from eyot_daemon.router.account import Account
from eyot_daemon.router.route import Route
from eyot_daemon.router.subscription import Subscription
from eyot_wire.fan_out import TRACE_HEADER
from eyot_wire.frames import LeafMsg
from eyot_wire.jetstream.ack import PREFIX
from eyot_wire.jetstream.native import same_subject

if TYPE_CHECKING:
    from eyot_daemon.router.message_trace import TracedLink

# A shorter run does not justify a check of its route.
_RUN_MIN = 3


class RunSink(Protocol):
    """A local destination that accepts runs (a mirror or source)."""

    def take_run(self, sub: Subscription, run: Sequence[LeafMsg]) -> int:
        """Accept messages from the front of `run`; return how many. The next one goes through `deliver`."""
        ...


def publish_all(account: Account, messages: list[LeafMsg], origin: TracedLink) -> None:
    """Publish messages that came over a leaf link, in order."""
    start, end, ask_all = 0, len(messages), bool(account.trace_destination)
    while start < end:
        first = messages[start]
        subject = first.subject
        if (first.header or ask_all) and _is_traced(account, first, origin):
            start += 1
            continue
        stop = start + 1 if ask_all else same_subject(messages, start, TRACE_HEADER)
        if stop - start < _RUN_MIN or account.mappings.apply(subject) is not None:
            _one_by_one(account, messages[start:stop], origin)
        else:
            _publish_run(account, messages[start:stop], origin)
        start = stop


def _is_traced(account: Account, message: LeafMsg, origin: TracedLink) -> bool:
    """Publish a message with a trace header; return False if it has none."""
    if TRACE_HEADER not in message.header and not account.trace_destination:
        return False
    # Loaded only where it is used.
    from eyot_daemon.router.message_trace import publish_from_link

    return publish_from_link(account, message, origin)


def _publish_run(account: Account, run: list[LeafMsg], origin: TracedLink) -> None:
    """Publish messages on one subject that no mapping concerns."""
    at = 0
    while at < len(run):
        route = account.route(run[at].subject)
        if not route:
            return
        taken = _hand_over(account, route, run[at:])
        if not taken:
            taken = 1
            _one_by_one(account, run[at : at + 1], origin)
        at += taken


def _hand_over(account: Account, route: Route, run: list[LeafMsg]) -> int:
    """Pass the front of a run to a destination that accepts runs; return the number of messages."""
    if route.groups or route.leaf_links:
        return 0
    if route.simple:
        return _append_frames(account, route, run)
    if len(route.plain) != 1:
        return 0
    (member,) = route.plain
    sub = member.sub
    if member.local or sub.rewrite is not None or not sub.active or not hasattr(sub.dest, "take_run"):
        return 0
    return cast(RunSink, sub.dest).take_run(sub, run)


def _append_frames(account: Account, route: Route, run: list[LeafMsg]) -> int:
    """Append the front of a run to clients' buffers; return the number of messages.

    The frames differ in nothing but the sid, and the subject that the client subscribed to.
    """
    with_header = bool(run[0].header)
    if not route.takes_frames(with_header):
        return 0
    tails = []
    size = 0
    for message in run:
        header, payload, reply = message.header, message.payload, message.reply
        if bool(header) is not with_header or (reply.startswith(PREFIX) and b"@" in reply):
            break
        lead = reply + b" " if reply else b""
        total = len(header) + len(payload)
        size += total
        if with_header:
            tails.append(b"%b%d %d\r\n%b%b\r\n" % (lead, len(header), total, header, payload))
        else:
            tails.append(b"%b%d\r\n%b\r\n" % (lead, total, payload))
    if not tails:
        return 0
    for sub, subject, _ in route.targets:
        account.fan_out.append(sub, subject, tails, size, with_header)
    return len(tails)


def _one_by_one(account: Account, messages: list[LeafMsg], origin: TracedLink) -> None:
    for message in messages:
        account.publish(
            message.subject, message.reply, message.header, message.payload, origin=origin, queues=message.queues
        )
