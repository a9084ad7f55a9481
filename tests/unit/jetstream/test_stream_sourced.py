"""What mirrors and sources bring into a stream: sequences, times, positions, all in one transaction."""

from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream.ingest.stream_ingest import StreamIngest
from eyot_daemon.jetstream.sourcing.sourcing import Sourcing as RealSourcing
from eyot_daemon.jetstream.stream.stream import SourcedResult
from eyot_wire.jetstream.copied_run import CopiedMessage
from support.jetstream.fixture import Fixture

T0 = 1_600_000_000_000_000_000


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def copied(seq: int, subject: bytes = b"o.a", header: bytes = b"") -> CopiedMessage:
    return CopiedMessage(seq, T0 + seq, subject, header, b"%d" % seq)


class Sourcing:
    """Hands messages to a stream and keeps what comes of it."""

    def __init__(self, fixture: Fixture, name: str, *, mirror: bool) -> None:
        self.fixture = fixture
        self.name = name
        self.mirror = mirror
        self.results: list[SourcedResult] = []
        self.refusals: list[SourcedResult] = []

    def copy(self, *messages: CopiedMessage, skip_to: int = 0) -> None:
        self.fixture.stream(self.name).ingest_copied(
            messages,
            mirror=self.mirror,
            positions=lambda seq: [] if self.mirror else [(b"origin", b"%d" % seq)],
            skip_to=skip_to,
            on_done=self.results.append,
            on_refused=self.refusals.append,
        )

    def store(self, *messages: CopiedMessage, skip_to: int = 0) -> SourcedResult:
        """What was refused at once, or what is on flash."""
        self.refusals.clear()
        self.copy(*messages, skip_to=skip_to)
        self.fixture.commit()
        refused = self.refusals[0] if self.refusals else None
        if refused is None:
            return self.results[-1]
        if refused.last_seq:
            assert self.results[-1] == SourcedResult(refused.last_seq, None)
        return refused


@pytest.fixture
def mirror(fixture: Fixture) -> Sourcing:
    fixture.create("M", subjects=None, mirror={"name": "O"})
    return Sourcing(fixture, "M", mirror=True)


@pytest.fixture
def source(fixture: Fixture) -> Sourcing:
    fixture.create("T", subjects=None, sources=[{"name": "O"}])
    return Sourcing(fixture, "T", mirror=False)


def test_a_mirror_keeps_sequences_times_and_gaps(fixture: Fixture, mirror: Sourcing) -> None:
    assert mirror.store(copied(10), copied(11), copied(15)) == SourcedResult(15, None)
    state = fixture.request("STREAM.INFO.M")["state"]
    assert (state["first_seq"], state["last_seq"], state["messages"], state["num_deleted"]) == (10, 15, 3, 3)
    assert state["first_ts"] == "2020-09-13T12:26:40.00000001Z"
    assert mirror.store(copied(15), copied(16)) == SourcedResult(16, None)
    assert [seq for seq, _ in fixture.held("M")] == [10, 11, 15, 16]
    assert mirror.store(skip_to=20) == SourcedResult(20, None)
    assert fixture.request("STREAM.INFO.M")["state"]["last_seq"] == 20


def test_a_source_gets_new_sequences_and_times(fixture: Fixture, source: Sourcing) -> None:
    assert source.store(copied(10), copied(15)) == SourcedResult(15, None)
    message = fixture.stream("T").log.get(2)
    assert message is not None
    assert (message.payload, message.ts_ns) == (b"15", fixture.clock.now_ns() + 1)
    assert fixture.stream("T").log.positions()[b"origin"] == b"15"


def test_nothing_is_reported_before_it_is_on_flash(fixture: Fixture, source: Sourcing) -> None:
    source.copy(copied(1))
    assert source.results == []
    fixture = fixture.crash()
    assert fixture.held("T") == []
    assert fixture.stream("T").log.positions().get(b"origin") is None


def test_message_and_position_survive_together(fixture: Fixture, source: Sourcing) -> None:
    source.store(copied(1))
    source.copy(copied(2))
    fixture = fixture.crash()
    assert [payload for _, payload in fixture.held("T")] == [b"1"]
    assert fixture.stream("T").log.positions()[b"origin"] == b"1"


def test_a_full_target_takes_what_fits_and_says_where_it_stopped(fixture: Fixture) -> None:
    fixture.create("T", subjects=None, sources=[{"name": "O"}], max_msgs=2, discard="new")
    source = Sourcing(fixture, "T", mirror=False)
    result = source.store(copied(1), copied(2), copied(3))
    assert result.last_seq == 2
    assert result.error is not None
    assert result.error.err_code == 10077
    assert fixture.stream("T").log.positions()[b"origin"] == b"2"
    assert source.store(copied(3)).last_seq == 0
    fixture.request("STREAM.PURGE.T")
    assert source.store(copied(3)) == SourcedResult(3, None)


@pytest.mark.parametrize("origin", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}])
@pytest.mark.parametrize("more", [b"", b"2"])
def test_what_would_fit_after_a_refused_message_waits_for_it(
    tmp_path: Path, origin: dict[str, Any], more: bytes
) -> None:
    """It came before the commit of what was accepted; a mirror lost the refused message, a source took the others twice."""
    fixture = Fixture(tmp_path, sourcing=RealSourcing())
    fixture.create("O", storage="memory")
    config = {"name": "T", **origin, "discard": "new"}
    fixture.request("STREAM.CREATE.T", {**config, "max_bytes": 600})
    fixture.advance(1)
    for payload in (b"1", more):
        fixture.publish(b"o.a", payload or b"2")
        if not more:
            fixture.broker.flush()  # a batch of its own, which is accepted
    for payload in (b"3" * 700, b"4"):
        fixture.publish(b"o.a", payload)
        fixture.broker.flush()
        fixture.broker.flush()
    assert fixture.held("T") == []  # nothing is committed yet
    fixture.commit()
    assert fixture.held("T") == [(1, b"1"), (2, b"2")]
    assert "error" not in fixture.request("STREAM.UPDATE.T", {**config, "max_bytes": 5000})
    fixture.advance(2)
    fixture.advance(2)
    assert fixture.held("T") == [(1, b"1"), (2, b"2"), (3, b"3" * 700), (4, b"4")]


@pytest.mark.parametrize(
    "config",
    [
        {"mirror": {"name": "O"}},
        {"sources": [{"name": "O"}]},
        {"sources": [{"name": "O"}], "subject_transform": {"src": ">", "dest": "t.>"}},
    ],
)
def test_the_limits_of_account_and_server_hold_for_what_is_copied(tmp_path: Path, config: dict[str, Any]) -> None:
    """They held for what is published alone: a mirror filled the disk that `max_file` was to keep free."""
    fixture = Fixture(tmp_path, limits=AccountJetStreamOptions(file_max=80))
    fixture.create("T", subjects=None, **config)
    copies = Sourcing(fixture, "T", mirror="mirror" in config)
    result = copies.store(copied(1), copied(2), copied(3))
    assert (result.last_seq, result.error and result.error.err_code) == (2, 10002)
    assert copies.store(copied(3)).last_seq == 0
    fixture.request("STREAM.PURGE.T")
    assert copies.store(copied(3)) == SourcedResult(3, None)


@pytest.mark.parametrize("origin", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}])
def test_a_sealed_stream_takes_nothing_from_its_origin(fixture: Fixture, origin: dict[str, Any]) -> None:
    fixture.create("T", subjects=None, **origin)
    copies = Sourcing(fixture, "T", mirror="mirror" in origin)
    assert copies.store(copied(1)) == SourcedResult(1, None)
    fixture.request("STREAM.UPDATE.T", {"name": "T", **origin, "sealed": True})
    result = copies.store(copied(2))
    assert (result.last_seq, result.error and result.error.err_code) == (0, 10109)
    assert len(fixture.held("T")) == 1


def test_message_ids_of_different_origins_do_not_meet(fixture: Fixture, source: Sourcing) -> None:
    header = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
    source.store(copied(1, header=header), copied(2, header=header))
    assert len(fixture.held("T")) == 2


def test_a_window_asked_for_holds_for_sources(fixture: Fixture) -> None:
    fixture.create("T", subjects=None, sources=[{"name": "O"}], duplicate_window=60_000_000_000)
    source = Sourcing(fixture, "T", mirror=False)
    header = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
    assert source.store(copied(1, header=header), copied(2, header=header)) == SourcedResult(2, None)
    assert [payload for _, payload in fixture.held("T")] == [b"1"]
    assert fixture.stream("T").log.positions()[b"origin"] == b"2"


def test_limits_and_rollups_hold_for_copies(fixture: Fixture) -> None:
    fixture.create("T", subjects=None, sources=[{"name": "O"}], max_msgs=3, allow_rollup_hdrs=True)
    source = Sourcing(fixture, "T", mirror=False)
    source.store(*(copied(seq) for seq in range(1, 6)))
    assert [payload for _, payload in fixture.held("T")] == [b"3", b"4", b"5"]
    source.store(copied(6, header=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"))
    assert [payload for _, payload in fixture.held("T")] == [b"6"]


def test_the_streams_own_transform_holds_for_copies(fixture: Fixture) -> None:
    fixture.create("T", subjects=None, sources=[{"name": "O"}], subject_transform={"src": "o.>", "dest": "here.>"})
    Sourcing(fixture, "T", mirror=False).store(copied(1))
    message = fixture.stream("T").log.get(1)
    assert message is not None
    assert message.subject == b"here.a"


HEADERS = (
    b"",
    b"",
    b"NATS/1.0\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: 5\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream-Source: X 1 > > a\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: 7\r\nNats-Msg-Id: 8\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n",
)


def _batches(seed: int) -> list[list[CopiedMessage]]:
    """With gaps, repetitions, and times that go back."""
    rng, seq, batches = Random(seed), 1, []
    for _ in range(6):
        batch = []
        for _ in range(rng.randrange(9)):
            ts_ns = T0 + rng.randrange(1000)
            batch.append(CopiedMessage(seq, ts_ns, b"o.%d" % rng.randrange(3), rng.choice(HEADERS), rng.randbytes(3)))
            seq += rng.choice([1, 1, 1, 1, 4])
        batches.append(batch)
        seq = max(seq - rng.choice([0, 0, 2]), 1)
    return batches


@pytest.mark.parametrize("is_mirror", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_runs_are_stored_as_single_messages_are(fixture: Fixture, seed: int, is_mirror: bool) -> None:
    seen: list[Any] = []
    for name, plainly in (("FAST", True), ("SLOW", False)):
        of = {"mirror": {"name": "O"}} if is_mirror else {"sources": [{"name": "O"}]}
        fixture.create(name, subjects=None, allow_rollup_hdrs=True, allow_msg_ttl=True, max_msgs_per_subject=4, **of)
        task = Sourcing(fixture, name, mirror=is_mirror)
        with nullcontext() if plainly else mock.patch.object(StreamIngest, "_appends_plainly", new=False):
            results = [task.store(*batch) for batch in _batches(seed) if batch]
        log = fixture.stream(name).log
        messages = log.read(1, max_messages=999, max_bytes=1 << 20).messages
        kept = [
            (each.seq, each.ts_ns if is_mirror else 0, each.subject, each.header, each.payload) for each in messages
        ]
        state = fixture.request(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"]
        if not is_mirror:
            del state["first_ts"], state["last_ts"]
        seen.append((results, kept, state, fixture.stream(name).ingest._last_msg_id))
    assert seen[0] == seen[1]
