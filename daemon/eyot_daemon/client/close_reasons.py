"""Why a connection ended, in the words of nats-server's pages and events, which are not those that the client is told."""

from __future__ import annotations

_REASONS = {
    "Authorization Violation": "Authentication Failure",
    "User Authentication Expired": "Authentication Expired",
    "Account Authentication Expired": "Authentication Expired",
    "User Authentication Revoked": "Credentials Revoked",
    "Unknown Protocol Operation": "Protocol Violation",
    "Maximum Payload Violation": "Maximum Message Payload Exceeded",
    "maximum control line exceeded": "Maximum Control Line Exceeded",
    "maximum connections exceeded": "Maximum Connections Exceeded",
    "maximum account active connections exceeded": "Maximum Account Connections Exceeded",
    "no responders requires headers support": "No Responders Requires Headers",
    "invalid client protocol": "Bad Client Protocol Version",
}


def close_reason(told: str) -> str:
    """The reason for the pages, from the text of the `-ERR` that came before; "" is a frame that breaks the protocol."""
    return _REASONS.get(told, told) or "Protocol Violation"
