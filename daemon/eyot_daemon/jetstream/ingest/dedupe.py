"""The duplicate window: which `Nats-Msg-Id` was stored lately, and as which sequence (ADR-1).

Kept in memory and rebuilt at start from the tail of the log, where the ids are anyway. Its size is what the stream
stores with ids within its window: the window is the bound, and the configuration sets it. Times are wall time in ns.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from eyot_store import Log, Txn

IDS_POSITION = b"eyot.ids"
"""Kept with a stream: NONE_YET from its creation on, until the first message with an id is stored; then USED."""
NONE_YET, USED = b"0", b"1"


class DedupeWindow:
    """Ids of the last `window_ns`; 0 remembers nothing."""

    __slots__ = ("_order", "_seqs", "window_ns")

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self._seqs: dict[bytes, int] = {}
        # Time and sequence of the first id, the ids: each 1 ns and one sequence after the one before, b"" where there is none.
        self._order: deque[tuple[int, int, Sequence[bytes]]] = deque()

    def __len__(self) -> int:
        return len(self._seqs)

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """Return the sequence under which `msg_id` was stored within the window; 0: it was not."""
        self.expire(now_ns)
        return self._seqs.get(msg_id, 0)

    def ids(self) -> Iterable[tuple[bytes, int]]:
        """Return the ids that are remembered, each with its sequence."""
        return self._seqs.items()

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """`msg_id` is stored as `seq` at `ts_ns`."""
        if self.window_ns > 0:
            self._seqs[msg_id] = seq
            self._order.append((ts_ns, seq, (msg_id,)))

    def all_new(self, msg_ids: list[bytes], now_ns: int) -> bool:
        """None of the ids was stored within the window, and each is there but once; b"" stands for none."""
        self.expire(now_ns)
        wanted = set(msg_ids)
        missing = msg_ids.count(b"") if b"" in wanted else 0
        wanted.discard(b"")
        return len(wanted) + missing == len(msg_ids) and self._seqs.keys().isdisjoint(wanted)

    def add_all(self, msg_ids: list[bytes], seq: int, ts_ns: int) -> dict[bytes, int]:
        """Ids that are all new are stored from `seq` and `ts_ns` on, each 1 ns after the one before, b"" for none.

        Returns their sequences.
        """
        seqs = dict(zip(msg_ids, range(seq, seq + len(msg_ids)), strict=True))
        seqs.pop(b"", None)
        if self.window_ns > 0:
            self._seqs.update(seqs)
            self._order.append((ts_ns, seq, msg_ids))
        return seqs

    def forget(self, msg_ids: dict[bytes, int]) -> None:
        """Remove ids that were not stored after all (id to the sequence they would have had)."""
        for msg_id, seq in msg_ids.items():
            if self._seqs.get(msg_id) == seq:
                del self._seqs[msg_id]

    def expire(self, now_ns: int) -> None:
        """Drop the ids that are older than the window."""
        horizon = now_ns - self.window_ns
        order, seqs = self._order, self._seqs
        while order and order[0][0] < horizon:
            ts_ns, first, msg_ids = order.popleft()
            gone = horizon - ts_ns
            for seq, msg_id in enumerate(msg_ids[:gone], first):
                if seqs.get(msg_id) == seq:
                    del seqs[msg_id]
            if gone < len(msg_ids):
                order.appendleft((horizon, first + gone, msg_ids[gone:]))

    def clock_jumped(self, ns: int) -> None:
        """Correct for a jump of the wall clock by `ns`, by which no id has aged."""
        self._order = deque((ts_ns + ns, seq, msg_ids) for ts_ns, seq, msg_ids in self._order)

    def set_window(self, window_ns: int, now_ns: int) -> None:
        """Set the window; what a shorter one already dropped does not return."""
        self.window_ns = window_ns
        self.expire(now_ns)
        if window_ns <= 0:
            self.clear()

    def clear(self) -> None:
        """Remember nothing."""
        self._seqs.clear()
        self._order.clear()


class IdsMark:
    """Whether a stream has ever stored an id: where it has not, its tail need not be read at start."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._recorded = self._found() == USED

    @property
    def none_yet(self) -> bool:
        """No message here has ever had an id."""
        return self._found() == NONE_YET

    def created(self, txn: Txn) -> None:
        """Record that the stream is created in `txn`."""
        self._log.put_position(txn, IDS_POSITION, NONE_YET)

    def record(self, txn: Txn) -> None:
        """Record that a message with an id is staged in `txn`."""
        if not self._recorded:
            self._recorded = True
            self._log.put_position(txn, IDS_POSITION, USED)

    def commit_failed(self) -> None:
        """Roll back what was staged."""
        self._recorded = self._found() == USED

    def _found(self) -> bytes:
        return self._log.positions().get(IDS_POSITION, b"")
