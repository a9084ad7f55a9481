"""A workload on a store, its writes and flushes noted by `capture.so`, and what the store holds after each transaction.

    LD_PRELOAD=capture.so python power_workload.py DIRECTORY TRACE SNAPSHOTS KIND TXNS SEED

KIND: `journal` or `lmdb`, the committer; `sealed`: with a journal and encrypted; `beside`: with a journal, written beside the loop;
`long`: with a journal whose segments have room for long records (others of this size bypass the journal).

Marks in the trace: transaction `n` is handed in: 2n; it is acknowledged: 2n + 1. SNAPSHOTS gets one line of JSON for each.
"""

import ctypes
import hashlib
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from eyot_store import Log, Store, StoreOptions, Txn
from eyot_store.records import store_cipher
from eyot_store.subjects import batch_index, index_writer
from support.store.store import commit, open_inline, write_beside

KIB = 1024
OPTIONS = StoreOptions(
    inline=True, map_size=64 * KIB, map_reserve=64 * KIB, journal_segment_bytes=16 * KIB, journal_segments=2
)

KINDS = ("journal", "long", "lmdb", "sealed", "beside")
#: share of the messages whose records have pages of their own in LMDB
LONG_SHARE = 0.12
LONG_MIN, LONG_MAX = 5 * KIB, 70 * KIB

Snapshot = dict[str, Any]


def options_for(kind: str) -> StoreOptions:
    """The store's options; and the sizes that make small workloads do what large ones do."""
    index_writer.INDEX_EVERY = batch_index.INDEX_EVERY = 8
    batch_index.RUN_MIN = 2
    store_cipher._SCRYPT_LOG2_N = 4
    if kind == "sealed":
        return msgspec.structs.replace(OPTIONS, keys=store_cipher.StoreKeys(b"key"))
    if kind == "long":
        return msgspec.structs.replace(OPTIONS, journal_segment_bytes=256 * KIB)
    return msgspec.structs.replace(OPTIONS, committer="journal" if kind == "beside" else kind)


def snapshot(store: Store) -> Snapshot:
    """Everything that can be read."""
    out: Snapshot = {}
    for log in store.streams():
        messages = log.read(1, max_messages=9999, max_bytes=1 << 30).messages
        assert log.state.messages == len(messages)
        assert dict(log.subject_totals()) == Counter(message.subject for message in messages)
        out[log.name] = {
            "config": log.config.hex(),
            "last": log.state.last_seq,
            "bytes": log.state.bytes,
            "messages": [[m.seq, m.ts_ns, m.subject.hex(), _shown(m.payload)] for m in messages],
            "consumers": [[name, config.hex(), state.hex()] for name, config, state in log.consumers()],
            "positions": sorted([key.hex(), value.hex()] for key, value in log.positions().items()),
        }
    return out


def _shown(payload: bytes) -> str:
    return payload.hex() if len(payload) < LONG_MIN else f"{len(payload)} bytes, {hashlib.sha256(payload).hexdigest()}"


def _payload(rng: random.Random, *sizes: int) -> bytes:
    return rng.randbytes(rng.randint(LONG_MIN, LONG_MAX) if rng.random() < LONG_SHARE else rng.choice(sizes))


def change(store: Store, txn: Txn, rng: random.Random, number: int) -> None:
    """One transaction's worth."""
    logs = {log.name: log for log in store.streams()}
    for name in ("S", "T"):
        if name not in logs:
            logs[name] = store.create_stream(txn, "A", name, b"%d" % number, 1)
    first, second = logs["S"], logs["T"]
    kind = rng.random()
    if kind < 0.04:
        second.delete(txn)
        return
    if kind < 0.08:
        second.set_config(txn, b"%d" % number)
        return
    for _ in range(rng.choice((1, 1, 2, 9))):
        first.append(txn, b"a", b"", _payload(rng, 10, 200, 900), number)
    if rng.random() < 0.5:
        second.append(txn, b"b", b"", _payload(rng, 10, 100, 5000), number)
    _consume(txn, first, second, rng)


def _consume(txn: Txn, first: Log, second: Log, rng: random.Random) -> None:
    second.put_position(txn, b"S", b"%d" % first.state.last_seq)
    if rng.random() < 0.5:
        first.put_consumer(txn, "c", b"config", b"%d" % first.state.last_seq)
    if rng.random() < 0.3 and first.state.messages > 3:
        first.remove(txn, first.state.first_seq)
    if rng.random() < 0.1 and first.state.messages > 40:
        first.purge(txn, keep=10)


def main() -> None:
    directory, trace, snapshots = (Path(arg) for arg in sys.argv[1:4])
    options = options_for(sys.argv[4])
    rng = random.Random(int(sys.argv[6]))
    capture = ctypes.CDLL(None)
    capture.capture_start(str(directory).encode(), str(trace).encode())
    store = open_inline(directory, options)
    beside = write_beside(store) if sys.argv[4] == "beside" else None
    capture.capture_mark(ctypes.c_uint64(1))
    with snapshots.open("w") as out:
        out.write(json.dumps(snapshot(store)) + "\n")
        for number in range(1, int(sys.argv[5]) + 1):
            capture.capture_mark(ctypes.c_uint64(2 * number))
            txn = store.begin()
            change(store, txn, rng, number)
            error = commit(store, txn)
            assert error is None, error
            capture.capture_mark(ctypes.c_uint64(2 * number + 1))
            out.write(json.dumps(snapshot(store)) + "\n")
    store.crash()
    assert beside is None or beside.beside > int(sys.argv[5]) // 4


if __name__ == "__main__":
    main()
