"""`eyot mqtt sub`: subscribes over MQTT, in the manner of mosquitto_sub."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.mqtt.client import MqttClient, Session
from eyot_cli.mqtt.login import connection_options, options_of, user_properties
from eyot_cli.terminal.show import print_json, print_payload
from eyot_cli.values.numbers import at_least
from eyot_cli.values.seconds import seconds
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.mqtt.packets import Publish, SubscriptionRequest
from eyot_wire.mqtt.properties import Properties
from eyot_wire.quoting import printable

#: The expiry interval of a session that does not expire.
NEVER = 0xFFFF_FFFF
#: Exit status where messages did not come in time, as mosquitto_sub's.
TIMED_OUT = 27


@click.command("sub")
@connection_options
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    required=True,
    metavar="FILTER",
    help="topic filter; may be given several times",
)
@click.option("--qos", "-q", type=click.IntRange(0, 2), default=0, help="quality of service")
@click.option("--count", "-C", "count", type=at_least(1), metavar="NUMBER", help="end after so many messages")
@click.option(
    "--timeout", "-W", "timeout_s", callback=seconds, default="0", metavar="TIME", help="end after this time; 0: never"
)
@click.option(
    "--disable-clean-session", "-c", "persistent", is_flag=True, help="keep the session when the command ends; needs -i"
)
@click.option(
    "--session-expiry-interval",
    "-x",
    "expiry_s",
    type=click.IntRange(0, NEVER),
    metavar="SECONDS",
    help="how long it is kept; for ever without",
)
@click.option("--no-retained", "-R", is_flag=True, help="do not print retained messages")
@click.option("--retained-only", is_flag=True, help="print retained messages only, and end with the first other one")
@click.option("--remove-retained", is_flag=True, help="clear the retained messages that match")
@click.option("--exit-after-suback", "-E", "only_subscribe", is_flag=True, help="subscribe and end")
@click.option(
    "--header", "-H", multiple=True, metavar="NAME:VALUE", help="user property of SUBSCRIBE; may be given several times"
)
@click.option("--verbose", "-v", is_flag=True, help="print the topic before the message")
@click.pass_obj
def subscribe(target: Target, /, **given: Any) -> None:
    """Print messages of topics over MQTT.

    Exit status 27 when the time of -W is over before the messages of -C came.
    """
    options = options_of(given)
    if given["persistent"] and not options.client_id:
        raise click.UsageError("a session that is kept needs a client id: -i")
    if given["header"] and options.level != V5:
        raise click.UsageError("user properties need MQTT 5: leave -V out")
    expiry = (NEVER if given["expiry_s"] is None else given["expiry_s"]) if given["persistent"] else 0
    client = MqttClient(
        options.listener(target),
        options.login(target),
        Session(options.client_id, not given["persistent"], expiry),
        level=options.level,
        keep_alive_s=options.keep_alive_s,
    )
    properties = Properties(user_properties=user_properties(given["header"])) if given["header"] else None
    try:
        # MQTT 5 can leave retained messages out; 3.1.1 marks them
        handling = 2 if given["no_retained"] and options.level == V5 else 0
        client.subscribe(
            [SubscriptionRequest(each, given["qos"], retain_handling=handling) for each in given["topics"]], properties
        )
        if not given["only_subscribe"]:
            _Printer(target, client, given).run()
    finally:
        client.close()


class _Printer:
    """Prints what comes, until the command ends."""

    def __init__(self, target: Target, client: MqttClient, given: dict[str, Any]) -> None:
        self._target = target
        self._client = client
        self._given = given
        self._left: int | None = given["count"]
        self._over = False

    def run(self) -> None:
        timeout_s: float = self._given["timeout_s"]
        deadline = time.monotonic() + timeout_s if timeout_s else None
        while True:
            while (message := self._client.take()) is not None:
                self._show(message)
                if self._over:
                    return
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise click.exceptions.Exit(TIMED_OUT if self._left else 0)
            self._client.wait(left)

    def _show(self, message: Publish) -> None:
        given = self._given
        if message.retain and given["no_retained"]:
            return
        if message.retain and given["remove_retained"]:
            self._client.publish(message.topic, b"", qos=0, retain=True, properties=None)
        if not message.retain and given["retained_only"]:
            self._over = True
            return
        _show(self._target, message, verbose=given["verbose"])
        if self._left is not None:
            self._left -= 1
            self._over = not self._left


def _show(target: Target, message: Publish, *, verbose: bool) -> None:
    text = message.payload.decode("utf-8", "replace")
    if target.as_json:
        shown: dict[str, Any] = {
            "topic": message.topic,
            "qos": message.qos,
            "retain": message.retain,
            "dup": message.dup,
            "payload": text,
        }
        if message.properties is not None:
            shown["properties"] = msgspec.to_builtins(message.properties)
        print_json(shown)
        return
    print_payload(f"{printable(message.topic)} {text}" if verbose else text)
