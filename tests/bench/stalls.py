"""How long other clients wait while one request reads all of a large stream.

    chrt -r 1 python tests/bench/stalls.py [--subjects 1000000] [--directory DIR]

Builds a stream of a million messages, each on a subject of its own, starts eyotd on it, and asks one thing after the other, while a
client of its own process sends a PING a millisecond: of each request is told how long it took, and the longest wait for a PONG. Under
`chrt` the kernel may hold whoever computes for a second without a break for 50 ms: with longer requests that is part of the wait.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import wire
from growth import Shape, build, on, publish_on, subject_of
from nodes import Node
from table import machine

SETTLE_S = 0.3
AGAIN = 500
AGAIN_PUBLISHED = f"{AGAIN} more messages on known subjects"


def ping(port: int, laps: Connection) -> None:
    """Until the other end closes: for whatever comes, the longest wait since the last time, in seconds."""
    peer, longest = wire.Peer(port), 0.0
    while True:
        sent = time.perf_counter()
        peer.barrier()
        longest = max(longest, time.perf_counter() - sent)
        if laps.poll(0.001):
            try:
                laps.recv()
            except EOFError:
                return
            laps.send(longest)
            longest = 0.0


def consumer(name: str, subject_filter: str = "", **config: object) -> tuple[str, object]:
    config |= {"durable_name": name, "name": name, "ack_policy": "explicit"}
    if subject_filter:
        config["filter_subject"] = subject_filter
    subject = f"CONSUMER.CREATE.S.{name}" + (f".{subject_filter}" if subject_filter else "")
    return subject, {"stream_name": "S", "config": config}


def requests(subjects: int) -> list[tuple[str, str, object]]:
    """What it is, the API's subject, and the body."""
    known = [subject_of(number).decode() for number in range(AGAIN)]
    middle = {"deliver_policy": "by_start_sequence", "opt_start_seq": subjects // 2}
    return [
        ("STREAM.INFO, the first question", "STREAM.INFO.S", ""),
        ("STREAM.INFO with all subjects, a page", "STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.INFO with one in a hundred", "STREAM.INFO.S", {"subjects_filter": "plant.line-7.*"}),
        ("the last message of all subjects", "STREAM.MSG.GET.S", {"last_by_subj": "plant.>"}),
        ("a consumer of one subject in a hundred", *consumer("some", "plant.line-7.*")),
        ("a consumer of all by a wildcard", *consumer("all", "plant.>")),
        ("the same from the middle on", *consumer("half", "plant.>", **middle)),
        ("the last of each subject", *consumer("lasts", "plant.>", deliver_policy="last_per_subject")),
        ("deletion of a message", "STREAM.MSG.DELETE.S", {"seq": subjects // 3}),
        ("a consumer from the middle on, a gap before", *consumer("gap", **middle)),
        (AGAIN_PUBLISHED, "", ""),
        ("multi_last, too many subjects", "DIRECT.GET.S", {"multi_last": ["plant.>"]}),
        (f"multi_last, {AGAIN} subjects", "DIRECT.GET.S", {"multi_last": known}),
        ("the same, up to before their last", "DIRECT.GET.S", {"multi_last": known, "up_to_seq": subjects}),
        ("a purge of one subject in a hundred", "STREAM.PURGE.S", {"filter": "plant.line-7.*"}),
        ("a purge that keeps 40 %", "STREAM.PURGE.S", {"keep": subjects * 2 // 5}),
    ]


def ask(node: Node, peer: wire.Peer, subject: str, body: object) -> None:
    if not subject:
        publish_on(node, [subject_of(number) for number in range(AGAIN)], AGAIN)
    elif subject.startswith("DIRECT.GET"):
        peer.last_direct(subject, body)
    else:
        peer.request(f"$JS.API.{subject}", body)


def main() -> None:
    parser = argparse.ArgumentParser(description="How long everybody waits for what one asks.")
    parser.add_argument("--subjects", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    options = parser.parse_args()
    many = options.subjects
    with tempfile.TemporaryDirectory(prefix="eyot-stalls-", dir=options.directory) as folder:
        build(Path(folder) / "bench-store" / "eyot", Shape(f"{many:,} subjects", many, 128, many))
        with on(Path(folder)) as node:
            laps, theirs = multiprocessing.Pipe()
            pinging = multiprocessing.Process(target=ping, args=(node.port, theirs), daemon=True)
            pinging.start()
            theirs.close()
            peer = wire.Peer(node.port)
            time.sleep(1.0)  # until that process runs
            print(f"{machine()}, {many:,} subjects.\n\n| asked | took, ms | longest PONG, ms |\n| --- | --- | --- |")
            for what, subject, body in [("nothing much", "INFO", ""), *requests(many)]:
                laps.send(None)
                laps.recv()
                asked = time.perf_counter()
                ask(node, peer, subject, body)
                lasted = time.perf_counter() - asked
                time.sleep(SETTLE_S)
                laps.send(None)
                print(f"| {what} | {lasted * 1e3:,.0f} | {laps.recv() * 1e3:,.1f} |", flush=True)
            laps.close()
            pinging.join(5)


if __name__ == "__main__":
    main()
