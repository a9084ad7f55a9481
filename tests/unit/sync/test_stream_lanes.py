"""Lanes of streams on one link: what is important leaves first, equals share, nothing overtakes within a lane."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eyot_sync.leaf.interest import LeafInterest
from eyot_sync.leaf.lanes import delivered_stream, is_urgent
from eyot_sync.leaf.outbox import LeafOutbox
from eyot_sync.leaf.sender import LeafSender
from eyot_sync.policy.stream_lanes import SUBJECTS_MAX, StreamLanes

PRIORITIES = {b"A": 9, b"B": 5, b"C": 5, b"D": 0}
NAMES = st.sampled_from(sorted(PRIORITIES))
#: A message of a stream, the room of a slice, or the stream whose receiver goes.
STEPS = st.lists(st.one_of(st.tuples(NAMES, st.integers(1, 20_000)), st.integers(1, 60_000), NAMES), max_size=60)


@given(
    runs=st.lists(st.tuples(st.sampled_from(sorted(PRIORITIES)), st.lists(st.integers(1, 90), max_size=9)), max_size=9)
)
def test_chunks_come_together_as_one_by_one(runs: list[tuple[bytes, list[int]]]) -> None:
    together, singly = StreamLanes(900), StreamLanes(900)
    for name, sizes in runs:
        chunks = [(name * size, size, 0) for size in sizes]
        fitting = 0
        while fitting < len(chunks) and singly.put(name, PRIORITIES[name], b"D." + name, *chunks[fitting][:2]):
            fitting += 1
        assert together.put_all(name, PRIORITIES[name], b"D." + name, chunks) == fitting
    while singly:
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        assert together.take(parts[0], 100) == singly.take(parts[1], 100)
        assert parts[0] == parts[1]
    assert not together


@given(steps=STEPS, room=st.integers(1, 60_000))
def test_everything_leaves_once_in_order_and_no_lower_priority_before_a_higher(
    steps: list[tuple[bytes, int] | int | bytes], room: int
) -> None:
    lanes = StreamLanes(1 << 30)
    left: dict[bytes, list[bytes]] = {name: [] for name in PRIORITIES}

    def take(room: int) -> None:
        parts: list[bytes] = []
        taken = lanes.take(parts, room)
        assert taken == sum(map(len, parts))
        assert taken <= room or len(parts) == 1
        for frame in parts:
            name = frame[:1]
            assert frame == left[name].pop(0)
            assert not any(left[other] for other in PRIORITIES if PRIORITIES[other] > PRIORITIES[name])

    for number, step in enumerate(steps):
        match step:
            case bytes():
                assert lanes.drop(b"D." + step) == len(left[step])
                left[step].clear()
            case int():
                take(step)
            case name, size:
                left[name].append((b"%b%d." % (name, number)).ljust(size, b"x"))
                assert lanes.put(name, PRIORITIES[name], b"D." + name, left[name][-1])
        sizes = {name: sum(map(len, frames)) for name, frames in left.items()}
        assert {name: lanes.waiting(name) for name in left} == sizes
        assert lanes.bytes == sum(sizes.values())
        assert [lanes.outranked(each) for each in range(10)] == [
            any(size and PRIORITIES[name] > each for name, size in sizes.items()) for each in range(10)
        ]
    while lanes:
        take(room)
    assert not any(left.values())


def test_equals_share_by_bytes_however_large_the_messages_of_one_are() -> None:
    lanes = StreamLanes(1 << 30)
    for _ in range(100):
        lanes.put(b"B", 5, b"D.B", b"B" * 50_000)
    lanes.take([], 1)  # alone, and with no claim to more when another comes
    for _ in range(50_000):
        lanes.put(b"C", 5, b"D.C", b"C" * 100)
    parts: list[bytes] = []
    for _ in range(100):
        lanes.take(parts, 16 * 1024)
    sizes = {name: sum(len(frame) for frame in parts if frame[:1] == name) for name in (b"B", b"C")}
    assert 0.8 < sizes[b"B"] / sizes[b"C"] < 1.25


def test_full_lanes_refuse_the_newest_but_take_one_message_of_any_size() -> None:
    lanes = StreamLanes(100)
    assert lanes.put(b"A", 5, b"D", b"x" * 1000)
    assert not lanes.put(b"B", 9, b"E", b"y")
    assert lanes.take([], 10) == 1000
    assert lanes.put(b"B", 9, b"E", b"y")
    assert lanes.clear() == 1
    assert not lanes


def test_what_nobody_wants_any_more_is_dropped_and_the_rest_stays_in_order() -> None:
    lanes = StreamLanes(1 << 20)
    for number in range(10):
        lanes.put(b"A", 5, b"D.1", b"1%d" % number)
        lanes.put(b"A", 5, b"D.2", b"2%d" % number)
    assert lanes.outranked(4)
    assert not lanes.outranked(5)
    assert lanes.drop(b"D.1") == 10
    assert lanes.drop(b"D.1") == 0
    assert lanes.waiting(b"A") == 20
    parts: list[bytes] = []
    assert lanes.take(parts, 7) == 6
    assert lanes.take(parts, 100) == 14
    assert parts == [b"2%d" % number for number in range(10)]
    assert lanes.waiting(b"A") == 0


def test_subjects_are_remembered_up_to_a_bound() -> None:
    lanes = StreamLanes(1 << 30)
    for number in range(SUBJECTS_MAX + 5):
        lanes.put(b"A", 5, b"D.%d" % number, b"x")
    assert lanes.stream_of(b"D.4") is None
    assert lanes.stream_of(b"D.5") == (b"A", 5)


def test_core_messages_and_streams_have_half_of_a_slice_each() -> None:
    outbox = LeafOutbox(LeafInterest(), 1 << 20)
    for _ in range(100):
        outbox.put_message(b"c" * 100)
        outbox.put_delivery(b"S", b"D", b"s" * 100, 9)
    data = b"".join(outbox.take(2000, handshake_done=True))
    assert (data.count(b"c"), data.count(b"s")) == (1000, 1000)
    while outbox:
        assert b"".join(outbox.take(2000, handshake_done=True))


def test_urgent_messages_go_before_all_others_and_are_bounded_by_the_slice() -> None:
    outbox = LeafOutbox(LeafInterest(), 1 << 20)
    outbox.put_message(b"c" * 100)
    outbox.put_delivery(b"S", b"D", b"s" * 100, 9)
    for _ in range(20):
        outbox.put_urgent(b"u" * 100)
    outbox.put_control(b"PONG\r\n")
    first = b"".join(outbox.take(1000, handshake_done=True))
    assert first == b"PONG\r\n" + b"u" * 1000
    assert b"".join(outbox.take(1000, handshake_done=True)) == b"u" * 1000
    assert set(b"".join(outbox.take(1000, handshake_done=True))) == {ord("c"), ord("s")}


def test_streams_are_told_by_the_reply() -> None:
    cases = {
        b"$JS.ACK.S.C.1.10.11.1700000000000000000.5@orders.1": b"S",
        b"$JS.ACK.S.C.1.10.11.1700000000000000000.5": b"S",
        b"$JS.ACK.hub.abcdefgh.S.C.1.10.11.1700000000000000000.5@a.1.2": b"S",
        b"$JS.ACK.S.C": b"",
        b"$JS.FC.S.C.abcd": b"S",
        b"$JS.FC.hub.abcdefgh.S.C.abcd": b"S",
        b"_INBOX.a.b": b"",
        b"": b"",
    }
    assert {reply: delivered_stream(reply) for reply in cases} == cases


def test_what_accompanies_deliveries_waits_behind_them_and_is_urgent_when_none_wait() -> None:
    outbox = LeafOutbox(LeafInterest(), 1 << 20)
    sender = LeafSender(outbox)
    sender.delivering = lambda stream, size: 7
    idle, delivery, flow_control = b"NATS/1.0 100 Idle\r\n\r\n", b"$JS.ACK.S.C.1.10.11.17.5", b"$JS.FC.S.C.abcd"

    def lane(subject: bytes, reply: bytes, header: bytes) -> str:
        before = (len(outbox._messages), len(outbox._urgent), outbox.streams.waiting(b"S"))
        assert sender.send(subject, reply, header, b"")
        after = (len(outbox._messages), len(outbox._urgent), outbox.streams.waiting(b"S"))
        return ("core", "urgent", "stream")[[new > old for old, new in zip(before, after, strict=True)].index(True)]

    assert not sender.send(b"d", b"", idle, b"")
    sender.is_open = True
    assert lane(b"d", b"", idle) == "core", "nothing tells that it is a consumer's"
    assert lane(b"e", flow_control, idle) == "urgent"
    for reply in (delivery, b"", flow_control):
        assert lane(b"d", reply, idle) == "stream"
    assert outbox.streams.outranked(6)
    assert not outbox.streams.outranked(7)
    outbox.take(1 << 20, handshake_done=True)
    assert not outbox
    assert lane(b"d", b"", idle) == "urgent"
    assert lane(b"d", delivery, idle) == "stream"
    assert lane(b"$JS.hub.API.CONSUMER.CREATE.S.C", b"_INBOX.a", b"") == "urgent"
    assert lane(b"_INBOX.a", b"_INBOX.b", b"") == "core"


def test_what_is_urgent() -> None:
    urgent = [b"$JS.FC.S.C.abcd", b"$JSC.R.abcdefgh", b"$JS.API.STREAM.INFO.S", b"$JS.hub.API.CONSUMER.CREATE.S.C"]
    others = [b"orders.1", b"$JS.ACK.S.C.1.1.1.1.0", b"$JS.hub.API.$KV.b.k", b"$JS.M.abcdefgh", b"_INBOX.a", b"$KV.b.k"]
    assert [is_urgent(each) for each in urgent + others] == [True] * len(urgent) + [False] * len(others)


def test_answers_that_nobody_reads_are_bounded_and_the_last_words_pass() -> None:
    outbox = LeafOutbox(LeafInterest(), 1 << 20)
    for _ in range(200_000):
        outbox.put_control(b"PONG\r\n")
    assert outbox.dropped_control > 100_000
    outbox.drop_messages()
    outbox.put_control(b"-ERR 'Stale Connection'\r\n")
    assert b"".join(outbox.take(1000, handshake_done=False)).endswith(b"-ERR 'Stale Connection'\r\n")
