"""Two leaf sessions wired back to back, and frames cut anywhere."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_sync.leaf.events import Closed, Established, InterestComplete, LeafCredentials
from eyot_wire.frames import LeafMsg, LsAdd, LsDel
from support.links.leaf_peers import LEAF, BackToBack, accepting, established_leaf, quick_times, second_info, soliciting

NAMES = st.sampled_from([b"a", b"b.c", b"d.*", b"e.>", b"_INBOX.x.y"])
QUEUES = st.sampled_from([b"", b"q", b"r"])


def joined(**leaf_options: object) -> BackToBack:
    pair = BackToBack(soliciting(credentials=LeafCredentials(user="acc", password="acc"), **leaf_options), accepting())
    pair.run()
    pair.leaf_events.clear()
    pair.hub_events.clear()
    return pair


def test_handshake_of_the_pair() -> None:
    pair = BackToBack(soliciting(), accepting())
    pair.run()
    assert pair.leaf.is_open
    assert pair.hub.is_open
    assert pair.leaf.is_spoke
    assert not pair.hub.is_spoke
    assert next(event for event in pair.leaf_events if isinstance(event, Established)).remote_account == "ACC"
    assert next(event for event in pair.hub_events if isinstance(event, Established)).remote_account == "ACC"
    assert InterestComplete() in pair.leaf_events
    assert InterestComplete() in pair.hub_events


@settings(deadline=None)
@given(chunk=st.integers(1, 40))
def test_handshake_in_small_pieces(chunk: int) -> None:
    pair = BackToBack(soliciting(), accepting())
    pair.run(chunk=chunk)
    assert pair.leaf.is_open
    assert pair.hub.is_open


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.booleans(), NAMES, QUEUES, st.integers(1, 3), st.booleans()), max_size=60),
)
def test_the_peer_always_ends_up_with_the_interest_there_is(
    steps: list[tuple[bool, bytes, bytes, int, bool]],
) -> None:
    pair = joined()
    wanted: dict[tuple[bytes, bytes], int] = {}
    members: list[tuple[bytes, bytes, int]] = []
    for adding, subject, queue, weight, flush in steps:
        if adding:
            members.append((subject, queue, weight))
            pair.leaf.add_interest(subject, queue, weight)
        elif members:
            pair.leaf.remove_interest(*members.pop(len(members) // 2))
        if flush:
            pair.run()
    pair.run()
    for subject, queue, weight in members:
        wanted[subject, queue] = wanted.get((subject, queue), 0) + weight if queue else 1
    known: dict[tuple[bytes, bytes], int] = {}
    for event in pair.hub_events:
        if isinstance(event, LsAdd):
            known[event.subject, event.queue] = max(1, event.weight)
        elif isinstance(event, LsDel):
            del known[event.subject, event.queue]
    assert known == wanted


SUBJECTS = st.sampled_from([b"a", b"orders.eu.1", b"$JS.M.x"])
MESSAGES = st.builds(
    LeafMsg,
    subject=SUBJECTS,
    reply=st.sampled_from([b"", b"_INBOX.1", b"$JS.ACK.S.C.1.1.1.1.0@o.0"]),
    header=st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    payload=st.binary(max_size=50),
    queues=st.lists(st.sampled_from([b"q", b"r", b"s"]), unique=True, max_size=3).map(tuple),
)


@settings(deadline=None)
@given(messages=st.lists(MESSAGES, max_size=20), chunk=st.integers(1, 200), slice_bytes=st.integers(1, 400))
def test_messages_arrive_once_unchanged_and_in_the_order_of_their_lane(
    messages: list[LeafMsg], chunk: int, slice_bytes: int
) -> None:
    pair = joined()
    messages = [each._replace(payload=b"%d %b" % (at, each.payload)) for at, each in enumerate(messages)]
    for message in messages:
        assert pair.leaf.sender.send(message.subject, message.reply, message.header, message.payload, message.queues)
    received = []
    while data := pair.leaf.data_to_send(slice_bytes):
        for start in range(0, len(data), chunk):
            received += pair.hub.receive(data[start : start + chunk], 1.0)
    assert len(received) == len(messages)
    delivered: set[bytes] = set()
    deliveries, others = [], []
    for message in messages:
        if message.reply.startswith(b"$JS.ACK."):
            delivered.add(message.subject)
        (deliveries if message.subject in delivered else others).append(message)
    for subject in delivered:
        of_subject = [each for each in deliveries if each.subject == subject]
        assert [each for each in received if each in of_subject] == of_subject
    assert [each for each in received if each in others] == others


def test_control_goes_ahead_of_interest_and_interest_ahead_of_messages() -> None:
    pair = joined()
    for number in range(100):
        pair.leaf.sender.send(b"a", b"_INBOX.%d" % number, b"", b"x" * 100)
    pair.leaf.add_interest(b"_INBOX.*")
    first = pair.leaf.data_to_send(500)
    assert first.startswith(b"LS+ _INBOX.*\r\nLMSG a _INBOX.0 100\r\n")
    assert len(first) < 800
    pair.leaf.receive(b"PING\r\n", 2.0)
    assert pair.leaf.data_to_send(500).startswith(b"PONG\r\nLMSG ")


def test_a_last_error_is_not_followed_by_messages() -> None:
    pair = joined()
    pair.leaf.sender.send(b"a", b"", b"", b"x")
    pair.leaf.add_interest(b"foo")
    pair.leaf.close("Stale Connection")
    assert pair.leaf.data_to_send() == b"-ERR 'Stale Connection'\r\n"
    assert pair.leaf.data_to_send() == b""
    assert pair.leaf.outbox.lost_msgs == 1


def test_full_lane_drops_the_newest_and_counts() -> None:
    session = soliciting(message_bytes_max=250)
    hub = accepting()
    pair = BackToBack(session, hub)
    pair.run()
    results = [session.sender.send(b"a", b"", b"", b"x" * 90) for _ in range(4)]
    assert results == [True, True, False, False]
    assert (session.outbox.dropped_msgs, session.outbox.dropped_bytes) == (2, 206)
    pair.hub_events.clear()
    pair.run()
    assert len(pair.hub_events) == 2
    assert session.sender.send(b"a", b"", b"", b"x" * 900), "an empty lane takes one message of any size"


@settings(deadline=None)
@given(
    count=st.integers(1, 60),
    reply=st.sampled_from([b"", b"back"]),
    header=st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    room=st.integers(40, 3_000),
    slice_bytes=st.integers(1, 500),
)
def test_runs_are_the_same_messages(count: int, reply: bytes, header: bytes, room: int, slice_bytes: int) -> None:
    session = soliciting(message_bytes_max=room)
    pair = BackToBack(session, accepting())
    pair.run()
    session.data_to_send(slice_bytes)
    messages = [LeafMsg(b"a", reply, header, b"%03d" % number) for number in range(count)]
    lead = reply + b" " if reply else b""
    sizes = b"%d %d" % (len(header), len(header) + 3) if header else b"3"
    tails = [b"%b%b\r\n%b%b\r\n" % (lead, sizes, header, message.payload) for message in messages]
    sent = session.sender.send_run(b"a", reply, len(header) + 3, tails, with_header=bool(header))
    assert sent >= 1
    assert sent + session.outbox.dropped_msgs == count
    assert session.outbox.waiting_bytes <= max(room, 60)
    received = []
    while data := session.data_to_send(slice_bytes):
        assert len(data) <= max(slice_bytes, 60), "a slice holds what fits, or one message"
        received += pair.hub.receive(data, 1.0)
    assert received == messages[:sent]
    assert session.outbox.waiting_bytes == 0


def test_silence_is_noticed_and_bytes_are_life() -> None:
    session = established_leaf(times=quick_times(ping_interval_s=120.0, silence_max_s=12.0))
    session.receive(b"PONG\r\n", 0.3)
    now = 0.3
    for _ in range(20):
        # Half a frame now and then is enough, no PONG needed.
        now += 5.0
        session.tick(now)
        session.receive(b"LMSG a 1", now + 0.1) if now < 6 else session.receive(b"", now + 0.1)
    assert session.is_open


def test_half_open_link_is_closed_within_the_silence_limit() -> None:
    session = established_leaf(times=quick_times(ping_interval_s=120.0, silence_max_s=12.0))
    session.receive(b"PONG\r\n", 1.0)
    pings = 0
    closed_at = None
    while closed_at is None:
        now = session.next_deadline
        events = session.tick(now)
        pings += session.data_to_send().count(b"PING")
        if events:
            assert events == [Closed("Stale Connection", None)]
            closed_at = now
    assert closed_at <= 13.0
    assert pings >= 2


def test_two_unanswered_pings_at_the_interval_are_enough_without_a_silence_limit() -> None:
    session = established_leaf(times=quick_times(ping_interval_s=10.0, ping_max=2, silence_max_s=0.0))
    closed: list[object] = []
    now = 0.0
    while not closed:
        now = session.next_deadline
        closed = list(session.tick(now))
        assert now < 60
    assert closed == [Closed("Stale Connection", None)]


def test_a_process_that_slept_asks_before_it_judges() -> None:
    session = established_leaf(times=quick_times(silence_max_s=12.0))
    session.receive(b"PONG\r\n", 1.0)
    assert session.tick(500.0) == []
    assert session.data_to_send() == b"PING\r\n"
    session.receive(b"PONG\r\n", 500.1)
    assert session.is_open


def test_second_connect_info_is_no_news_to_a_hub() -> None:
    hub = accepting(identity=LEAF)
    pair = BackToBack(soliciting(), hub)
    # Same cluster name on both ends is refused at once.
    pair.run()
    assert hub.is_closed
    assert not pair.leaf.is_open
    assert "same cluster name" in pair.leaf.connection_lost("end of stream").reason
    assert pair.leaf.receive(second_info(), 3.0) == []


DELIVERIES = [
    (b"$JS.ACK.S.C.1.%d.%d.1700000000000000000.%d@s.x" % (seq, seq, 9 - seq), header, b"x" * seq)
    for seq, header in enumerate((b"", b"NATS/1.0\r\nN: 1\r\n\r\n", b"", b""), start=1)
]


def test_deliveries_sent_together_are_those_sent_one_by_one() -> None:
    together, singly = established_leaf(), established_leaf()
    assert together.sender.send_deliveries(b"S", b"$JS.M.a", DELIVERIES) == 4
    for delivery in DELIVERIES:
        assert singly.sender.send(b"$JS.M.a", *delivery)
    assert together.data_to_send() == singly.data_to_send()


def test_deliveries_that_find_no_room_are_counted() -> None:
    session = established_leaf(message_bytes_max=100)
    assert session.sender.send_deliveries(b"S", b"$JS.M.a", DELIVERIES) == 1
    assert session.outbox.dropped_msgs == 3
    assert session.data_to_send().count(b"LMSG") == 1


def test_deliveries_larger_than_the_peer_takes_are_left_out() -> None:
    session = established_leaf(info={"max_payload": 3})
    session.sender.max_payload = 3
    assert session.sender.send_deliveries(b"S", b"$JS.M.a", [DELIVERIES[0], DELIVERIES[3], DELIVERIES[2]]) == 2
    assert session.sender.refused_too_large == 1
