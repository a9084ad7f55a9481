"""Names of hosts in addresses that people write."""

from __future__ import annotations


def can_be_host(text: str) -> bool:
    """Return whether a resolver can be asked for this name: its parts between dots have 1 to 63 characters (RFC 1035)."""
    try:
        return bool(text) and bool(text.encode("idna"))
    except UnicodeError:
        return False
