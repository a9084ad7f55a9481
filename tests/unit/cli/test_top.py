"""`eyot top`: rates between two readings, and lines that fit a terminal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eyot_cli.top.figures import Connection, Connz, Rates, Varz, reading
from eyot_cli.top.screen import fitted, lines


def varz(second: int, server_id: str = "S", **members: Any) -> Varz:
    return Varz(server_id, "device", "2.14.0", f"2026-11-23T10:00:{second:02}.5Z", uptime="4s", **members)


def connz(second: int, *connections: Connection, total: int | None = None) -> Connz:
    return Connz(f"2026-11-23T10:00:{second:02}Z", len(connections) if total is None else total, list(connections))


def client(cid: int, start_s: int = 0, **members: Any) -> Connection:
    return Connection(cid, kind="Client", ip="10.0.0.9", port=7, start=f"2026-11-23T10:00:{start_s:02}Z", **members)


def test_rates_between_two_readings() -> None:
    before = varz(10, in_msgs=100, out_bytes=5), connz(10, client(1, in_msgs=10, out_bytes=2000))
    found = reading(varz(14, in_msgs=300, out_bytes=9), connz(14, client(1, in_msgs=30, out_bytes=2400)), before)
    assert found.per_second == Rates(50.0, 0.0, 0.0, 1.0)
    assert found.connections[0].per_second == Rates(5.0, 0.0, 0.0, 100.0)


def test_what_a_new_connection_did_is_of_this_reading_and_what_an_unlisted_one_did_is_unknown() -> None:
    before = varz(10), connz(10, client(1), total=2)
    now = connz(12, client(2, start_s=3, in_msgs=900), client(3, start_s=11, in_msgs=8))
    unlisted, new = reading(varz(12), now, before).connections
    assert unlisted.per_second == Rates()
    assert new.per_second.in_msgs == 4.0


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, varz(10)), (varz(10, "other", in_msgs=3), varz(12)), (varz(20, in_msgs=3), varz(10, in_msgs=9))],
    ids=["first reading", "restarted server", "clock set back"],
)
def test_rates_that_are_unknown(before: Varz | None, now: Varz) -> None:
    earlier = None if before is None else (before, connz(9, client(1)))
    assert reading(now, connz(12), earlier).per_second == Rates()


def test_counters_that_began_anew_give_no_negative_rates() -> None:
    found = reading(varz(12, in_msgs=1), connz(12), (varz(10, in_msgs=9), connz(10)))
    assert found.per_second == Rates(0.0, 0.0, 0.0, 0.0)


def test_a_time_that_is_none() -> None:
    with pytest.raises(ValueError, match="noon"):
        reading(varz(12), Connz("noon", 0, []), (varz(10), connz(10)))


def test_lines() -> None:
    named = client(
        7, name="pump\x1b[2J" + "x" * 50, account="A", authorized_user="app", subscriptions=2, in_msgs=1200,
        subscriptions_list=["b", "a\n"], lang="go", version="1.48",
    )  # fmt: skip
    found = reading(varz(12, in_msgs=4, mem=1 << 20), connz(12, named, total=3), (varz(10), connz(10, client(7))))
    text = lines(found, "subs", subjects=True)
    assert text[0] == "device  version 2.14.0  up 4s  processor 0.0 %  memory 1.0 MiB"
    assert text[1] == "messages in:  4, 0 B; 2.0 msgs/s, 0 B/s"
    assert text[3].endswith("sorted by subs")
    assert " ".join(text[5].split()) == (
        "CID HOST NAME ACCOUNT USER SUBS PENDING MSGS TO FROM MSGS/S TO FROM BYTES/S TO FROM RTT UPTIME IDLE CLIENT"
    )
    name = "pump\\x1b[2J" + "x" * 20 + "…"
    assert text[6].split() == ["7", "10.0.0.9:7", name, "A", "app", "2", "0", "B", "0", "1,200", "0.0", "600", "0", "B", "0", "B", "go", "1.48"]  # fmt: skip
    assert text[7:] == ["    a\\n", "    b", "2 more connections: --conns shows more"]
    assert len({line.index("go 1.48") if "go 1.48" in line else line.index("CLIENT") for line in text[5:7]}) == 1


def test_lines_are_cut_to_the_terminal() -> None:
    assert fitted(["one", "two", "three", "four"], 3, 3) == ["one", "two", "2 m"]
    assert fitted(["one", "two"], 80, 2) == ["one", "two"]


def test_members_of_other_versions() -> None:
    """Older servers leave members out, newer ones have more of them."""
    page = b'{"server_id":"S","server_name":"s","version":"2.9.10","now":"2026-11-23T10:00:00Z","gateway":{},"new":1}'
    assert msgspec.json.decode(page, type=Varz).leafnodes == 0
