"""`eyotd` whose MQTT connections log in and answer PINGREQ, and do no more: what is in front of the protocol can be tested alone."""

from __future__ import annotations

import sys
from pathlib import Path

from eyot_daemon import launch
from eyot_daemon.client.close_reasons import close_reason
from eyot_daemon.client.served import ServedClient
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.mqtt.login import connect_of
from eyot_daemon.server import Server
from support.eyotd import Eyotd
from support.mqtt_login import DISCONNECT, PINGREQ, PINGRESP


class MqttStandIn(ServedClient):
    """CONNECT of 3.1.1, PINGREQ and DISCONNECT."""

    __slots__ = ("_early",)

    def start(self) -> None:
        self._early = b""
        self.set_authentication_timer()

    def received(self, data: bytes | bytearray | memoryview) -> None:
        self._early += bytes(data)
        while not self.closed and self.decision is None and len(self._early) >= 2:
            length, shift, at = 0, 0, 1
            while True:
                if at >= len(self._early):
                    return
                digit = self._early[at]
                length |= (digit & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if digit < 0x80:
                    break
            if len(self._early) < at + length:
                return
            packet, self._early = self._early[: at + length], self._early[at + length :]
            self._handle(packet, at)

    def _handle(self, packet: bytes, at: int) -> None:
        if packet[0] == 0x10:
            self._connect(packet[at + 7], packet[at + 10 :])
        elif packet == PINGREQ and self.connected:
            self.queue_output(PINGRESP)
        else:
            self.close("Client Closed" if packet == DISCONNECT else "Protocol Violation", linger=False)

    def _connect(self, flags: int, rest: bytes) -> None:
        fields = []
        while rest:
            length = int.from_bytes(rest[:2])
            fields.append(rest[2 : 2 + length])
            rest = rest[2 + length :]
        self.mqtt_client = fields.pop(0).decode()
        user = fields.pop(0).decode() if flags & 0x80 else ""
        password = fields.pop(0) if flags & 0x40 else b""
        self.log_in(connect_of(user, password, self.mqtt_client))

    def welcome(self) -> None:
        self.queue_output(b"\x20\x02\x00\x00")

    def turned_away(self) -> None:
        self.queue_output(b"\x20\x02\x00\x05")
        self.close("Authentication Failure", linger=True)

    def go_on(self) -> None:
        if not self.closed:
            self.received(b"")

    def fail(self, text: str) -> None:
        self.close(close_reason(text), linger=True)


class Speaker:
    """Nothing is shared."""

    def __init__(self, options: MqttOptions) -> None:
        self.set_options(options)

    def set_options(self, options: MqttOptions) -> None:
        self.options = options

    def bring_back(self) -> None:
        """There are no sessions."""

    def stop(self) -> None:
        """There is nothing to end."""


class MqttStandInEyotd(Eyotd):
    """The process. `%MQTT_PORT%` and `%WS_PORT%` in its configuration are free ports."""

    def command(self) -> list[str]:
        tests = str(Path(__file__).parents[1])
        return ["env", f"PYTHONPATH={tests}", sys.executable, __file__, "-c", str(self.config_path)]


if __name__ == "__main__":
    Server._speak_mqtt = lambda self, options: (MqttStandIn, Speaker(options))  # type: ignore[method-assign]
    sys.exit(launch.main())
