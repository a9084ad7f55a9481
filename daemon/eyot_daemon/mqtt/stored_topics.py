"""Topics whose publishes of QoS 1 go to flash and to nobody else, remembered while interest stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eyot_daemon.mqtt.session_queue import QUEUE_PREFIX
from eyot_wire.mqtt import topics

if TYPE_CHECKING:
    from eyot_daemon.mqtt.session_queue import QueueFilter
    from eyot_daemon.mqtt.store import MqttStore
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.route import Route
    from eyot_wire.native import Match

#: Topics that are remembered for an account.
TOPICS_MAX: Final = 1024


class StoredTopic:
    """What the publishes of a topic are stored in, while its route and the filters of queues are the same.

    `streams`: with the subject that each stores. `queue_subject`: that of the copy for sessions. `targets`: both, and the queues.
    """

    __slots__ = ("filters", "queue_subject", "route", "streams", "subject", "targets")

    def __init__(
        self, subject: bytes, route: Route, queue_subject: bytes, filters: Match[QueueFilter], store: MqttStore
    ) -> None:
        self.subject = subject
        self.route = route
        self.queue_subject = queue_subject
        self.filters = filters
        self.streams = tuple((queue.owner, stored) for queue, stored in route.streams())
        self.targets = store.run_targets(self.streams, queue_subject, filters)


class StoredTopics:
    """The topics of one account whose publishes are only stored."""

    __slots__ = ("_account", "_known")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._known: dict[str, StoredTopic] = {}

    def find(self, topic: str, store: MqttStore) -> StoredTopic | None:
        """Return what a topic's publishes are stored in; None: they go elsewhere too, or nowhere."""
        known = self._known.get(topic)
        if known is not None:
            is_same = known.route is self._account.route(known.subject)
            if is_same and known.filters is store.filters_of(known.queue_subject):
                return known
            del self._known[topic]
        subject = topics.to_subject(topic)
        if subject is None:
            return None
        route, queue_subject = self._account.route(subject), QUEUE_PREFIX + subject
        filters = store.filters_of(queue_subject)
        if route.without_streams() or not (route.streams() or filters):
            return None
        if len(self._known) >= TOPICS_MAX:
            self._known.clear()
        found = self._known[topic] = StoredTopic(subject, route, queue_subject, filters, store)
        return found
