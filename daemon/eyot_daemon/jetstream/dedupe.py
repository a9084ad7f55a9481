"""The duplicate window: which `Nats-Msg-Id` was stored lately, and as which sequence (ADR-1).

Kept in memory and rebuilt at start from the tail of the log, where the ids are anyway. Its size is what the stream
stores with ids within its window: the window is the bound, and the configuration sets it. Times are wall time in ns.
"""

from collections import deque

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
        self._order: deque[tuple[int, bytes, int]] = deque()

    def __len__(self) -> int:
        return len(self._seqs)

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence under which `msg_id` was stored within the window; 0: it was not."""
        self.expire(now_ns)
        return self._seqs.get(msg_id, 0)

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """`msg_id` is stored as `seq` at `ts_ns`."""
        if self.window_ns > 0:
            self._seqs[msg_id] = seq
            self._order.append((ts_ns, msg_id, seq))

    def forget(self, msg_ids: dict[bytes, int]) -> None:
        """These ids were not stored after all (id to the sequence they would have had)."""
        for msg_id, seq in msg_ids.items():
            if self._seqs.get(msg_id) == seq:
                del self._seqs[msg_id]

    def expire(self, now_ns: int) -> None:
        """Drop what is older than the window."""
        horizon = now_ns - self.window_ns
        order = self._order
        while order and order[0][0] < horizon:
            _, msg_id, seq = order.popleft()
            if self._seqs.get(msg_id) == seq:
                del self._seqs[msg_id]

    def set_window(self, window_ns: int, now_ns: int) -> None:
        """The stream was given another window. What a shorter one already dropped does not come back."""
        self.window_ns = window_ns
        self.expire(now_ns)
        if window_ns <= 0:
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
        """The stream is created in `txn`."""
        self._log.put_position(txn, IDS_POSITION, NONE_YET)

    def record(self, txn: Txn) -> None:
        """A message with an id is staged in `txn`."""
        if not self._recorded:
            self._recorded = True
            self._log.put_position(txn, IDS_POSITION, USED)

    def commit_failed(self) -> None:
        """What was staged did not happen."""
        self._recorded = self._found() == USED

    def _found(self) -> bytes:
        return self._log.positions().get(IDS_POSITION, b"")
