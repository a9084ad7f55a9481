"""Headers and origins of a read as columns, against the wire's parsers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_hub.columns import StreamLabels, batch
from eyot_hub.frame_columns import LEAD, TAIL, FrameColumns
from eyot_hub.jetstream import Config, Source, State, StreamInfo
from eyot_hub.origins import Origin, Origins, domain_of_prefix
from eyot_wire import headers
from eyot_wire.frames import encode_msg
from eyot_wire.jetstream.stream_source import index_name
from support.jetstream.ack_replies import encode_ack_reply

NO_ORIGINS = Origins()
names = st.text("ABCxyz-", min_size=1, max_size=6)
values = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
blocks = st.one_of(
    st.just(b""),
    st.lists(st.tuples(names, values), min_size=1, max_size=4).map(lambda fields: headers.build(fields=fields)),
    # Not as ADR-4 has them: no end, no colon, no name.
    st.sampled_from(
        [b"NATS/1.0\r\nA: 1", b"NATS/1.0\r\nnocolon\r\n\r\n", b"NATS/1.0\r\n: v\r\n\r\n", b"NATS/1.0\r\n\r\n"]
    ),
)


def rows_of(blocks: list[bytes], origins: Origins = NO_ORIGINS) -> list[dict[str, object]]:
    frames = b"".join(
        encode_msg(b"s", b"d", encode_ack_reply(b"S", b"C", 1, 100 + number, number + 1, 7, 0), block, b"p:\r\n")
        for number, block in enumerate(blocks)
    )
    buffer = bytearray(LEAD) + bytearray(frames) + bytearray(TAIL)
    scan = FrameColumns(b"d", b"S", b"C").scan(buffer, LEAD, LEAD + len(frames))
    assert not scan.others
    result: list[dict[str, object]] = batch(
        buffer, scan.rows, StreamLabels("S", "hub", "A", origins), with_headers=True
    ).to_pylist()
    return result


def expected(block: bytes) -> list[tuple[str, str]] | None:
    if not block:
        return None
    try:
        fields = list(headers.parse(block))
    except headers.HeaderError:
        return [("", block.decode("utf-8", "replace"))]
    merged: dict[str, str] = {}
    for name, value in fields:
        text = value.decode("utf-8", "replace")
        key = name.decode("utf-8", "replace")
        merged[key] = f"{merged[key]}, {text}" if key in merged else text
    return list(merged.items())


@settings(max_examples=300, deadline=None)
@given(st.lists(blocks, min_size=1, max_size=6))
def test_headers_are_what_the_parser_finds(given_blocks: list[bytes]) -> None:
    assert [row["headers"] for row in rows_of(given_blocks)] == [expected(block) for block in given_blocks]


def source_block(value: str) -> bytes:
    return headers.build(fields=[("Nats-Msg-Id", "m"), ("Nats-Stream-Source", value)])


EDGE = index_name("READINGS", "$JS.edge-1.API")
ORIGINS = Origins({EDGE: Origin("READINGS", "edge-1"), "LOCAL": Origin("LOCAL", "hub")}, None, "hub")


@pytest.mark.parametrize(
    ("value", "origin"),
    [
        (f"{EDGE} 17", ("edge-1", "READINGS", 17)),
        (f"{EDGE} 17 > >", ("edge-1", "READINGS", 17)),
        (f"{EDGE} 17 > > a.b", ("edge-1", "READINGS", 17)),
        (f"{EDGE} 17 a.> b.> a.b identity", ("edge-1", "READINGS", 17)),
        ("LOCAL 3 > > x", ("hub", "LOCAL", 3)),
        ("GONE:abcdefgh 3 > > x", ("unknown:abcdefgh", "GONE", 3)),
        ("$JS.ACK.OLD.cons.1.9.2.1700000000000000000.0", ("hub", "OLD", 9)),
        ("nonsense", (None, None, None)),
    ],
)
def test_origins_of_every_generation(value: str, origin: tuple[object, ...]) -> None:
    rows = rows_of(
        [b"", source_block(value), headers.build(fields=[("A", "1")]), source_block(f"{EDGE} 5 > > y")], ORIGINS
    )
    found = [(row["origin_domain"], row["origin_stream"], row["origin_sequence"]) for row in rows]
    assert found == [(None, None, None), origin, (None, None, None), ("edge-1", "READINGS", 5)]


def test_a_mirror_keeps_its_origins_sequences() -> None:
    """Whoever published to the mirror's origin may have written the header."""
    mirror = Origins({}, Origin("READINGS", "edge-1"), "hub")
    rows = rows_of([b"", source_block(f"{EDGE} 5 > > y")], mirror)
    assert [(row["origin_domain"], row["origin_sequence"]) for row in rows] == [("edge-1", 100), ("edge-1", 101)]


@pytest.mark.parametrize(
    ("origins", "claims"),
    [
        (Origins(ORIGINS.named, None, "hub", ("direct.>",)), [True, False, True, False]),  # the subject is a source's
        (Origins(ORIGINS.named, None, "hub", ("*",)), [False] * 4),  # a client may have published there
        (Origins(ORIGINS.named, None, "hub", ("other", ">")), [False] * 4),
        (Origins({}, None, "hub", ("direct",)), [False] * 4),  # nothing is sourced
    ],
)
def test_a_header_that_a_client_may_have_written_counts_for_nothing(origins: Origins, claims: list[bool]) -> None:
    headers_of = [f"{EDGE} 5 > > y", "GONE:abcdefgh 3 > > x", "LOCAL 7", "OTHER 9 > > x"]
    rows = rows_of([source_block(value) for value in headers_of], origins)
    assert [row["origin_sequence"] for row in rows] == [
        sequence if claimed else None for sequence, claimed in zip((5, 3, 7, 9), claims, strict=True)
    ]
    assert all((row["origin_stream"] is None) == (row["origin_sequence"] is None) for row in rows)


def test_origins_come_from_the_streams_configuration() -> None:
    from eyot_hub.jetstream import External

    config = Config("HUB", sources=[Source("READINGS", External("$JS.edge-1.API")), Source("LOCAL")])
    info = StreamInfo(config, State(0, 0, 0, 0), "2026-01-01T00:00:00Z", "hub")
    assert info.origins() == ORIGINS


def test_a_renamed_prefix_stands_for_itself() -> None:
    assert domain_of_prefix("$JS.edge.API") == "edge"
    assert domain_of_prefix("JS.acc@hub.API") == "JS.acc@hub.API"
