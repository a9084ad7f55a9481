"""Topic aliases of MQTT 5 (3.3.2.3.4): small numbers for topics, one table in each direction of a connection."""

from eyot_wire.mqtt.errors import ProtocolError
from eyot_wire.mqtt.packets import Publish
from eyot_wire.mqtt.reason_codes import ReasonCode


class InboundAliases:
    """The aliases that the peer has set, at most `maximum`."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, publish: Publish) -> str:
        """Return the topic of a PUBLISH, and note the alias that it sets. Raises ProtocolError (0x94)."""
        alias = publish.properties.topic_alias if publish.properties is not None else None
        if alias is None:
            return publish.topic
        if not 0 < alias <= self._maximum:
            raise ProtocolError(f"topic alias {alias} of {self._maximum}", ReasonCode.TOPIC_ALIAS_INVALID)
        if publish.topic:
            self._topics[alias] = publish.topic
            return publish.topic
        topic = self._topics.get(alias)
        if topic is None:
            raise ProtocolError(f"topic alias {alias} is not set")  # MQTT 5, 3.3.4
        return topic


class OutboundAliases:
    """The aliases that the peer lets us set. The first topics of a connection get them, and keep them."""

    __slots__ = ("_aliases", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}

    def assign(self, topic: str) -> tuple[str, int]:
        """Return the topic to send ("" when its alias is known to the peer) and the alias, 0 for none."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", alias
        if len(self._aliases) >= self.maximum:
            return topic, 0
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, alias

    def take_back(self, topic: str) -> None:
        """Forget the alias that was assigned last, to `topic`, whose packet is not sent."""
        if self._aliases.get(topic) == len(self._aliases):
            del self._aliases[topic]
