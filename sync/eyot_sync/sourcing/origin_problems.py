"""Descriptions of an origin's state: errors that stop replication, and notes about their consequences."""

from __future__ import annotations

from eyot_wire.jetstream.errors import ApiError

_WAYS_ON = (
    "delete the mirror and create it again, remove `mirror` to keep what it holds, or have it go on after that with the metadata "
    "`eyot.origin_behind: skip`"
)


def problem(text: str) -> ApiError:
    return ApiError(code=503, err_code=10000, description=text)


def unreachable(api: str) -> ApiError:
    return problem(f"no interest in {api}: link down, or not exported")


def ends_before(end: int, copied: int) -> ApiError:
    """Return the error while the origin's identity is unknown, so that either cause is possible."""
    return problem(f"the origin ends at {end}, before {copied} that was copied: it was re-created or lost messages")


def mirror_of_another_epoch(created: str, before: str, held: int) -> ApiError:
    return problem(
        f"the origin was re-created at {created}; this mirror holds messages up to {held} of {_former(before)}: "
        f"{_WAYS_ON}"
    )


def mirror_of_a_lost_end(end: int, held: int) -> ApiError:
    return problem(
        f"the origin ended at {end} when it was asked for what follows {held}, the last that this mirror holds: it was restored "
        f"or lost messages, and stores others in their place; {_WAYS_ON}"
    )


def mirror_of_other_messages(held: int) -> ApiError:
    return problem(
        f"the origin has another message under {held}, or just before it, than this mirror: it was restored or lost messages, and gave sequences out again; "
        f"{_WAYS_ON}"
    )


def note_set_back(held: int) -> str:
    return (
        f"the origin has another message under {held}, or just before it, than was copied: it was restored or lost messages; what it stored after that "
        f"one is copied"
    )


def _former(created: str) -> str:
    """Describe a former epoch of the origin: its creation time, or an identity without one."""
    return f"the one created at {created}" if ":" in created else "an earlier one"


def note_new_epoch(created: str, before: str, held: int) -> str:
    return f"the origin was re-created at {created}: copying it from its beginning, after {held} of {_former(before)}"


def note_skips_epoch(created: str, held: int) -> str:
    return f"the origin was re-created at {created}: of it, only what comes after {held} is copied"


def note_skips_end(end: int, held: int) -> str:
    return f"the origin lost what came after {end}: of what it stored since, up to {held} is not copied"
