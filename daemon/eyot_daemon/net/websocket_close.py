"""The status of a WebSocket's CLOSE frame, from the reason why a connection ends; the same table as nats-server's.

Reasons without an entry are the server's own affair: 1011.
"""

from __future__ import annotations

from wsproto.frame_protocol import CloseReason

from eyot_daemon.net.transport import (
    CLIENT_CLOSED,
    READ_ERROR,
    SERVER_SHUTDOWN,
    SLOW_DEADLINE,
    SLOW_PENDING,
    WRITE_ERROR,
)

_STATUSES = {
    CLIENT_CLOSED: CloseReason.NORMAL_CLOSURE,
    "Authentication Timeout": CloseReason.POLICY_VIOLATION,
    "Authentication Failure": CloseReason.POLICY_VIOLATION,
    "Authorization Violation": CloseReason.POLICY_VIOLATION,  # a leaf link's word for it
    "Authentication Expired": CloseReason.POLICY_VIOLATION,
    "Credentials Revoked": CloseReason.POLICY_VIOLATION,
    "Missing Account": CloseReason.POLICY_VIOLATION,
    SLOW_PENDING: CloseReason.POLICY_VIOLATION,
    SLOW_DEADLINE: CloseReason.POLICY_VIOLATION,
    "Maximum Account Connections Exceeded": CloseReason.POLICY_VIOLATION,
    "Maximum Connections Exceeded": CloseReason.POLICY_VIOLATION,
    "Maximum Control Line Exceeded": CloseReason.POLICY_VIOLATION,
    "Maximum Subscriptions Exceeded": CloseReason.POLICY_VIOLATION,
    "Parse Error": CloseReason.PROTOCOL_ERROR,
    "Protocol Violation": CloseReason.PROTOCOL_ERROR,
    "Bad Client Protocol Version": CloseReason.PROTOCOL_ERROR,
    "Maximum Message Payload Exceeded": CloseReason.MESSAGE_TOO_BIG,
    READ_ERROR: CloseReason.GOING_AWAY,
    WRITE_ERROR: CloseReason.GOING_AWAY,
    "Stale Connection": CloseReason.GOING_AWAY,
    SERVER_SHUTDOWN: CloseReason.GOING_AWAY,
}


def close_status(reason: str) -> CloseReason:
    """Return the status for a reason in the words of the pages."""
    return _STATUSES.get(reason, CloseReason.INTERNAL_ERROR)
