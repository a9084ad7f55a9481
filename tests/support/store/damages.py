"""Stores that are damaged at random while nobody has them open, then opened, read, written and opened again, each in a process of its own.

What must hold: no process ends but by itself, nothing is read that was not written, what is gone is named, and streams that are not
damaged are read and written as ever. A repair, plain or raw, keeps all that could be read, and leaves a store that is whole.
`make damage` runs 10,000 cases.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from eyot_store import Log, Store, StoreError, StoreOptions
from eyot_store.check.check import check
from eyot_store.check.repair import repair
from eyot_store.journal.losses import gone_in
from eyot_store.records.store_cipher import StoreKeys
from support.store.store import commit

KEYS = StoreKeys(b"the operator's")
SMALL = StoreOptions(inline=True, flush=False, map_size=1 << 20, map_reserve=1 << 18, journal_segment_bytes=256 << 10)
PAGE = 4096
NOW_NS = 1_790_000_000_000_000_000
#: A case that uses more CPU does not end.
CASE_S = 60
#: One case of so many is about a store of long records.
LARGE_EVERY = 7
MEMORY = 2 << 30

Truth = dict[str, dict[int, tuple[bytes, bytes]]]
"""By stream: sequence to subject and payload of what must be there."""


class Base(NamedTuple):
    """A store that damaged copies are made of; `older`: the same store some commits before it ended."""

    name: str
    path: Path
    older: Path
    options: StoreOptions
    truth: Truth
    last: dict[str, int]


# -- stores ------------------------------------------------------------------------------------------------------------


def build(
    folder: Path,
    name: str,
    options: StoreOptions,
    streams: int,
    rounds: int,
    rng: random.Random,
    sizes: tuple[int, ...] = (3, 40, 300, 300),
) -> Base:
    """A store with messages that come and go, consumers and positions; it ends with a journal that was not taken over."""
    path = folder / name
    store = Store.open(path, notify=lambda fn: fn(), options=options)
    truth: Truth = {}
    logs: list[Log] = []
    for number in range(streams):
        txn = store.begin()
        logs.append(store.create_stream(txn, "A", f"S{number}", b"{}", 1))
        truth[f"S{number}"] = {}
        must(commit(store, txn))
    older = folder / f"{name}-older"
    for turn in range(rounds):
        for log in logs:
            write(store, log, truth[log.name], rng, sizes)
        if turn == rounds * 2 // 3:
            shutil.copytree(path, older, ignore=shutil.ignore_patterns("lock.mdb"))
    last = {log.name: log.state.last_seq for log in logs}
    store.crash()
    return Base(name, path, older, options, truth, last)


def write(
    store: Store, log: Log, truth: dict[int, tuple[bytes, bytes]], rng: random.Random, sizes: tuple[int, ...]
) -> None:
    """Some messages more, now and then some fewer."""
    txn = store.begin()
    for _ in range(rng.choice([1, 5, 60] if max(sizes) < PAGE else [1, 2, 5])):
        subject = b"s.%d" % rng.randrange(20)
        payload = rng.randbytes(rng.choice([*sizes, 9000 if rng.random() < 0.1 else 100]))
        seq = log.append(txn, subject, b"", payload, NOW_NS + log.state.last_seq)
        truth[seq] = subject, payload
    log.put_consumer(txn, "c", b"config", b"state %d" % log.state.last_seq)
    log.put_position(txn, b"origin", b"at %d" % log.state.last_seq)
    must(commit(store, txn))
    if rng.random() < 0.3 and truth:
        txn = store.begin()
        for seq in rng.sample(sorted(truth), min(len(truth), rng.choice([1, 9]))):
            if log.remove(txn, seq):
                del truth[seq]
        must(commit(store, txn))
    if rng.random() < 0.05 and truth:
        txn = store.begin()
        below = rng.choice(sorted(truth))
        log.purge(txn, below_seq=below)
        must(commit(store, txn))
        for seq in [seq for seq in truth if seq < below]:
            del truth[seq]


def must(error: StoreError | None) -> None:
    if error is not None:
        raise error


# -- damages -----------------------------------------------------------------------------------------------------------


def damage(path: Path, older: Path, rng: random.Random) -> str:
    """Damage a store; says how."""
    files = sorted(path.glob("journal/segment-*"))
    file = path / "data.mdb"
    if files and rng.random() < 0.25:
        file = rng.choice(files)
    data = bytearray(file.read_bytes())
    if not data:  # an earlier damage cut all of it
        return f"nothing is left of {file.name}"
    used = max((at for at in range(0, len(data), PAGE) if any(data[at : at + PAGE])), default=0) // PAGE + 1
    page = rng.randrange(2) if file.name == "data.mdb" and rng.random() < 0.05 else rng.randrange(used)
    at = page * PAGE
    how = rng.choice(DAMAGES)
    if how == "bit":
        for _ in range(rng.choice([1, 1, 3])):
            data[min(at + rng.randrange(PAGE), len(data) - 1)] ^= 1 << rng.randrange(8)
    elif how == "header bit":
        data[min(at + rng.randrange(64), len(data) - 1)] ^= 1 << rng.randrange(8)
    elif how == "noise":
        data[at : at + PAGE] = rng.randbytes(PAGE)
    elif how == "sector":
        start = at + 512 * rng.randrange(8)
        data[start : start + 512] = rng.choice([bytes(512), rng.randbytes(512)])
    elif how == "zeros":
        data[at : at + PAGE] = bytes(PAGE)
    elif how == "swap":
        other = rng.randrange(used) * PAGE
        data[at : at + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[at : at + PAGE]
    elif how == "copy":
        other = rng.randrange(used) * PAGE
        data[at : at + PAGE] = data[other : other + PAGE]
    elif how == "stale":
        before = older / file.relative_to(path)
        old = before.read_bytes() if before.exists() else b""
        page = rng.randrange(min(used, max(len(old) // PAGE, 1)))
        at = page * PAGE
        data[at : at + PAGE] = old[at : at + PAGE].ljust(PAGE, b"\0")
    elif how == "cut":
        del data[rng.randrange(used * PAGE) :]
    elif how == "gone":
        file.unlink()
        return f"{file.name} is gone"
    file.write_bytes(data)
    return f"{how} in page {page} of {file.name}"


DAMAGES = (
    ["bit"] * 6 + ["header bit"] * 3 + ["noise", "sector", "sector", "zeros", "swap", "copy", "stale", "stale", "cut"]
)
DAMAGES += ["gone"]


#: Of each case: a raw repair, a plain one, none.
REPAIRS = (True, False, None, None, None, None)


# -- what must hold ----------------------------------------------------------------------------------------------------


class Seen:
    """What one damaged store showed."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.unnamed: list[str] = []
        self.reused: list[str] = []
        self.unserved: list[str] = []
        self.refused = ""
        self.named: list[str] = []
        self.fenced = 0
        self.raised = ""


def check_states(base: Base, path: Path, seen: Seen) -> None:
    """Open, read, write, and open again."""
    try:
        named = list(check(path, base.options.keys).problems)
    except StoreError as error:
        named = [str(error)]
    truth = {name: dict(messages) for name, messages in base.truth.items()}
    for _ in range(2):
        try:
            store = Store.open(path, notify=lambda fn: fn(), options=base.options)
        except StoreError as error:
            seen.refused = str(error)
            return
        named += store.damaged + store.recounted
        logs = {log.name: log for log in store.streams()}
        for name, messages in truth.items():
            log = logs.get(name)
            if log is None:
                if not named:
                    seen.unnamed.append(f"stream {name}")
                continue
            fenced = read_all(log, messages, base.last[name], named, seen)
            if fenced:
                seen.fenced += 1
            else:
                serve(store, log, messages, base.last[name], seen, bool(named))
        for _ in range(20):
            store.commit_now()
        named += store.damaged
        store.close()
    seen.named = named


def read_all(log: Log, messages: dict[int, tuple[bytes, bytes]], last: int, named: list[str], seen: Seen) -> bool:
    """Read every sequence in three ways; True: the stream is fenced."""
    missing = []
    for seq in range(1, log.committed_seq + 1):
        try:
            message = log.get(seq)
        except StoreError as error:
            if error.reason != "corrupt":
                seen.wrong.append(f"{log.name} {seq}: {error!r}")
            if not error.seq:
                return True
            continue
        if message is not None and seq in messages and (message.subject, message.payload) != messages[seq]:
            seen.wrong.append(f"{log.name} {seq}")
        if message is not None and seq not in messages and seq <= last and not named:
            seen.wrong.append(f"{log.name} {seq} is back")
        if message is None and seq in messages:
            missing.append(seq)
    missing += [seq for seq in messages if seq > log.committed_seq]
    if missing and not any(log.name in each or "commit" in each or "journal" in each for each in named):
        seen.unnamed.append(f"{log.name} {missing[0]} to {missing[-1]}, {len(missing)} messages")
    at, steps = 1, 0
    while at <= log.committed_seq:
        try:
            result = log.read(at, max_messages=50, max_bytes=1 << 20)
        except StoreError as error:
            if not error.seq:
                return True
            at = error.seq + 1
            continue
        for each in result.messages:
            if each.seq in messages and (each.subject, each.payload) != messages[each.seq]:
                seen.wrong.append(f"{log.name} {each.seq} by read")
        if result.next_seq <= at:
            seen.wrong.append(f"{log.name}: next_seq goes back from {at} to {result.next_seq}")
            return True
        at, steps = result.next_seq, steps + 1
    return False


def serve(store: Store, log: Log, messages: dict[int, tuple[bytes, bytes]], last: int, seen: Seen, named: bool) -> None:
    """A stream that is not fenced takes, gives and forgets messages."""
    for read in (log.consumers, log.positions):
        try:
            read()
        except StoreError as error:
            if error.reason != "corrupt":
                seen.wrong.append(f"{log.name}: {error!r}")
    try:
        dict(log.subject_totals())
    except StoreError as error:
        if error.seq == 0 and "fence" not in repr(error) and error.reason != "corrupt":
            seen.wrong.append(f"{log.name}: {error!r}")
    txn = store.begin()
    seq = log.append(txn, b"new", b"", b"new payload", 10**9)
    if seq in messages or seq <= last:
        seen.reused.append(f"{log.name} {seq}, last {last}")
    error = commit(store, txn)
    if error is None:
        messages[seq] = b"new", b"new payload"
    elif error.reason != "corrupt":
        seen.unserved.append(f"{log.name}: {error!r}")
    some = sorted(messages)[:: max(len(messages) // 7, 1)]
    txn = store.begin()
    gone = []
    for each in some:
        try:
            if log.remove(txn, each):
                gone.append(each)
        except StoreError:
            break
    if commit(store, txn) is None:
        for each in gone:
            messages.pop(each, None)
    txn = store.begin()
    below = some[len(some) // 2] if some else 1
    try:
        log.purge(txn, below_seq=below)
    except StoreError:
        store.abort(txn)
        return
    if commit(store, txn) is None:
        for each in [each for each in messages if each < below]:
            del messages[each]


# -- repairs -----------------------------------------------------------------------------------------------------------


def check_repair(base: Base, path: Path, readable: Path, seen: Seen, *, raw: bool) -> None:
    """Repair the store in `path`; `readable` is a copy of it that shows what could be read before."""
    options = StoreOptions(**{f: getattr(base.options, f) for f in base.options.__struct_fields__} | {"inline": True})
    before = _readable(base, readable, options, seen)
    try:
        repair(path, base.options.keys, raw=raw)
    except StoreError as error:
        if before is not None and not error.message.startswith("cannot be repaired"):
            seen.wrong.append(f"repair: {error}")
        return
    # A message that cannot be read keeps its place until somebody deletes it, and so do messages without a stream's entry.
    unmendable = ("checksum does not match", "its entry is lost")
    problems = [
        each for each in check(path, base.options.keys).problems if not any(words in each for words in unmendable)
    ]
    if problems:
        seen.wrong.append(f"repair leaves: {problems[:2]}")
    after = _readable(base, path, options, seen, repaired=True)
    for name, seqs in (before or {}).items():
        lost = seqs - (after or {}).get(name, set())
        if lost:
            seen.wrong.append(f"repair{' (raw)' if raw else ''} lost {len(lost)} of {name}: {sorted(lost)[:3]}")


def _readable(
    base: Base, path: Path, options: StoreOptions, seen: Seen, *, repaired: bool = False
) -> dict[str, set[int]] | None:
    """Open a store; the sequences that can be read and hold what was written, by stream. None: it does not open.

    `repaired`: what is missing must be recorded for downstreams.
    """
    try:
        store = Store.open(path, notify=lambda fn: fn(), options=options)
    except StoreError:
        return None
    found: dict[str, set[int]] = {}
    for log in store.streams():
        truth = base.truth.get(log.name, {})
        found[log.name] = set()
        missing: list[int] = []
        for seq in truth:
            try:
                message = log.get(seq)
            except StoreError:
                continue
            if message is None:
                missing.append(seq)
            elif (message.subject, message.payload) == truth[seq]:
                found[log.name].add(seq)
            else:
                seen.wrong.append(f"{log.name} {seq} after a repair")
        if repaired:
            spans = gone_in(log.positions())
            uncounted = [seq for seq in missing if not any(first <= seq <= last for first, last in spans)]
            if uncounted:
                seen.wrong.append(f"{log.name}: a repair records no loss of {len(uncounted)}: {uncounted[:3]}")
    store.close()
    return found


# -- one case in a process of its own ----------------------------------------------------------------------------------


def _address_space() -> int:
    """Bytes of this process's address space, which a fork has, too."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def in_child(work: Callable[[Seen], None]) -> tuple[Seen, int]:
    """Run `work` in a fork; what it has seen, and how the process ended (0, or the signal)."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.close(reading)
        seen = Seen()
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = MEMORY + _address_space()
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        devnull = os.open("/dev/null", os.O_WRONLY)
        os.dup2(devnull, 2)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, CASE_S)
        try:
            work(seen)
        except BaseException:
            seen.raised = traceback.format_exc()
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(seen, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    return (pickle.loads(data) if data else Seen()), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def bases(folder: Path, seed: int) -> list[Base]:
    """The stores that are damaged."""
    rng = random.Random(seed)
    replace = lambda **changes: StoreOptions(**{f: getattr(SMALL, f) for f in SMALL.__struct_fields__} | changes)  # noqa: E731
    return [
        build(folder, "journal", SMALL, 3, 60, rng),
        build(folder, "lmdb", replace(committer="lmdb"), 3, 60, rng),
        build(folder, "sealed", replace(keys=KEYS), 3, 30, rng),
        build(folder, "many", SMALL, 60, 8, rng),
        build(folder, "long", replace(committer="lmdb"), 2, 400, rng),
        build(folder, "large", SMALL, 2, 40, random.Random(-seed), (20_000, 40_000)),
    ]


def play(cases: int, seed: int, only: Collection[int] = (), seconds: float = 1e9) -> tuple[Counter[str], list[str]]:
    """Damage and look, so many times; the figures, and what must not be."""
    figures: Counter[str] = Counter()
    failures: list[str] = []
    told = 0
    with tempfile.TemporaryDirectory(prefix="damage-", dir=os.environ.get("DAMAGE_DIR")) as name:
        folder = Path(name)
        stores = bases(folder, seed)
        until = time.monotonic() + seconds
        for case in only or range(cases):
            if time.monotonic() > until:
                break
            rng = random.Random(seed * 1_000_003 + case)
            base = rng.choice(stores[:-1])
            if case % LARGE_EVERY == LARGE_EVERY // 2:
                base = stores[-1]
            path = folder / "damaged"
            shutil.copytree(base.path, path, ignore=shutil.ignore_patterns("lock.mdb"))
            how = " and ".join(
                damage(path, base.older, rng) for _ in range(rng.choice([1, 1, 1, 2])) if (path / "data.mdb").exists()
            )
            if case and not case % 1000:
                print(f"... {case} of {cases} cases, {len(failures)} failures", flush=True)
            repairs = rng.choice(REPAIRS)

            def look(seen: Seen, base: Base = base, path: Path = path, raw: bool | None = repairs) -> None:
                if raw is not None:
                    _repaired(base, path, folder, seen, raw=raw)
                check_states(base, path, seen)

            seen, ended = in_child(look)
            for copy in ("repaired", "readable"):
                shutil.rmtree(folder / copy, ignore_errors=True)
            figures["repairs"] += repairs is not None
            figures["cases"] += 1
            figures["refused"] += bool(seen.refused)
            figures["fenced"] += bool(seen.fenced)
            figures["named"] += bool(seen.named)
            where = f"case {case} (seed {seed}), {base.name}, {how}: "
            if ended:
                figures["ended by a signal"] += 1
                failures.append(f"{where}ended by signal {ended}")
            if seen.raised:
                figures["raised"] += 1
                failures.append(where + seen.raised)
            if seen.refused and only:
                failures.append(where + "refused: " + seen.refused)
            for kind in ("wrong", "unnamed", "reused", "unserved"):
                found = getattr(seen, kind)
                if found:
                    figures[kind] += 1
                    failures.append(f"{where}{kind}: {found[:5]}; named: {seen.named[:3]}")
            if seen.refused:
                figures[f"refused: {seen.refused[:60]}"] += 1
            for failure in failures[told:]:
                print(failure, flush=True)
            told = len(failures)
            shutil.rmtree(path)
    return figures, failures


def _repaired(base: Base, path: Path, folder: Path, seen: Seen, *, raw: bool) -> None:
    """Repair one copy of a damaged store, and read another."""
    copies = [folder / "repaired", folder / "readable"]
    for copy in copies:
        shutil.copytree(path, copy)
    check_repair(base, *copies, seen, raw=raw)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", type=int, nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    figures, failures = play(options.cases, options.seed, options.case, options.seconds)
    print(f"seed {options.seed}:", ", ".join(f"{name} {number}" for name, number in figures.most_common()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
