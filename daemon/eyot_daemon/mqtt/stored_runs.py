"""Runs of QoS 1 publishes that go to flash and to nobody else: stored as a whole, answered as a whole.

Whatever else a publish may ask for (other subscribers, a mapping, a queue that is full) takes the full rules of
`publishing.py`, packet by packet: both store the same messages, in the same order, in the same transactions. The runs of a
turn that follow each other, of whatever clients, are one if they go to the same streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_daemon.mqtt.repetitions import wanted

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.joint import RunDone
    from eyot_daemon.mqtt.publishing import Publisher
    from eyot_wire.mqtt.plain_publishes import AckedPublishes


def publish_stored(publisher: Publisher, run: AckedPublishes, done: RunDone) -> bool:
    """Store a run; `done` as in `MqttStore.publish_run`. False: it needs the full rules, and nothing has happened."""
    account, sessions = publisher.account, publisher.sessions
    store = sessions.store
    found = sessions.stored_topics.find(run.topic, store)
    if found is None or account.mappings.maps(found.subject) or not publisher.may_publish_always(found.subject):
        return False
    for stream, _ in found.streams:
        if wanted(stream):
            return False
    return store.publish_run(found.targets, publisher.plain_header(1), run, done)
