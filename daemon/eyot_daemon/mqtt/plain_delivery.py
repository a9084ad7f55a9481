"""Plain publishes of MQTT clients: a run of them is one operation where only MQTT clients subscribe.

Everything that depends on the topic alone (permission, mapping, route) is computed once for a run, and each subscriber
gets its bytes at once. What is not plain takes the full rules of `publishing.py`, packet by packet: both give each
subscriber the same messages, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eyot_daemon.mqtt import message
from eyot_daemon.mqtt.sending import MqttSender
from eyot_daemon.mqtt.session_link import BACKLOG_BYTES, Outgoing
from eyot_wire.mqtt import topics

if TYPE_CHECKING:
    from eyot_daemon.mqtt.publishing import Publisher
    from eyot_daemon.mqtt.session_record import SubOptions
    from eyot_daemon.router.route import Route
    from eyot_daemon.router.subscription import Subscription
    from eyot_wire.mqtt.plain_publishes import MixedPublishes, PlainPublishes

#: The header of each message of a run.
HEADER: Final = message.header_of(None, 0, "", 0)


def publish_plain(publisher: Publisher, run: PlainPublishes) -> bool:
    """Publish a run; False: it needs the full rules, and nothing has happened."""
    account = publisher.account
    found = _found(publisher, run.topic)
    if found is None:
        return False
    subject, targets = found
    for sub, dest in targets:
        if sub.active:
            msgs, size = dest.out_msgs, dest.out_bytes
            dest.deliver_run(sub, subject, run, publisher)
            msgs, size = dest.out_msgs - msgs, dest.out_bytes - size
            account.out_msgs += msgs
            account.out_bytes += size + msgs * len(HEADER)
    return True


def publish_mixed(publisher: Publisher, run: MixedPublishes) -> bool:
    """Publish a run of several topics that all have the same subscribers; False: they differ, and nothing has happened."""
    account = publisher.account
    targets: list[tuple[Subscription, MqttSender]] | None = None
    subjects: list[bytes] = []
    for topic in run.topics:
        found = _found(publisher, topic)
        if found is None or (targets is not None and found[1] != targets):
            return False
        subjects.append(found[0])
        targets = found[1]
    if not targets or not all(sub.active and dest.takes_mixed(sub, subjects, run, publisher) for sub, dest in targets):
        return False
    for sub, dest in targets:
        sub.delivered += run.count
        dest.send_publishes(run.packets, run.count, run.payload_bytes)
        account.out_msgs += run.count
        account.out_bytes += run.payload_bytes + run.count * len(HEADER)
    return True


def _found(publisher: Publisher, topic: str) -> tuple[bytes, list[tuple[Subscription, MqttSender]]] | None:
    """Return the subject of a topic and its subscribers, if plain publishes on it lead to clients of MQTT alone."""
    account = publisher.account
    subject = topics.to_subject(topic)
    if subject is None or topics.to_topic(subject) != topic or account.mappings.maps(subject):
        return None
    if not publisher.may_publish_always(subject):
        return None
    targets = _targets(account.route(subject))
    return None if targets is None else (subject, targets)


def _targets(route: Route) -> list[tuple[Subscription, MqttSender]] | None:
    """Return the subscriptions of a route that leads to clients of MQTT alone, once to each; None for another one.

    A client that is reached twice gets the copies of one message before the next message.
    """
    if not route.local:
        return None
    targets: list[tuple[Subscription, MqttSender]] = []
    for sub, local in route.plain:
        dest = sub.dest
        if local or sub.rewrite is not None or not isinstance(dest, MqttSender):
            return None
        targets.append((sub, dest))
    return targets if len({dest for _, dest in targets}) == len(targets) else None


def send_run(dest: MqttSender, run: PlainPublishes, options: SubOptions) -> None:
    """Send a run to a client: the bytes as they are, or the messages one by one where each must be judged."""
    backlog = dest.backlog
    if backlog > BACKLOG_BYTES:
        dest.session.drops.count("slow", run.count)
        return
    if not options.identifier and dest.takes_run(run):
        packets = run.packets(dest.level)
        if backlog + len(packets) <= BACKLOG_BYTES:
            dest.send_publishes(packets, run.count, run.payload_bytes)
            return
    identifiers = (options.identifier,) if options.identifier else ()
    for payload in run.payloads():
        dest.session.send(Outgoing(run.topic, b"", HEADER, payload, 0, False, identifiers))
