"""Microbenchmark of the wire floor: nanoseconds per operation of scanning, matching and encoding, best of several turns.

    .venv/bin/python tests/bench/scan.py [name…]

Reads are of 256 KiB, as the broker makes them. Compare figures of one run on one machine only.
"""

import sys
import timeit
from collections.abc import Callable, Iterator

from eyot_wire import frames
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.leaf_scanner import LeafScanner
from eyot_wire.scanner import Scanner
from eyot_wire.sublist import SubList
from eyot_wire.transform import Transform
from support.jetstream.ack_replies import encode_ack_reply

READ_BYTES = 256 * 1024
PAYLOAD = b"x" * 128
HEADER = b"NATS/1.0\r\nNats-Msg-Id: 0123456789\r\n\r\n"
TURNS = 7

Case = tuple[str, int, Callable[[], object]]


class Sub:
    __slots__ = ("queue", "subject")

    def __init__(self, subject: bytes) -> None:
        self.subject = subject
        self.queue = b""


def read_of(frame: Callable[[int], bytes]) -> tuple[bytes, int]:
    """One read full of frames, and how many there are."""
    made: list[bytes] = []
    size = 0
    while size < READ_BYTES:
        made.append(frame(len(made)))
        size += len(made[-1])
    return b"".join(made), len(made)


def scan_cases() -> Iterator[Case]:
    def server(name: str, frame: Callable[[int], bytes], *, batches: bool = False) -> Case:
        data, count = read_of(frame)
        scanner = Scanner(batches=batches)
        return f"scan {name}", count, lambda: scanner.feed(data)

    def one(number: int) -> bytes:
        return frames.encode_pub(b"bench.subject", b"", b"", PAYLOAD)

    yield server("PUB, one line", one)
    yield server("PUB, one line, in a row", one, batches=True)
    yield server("PUB, 50 subjects", lambda number: frames.encode_pub(b"bench.%d" % (number % 50), b"", b"", PAYLOAD))
    yield server("PUB, 50 sizes", lambda number: frames.encode_pub(b"bench.s", b"", b"", PAYLOAD[: 60 + number % 50]))
    yield server(
        "PUB, new reply each", lambda number: frames.encode_pub(b"svc", b"_INBOX.abcdef.%d" % number, b"", PAYLOAD)
    )
    yield server(
        "HPUB, new reply each", lambda number: frames.encode_pub(b"svc", b"_INBOX.a.%d" % number, HEADER, PAYLOAD)
    )
    yield server(
        "acks", lambda number: frames.encode_pub(encode_ack_reply(b"S", b"C", 1, number, number, 17 * 10**17, 9))
    )
    yield server("SUB", lambda number: frames.encode_sub(b"bench.%d.*" % number, b"%d" % number))

    data, count = read_of(lambda number: frames.encode_msg(b"bench", b"1", b"", b"", PAYLOAD))
    client = Scanner("client")
    yield "scan MSG, one line", count, lambda: client.feed(data)

    def copied(number: int) -> bytes:
        reply = encode_ack_reply(b"ORIG", b"JS_SRC_abcdefgh", 1, number, number, 17 * 10**17, 9)
        return frames.encode_leaf_msg(b"$JS.S.abcdefgh", reply + b"@a.b", b"", PAYLOAD)

    leaf_data, leaf_count = read_of(copied)
    leaf = LeafScanner()
    yield "scan LMSG, as a source gets them", leaf_count, lambda: leaf.feed(leaf_data)


def match_cases() -> Iterator[Case]:
    subs: SubList[Sub] = SubList()
    for number in range(1000):
        for pattern in (b"lit.%d", b"_INBOX.%d.*", b"sensor.%d.*.value"):
            subs.insert(Sub(pattern % number))

    def match_all(name: str, subjects: list[bytes]) -> Case:
        def run() -> None:
            match = subs.match
            for subject in subjects:
                match(subject)

        return f"match {name}", len(subjects), run

    yield match_all("remembered", [b"lit.%d" % (number % 1000) for number in range(20_000)])
    yield match_all("new inbox subjects", [b"_INBOX.7.%d" % number for number in range(20_000)])
    yield match_all("new subjects of a wildcard", [b"sensor.7.%d.value" % number for number in range(20_000)])
    yield match_all("new subjects without interest", [b"none.%d" % number for number in range(20_000)])
    for name, pattern in (("literal", b"a.b.%d"), ("prefix.*", b"_INBOX.%d.*"), ("wildcard", b"a.*.%d")):
        many = [Sub(pattern % number) for number in range(50_000)]

        def insert(many: list[Sub] = many) -> None:
            fresh: SubList[Sub] = SubList()
            for sub in many:
                fresh.insert(sub)

        yield f"insert {name}", len(many), insert


def other_cases() -> Iterator[Case]:
    def repeat(name: str, work: Callable[[], object], count: int = 5000) -> Case:
        def run() -> None:
            for _ in range(count):
                work()

        return name, count, run

    reply = encode_ack_reply(b"ORIG", b"C", 1, 22, 22, 17 * 10**17, 9)
    partition = Transform(b"a.*.*", b"b.{{partition(10,1,2)}}.$1")
    domain = Transform(b"$JS.edge.API.CONSUMER.>", b"$JS.API.CONSUMER.>")
    yield repeat("encode MSG", lambda: frames.encode_msg(b"bench", b"1", b"", b"", PAYLOAD))
    yield repeat("encode LMSG", lambda: frames.encode_leaf_msg(b"bench", reply, b"", PAYLOAD))
    yield repeat("encode ack reply", lambda: encode_ack_reply(b"ORIG", b"C", 1, 22, 22, 17 * 10**17, 9))
    yield repeat("decode ack reply", lambda: decode_ack_reply(reply))
    yield repeat("transform with partition", lambda: partition.apply(b"a.foo.bar"))
    yield repeat("transform by prefix", lambda: domain.apply(b"$JS.edge.API.CONSUMER.MSG.NEXT.S.C"))


def main() -> None:
    wanted = sys.argv[1:]
    for cases in (scan_cases, match_cases, other_cases):
        for name, count, work in cases():
            if wanted and not any(word in name for word in wanted):
                continue
            best_s = min(timeit.repeat(work, number=1, repeat=TURNS))
            print(f"{name:<36} {best_s / count * 1e9:8.0f} ns")


if __name__ == "__main__":
    main()
