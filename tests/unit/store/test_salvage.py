"""What a repair keeps of damaged streams, and what it says and records of the rest."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_store.check.check import check
from eyot_store.check.repair import repair
from eyot_store.check.salvage import Salvage
from eyot_store.environment import counters_key
from eyot_store.journal.losses import gone_in
from eyot_store.native import data_at, key_at, nodes_of
from eyot_store.page_check import BIG
from eyot_store.pages.errors import PageError
from eyot_store.pages.lost_commits import stored_anywhere
from eyot_store.records.record import Counters, encode_record, is_whole, pack_u64, salt_of, seq_of
from eyot_store.records.record_owners import RecordOwners
from support.store.paged_store import PAGE, leaves_of, make_paged_store, spoil, tree_of
from support.store.store import commit, fill, open_inline

STREAMS = (1, 2, 3, 70_000, 1 << 40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_paged_store(tmp_path / "store")


def runs_of_messages(path: Path) -> dict[int, int]:
    """The first overflow page of each long message of stream T, by sequence."""
    pages, tree = tree_of(path, 2)
    found = {}
    for page, _, _ in pages.walk(tree):
        for index in range(nodes_of(page)):
            flags, _, at = data_at(page, index)
            if flags & BIG:
                found[seq_of(key_at(page, index))] = int.from_bytes(page[at : at + 8], "little")
    pages.close()
    return found


def test_a_damaged_overflow_page_costs_its_own_message_alone(path: Path) -> None:
    """Counters that are lost, too, say neither how many messages there were nor up to where: the file does."""
    runs = runs_of_messages(path)
    last = leaves_of(path, 2)[-1]
    spoil(path, runs[250])  # the header: the message itself is whole
    spoil(path, runs[252], 0, bytes(PAGE))
    assert [problem.partition("; ")[2] for problem in check(path).problems] == [
        "sequence 250 cannot be read",
        "sequence 252 cannot be read",
    ]
    spoil(path, last, 0, bytes(PAGE))
    with lmdb.open(str(path), max_dbs=8) as env, env.begin(write=True) as txn:
        txn.put(counters_key(2), b"damaged")
    kept, lost = repair(path, None)
    assert kept.startswith("stream A/T: page ")
    assert kept.endswith("; kept: 581 messages")
    assert lost == "stream A/T: sequences 252, 583 to 600 are lost, as far as they held messages"
    assert (path / "readers-doubted.on").exists()  # downstreams are asked where they are
    store = open_inline(path)
    assert (store.damaged, store.fenced()) == ([], [])
    log = store.streams()[1]
    assert gone_in(log.positions()) == [(252, 252), (583, 600)]
    assert [seq for seq in range(1, 601) if log.get(seq) is None] == [252, *range(583, 601)]
    assert (log.state.messages, log.state.last_seq) == (581, 600)
    fill(store, log, 1)
    store.close()
    assert check(path).problems == []


def test_a_damaged_overflow_page_of_a_consumer_costs_no_other_consumer(path: Path) -> None:
    store = open_inline(path)
    for number in range(5):
        txn = store.begin()
        store.streams()[1].put_consumer(txn, f"c{number}", b"x" * (9000 if number == 3 else 9), b"state")
        assert commit(store, txn) is None
    store.close()
    spoil(path, (path / "data.mdb").read_bytes().index(b"x" * 3900) // PAGE)
    store = open_inline(path)
    assert any("consumers of stream 2 are lost" in sentence for sentence in store.damaged)
    assert [len(log.consumers()) for log in store.streams()] == [0, 4, 1]
    store.close()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of S, 5 was removed, and nothing is damaged. Of T, 270 was removed, and 250, 260 and 583 to 600 cannot be read."""
    path = make_paged_store(tmp_path_factory.mktemp("damaged") / "store")
    store = open_inline(path)
    for log, seq in zip(store.streams(), (5, 270), strict=False):
        txn = store.begin()
        assert log.remove(txn, seq)
        assert commit(store, txn) is None
    store.close()
    runs = runs_of_messages(path)
    for pgno in (runs[250], runs[260], leaves_of(path, 2)[-1]):
        spoil(path, pgno, 0, bytes(PAGE))
    return path


RECOVERED = "are recovered from pages that nothing leads to"
LOST = "are lost, as far as they held messages"


@pytest.mark.parametrize(
    ("floor", "messages", "unled", "told", "gone"),
    [
        (0, 599, None, [f"sequences 250, 260, 583 to 600 {LOST}"], [(250, 250), (260, 260), (583, 600)]),
        (0, -1, None, [f"sequences 250, 260, 583 to 600 {LOST}"], [(250, 250), (260, 260), (583, 600)]),
        (270, 330, None, [f"sequences 583 to 600 {LOST}"], [(583, 600)]),
        (583, 18, None, [f"sequences 583 to 600 {LOST}"], [(583, 600)]),
        (601, 0, None, [], []),
        (0, 580, [250], [f"sequences 250 {RECOVERED}"], []),
        (270, 312, [], [], []),
        (0, 599, [250, 583, 584], [f"sequences 250, 583 to 584 {RECOVERED}", "gone: 17 messages",
            f"sequences 260, 585 to 600 {LOST}"], [(260, 260), (585, 600)]),
        (0, 579, [250], [f"sequences 250 {RECOVERED}", "1 message more than counted: removed ones are back",
            f"sequences 260, 583 to 600 {LOST}"], [(260, 260), (583, 600)]),
        (0, 0, [250], [f"sequences 250 {RECOVERED}", "580 messages more than counted: removed ones are back",
            f"sequences 260, 583 to 600 {LOST}"], [(260, 260), (583, 600)]),
        (0, -1, [250], [f"sequences 250 {RECOVERED}", f"sequences 260, 583 to 600 {LOST}"], [(260, 260), (583, 600)]),
    ],
)  # fmt: skip
def test_lost_sequences(
    damaged: Path, floor: int, messages: int, unled: list[int] | None, told: list[str], gone: list[tuple[int, int]]
) -> None:
    """`unled`: what a search of the whole file found; None: there was none."""
    pages, tree = tree_of(damaged, 2)
    salvage = Salvage(pages, tree, 2)
    salvage.read_tree()
    spans = salvage.missing_from(floor)
    sought = {seq for seq in range(1, 700) if any(low <= pack_u64(seq) < high for low, high in spans)}
    assert sought == {seq for seq in (250, 260, *range(583, 700)) if seq >= floor}
    if unled is not None:
        salvage.take_unled({pack_u64(seq): b"record" for seq in unled})
    pages.close()
    assert salvage.lost(Counters(messages, last_seq=600, floor=floor), PageError("tree", 2, "why")) == told
    assert salvage.gone == gone


@pytest.mark.parametrize(
    ("floor", "messages", "lost"), [(0, 599, 0), (5, 595, 0), (0, 600, 1), (5, 596, 1), (0, -1, 1)]
)
def test_lost_sequences_of_a_tree_without_damage_that_holds_fewer(
    damaged: Path, floor: int, messages: int, lost: bool
) -> None:
    pages, tree = tree_of(damaged, 1)
    salvage = Salvage(pages, tree, 1)
    salvage.read_tree()
    pages.close()
    told = salvage.lost(Counters(messages, last_seq=600, floor=floor), PageError("tree", 2, "it counts more"))
    assert told == ["it counts more: of the sequences without a message, 5, some are lost"] * lost
    assert salvage.gone == [(5, 5)] * lost


@given(st.sampled_from(STREAMS), st.integers(1, (1 << 64) - 1), st.binary(max_size=40), st.binary(max_size=300))
def test_a_record_belongs_to_the_stream_whose_checksum_fits(stream: int, seq: int, subject: bytes, body: bytes) -> None:
    key = pack_u64(seq)
    record = encode_record(salt_of(stream), key, 1, subject, b"", body)
    assert RecordOwners(dict.fromkeys(STREAMS)).owner(key, record) == stream
    assert RecordOwners({each: None for each in STREAMS if each != stream}).owner(key, record) is None


@given(st.binary(min_size=8, max_size=8), st.binary(max_size=60))
def test_what_is_no_record_belongs_to_no_stream(key: bytes, data: bytes) -> None:
    whole = [each for each in STREAMS if is_whole(salt_of(each), key, data)]
    assert RecordOwners(dict.fromkeys(STREAMS)).owner(key, data) == (whole[0] if whole else None)


def test_a_sequence_whose_record_is_damaged_is_not_given_again(path: Path) -> None:
    store = open_inline(path)
    fill(store, store.streams()[1], 2, payload=b"x" * 9000)
    store.close()
    spoil(path, runs_of_messages(path)[602], 0, bytes(PAGE))
    pages, _ = tree_of(path, 2)
    assert stored_anywhere(pages, {2: 600}) == {2: 602}
    assert stored_anywhere(pages, {2: 602}) == {}
    assert stored_anywhere(pages, {3: 600}) == {}
    pages.close()
