"""What a device's own status tells of its streams: who needs somebody comes first."""

from __future__ import annotations

import msgspec
import pytest

from eyot_daemon.config.jetstream import EyotStatusOptions
from eyot_daemon.monitor.device_status import device_status, stream_statuses
from eyot_daemon.router.broker import Broker
from eyot_wire.status import DeviceStatus, StreamStatus, SyncStatus


def stream(name: str) -> StreamStatus:
    return StreamStatus(account="$G", name=name, messages=10, bytes=100, first_seq=1, last_seq=10, committed_seq=10)


def downstream(name: str, peer: str = "hub", **more: object) -> SyncStatus:
    return msgspec.convert({"account": "$G", "stream": name, "peer": peer, **more}, SyncStatus)


def test_a_stream_is_told_with_its_downstream_that_is_furthest_behind() -> None:
    out = [
        downstream("S", "near", confirmed_seq=9, backlog=1, never_arrived=2),
        downstream("S", "far", confirmed_seq=3, backlog=7, backlog_bytes=70, oldest_s=60.0, eta_s=5.0, error="full"),
    ]
    [found] = stream_statuses([stream("S")], out)
    assert (found.peer, found.confirmed_seq, found.backlog, found.backlog_bytes) == ("far", 3, 7, 70)
    assert (found.oldest_s, found.eta_s, found.error) == (60.0, 5.0, "full")
    assert found.never_arrived == 2  # of all downstreams


def test_a_stream_that_nobody_replicates_has_no_backlog_instead_of_none_left() -> None:
    [found] = stream_statuses([stream("S")], [])
    assert (found.peer, found.confirmed_seq, found.backlog, found.oldest_s) == ("", None, None, None)


def test_streams_that_need_somebody_come_first() -> None:
    out = [
        downstream("SYNCED"),
        downstream("BEHIND", backlog=5),
        downstream("FURTHER", backlog=50),
        downstream("FAILING", backlog=1, error="full"),
        downstream("LOST", never_arrived=1),
    ]
    names = ["ALONE", "SYNCED", "BEHIND", "FURTHER", "FAILING", "LOST"]
    found = stream_statuses(map(stream, names), out)
    assert [each.name for each in found] == ["LOST", "FAILING", "FURTHER", "BEHIND", "SYNCED", "ALONE"]


@pytest.mark.parametrize(("told", "left_out"), [(0, 3), (2, 1), (20, 0)])
def test_a_status_tells_of_so_many_streams_and_counts_the_others(told: int, left_out: int) -> None:
    broker = Broker()
    broker.providers.streams = lambda: [stream(name) for name in "ABC"]
    broker.providers.downstream = lambda: [downstream("A", backlog=3, eta_s=4.0), downstream("B", backlog=1)]
    status = device_status(broker, EyotStatusOptions(subject=b"fleet.pump.status", streams=told), number=7)
    again = msgspec.json.decode(msgspec.json.encode(status), type=DeviceStatus)
    assert again == status
    assert (len(status.streams), status.streams_left_out, status.number) == (3 - left_out, left_out, 7)
    assert status.boot == broker.server_id
    assert status.eta_s is None  # that of B is not known
    assert status.memory_bytes
