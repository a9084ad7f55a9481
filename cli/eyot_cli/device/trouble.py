"""Why something does not move, in the words of one cell."""

from __future__ import annotations


def trouble(waiting: str | None, error: str | None, remedy: str | None) -> str:
    """Format the policy that something waits for, else its error and the remedy."""
    if waiting:
        return f"waiting: {waiting}"
    return f"{error}: {remedy}" if error and remedy else error or ""
