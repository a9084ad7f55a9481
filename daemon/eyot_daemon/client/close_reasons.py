"""Close reasons in the words of nats-server's pages and events, which differ from the `-ERR` sent to the client."""

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
    """Return the reason for the pages, from the text of the preceding `-ERR`; "" means a malformed frame."""
    return _REASONS.get(told, told) or "Protocol Violation"
