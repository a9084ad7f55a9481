"""What the fleet's page costs: questions over many devices, and viewers during a storm of statuses.

    python tests/bench/fleet_page.py [--devices 10000] [--viewers 100] [--seconds 30]

Server and viewers are separate processes; processor time and memory are the server's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from eyot_fleet.device_query import DeviceQuery
from eyot_fleet.device_record import DeviceRecord
from support.devices.fleet_page import FleetPage, replaced

QUESTIONS = {
    "first page, by state": DeviceQuery(),
    "by backlog, page 100": DeviceQuery(sort="backlog", descending=True, page=100),
    "two words": DeviceQuery(text="pump site:north"),
    "label and state": DeviceQuery(labels=("site:north",), states=("behind",)),
    "any alert, by last contact": DeviceQuery(alerts=("*",), sort="heard"),
}


def questions(page: FleetPage) -> None:
    for name, query in QUESTIONS.items():
        times = []
        for _ in range(20):
            began = time.process_time()
            page.backend.index.query(query)
            times.append(1000 * (time.process_time() - began))
        print(f"query, {name:28} {statistics.median(times):8.1f} ms")


def storm(page: FleetPage, seconds: float, rate: float) -> int:
    """Statuses of devices, one after the other, so many a second; return how many."""
    rng, names, sent = random.Random(1), [record.name for record in page.backend.index], 0
    began = time.monotonic()

    def some(until: int) -> None:
        nonlocal sent
        while sent < until:
            record = page.backend.index.get(names[sent % len(names)])
            assert isinstance(record, DeviceRecord)
            now = page.backend.now()
            page.backend.index.put(replaced(record, heard_at=now, messages=rng.randrange(10**6)), now)
            sent += 1

    while time.monotonic() - began < seconds:
        page.do(some, int((time.monotonic() - began) * rate))
        time.sleep(0.05)
    return sent


async def view(number: int, port: int, cookie: str, counts: dict[str, int], delays: list[float]) -> None:
    """One viewer: its events, and its own page of the list again every five seconds, as a browser does."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    buffer, feed, again = b"", "", 0.0
    while True:
        data = await stream.receive_some(65536)
        if not data:
            raise RuntimeError("the events have ended")
        buffer += data
        counts["bytes"] += len(data)
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line.startswith(b'data: {"feed"'):
                feed = json.loads(line[6:])["feed"]
            elif line.startswith(b"data: "):
                counts["events"] += 1
        if trio.current_time() >= again:
            again = trio.current_time() + 5
            began = time.monotonic()
            await ask(port, cookie, f"/api/devices?size=50&sort=heard&page={number}&feed={feed}")
            delays.append(time.monotonic() - began)
            counts["questions"] += 1


async def ask(port: int, cookie: str, path: str) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n".encode()
        )
        answer = b""
        while data := await stream.receive_some(65536):
            answer += data
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]


async def viewers(port: int, cookies: list[str], seconds: float) -> None:
    counts, delays = {"bytes": 0, "events": 0, "questions": 0}, []
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number, cookie in enumerate(cookies):
                nursery.start_soon(view, number, port, cookie, counts, delays)
    delays.sort()
    worst = delays[int(0.99 * len(delays))]
    print(json.dumps(counts | {"median_ms": 1000 * statistics.median(delays), "worst_ms": 1000 * worst}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--view", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.view:
        port, cookies = json.loads(asked.view)
        trio.run(viewers, port, cookies, asked.seconds)
        return
    process = psutil.Process()
    before = process.memory_info().rss
    with FleetPage(asked.devices) as page:
        questions(page)
        print(f"memory, {asked.devices:,} devices in the index {(process.memory_info().rss - before) / 1e6:14.0f} MB")
        # A session has eight viewers at most, and a user ten sessions.
        cookies = [f"eyot_fleet={_session(page, number // 80)}" for number in range(0, asked.viewers, 8)]
        order = json.dumps([page.port, [cookies[number // 8] for number in range(asked.viewers)]])
        words = [sys.executable, __file__, "--seconds", str(asked.seconds), "--view", order]
        viewing = subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ)
        time.sleep(3)
        cpu, resident = process.cpu_times(), process.memory_info().rss
        began = time.monotonic()
        sent = storm(page, asked.seconds - 5, asked.devices / 60)
        elapsed_s = time.monotonic() - began
        used = process.cpu_times()
        share = 100 * (used.user + used.system - cpu.user - cpu.system) / elapsed_s
        grown = (process.memory_info().rss - resident) / 1e6
        found = json.loads(viewing.communicate()[0])
    print(
        f"storm: {60 * sent / elapsed_s:,.0f} statuses a minute, {asked.viewers} viewers: {share:.0f} % of one processor, {grown:+.0f} MB"
    )
    print(
        f"viewers: {found['events']:,} events, {found['bytes'] / 1e6:.1f} MB, {found['questions']} pages of the list in {found['median_ms']:.0f} ms (99 %: {found['worst_ms']:.0f} ms)"
    )


def _session(page: FleetPage, user: int) -> str:
    cookie: str = page.do(lambda: page.site.access._sessions.begin(f"viewer-{user}", role="viewer")[0])
    return cookie


if __name__ == "__main__":
    threading.stack_size(256 * 1024)
    main()
