"""`eyot mqtt pub`: publishes over MQTT, in the manner of mosquitto_pub."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from eyot_cli.connection.target import Target
from eyot_cli.mqtt.client import READ_BYTES, MqttClient, Session
from eyot_cli.mqtt.login import FILE, connection_options, options_of, user_properties
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, count, print_json
from eyot_wire.mqtt.packet_types import V5
from eyot_wire.mqtt.properties import Properties

#: How long the acknowledgement of the last publish may take, seconds.
ACK_S = 30.0
#: MQTT has 32 bits for the message expiry interval.
EXPIRY_MAX_S = 2**32 - 1


class Message(NamedTuple):
    """What is the same for all messages of a command."""

    topic: str
    qos: int
    retain: bool
    properties: Properties | None


@click.command("pub")
@connection_options
@click.option("--topic", "-t", required=True, metavar="TOPIC", help="topic")
@click.option("--message", "-m", metavar="TEXT", help="the message; without, standard input is one message")
@click.option("--file", "-f", "file", type=FILE, metavar="FILE", help="send a file as the message")
@click.option("--stdin-line", "-l", "lines", is_flag=True, help="send each line of standard input as a message")
@click.option(
    "--null-message", "-n", "null", is_flag=True, help="send an empty message; with -r: clear the retained one"
)
@click.option("--qos", "-q", type=click.IntRange(0, 2), default=0, help="quality of service")
@click.option("--retain", "-r", is_flag=True, help="have the server retain the message")
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="user property; may be given several times")
@click.option("--expiry", type=click.IntRange(0, EXPIRY_MAX_S), metavar="SECONDS", help="message expiry interval")
@click.option("--content-type", metavar="TYPE", help="content type")
@click.option("--response-topic", metavar="TOPIC", help="where an answer is wanted")
@click.pass_obj
def publish(target: Target, /, **given: Any) -> None:
    """Publish messages over MQTT. QoS 1 and 2 wait until they are on flash."""
    options = options_of(given)
    sources = [given["message"] is not None, given["file"] is not None, given["lines"], given["null"]]
    if sum(sources) > 1:
        raise click.UsageError("-m, -f, -l and -n exclude each other")
    properties = _properties(given)
    if properties is not None and options.level != V5:
        raise click.UsageError("user properties, expiry, content type and response topic need MQTT 5: leave -V out")
    _check_topic(given["topic"])
    wanted = Message(given["topic"], given["qos"], given["retain"], properties)
    client = MqttClient(
        options.listener(target),
        options.login(target),
        Session(options.client_id),
        level=options.level,
        keep_alive_s=options.keep_alive_s,
    )
    try:
        sent = 0
        if given["lines"]:
            for line in _lines(client):
                _send(client, wanted, line)
                sent += 1
        else:
            _send(client, wanted, _payload(given["message"], given["file"], null=given["null"]))
            sent = 1
        while client.unacked and not client.refused:
            _await_answer(client)
        if not wanted.qos:
            client.await_read()
    finally:
        client.close()
    _report(target, wanted, sent, client.refused)


def _check_topic(topic: str) -> None:
    if not topic or "+" in topic or "#" in topic:
        raise click.UsageError(f"{topic!r} is no topic: + and # are wildcards of filters, and a topic is not empty")


def _properties(given: dict[str, Any]) -> Properties | None:
    properties = Properties(
        user_properties=user_properties(given["header"]),
        message_expiry_interval=given["expiry"],
        content_type=given["content_type"],
        response_topic=given["response_topic"],
    )
    return None if properties == Properties() else properties


def _payload(message: str | None, file: Path | None, *, null: bool) -> bytes:
    if null:
        return b""
    if message is not None:
        return message.encode()
    return sys.stdin.buffer.read() if file is None else file.read_bytes()


def _send(client: MqttClient, wanted: Message, payload: bytes) -> None:
    while wanted.qos and not client.has_room and not client.refused:
        _await_answer(client)
    if client.refused:
        return
    try:
        client.publish(wanted.topic, payload, qos=wanted.qos, retain=wanted.retain, properties=wanted.properties)
    except ValueError as error:
        raise Failure(f"{wanted.topic}: {error}") from error


def _await_answer(client: MqttClient) -> None:
    before = client.unacked
    client.wait(ACK_S)
    if client.unacked == before and not client.refused:
        _still(client, before)


def _still(client: MqttClient, before: int) -> None:
    """Wait once more: a keep-alive may have ended the first wait."""
    client.wait(ACK_S)
    if client.unacked == before and not client.refused:
        raise Failure(f"no acknowledgement within {ACK_S:g} s: see the server's log, and `eyot doctor`")


def _lines(client: MqttClient) -> Iterator[bytes]:
    """Yield the lines of standard input as they come; meanwhile the connection is kept alive."""
    source, rest = sys.stdin.fileno(), b""
    while not client.refused:
        if not client.wait(None, source):
            continue
        data = os.read(source, READ_BYTES)
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        yield from (each.removesuffix(b"\r") for each in whole)
    if rest:
        yield rest


def _report(target: Target, wanted: Message, sent: int, refused: str) -> None:
    if refused:
        raise Failure(f"{wanted.topic} is refused: {refused}")
    if target.as_json:
        print_json({"topic": wanted.topic, "qos": wanted.qos, "retain": wanted.retain, "messages": sent})
    elif wanted.qos and console.is_terminal:
        console.print(f"{count(sent)} on flash" if sent != 1 else "on flash")
