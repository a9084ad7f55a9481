"""A sensor that speaks MQTT: paho-mqtt with QoS 2 and a persistent session, so that each reading arrives exactly once.

Runs as a process of its own: `sensor.py PORT LEDGER COUNT`. It writes one line `id<TAB>0<TAB>ms` to LEDGER for each reading
whose PUBCOMP came. The broker may be killed meanwhile: the client connects again and goes on where it was.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import UTC, datetime
from threading import Lock, Semaphore
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from readings import reading_of

DEVICE = "mqtt-1"
METRIC = "vibration"
#: Readings on their way at once.
WINDOW = 20
#: Readings a second: it measures while everything else happens.
RATE = 100
READY_S = 60


def main() -> None:
    port, ledger_path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    begun, room, lock = time.monotonic(), Semaphore(WINDOW), Lock()
    sent: dict[int, str] = {}
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=DEVICE, clean_session=False)
    client.username_pw_set("fleet", "fleet")
    client.reconnect_delay_set(1, 1)
    client.max_inflight_messages_set(WINDOW)

    with open(ledger_path, "a", encoding="utf-8") as ledger:

        def completed(_client: Any, _data: Any, number: int, *_: Any) -> None:
            with lock:
                ledger.write(f"{sent.pop(number)}\t0\t{(time.monotonic() - begun) * 1000:.0f}\n")
                ledger.flush()
            room.release()

        client.on_publish = completed
        client.connect("127.0.0.1", port, keepalive=5)
        client.loop_start()
        for number in range(count):
            room.acquire()
            value = math.sin(number / 20)
            reading = reading_of(DEVICE, METRIC, number, datetime.now(UTC).isoformat(), value)
            with lock:
                published = client.publish(reading.subject.replace(".", "/"), reading.payload, qos=2)
                sent[published.mid] = reading.id
            time.sleep(1 / RATE)
        for _ in range(WINDOW):
            if not room.acquire(timeout=READY_S):
                raise SystemExit(f"the broker did not complete {len(sent)} readings")
        client.loop_stop()
        client.disconnect()


if __name__ == "__main__":
    main()
