"""Whether everything is synced, in one line of words: the first line of the local page.

The rule is that of `eyot sync`: `all_synced` and `SyncStatus.is_synced`. A line never claims more than the report does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from eyot_wire.quantities import counted
from eyot_wire.status import CertificateStatus, LinkStatus, StoreStatus, SyncReport, SyncStatus

#: `synced`; `attention`: synced, and a stream or a certificate is not in order; `incomplete`: synced, and messages were lost; `behind`; `unknown`: the position of a downstream is in doubt;
#: `unread`: no downstream replicates from here; `failing`: messages cannot be stored
State = Literal["synced", "attention", "incomplete", "behind", "unknown", "unread", "failing"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Headline(Struct, frozen=True):
    """The line, and its meaning for a program."""

    state: State
    text: str


def sync_headline(
    report: SyncReport, store: StoreStatus | None, certificates: Sequence[CertificateStatus] = ()
) -> Headline:
    """Return the state of synchronization; a failing store comes first, because it refuses new messages.

    With `certificates`, the server's own, nothing that fails stands behind a line that says only that all is well.
    """
    state, text = _synced(report)
    if failures := [*_out_of_service(store), *_invalid(certificates)]:
        state, text = "attention" if state == "synced" else state, "; ".join([text, *failures])
    if store is not None and store.error:
        return Headline("failing", f"Cannot store messages: {store.error}. {text}")
    return Headline(state, text)


def spoken_span(seconds: float) -> str:
    """Return a duration in its largest unit, rounded down: `45 s`, `12 min`, `2 h`, `3 d`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _out_of_service(store: StoreStatus | None) -> Iterator[str]:
    if store is not None and store.offline:
        yield f"{counted(len(store.offline), 'stream')} out of service"


def _invalid(certificates: Sequence[CertificateStatus]) -> Iterator[str]:
    if failed := sum(each.is_invalid for each in certificates):
        yield f"{counted(failed, 'certificate')} not valid"


def _synced(report: SyncReport) -> tuple[State, str]:
    down = _links_down(report.links_down)
    if not report.out:
        text = "Not synced: no mirror or source elsewhere replicates from here"
        return "unread", f"{text}; {down}" if down else text
    if report.synced:
        peers = sorted({each.peer for each in report.out})
        who = f"{peers[0]} has" if len(peers) == 1 else f"{counted(len(peers), 'server')} have"
        tail = f"; {down}" if down else ""
        if report.never_arrived:
            return "incomplete", f"Synced, but {counted(report.never_arrived, 'message')} never arrived{tail}"
        return "synced", f"Synced: {who} everything{tail}"
    behind = [each for each in report.out if each.backlog and not each.uncertain]
    unknown = [each for each in report.out if each.uncertain]
    if not behind:
        return "unknown", f"Cannot tell: {_unknown(unknown)}{f'; {down}' if down else ''}"
    parts = [_behind(behind)]
    if unknown:
        parts.append(f"cannot tell: {_unknown(unknown)}")
    if down and not any(each.linked for each in behind):
        return "behind", "; ".join([f"Not synced: {down}", *parts])
    return "behind", "; ".join(parts + ([down] if down else []))


def _behind(behind: list[SyncStatus]) -> str:
    streams = len({(each.account, each.stream) for each in behind})
    text = f"{counted(streams, 'stream')} behind"
    ages = [each.oldest_s for each in behind if each.oldest_s is not None]
    if ages:
        text += f", oldest message {spoken_span(max(ages))}"
    etas = [each.eta_s for each in behind]
    known = [eta for eta in etas if eta is not None]
    if known and len(known) == len(etas):
        text += f", synced in about {spoken_span(max(known))}"
    return text


def _unknown(unknown: list[SyncStatus]) -> str:
    """Say which position is in doubt; several are counted."""
    first = unknown[0]
    if len(unknown) > 1:
        return f"{counted(len(unknown), 'downstream')} may not have what they confirmed"
    return f"{first.peer} may not have what it confirmed of {first.stream}"


def _links_down(links: list[LinkStatus]) -> str:
    if not links:
        return ""
    ages = [link.age_s for link in links if link.age_s is not None]
    text = "link down" if len(links) == 1 else f"{counted(len(links), 'link')} down"
    return f"{text} for {spoken_span(max(ages))}" if ages else text
