"""Why a downstream does not make progress, as far as the origin's server knows, and the remedies."""

from __future__ import annotations

from msgspec import Struct

from eyot_sync.link.state import LinkState

#: A linked downstream with a backlog confirms more often than this, seconds.
SILENT_S = 30.0


class Standing(Struct, kw_only=True):
    """The state of a downstream.

    `downstream`: its server or cluster; `target`: its stream ("": unknown); `link`: the failed link. `behind_s`: for
    how long it has had a backlog without confirmation; 0 while a policy holds it. `passed_over`: messages that it skips
    because it is `ahead` of the stream. `through`: the linked server behind which it is, if it is not linked itself.
    """

    stream: str
    downstream: str
    target: str = ""
    link: LinkState | None = None
    linked: bool = True
    reads: bool = True
    passed_over: int = 0
    ahead: int = 0
    through: str = ""
    behind_s: float = 0.0


def trouble(at: Standing) -> tuple[str, str]:
    """(error, remedy); empty where nothing is wrong."""
    if at.passed_over:
        return (
            f"{at.downstream} had copied up to {at.ahead} of an earlier {at.stream}, and does not take the {at.passed_over} messages that "
            "are stored here under these sequences",
            f"let it copy them under another name (a stream here that sources {at.stream}), or create {at.stream} again with first_seq "
            f"{at.ahead + 1} and publish them again",
        )
    if not at.linked:
        return (at.link.last_error, at.link.remedy) if at.link is not None else ("", "")
    copy = at.target or "its copy"
    if not at.reads:
        return (
            f"{at.through or at.downstream} is linked but {at.downstream + ' ' if at.through else ''}does not read {at.stream} at the moment",
            f"if that lasts, see there whether {copy} still exists and what error it shows (nats stream info); if it is gone for "
            f"good: eyot sync forget {at.stream} {at.downstream}",
        )
    if at.behind_s > SILENT_S:
        return (
            f"{at.downstream} has confirmed nothing for {at.behind_s:.0f} s",
            f"see there whether {copy} or the disk is full (nats stream info), and here what the link carries (eyot status)",
        )
    return "", ""
