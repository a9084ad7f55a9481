"""A sensor that speaks MQTT: paho-mqtt with QoS 2 and a persistent session, so that each reading arrives exactly once.

Runs as a process of its own: `sensor.py PORT LEDGER COUNT`. It writes one line `id<TAB>0<TAB>ms` to LEDGER for each reading
whose PUBCOMP came. The broker may be killed meanwhile: the client connects again and goes on where it was.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from datetime import UTC, datetime
from typing import Any, TextIO

import paho.mqtt.client as mqtt
from paho.mqtt import enums
from paho.mqtt.enums import CallbackAPIVersion
from readings import reading_of

DEVICE = "mqtt-1"
METRIC = "vibration"
#: Readings on their way at once.
WINDOW = 20
#: Readings a second: it measures while everything else happens.
RATE = 100
#: Without a completed reading for so long something is wrong.
STUCK_S = 60


class Sensor:
    """The client and what it measured."""

    def __init__(self, port: int, ledger: TextIO) -> None:
        self._port = port
        self._ledger = ledger
        self._begun = self._last = time.monotonic()
        self._sent: dict[int, str] = {}
        client = self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=DEVICE, clean_session=False)
        client.username_pw_set("fleet", "fleet")
        client.max_inflight_messages_set(WINDOW)
        client.on_publish = self._completed
        client.connect_async("127.0.0.1", port, keepalive=5)
        while not self._connects():  # the power may be cut before the first connection
            if time.monotonic() > self._begun + STUCK_S:
                raise SystemExit("nobody listens")

    def run(self, count: int) -> None:
        """Publish `count` readings, and wait until all are complete."""
        published = 0
        while published < count or self._sent:
            due = int((time.monotonic() - self._begun) * RATE)
            while published < min(count, due) and len(self._sent) < WINDOW:
                self._publish(published)
                published += 1
            if self._client.loop(timeout=1 / RATE) != mqtt.MQTT_ERR_SUCCESS:
                self._connect_again()
            if time.monotonic() > self._last + STUCK_S:
                raise SystemExit(f"the broker did not complete {len(self._sent)} readings")
        self._client.disconnect()

    def _publish(self, number: int) -> None:
        reading = reading_of(DEVICE, METRIC, number, datetime.now(UTC).isoformat(), math.sin(number / 20))
        published = self._client.publish(reading.subject.replace(".", "/"), reading.payload, qos=2)
        self._sent[published.mid] = reading.id

    def _completed(self, client: Any, data: Any, number: int, *_: Any) -> None:
        self._last = time.monotonic()
        self._ledger.write(f"{self._sent.pop(number)}\t0\t{(self._last - self._begun) * 1000:.0f}\n")
        self._ledger.flush()

    def _connect_again(self) -> None:
        """Connect once somebody listens.

        A connection that ends before PUBREL went out again makes paho-mqtt 2.2 forget that it had sent it: it would publish the
        message again as a new one. So those are put back to where they were.
        """
        for message in self._client._out_messages.values():
            if message.state == enums.MessageState.MQTT_MS_RESEND_PUBREL:
                message.state = enums.MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
        self._connects()

    def _connects(self) -> bool:
        """Whether somebody listens, and the client is connected; it waits a little if nobody does."""
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            self._client.reconnect()
        except OSError:
            time.sleep(0.05)
            return False
        return True


def main() -> None:
    port, ledger_path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with open(ledger_path, "a", encoding="utf-8") as ledger:
        Sensor(port, ledger).run(count)


if __name__ == "__main__":
    main()
