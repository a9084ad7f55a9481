"""Where a consumer begins, by its deliver policy, and that a restart changes nothing of it."""

import random
from pathlib import Path

import pytest

from eyot_store.log.view import KEYS_MAX
from eyot_wire.subject import matches
from support.jetstream.consumers import ConsumerFixture

S = 1_000_000_000


@pytest.fixture(params=[False, True], ids=["services", "clients"])
def fixture(tmp_path: Path, request: pytest.FixtureRequest) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path, clients=request.param)
    fixture.create(subjects=["s.>", "t.>"])
    return fixture


@pytest.mark.parametrize(
    ("config", "seqs"),
    [
        ({"deliver_policy": "all"}, [1, 2, 3, 4, 5, 6]),
        ({"deliver_policy": "last"}, [6]),
        ({"deliver_policy": "last", "filter_subject": "s.a"}, [5]),
        ({"deliver_policy": "new"}, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, [4, 5, 6]),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 99}, []),
        ({"deliver_policy": "last_per_subject", "filter_subject": ">"}, [4, 5, 6]),
        ({"deliver_policy": "last_per_subject", "filter_subjects": ["s.a", "s.b"]}, [4, 5]),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2023-11-14T22:13:21.5Z"}, [3, 4, 5, 6]),
    ],
)
def test_deliver_policies(fixture: ConsumerFixture, config: dict[str, object], seqs: list[int]) -> None:
    for subject in (b"s.a", b"s.b", b"s.a", b"s.b", b"s.a", b"s.c"):
        fixture.fill(1, subject=subject)
        fixture.clock.advance(1.0)
    created = fixture.add(ack_policy="explicit", **config)
    assert created["num_pending"] == len(seqs)
    box = fixture.pull(batch=10, expires=10 * S)
    assert box.seqs == seqs
    if config.get("opt_start_seq") != 99:
        fixture.fill(1, subject=b"s.a")
        assert box.seqs == [*seqs, 7]


@pytest.mark.parametrize(
    ("policy", "filter_subject", "seqs"),
    [
        ("last_per_subject", "s.a*", [1, 4]),
        ("last_per_subject", "s.a>", [1, 3, 4]),
        ("last_per_subject", "s*", []),
        ("last_per_subject", "s.*a", []),
        ("all", "s.a*", []),
    ],
)
def test_last_per_subject_may_name_the_beginning_of_a_token(
    fixture: ConsumerFixture, policy: str, filter_subject: str, seqs: list[int]
) -> None:
    for subject in (b"s.avocado", b"s.banana", b"s.ab.c", b"s.apple"):
        fixture.fill(1, subject=subject)
    created = fixture.add(ack_policy="explicit", deliver_policy=policy, filter_subject=filter_subject)
    assert created["num_pending"] == len(seqs)
    assert fixture.pull(batch=10, no_wait=True).seqs == seqs


def test_last_per_subject_survives_a_restart_half_way(fixture: ConsumerFixture) -> None:
    for subject in (b"s.a", b"s.b", b"s.c", b"s.a"):
        fixture.fill(1, subject=subject)
    fixture.add(ack_policy="explicit", deliver_policy="last_per_subject", filter_subject="s.>")
    fixture.ack(*fixture.pull(batch=1).take())  # s.b
    fixture.fill(1, subject=b"s.c")
    fixture = fixture.restart()
    box = fixture.pull(batch=10, expires=10 * S)
    fixture.run_on()  # on a slow machine the list is whole in a later turn
    assert box.seqs == [3, 4, 5]  # the old s.c, too, as without the restart
    assert [ack.pending for ack in box.acks] == [2, 1, 0]


def test_last_per_subject_finds_the_rest_of_its_list_in_slices(fixture: ConsumerFixture) -> None:
    """Newer messages of the same subjects came before the restart: the old ones are searched without making anybody wait."""
    for subject in (b"s.%d" % number for number in range(KEYS_MAX + 100)):
        fixture.fill(1, subject=subject)
    listed = fixture.add(ack_policy="none", deliver_policy="last_per_subject", filter_subject="s.>")["num_pending"]
    for subject in (b"s.%d" % number for number in range(0, KEYS_MAX + 100, 2)):
        fixture.fill(1, subject=subject)
    fixture = fixture.restart()
    box = fixture.pull(batch=10, expires=10 * S)
    assert box.seqs == []  # held until the list is whole
    fixture.run_on()
    assert box.seqs == list(range(1, 11))
    assert fixture.info()["num_pending"] == listed + (listed + 1) // 2 - 10


@pytest.mark.parametrize("seed", range(30))
def test_a_restart_changes_no_delivery(fixture: ConsumerFixture, seed: int) -> None:
    """Whatever the policy: a consumer gets after restarts what it would have got without them."""
    pick = random.Random(seed)
    subjects = [b"s.%c" % letter for letter in b"abcd"]
    stored: list[bytes] = []

    def publish(count: int) -> None:
        for _ in range(count):
            stored.append(pick.choice(subjects))
            fixture.fill(1, subject=stored[-1])

    publish(pick.randrange(1, 12))
    policy = pick.choice(("all", "new", "last", "by_start_sequence", "last_per_subject", "last_per_subject"))
    filters = pick.choice((["s.>"], ["s.a"], ["s.a", "s.c"], ["s.*"]))
    wanted = [seq for seq, subject in enumerate(stored, 1) if any(matches(each.encode(), subject) for each in filters)]
    start = pick.randrange(1, 6)
    begun = {
        "all": wanted,
        "new": [],
        "last": wanted[-1:],
        "by_start_sequence": [seq for seq in wanted if seq >= start],
        "last_per_subject": sorted({stored[seq - 1]: seq for seq in wanted}.values()),
    }[policy]
    config = {"opt_start_seq": start} if policy == "by_start_sequence" else {}
    fixture.add(ack_policy="explicit", deliver_policy=policy, filter_subjects=filters, **config)
    created = len(stored)
    got: list[int] = []
    for _ in range(pick.randrange(3, 12)):
        step = pick.random()
        if step < 0.4:
            publish(pick.randrange(1, 5))
        elif step < 0.7:
            box = fixture.pull(batch=pick.randrange(1, 4), no_wait=True)
            got += box.seqs
            fixture.ack(*box.take())
        else:
            fixture = fixture.restart()
            fixture.info()
            fixture.run_on()  # on a slow machine the list of a policy is whole in a later turn
    later = [
        seq
        for seq, subject in enumerate(stored, 1)
        if seq > created and any(matches(each.encode(), subject) for each in filters)
    ]
    if policy == "by_start_sequence":
        later = [seq for seq in later if seq >= start]
    assert fixture.info()["num_pending"] == len(begun + later) - len(got)
    assert got + fixture.pull(batch=100, no_wait=True).seqs == begun + later
