"""The duplicate window against a plain model."""

from hypothesis import given
from hypothesis import strategies as st

from eyot_daemon.jetstream.ingest.dedupe import DedupeWindow


def test_ids_are_known_for_the_window() -> None:
    window = DedupeWindow(10)
    window.add(b"a", 1, 100)
    assert window.find(b"a", 110) == 1
    assert window.find(b"a", 111) == 0
    assert len(window) == 0


def test_what_failed_is_forgotten() -> None:
    window = DedupeWindow(10)
    window.add(b"a", 1, 100)
    window.add(b"b", 2, 100)
    window.forget({b"a": 1, b"b": 7})
    assert (window.find(b"a", 100), window.find(b"b", 100)) == (0, 2)


def test_an_id_stored_again_outlives_its_first_time() -> None:
    window = DedupeWindow(10)
    window.add(b"a", 1, 100)
    window.forget({b"a": 1})
    window.add(b"a", 2, 105)
    assert window.find(b"a", 112) == 2


def test_no_window_remembers_nothing() -> None:
    window = DedupeWindow(0)
    window.add(b"a", 1, 100)
    assert window.find(b"a", 100) == 0
    window = DedupeWindow(10)
    window.add(b"a", 1, 100)
    window.set_window(0, 100)
    assert window.find(b"a", 100) == 0


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=60))
def test_it_answers_as_a_list_of_everything_would(size: int, steps: list[tuple[int, int]]) -> None:
    window = DedupeWindow(size)
    stored: list[tuple[bytes, int, int]] = []
    now = 0
    for seq, (passed, number) in enumerate(steps, 1):
        now += passed
        msg_id = b"%d" % number
        expected = next((at_seq for each, at_seq, at in stored if each == msg_id and at >= now - size), 0)
        assert window.find(msg_id, now) == expected
        if not expected:
            window.add(msg_id, seq, now)
            stored.append((msg_id, seq, now))
