"""A process that writes to a store until it is killed, and reports on standard output what was acknowledged.

    python tests/support/store/writer.py DIRECTORY SEED

Each transaction puts messages into two streams, the position of the last one and a consumer's state; then one line
`<last seq of S> <last seq of T>` is written, after the commit. Some transactions remove old messages or purge, too; those
report `removed <first live seq>` for stream S. With an odd SEED small groups are written beside the loop.
"""

import os
import random
import select
import sys
from collections.abc import Callable
from pathlib import Path

from eyot_daemon.turn.hand_over import HandOver
from eyot_store import Log, Store, StoreError


def payload_of(seq: int) -> bytes:
    """What stream S holds at `seq`."""
    return b"%d " % seq * (1 + seq % 60)


def main() -> None:
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    loop = HandOver()
    store = Store.open(directory, notify=loop.soon, wake=loop if seed % 2 else None)

    def run() -> None:
        select.select([loop], [], [])
        loop.read()

    if not store.streams():
        txn = store.begin()
        for name in ("S", "T"):
            store.create_stream(txn, "A", name, b"{}", 1)
        store.submit(txn)
        run()
    first, second = store.streams()
    in_flight = 0

    def report(text: bytes) -> Callable[[StoreError | None], None]:
        def done(error: StoreError | None) -> None:
            nonlocal in_flight
            in_flight -= 1
            if error is not None:
                raise error
            os.write(1, text)

        return done

    while True:
        for _ in range(rng.randint(1, 4)):
            in_flight += 1
            write(store, first, second, rng, report)
        while in_flight:
            run()


def write(
    store: Store,
    first: Log,
    second: Log,
    rng: random.Random,
    report: Callable[[bytes], Callable[[StoreError | None], None]],
) -> None:
    """One transaction."""
    txn = store.begin()
    if rng.random() < 0.1 and first.state.messages > 400:
        first.purge(txn, keep=rng.randint(100, 300))
        store.submit(txn, report(b"removed %d\n" % first.state.first_seq))
        return
    for _ in range(rng.randint(1, 20)):
        seq = first.state.last_seq + 1
        first.append(txn, b"s.%d" % (seq % 7), b"", payload_of(seq), seq)
    last = second.append(txn, b"t", b"", b"%d" % first.state.last_seq, 1)
    second.put_position(txn, b"S", b"%d" % first.state.last_seq)
    first.put_consumer(txn, "c", b"config", b"%d" % first.state.last_seq)
    store.submit(txn, report(b"%d %d\n" % (first.state.last_seq, last)))


if __name__ == "__main__":
    main()
