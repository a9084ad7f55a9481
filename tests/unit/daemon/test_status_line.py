"""The line of `systemctl status`: links, backlog and disk, as the status pages have them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eyot_daemon.monitor.status_line import status_line
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import Providers
from eyot_wire.status import LinkStatus, StoreStatus, SyncStatus


class Told:
    """A broker of which the line takes nothing but what providers say."""

    def __init__(self) -> None:
        self.providers = Providers()

    def line(self) -> str:
        return status_line(cast(Broker, self))


def link(name: str, state: str, **more: Any) -> LinkStatus:
    return LinkStatus(name=name, account="$G", state=state, since="", age_s=0.0, **({"role": "spoke"} | more))


def downstream(**more: Any) -> SyncStatus:
    return SyncStatus(account="$G", stream="S", peer="hub", **more)


def test_what_is_not_configured_is_left_out() -> None:
    assert Told().line() == "Serving"


def test_links() -> None:
    told = Told()
    told.providers.links = lambda: [
        link("hub", "up"),
        link("spare", "waiting", last_error="connection refused"),
        link("another device", "up", role="hub"),
    ]
    assert told.line() == "Serving; links: 1 of 2 up (spare: connection refused)"


@pytest.mark.parametrize(
    ("downstreams", "line"),
    [
        ([downstream()], "backlog: none"),
        ([downstream(uncertain=True)], "backlog: unconfirmed"),
        ([downstream(backlog=3), downstream(backlog=12_345, oldest_s=200.0)], "backlog: 12,345 messages, oldest 3 min"),
        ([downstream(backlog=3, oldest_s=4.4)], "backlog: 3 messages, oldest 4 s"),
        ([downstream(backlog=3, oldest_s=90_000.0, uncertain=True)], "backlog: at least 3 messages, oldest 1 d"),
    ],
)
def test_backlog(downstreams: list[SyncStatus], line: str) -> None:
    told = Told()
    told.providers.downstream = lambda: downstreams
    assert told.line() == f"Serving; {line}"


@pytest.mark.parametrize(
    ("store", "line"),
    [
        (StoreStatus(path="/x", free_bytes=3_140_000_000, total_bytes=31_000_000_000), "disk: 3.1 GB free of 31 GB"),
        (StoreStatus(path="/x", free_bytes=0, total_bytes=7_900_000), "disk: 0 B free of 7.9 MB"),
        (StoreStatus(path="/x", error="no room left", free_bytes=0, total_bytes=1), "store: no room left"),
        (StoreStatus(path="/x"), ""),
    ],
)
def test_disk(store: StoreStatus, line: str) -> None:
    told = Told()
    told.providers.store = lambda: store
    assert told.line() == "; ".join(filter(None, ("Serving", line)))
