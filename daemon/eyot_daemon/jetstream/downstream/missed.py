"""Whether the known downstreams of an account's streams are away, as a leaf link that comes up has to know."""

from __future__ import annotations

from collections.abc import Iterable

from eyot_daemon.jetstream.downstream.tracker import DownstreamTracker


def messages_missed(copied: Iterable[DownstreamTracker], *, compares_identities: bool) -> bool:
    """Return whether a known downstream of these streams has no consumer now. Without any downstream, one may be about to start.

    `compares_identities`: it does so by its pending request. Then False if a stream may have been created again since it
    was last heard: a stream that nobody reads, and that is younger than the last confirmation of the others.
    """
    copied = list(copied)
    if compares_identities:
        heard_ns = max((one.records.confirmed_at_ns for one in copied), default=0)
        if any(not one.records.known and one.created_ns > heard_ns for one in copied):
            return False
    return any(one.missed for one in copied) or (bool(copied) and not any(one.records.known for one in copied))
