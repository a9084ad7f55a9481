"""Time zones by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import tzinfo


def time_zone(name: str) -> tzinfo:
    """Return a zone of the IANA database. Raises KeyError (there is no such zone), ValueError (no name of a zone) and OSError."""
    from zoneinfo import ZoneInfo  # here: it brings half a megabyte, and few devices use zones

    return ZoneInfo(name)
