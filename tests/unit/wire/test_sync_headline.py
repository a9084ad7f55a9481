"""The first line of the local page: for each state its words, and never more than `eyot sync` says."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from eyot_wire.status import CertificateStatus, LinkStatus, StoreStatus, SyncReport, SyncStatus, all_synced
from eyot_wire.sync_headline import Headline, spoken_span, sync_headline

DOWN = LinkStatus(name="hub", account="A", role="spoke", state="waiting", age_s=7300.0)


def out(stream: str = "R", **changes: Any) -> SyncStatus:
    return SyncStatus(account="A", stream=stream, **({"linked": True, "peer": "hub"} | changes))


EXPIRED = CertificateStatus(file="c.pem", trouble="has expired: it was valid until noon")
SOON = CertificateStatus(file="d.pem", trouble="expires soon: it is valid until noon")


def said(
    *each: SyncStatus,
    down: list[LinkStatus] | None = None,
    store: StoreStatus | None = None,
    certificates: tuple[CertificateStatus, ...] = (),
) -> Headline:
    found = list(each)
    report = SyncReport(
        server_name="s",
        now="",
        synced=all_synced(found),
        out=found,
        links_down=down or [],
        never_arrived=sum(one.never_arrived for one in found),
    )
    return sync_headline(report, store, certificates)


@pytest.mark.parametrize(
    ("headline", "state", "words"),
    [
        (said(out()), "synced", "Synced: hub has everything"),
        (said(out(), out(peer="b")), "synced", "Synced: 2 servers have everything"),
        (said(out(linked=False), down=[DOWN]), "synced", "Synced: hub has everything; link down for 2 h"),
        (said(out(), certificates=(SOON,)), "synced", "Synced: hub has everything"),
        (
            said(out(), certificates=(EXPIRED, SOON)),
            "attention",
            "Synced: hub has everything; 1 certificate not valid",
        ),
        (
            said(out(), store=StoreStatus(path="/s", offline=["A > R"])),
            "attention",
            "Synced: hub has everything; 1 stream out of service",
        ),
        (
            said(certificates=(EXPIRED,)),
            "unread",
            "Not synced: no mirror or source elsewhere replicates from here; 1 certificate not valid",
        ),
        (said(out(never_arrived=500)), "incomplete", "Synced, but 500 messages never arrived"),
        (said(out(never_arrived=1)), "incomplete", "Synced, but 1 message never arrived"),
        (said(), "unread", "Not synced: no mirror or source elsewhere replicates from here"),
        (
            said(down=[DOWN, DOWN]),
            "unread",
            "Not synced: no mirror or source elsewhere replicates from here; 2 links down for 2 h",
        ),
        (said(out(backlog=3, oldest_s=61.0)), "behind", "1 stream behind, oldest message 1 min"),
        (
            said(out(backlog=3, oldest_s=7300.0, eta_s=240.0), out("E", backlog=1, oldest_s=9.0, eta_s=2.0)),
            "behind",
            "2 streams behind, oldest message 2 h, synced in about 4 min",
        ),
        (
            said(out(backlog=3, oldest_s=7300.0, eta_s=240.0), out("E", backlog=1, oldest_s=9.0)),
            "behind",
            "2 streams behind, oldest message 2 h",
        ),
        (
            said(out(backlog=3, oldest_s=7300.0, linked=False), down=[DOWN]),
            "behind",
            "Not synced: link down for 2 h; 1 stream behind, oldest message 2 h",
        ),
        (
            said(out(backlog=3, oldest_s=7300.0), down=[DOWN]),
            "behind",
            "1 stream behind, oldest message 2 h; link down for 2 h",
        ),
        (said(out(uncertain=True)), "unknown", "Cannot tell: hub may not have what it confirmed of R"),
        (said(out(uncertain=True, backlog=5)), "unknown", "Cannot tell: hub may not have what it confirmed of R"),
        (
            said(out(uncertain=True), out("E", uncertain=True)),
            "unknown",
            "Cannot tell: 2 downstreams may not have what they confirmed",
        ),
        (
            said(out(uncertain=True), out("E", backlog=1)),
            "behind",
            "1 stream behind; cannot tell: hub may not have what it confirmed of R",
        ),
        (
            said(out(), store=StoreStatus(path="/s", error="No space left on device")),
            "failing",
            "Cannot store messages: No space left on device. Synced: hub has everything",
        ),
    ],
)
def test_words(headline: Headline, state: str, words: str) -> None:
    assert (headline.state, headline.text) == (state, words)


def test_it_never_claims_more_than_eyot_sync() -> None:
    kinds = [{"backlog": backlog, "uncertain": uncertain} for backlog, uncertain in product((0, 2), (False, True))]
    for size in range(4):
        for chosen in product(kinds, repeat=size):
            found = [out(f"S{number}", **kind) for number, kind in enumerate(chosen)]
            headline = said(*found)
            assert (headline.state == "synced") == all_synced(found)
            assert headline.text.startswith("Synced") == all_synced(found)


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1.0, "0 s"), (59.9, "59 s"), (60.0, "1 min"), (7199.0, "1 h"), (200_000.0, "2 d")]
)
def test_spans(seconds: float, words: str) -> None:
    assert spoken_span(seconds) == words
