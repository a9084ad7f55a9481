"""What is on its way over a bridge: identifiers, positions, order between streams, and topics."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eyot_sync.bridge.closings import Closings
from eyot_sync.bridge.topic_rules import InRules, OutRules, TopicRule, matches_filter
from eyot_sync.bridge.turns import Turns
from eyot_sync.bridge.window import Entry, Phase, Progress, Window


def entry(seq: int, qos: int = 1, stream: str = "S", payload: bytes = b"x") -> Entry:
    return Entry(stream=stream, seq=seq, qos=qos, topic="t", payload=payload)


def test_identifiers_are_free_again_when_they_are_settled() -> None:
    window = Window(65_535, 1 << 30)
    for seq in range(65_534):
        window.add(entry(seq))
    last = window.next_id()  # lent to a SUBSCRIBE
    assert window.get(last) is None
    window.free_id(last)
    freed = window.remove(100)
    assert freed is not None
    assert {window.next_id(), window.next_id()} == {100, last}


def test_room() -> None:
    window = Window(3, 10)
    assert window.room
    window.add(entry(1, payload=b"x" * 100))
    assert not window.room, "more bytes than it has room for"
    window.remove(1)
    window.receive_maximum = 2
    window.add(entry(2))
    assert window.room
    window.add(entry(3))
    assert not window.room


def test_a_stream_that_is_gone_takes_its_own_along() -> None:
    window = Window(10, 10)
    for seq, stream in enumerate("SSTST", 1):
        window.add(entry(seq, stream=stream))
    window.drop_stream("S")
    assert [(each.stream, each.seq) for each in window] == [("T", 3), ("T", 5)]
    window.drop_stream("S")
    assert len(window) == 2
    window.drop_stream("T")
    assert len(window) == 0
    window.add(entry(6, payload=b"x" * 8))
    assert window.room, "the bytes of what was dropped are free"


def test_resumption() -> None:
    window = Window(10, 1000)
    entries = [entry(1), entry(2, 2), entry(3, 2)]
    for each in entries:
        window.add(each)
        each.phase, each.dup = Phase.SENT, True
    entries[1].phase = Phase.RECEIVED
    assert window.resume(session_present=True) == entries
    assert [each.packet_id for each in entries] == [1, 2, 3]
    assert window.resume(session_present=False) == entries
    assert [(each.packet_id, each.dup, each.phase) for each in entries] == [(0, False, Phase.PLANNED)] * 3
    assert len(window) == 0


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_the_position_has_no_gaps(order: list[int], passed_over: set[int]) -> None:
    progress = Progress(0)
    for seq in range(1, 9):
        if seq not in passed_over:
            progress.begin(seq)
        progress.passed(seq)
    done = set(passed_over)
    for seq in order:
        if seq not in passed_over:
            progress.done(seq)
            done.add(seq)
        wanted = next((each - 1 for each in range(1, 9) if each not in done), 8)
        assert progress.confirmed == wanted
        assert set(progress.settled_ahead) == {each for each in done - passed_over if each > wanted}
        assert all(progress.knows(each) for each in progress.settled_ahead)


def test_what_is_settled_before_it_is_read_is_not_sent_again() -> None:
    progress = Progress(10)
    progress.begin(12)
    progress.done(12)
    progress.done(5)
    assert progress.confirmed == 10
    assert progress.knows(12)
    assert not progress.knows(11)
    progress.begin(11)
    progress.passed(12)
    assert progress.confirmed == 10
    progress.done(11)
    assert progress.confirmed == 12


def test_priorities_first_and_equal_ones_by_bytes() -> None:
    turns = Turns()
    sizes = {"a": 100, "b": 300}
    sent: list[str] = []
    for _ in range(40):
        name = turns.pick([("a", 5), ("b", 5)])
        turns.sent(name, sizes[name])
        sent.append(name)
    assert 28 <= sent.count("a") <= 32
    assert turns.pick([("a", 5), ("b", 5), ("c", 6)]) == "c"
    # One that had nothing to send does not catch up.
    late = [turns.pick([("a", 5), ("d", 5)]) for _ in range(1)]
    for _ in range(10):
        name = turns.pick([("a", 5), ("d", 5)])
        turns.sent(name, 100)
        late.append(name)
    assert 4 <= late[1:].count("d") <= 6


def test_outgoing_topics() -> None:
    rules = OutRules(
        [
            TopicRule(filter="line1/#", local_prefix="plant/", remote_prefix="site7/", qos=2),
            TopicRule(filter="#", local_prefix="plant/", remote_prefix="other/"),
            TopicRule(filter="alarm"),
        ]
    )
    found = rules.convert(b"plant.line1.temp")
    assert found is not None
    assert (found.topic, found.rule.qos) == ("site7/line1/temp", 2)
    assert (rules.convert(b"plant.x") or found).topic == "other/x"
    assert (rules.convert(b"plant") or found).topic == "other"
    assert (rules.convert(b"alarm") or found).topic == "alarm"
    assert rules.convert(b"else") is None
    assert set(rules.filters) == {b"plant", b"plant.>", b"alarm"}
    assert OutRules([TopicRule(filter="#")]).filters == ()


def test_incoming_topics() -> None:
    rules = InRules([TopicRule(filter="cmd/+", local_prefix="from/", remote_prefix="gw/"), TopicRule(filter="#")])
    found = rules.convert("gw/cmd/on")
    assert found is not None
    assert found.topic == "from/cmd/on"
    assert (rules.convert("gw/x") or found).topic == "gw/x"
    assert rules.convert("$SYS/x") is None


def test_filters() -> None:
    for topic_filter, topic, wanted in (
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+/b", "/b", True),
        ("#", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
    ):
        assert matches_filter(topic_filter, topic) == wanted, (topic_filter, topic)


def test_the_message_on_which_a_remote_closes_is_found() -> None:
    closings = Closings()
    for turn in range(1, 6):
        closings.began()
        assert closings.one_at_a_time == (turn > 2)
        closings.sent()
        assert closings.closed(1 if turn > 2 else 7) == (turn == 5)
    assert closings.one_at_a_time
    closings.began()
    closings.sent()
    closings.progressed()
    assert not closings.closed(1)
    assert not closings.one_at_a_time
    closings.began()
    assert not closings.closed(0), "nothing was sent"
