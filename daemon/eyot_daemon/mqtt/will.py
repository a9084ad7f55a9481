"""Wills: what a client asked to be published when its connection ends without DISCONNECT.

A will is part of the session [MQTT-4.1]: it is on flash before CONNACK where the session is persistent, so that it is
published after a power cut, too. A delayed will is published when its delay or the session ends, whichever comes first,
and not if the client comes back before [MQTT-3.1.3-9].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_daemon.mqtt.publication import Publication
from eyot_daemon.mqtt.session_record import StoredWill
from eyot_wire.mqtt import properties as mqtt_properties
from eyot_wire.mqtt import topics
from eyot_wire.mqtt.fields import FieldReader

if TYPE_CHECKING:
    from eyot_wire.mqtt.packets import Will


def stored(will: Will) -> StoredWill:
    """Return the will of a CONNECT as it is stored."""
    properties = will.properties
    return StoredWill(
        topic=will.topic,
        payload=will.payload,
        qos=will.qos,
        retain=will.retain,
        delay_s=(properties.will_delay_interval or 0) if properties is not None else 0,
        properties=b"" if properties is None else mqtt_properties.write(properties),
    )


def publication_of(will: StoredWill) -> Publication:
    """Return the publish of a stored will."""
    subject = topics.to_subject(will.topic)
    assert subject is not None, "checked at CONNECT"
    properties = None
    if will.properties:
        properties = mqtt_properties.read(FieldReader(will.properties), mqtt_properties.WILL)
    return Publication(will.topic, subject, will.payload, will.qos, will.retain, properties)
