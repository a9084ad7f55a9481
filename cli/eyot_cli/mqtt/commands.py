"""The group `eyot mqtt`."""

from __future__ import annotations

import click

from eyot_cli.mqtt.import_command import import_mosquitto
from eyot_cli.mqtt.publish import publish
from eyot_cli.mqtt.retained import retained
from eyot_cli.mqtt.sessions import sessions
from eyot_cli.mqtt.subscribe import subscribe


@click.group()
def mqtt() -> None:
    """Publish and subscribe over MQTT; inspect sessions."""


mqtt.add_command(publish)
mqtt.add_command(subscribe)
mqtt.add_command(sessions)
mqtt.add_command(import_mosquitto)
mqtt.add_command(retained)
