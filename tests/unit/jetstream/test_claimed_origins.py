"""`Nats-Stream-Source` that a client wrote: it is refused, and where that cannot be told no source continues after it."""

from pathlib import Path

import msgspec
import pytest

from eyot_daemon.jetstream.sourcing.positions import Position, encode_position
from eyot_daemon.jetstream.sourcing.resume_point import SourceHeaderIndex, look_through, read_archived_positions
from eyot_sync.sourcing.origin_answers import OriginInfo
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.struct import decode
from support.jetstream.fixture import Fixture

T0 = 1_600_000_000_000_000_000
CLAIM = "O 1000000 > > o.a"
REFUSED = 10227


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def code_of(answer: bytes | None) -> int:
    assert answer is not None
    found = msgspec.json.decode(answer).get("error", {}).get("err_code", 0)
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"storage": "memory"},
        {"sources": [{"name": "O"}]},
        {"allow_msg_counter": True, "allow_direct": True},
        {"allow_msg_schedules": True},
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
        {"subject_transform": {"src": "s.>", "dest": "t.>"}},
    ],
    ids=str,
)
def test_no_stream_takes_it_from_a_client(fixture: Fixture, config: dict[str, object]) -> None:
    """Among plain messages of the same turn, which are stored."""
    fixture.create(**config)
    counted = {"Nats-Incr": "1"} if "allow_msg_counter" in config else {}
    before = fixture.publish(b"s.a", header=counted)
    claims = [
        fixture.publish(b"s.b", header={**counted, **more, "Nats-Stream-Source": CLAIM})
        for more in ({}, {"Nats-Msg-Id": "1"}, {"A": "b"})
    ]
    after = fixture.publish(b"s.c", header={**counted, "Nats-Msg-Id": "1"})
    fixture.commit()
    assert [code_of(fixture.answer(each)) for each in (before, *claims, after)] == [0, REFUSED, REFUSED, REFUSED, 0]
    assert fixture.stream().log.state.messages == 2
    assert look_through(fixture.stream()) == {}


def test_no_batch_takes_it(fixture: Fixture) -> None:
    fixture.create(allow_atomic=True, allow_batched=True)
    batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    atomic = fixture.publish(b"s.a", header={**batch, "Nats-Stream-Source": CLAIM})
    fixture.commit()
    assert code_of(fixture.answer(atomic)) == REFUSED
    header = f"NATS/1.0\r\nNats-Stream-Source: {CLAIM}\r\n\r\n".encode()
    fixture.account.publish(b"s.a", b"_INBOX.fast.u.10.fail.1.2.$FI", header, b"x", origin=fixture.client)
    fixture.commit()
    assert fixture.stream().log.state.messages == 0


def claimed(seq: int) -> CopiedMessage:
    return CopiedMessage(seq, T0 + seq, b"o.a", f"NATS/1.0\r\nNats-Stream-Source: {CLAIM}\r\n\r\n".encode(), b"x")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_mirror_believes_no_header_that_a_client_may_have_written(fixture: Fixture, restarted: bool) -> None:
    """Neither then nor when the messages are searched because there is no record."""
    fixture.create("M", subjects=None, mirror={"name": "T"})
    index = SourceHeaderIndex(fixture.stream("M"))
    messages = [claimed(seq) for seq in (1, 2)]
    fixture.stream("M").ingest_copied(
        messages, mirror=True, positions=lambda taken: index.note(messages, taken), on_done=lambda result: None
    )
    fixture.commit()
    if restarted:
        fixture = fixture.restart()
    assert look_through(fixture.stream("M")) == {}
    index = SourceHeaderIndex(fixture.stream("M"))
    index.only_sourced = True
    assert len(list(index.note([claimed(3)], 3))) == 2, "those of other times are noted"


@pytest.mark.parametrize(
    ("config", "only_sourced"),
    [
        ({"sources": [{"name": "O"}]}, True),
        ({"subjects": ["a"], "sources": [{"name": "O"}]}, False),
        ({"subjects": ["a"], "metadata": {"_nats.level": "4"}}, False),
        ({"subjects": ["a"], "metadata": {"_nats.level": "5"}}, True),
        ({"subjects": ["a"], "metadata": {"_nats.level": "-5"}}, False),
        ({"mirror": {"name": "T"}}, False),
        ({"mirror": {"name": "T"}, "metadata": {"_nats.level": "5"}}, True),
    ],
)
def test_whose_headers_are_believed(config: dict[str, object], only_sourced: bool) -> None:
    info = decode(msgspec.json.encode({"created": "t", "config": config}), OriginInfo, strict=False)
    assert info.only_sourced == only_sourced


def test_positions_in_a_backup_are_checked() -> None:
    good = {b"O > >": encode_position(Position(3)), b"eyot.mirror": encode_position(Position(4, "c", whole=True))}
    assert read_archived_positions(msgspec.msgpack.encode(good)) == good
    for bad in (
        {b"eyot.ids": b"1"},
        {b"x" * 481: encode_position(Position(3))},
        {b"O > >": encode_position(Position(-1))},
        {b"O": b"\xc1"},
    ):
        with pytest.raises(ValueError):
            read_archived_positions(msgspec.msgpack.encode(bad))
