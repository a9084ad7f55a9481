"""Compression of leaf links: who agrees on what, what then goes over the wire, and peers that abuse it."""

from __future__ import annotations

import random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_sync.leaf.codec import BEHIND_MAX, BLOCK_MAX_FIRST, UNPACKED_PER_TURN, LeafCodec
from eyot_sync.leaf.compression import LeafCompression, UnknownMode
from eyot_sync.leaf.events import Closed, LeafEvent
from eyot_sync.leaf.session import LeafSession
from eyot_sync.leaf.state import State
from eyot_wire.archive import s2
from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.s2 import chunks, masked_crc
from eyot_wire.frames import LeafMsg
from support.links.leaf_peers import BackToBack, accepting, connect, first_info, soliciting

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
MODES = ["off", "not supported", "accept", "s2_auto", "s2_fast", "s2_better", "s2_best"]
NEAR_S, FAR_S = 0.001, 0.6


def mode(word: str, *thresholds_s: float) -> LeafCompression:
    return LeafCompression(word, thresholds_s) if thresholds_s else LeafCompression(word)


def joined(leaf: LeafCompression, hub: LeafCompression, chunk: int = 1 << 20) -> BackToBack:
    pair = BackToBack(soliciting(compression=leaf), accepting(compression=hub))
    pair.run(chunk=chunk)
    pair.leaf_events.clear()
    pair.hub_events.clear()
    return pair


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("s2_auto", "s2_auto", "s2_auto"),
        ("s2_auto", "", "not supported"),
        ("s2_auto", "not supported", "not supported"),
        ("s2_auto", "off", "off"),
        ("s2_best", "accept", "s2_best"),
        ("s2_best", "s2_fast", "s2_best"),
        ("accept", "accept", "off"),
        ("accept", "s2_auto", "s2_fast"),
        ("accept", "s2_better", "s2_better"),
        ("accept", "s2_uncompressed", "s2_uncompressed"),
        ("off", "s2_auto", "off"),
        ("not supported", "s2_auto", "not supported"),
    ],
)
def test_what_two_sides_agree_on(ours: str, theirs: str, expected: str) -> None:
    assert mode(ours).agreed(theirs) == expected


def test_a_word_that_is_none() -> None:
    with pytest.raises(UnknownMode, match='unsupported route compression mode "zstd"'):
        mode("s2_auto").agreed("zstd")


@pytest.mark.parametrize(
    ("thresholds_s", "levels"),
    [
        ((0.01, 0.05, 0.1), ["s2_uncompressed", "s2_fast", "s2_better", "s2_best"]),
        ((0.0, 0.0, 0.02), ["s2_better", "s2_best", "s2_best", "s2_best"]),
        ((0.0, 0.01), ["s2_fast", "s2_fast", "s2_fast", "s2_fast"]),
        ((0.01,), ["s2_uncompressed"] * 4),
    ],
)
def test_the_round_trip_decides_in_s2_auto(thresholds_s: tuple[float, ...], levels: list[str]) -> None:
    compression = mode("s2_auto", *thresholds_s)
    assert [compression.level("s2_auto", rtt_s) for rtt_s in (0.01, 0.05, 0.1, 0.5)] == levels
    assert compression.level("s2_auto", None) == compression.level("s2_auto", 9.0)
    assert compression.level("s2_fast", 9.0) == "s2_fast"


@pytest.mark.parametrize("hub", MODES)
@pytest.mark.parametrize("leaf", MODES)
def test_every_pair_of_modes_links(leaf: str, hub: str) -> None:
    pair = joined(mode(leaf), mode(hub))
    assert (pair.leaf.is_open, pair.hub.is_open) == (True, True)
    assert pair.leaf.sender.send(b"a", b"", b"", b"x" * 2000)
    wire = pair.leaf.data_to_send()
    s2 = not {leaf, hub} & {"off", "not supported"} and {leaf, hub} != {"accept"}
    assert (b"x" * 2000 not in wire) is (s2 and pair.leaf.compression != "s2_uncompressed")
    assert wire.startswith(b"LMSG") is not s2
    assert s2 is not ({pair.leaf.compression, pair.hub.compression} <= {"off", "not supported"}), (
        "both ends say what it is"
    )
    assert LeafMsg(b"a", b"", b"", b"x" * 2000, ()) in pair.hub.receive(wire, 1.0)


def test_a_near_link_in_s2_auto_never_compresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake included, when the distance is not known yet: it does not load the compressor."""

    def compressed(piece: bytes) -> bytes:
        raise AssertionError(f"compressed {piece[:40]!r}")

    monkeypatch.setattr(s2, "_compressed", compressed)
    pair = joined(mode("s2_auto"), mode("s2_auto"))
    assert pair.leaf.is_open
    assert pair.leaf.sender.send(b"a", b"", b"", b"x" * 2000)
    assert LeafMsg(b"a", b"", b"", b"x" * 2000, ()) in pair.hub.receive(pair.leaf.data_to_send(), 1.0)


MESSAGE = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda word, count: word * count, st.binary(min_size=1, max_size=20), st.integers(0, 9000)),
)


@settings(deadline=None, max_examples=60)
@given(messages=st.lists(MESSAGE, max_size=8), chunk=st.integers(1, 5000), near=st.booleans(), data=st.data())
def test_messages_come_back_whatever_the_pieces(
    messages: list[bytes], chunk: int, near: bool, data: st.DataObject
) -> None:
    compression = mode("s2_auto", NEAR_S * 2) if near else mode("s2_fast")
    pair = joined(compression, mode("s2_best"))
    for payload in messages:
        assert pair.leaf.sender.send(b"a.b", b"", b"", payload)
    received = pair.hub_events
    while wire := pair.leaf.data_to_send(data.draw(st.integers(1, 70_000)), 1.0):
        for start in range(0, len(wire), chunk):
            received += pair.hub.receive(wire[start : start + chunk], 1.0)
        pair.run()  # answers to the marks
    assert [event.payload for event in received if isinstance(event, LeafMsg)] == messages


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_handshake_in_small_pieces(chunk: int) -> None:
    pair = BackToBack(soliciting(compression=mode("s2_auto")), accepting(compression=mode("s2_auto")))
    leaf_said, hub_said = bytearray(), bytearray()
    for session, said in ((pair.leaf, leaf_said), (pair.hub, hub_said)):
        whole = session.data_to_send

        def tapped(*args: object, whole=whole, said=said) -> bytes:  # type: ignore[no-untyped-def]
            data: bytes = whole(*args)
            said += data
            return data

        session.data_to_send = tapped  # type: ignore[method-assign]
    pair.run(chunk=chunk)
    assert (pair.leaf.is_open, pair.hub.is_open) == (True, True)
    clear, s2 = bytes(leaf_said).split(b"\r\n", 1)
    assert clear == b'INFO {"client_id":5,"compression":"s2_auto"}'
    assert s2.startswith(IDENTIFIER)
    assert bytes(hub_said).split(b"\r\n", 1)[1].startswith(IDENTIFIER)


def test_only_as_much_as_the_link_carries_is_under_way_however_well_it_shrinks() -> None:
    pair = joined(mode("s2_fast"), mode("s2_fast"))
    rng = random.Random(1)
    readings = [
        b'{"temperature":%d,"pressure":%d,"status":"ok"}' % (rng.randint(600, 800), number) for number in range(9000)
    ]
    for reading in readings:
        pair.leaf.sender.send(b"readings.a", b"", b"", reading)
    sizes, window = [], pair.leaf.window
    for _ in range(40):
        while wire := pair.leaf.data_to_send(1 << 20, 1.0):
            sizes.append(len(wire))
            assert window.under_way <= window.window * 1.5
            pair.hub.receive(wire, 1.0)
        pair.run()
    assert sum(map(len, readings)) > 2 * sum(sizes)
    assert pair.leaf.codec.ratio > 2


# -- bad input ---------------------------------------------------------------------------------------------------------


def asked(hub: str = "s2_auto", info: bytes = b'INFO {"client_id":3,"compression":"s2_auto"}\r\n') -> LeafSession:
    """A hub whose peer has said its last words in clear."""
    session = accepting(compression=mode(hub))
    session.data_to_send()
    session.receive(info, 0.1)
    return session


def closed(events: list[LeafEvent]) -> str:
    assert isinstance(events[-1], Closed), events
    return events[-1].reason


def block(data: bytes) -> bytes:
    content = masked_crc(data).to_bytes(4, "little") + bytes(cramjam.snappy.compress_raw(data))
    return b"\x00" + len(content).to_bytes(3, "little") + content


def test_a_peer_that_asks_for_what_was_not_offered() -> None:
    session = accepting()
    session.data_to_send()
    assert closed(session.receive(b'INFO {"compression":"s2_auto"}\r\n', 0.1)) == "Authorization Violation"


def test_a_peer_that_asks_for_what_there_is_not() -> None:
    session = accepting(compression=mode("s2_auto"))
    session.data_to_send()
    said = closed(session.receive(b'INFO {"compression":"zstd"}\r\n', 0.1))
    assert said == 'unsupported route compression mode "zstd"'
    assert b"-ERR 'unsupported route" in session.data_to_send()


def test_a_peer_that_asks_twice() -> None:
    session = asked()
    assert (
        closed(session.receive(IDENTIFIER + block(b'INFO {"compression":"s2_auto"}\r\n'), 0.2))
        == "Authorization Violation"
    )


def test_a_peer_that_asks_and_stays_in_clear() -> None:
    session = accepting(compression=mode("s2_auto"))
    session.data_to_send()
    assert closed(session.receive(b'INFO {"compression":"off"}\r\nPING\r\n', 0.1)) == "Authorization Violation"
    session = accepting(compression=mode("s2_auto"))
    session.data_to_send()
    session.receive(b'INFO {"compression":"off"}\r\n', 0.1)
    session.receive(connect(), 0.2)
    assert session.state is State.WAIT_VERDICT


def test_a_peer_that_goes_on_in_clear() -> None:
    session = accepting(compression=mode("s2_auto"))
    session.data_to_send()
    said = session.receive(b'INFO {"compression":"s2_auto"}\r\n' + connect(), 0.1)
    assert closed(said) == "Authorization Violation"
    assert closed(asked().receive(connect(), 0.2)) == "s2: corrupt input"


def test_a_peer_that_never_goes_on() -> None:
    session = asked()
    assert session.next_deadline == 2.0
    assert closed(session.tick(2.0)) == "Authentication Timeout"
    leaf = soliciting(compression=mode("s2_auto"))
    leaf.receive(first_info(compression="s2_auto"), 0.1)
    assert leaf.state is State.WAIT_S2
    assert closed(leaf.tick(2.1)) == "no INFO in S2 from the peer in time"


@pytest.mark.parametrize(
    "wire",
    [
        b"\x00\x01\x02",
        IDENTIFIER + b"\x00\x05\x00\x00abcdx",
        IDENTIFIER + b"\x02\x00\x00\x00",
        IDENTIFIER + block(b"\r\n")[:-1] + b"!",
    ],
)
def test_what_is_not_s2_ends_the_link(wire: bytes) -> None:
    assert closed(asked().receive(wire + b"\0" * 8, 0.2)).startswith("s2: ")


def test_before_anybody_is_known_a_block_stands_for_little() -> None:
    assert (
        closed(asked().receive(IDENTIFIER + block(b" " * (BLOCK_MAX_FIRST + 1)), 0.2))
        == "s2: decoded block is too large"
    )
    assert closed(asked().receive(IDENTIFIER + b"\x00\xff\xff\xff", 0.2)) == "s2: corrupt input"


def test_a_turn_unpacks_so_much_and_the_next_one_goes_on() -> None:
    pair = joined(mode("s2_fast"), mode("s2_fast"))
    message = b"LMSG a 1000000\r\n" + b"\0" * 1_000_000 + b"\r\n"
    count = 40
    got = [
        event for event in pair.hub.receive(chunks([message * count], compress=True), 1.0) if isinstance(event, LeafMsg)
    ]
    assert len(got) * 1_000_000 <= UNPACKED_PER_TURN + 70_000
    turns = 1
    while pair.hub.next_deadline <= 1.0:
        got += [event for event in pair.hub.tick(1.0) if isinstance(event, LeafMsg)]
        turns += 1
    assert len(got) == count
    assert turns == 3


def test_who_sends_more_than_can_be_unpacked_is_sent_away() -> None:
    codec = LeafCodec(mode("s2_fast"))
    assert codec.agree("s2_fast")
    codec.established()
    zeros = block(b"\0" * (4 << 20))
    flood = zeros * (BEHIND_MAX // len(zeros) // 2)
    codec_fed = [list(codec.unpack(IDENTIFIER + flood))]
    with pytest.raises(ArchiveError, match="more than can be unpacked"):
        codec_fed += [list(codec.unpack(flood)) for _ in range(3)]
    assert all(sum(map(len, parts)) <= UNPACKED_PER_TURN for parts in codec_fed)
