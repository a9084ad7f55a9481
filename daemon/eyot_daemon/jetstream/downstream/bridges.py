"""Bridges as downstreams of a stream: they read its log themselves, without a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from eyot_daemon.jetstream.downstream.downstream import BRIDGE, Downstream

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.deliveries import Deliveries
    from eyot_daemon.jetstream.downstream.downstream import BridgeReader
    from eyot_daemon.jetstream.downstream.never_arrived import NeverArrived
    from eyot_daemon.jetstream.downstream.records import DownstreamRecords
    from eyot_daemon.jetstream.stream_core import CommitCallback, StreamCore
    from eyot_store.txn import Txn


def _named(name: str, filters: tuple[bytes, ...] = ()) -> Downstream:
    return Downstream(name, "", BRIDGE, filters)


class BridgeDownstreams:
    """The bridges that forward one stream.

    `release` stages the removal of messages that only bridges needed, from the first to the last of two sequences.
    """

    def __init__(
        self,
        stream: StreamCore,
        records: DownstreamRecords,
        deliveries: Deliveries,
        never_arrived: NeverArrived,
        release: Callable[[int, int, Txn], None],
    ) -> None:
        self._stream = stream
        self._records = records
        self._deliveries = deliveries
        self._never_arrived = never_arrived
        self._release = release

    def begin(self, name: str, filters: tuple[bytes, ...], bridge: BridgeReader, begins_after: int) -> int:
        """Record that a bridge reads; return after which sequence: `begins_after` if it is new."""
        stream, txn = self._stream, self._stream.store.begin()
        found = _named(name, filters)
        key = found.key
        known = self._records.get(key)
        if known is None:
            found.seq = found.begun = begins_after
            found.at_ns = stream.clock.now_ns()
            self._never_arrived.met(key, begins_after, txn)
        else:
            found = replace(known, filters=filters, seq=min(known.seq, stream.log.state.last_seq))
            self._never_arrived.asked_after(key, found.seq, txn)
        self._records.resumed(key)
        self._deliveries.begin_bridge(key, bridge, found.seq)
        self._records.stage(key, found, txn)
        return found.seq

    def left(self, name: str) -> None:
        """Note that a bridge does not read any more. Its position stays until it is forgotten."""
        self._deliveries.bridges.pop(_named(name).key, None)

    def confirmed(
        self,
        name: str,
        seq: int,
        skipped: Iterable[tuple[str, int]],
        stage: Callable[[Txn], None],
        done: CommitCallback,
    ) -> None:
        """Note that a bridge's remote has everything up to `seq`, but for `skipped`, each with the reason; `stage` adds to the transaction."""
        stream = self._stream
        key = _named(name).key
        known = self._records.get(key) or _named(name)
        now_ns, txn = stream.clock.now_ns(), stream.store.begin()
        for why, each in skipped:
            self._never_arrived.skipped(key, why, each, txn)
        found = replace(known, seq=max(seq, known.seq), at_ns=now_ns)
        elapsed_s = (now_ns - known.at_ns) / 1e9
        found.rate = (found.seq - known.seq) / elapsed_s if elapsed_s > 0 and found.seq > known.seq else 0.0
        # The retention asks whether the bridge has what is confirmed.
        self._records.assume(key, found)
        self._never_arrived.confirmed(key, found.seq, txn)
        self._release(max(known.seq, known.begun) + 1, found.seq, txn)
        stage(txn)
        self._records.stage(key, found, txn, done, before=known)
