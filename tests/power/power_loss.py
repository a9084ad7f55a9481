"""Power loss in a virtual machine: eyotd in a virtual machine, killed from outside while clients publish, again and again.

    .venv/bin/python tests/power/power_loss.py [--rounds 5] [--seed 1] [--encrypted]

Each round boots the machine on the disk that the last one left, publishes with many messages in flight and kills the machine at
a random moment: what was only in its memory is gone, with whatever its kernel had not written. Then the disk is looked at from
outside: `eyot-check` finds nothing wrong, and every message that was ever acknowledged is there, once, in the order of its
sequence. The machine is emulated in software: no privileges are needed, and a boot takes its time (some 20 s).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nats

sys.path.insert(0, str(Path(__file__).parent))
from machine import Machine

from eyot_store import Store, StoreOptions
from eyot_store.check.check import check
from eyot_store.records.store_cipher import StoreKeys

KEY = "pulled"
BOOT_S_MAX = 1800.0
IN_FLIGHT = 32


def main() -> None:
    parser = argparse.ArgumentParser(description="Power loss of a virtual machine that runs eyotd.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--encrypted", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    keys = StoreKeys(KEY.encode()) if options.encrypted else None
    with tempfile.TemporaryDirectory(prefix="eyot-power-") as name:
        folder = Path(name)
        machine = Machine(folder, f'key: "{KEY}"' if options.encrypted else "")
        acked: dict[int, bytes] = {}
        for number in range(1, options.rounds + 1):
            port = free_port()
            with machine.boot(port) as process:
                before = len(acked)
                try:
                    asyncio.run(publish(port, number, rng.uniform(3, 12), acked, process))
                except Exception:
                    print((folder / "console").read_text(errors="replace")[-3000:], file=sys.stderr)
                    raise
            check_states(machine.take_out_store(folder / "out"), keys, acked)
            print(
                f"round {number}: {len(acked) - before} more acknowledged, {len(acked)} in all, all there", flush=True
            )
    print(f"{options.rounds} power losses (seed {options.seed}), nothing acknowledged was lost")


async def publish(
    port: int, number: int, seconds: float, acked: dict[int, bytes], machine: subprocess.Popen[bytes]
) -> None:
    """Publish for ``seconds`` once the machine answers, then cut its power meanwhile."""
    started = time.monotonic()
    client = await connected(port, started, machine)
    print(f"  up after {time.monotonic() - started:.0f} s", flush=True)
    js = client.jetstream(timeout=60)
    with contextlib.suppress(nats.js.errors.BadRequestError):
        await js.add_stream(name="POWER", subjects=["power.>"])
    counter = iter(range(1 << 60))

    async def publisher() -> None:
        while True:
            payload = b"%d/%d " % (number, next(counter)) + b"x" * random.randrange(400)
            ack = await js.publish("power.a", payload)
            acked[ack.seq] = payload

    tasks = [asyncio.create_task(publisher()) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(seconds)
    machine.kill()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.close(), 2)


async def connected(port: int, started: float, machine: subprocess.Popen[bytes]) -> nats.NATS:
    while machine.poll() is None:
        try:
            return await nats.connect(
                f"nats://127.0.0.1:{port}",
                connect_timeout=20,
                allow_reconnect=False,
                max_reconnect_attempts=0,
                error_cb=ignore,
            )
        except Exception:
            if time.monotonic() - started > BOOT_S_MAX:
                raise
            await asyncio.sleep(1)
    raise RuntimeError("the machine has ended by itself")


async def ignore(_: Exception) -> None:
    """Errors before the machine is up."""


def check_states(path: Path, keys: StoreKeys | None, acked: dict[int, bytes]) -> None:
    """Nothing is damaged, and what was acknowledged is there. Raises AssertionError."""
    report = check(path, keys)
    assert report.ok, report.problems
    store = Store.open(path, notify=lambda fn: fn(), options=StoreOptions(inline=True, keys=keys))
    assert store.damaged == store.recounted == [], (store.damaged, store.recounted)
    log = store.stream("$G", "POWER")
    assert log is not None or not acked, "the stream is gone"
    if log is not None:
        seq, found = 1, {}
        while seq <= log.committed_seq:
            read = log.read(seq, max_messages=1000, max_bytes=1 << 20)
            found.update({message.seq: message.payload for message in read.messages})
            seq = read.next_seq
        assert len(found) == log.state.messages == log.state.last_seq
        assert len(set(found.values())) == len(found), "something is there twice"
        missing = [seq for seq, payload in acked.items() if found.get(seq) != payload]
        assert not missing, f"acknowledged and lost: {missing[:10]} of {len(acked)}"
    store.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
