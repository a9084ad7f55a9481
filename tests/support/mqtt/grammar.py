"""Conversations of an MQTT client from the grammar: steps that the specification allows, each with what the server owes.

Everything is drawn from a `random.Random`, so that a seed repeats it. What is forbidden: `faults.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe, Will
from eyot_wire.mqtt.properties import Properties

#: User and password; `few` may publish and subscribe below `few/` alone.
USERS: Final = ("all", "few")
#: Topics with a subject, and those without one; the streams of the server take `s/#` and, up to a few, `full/#`.
TOPICS: Final = (
    *("few/a", "few/b/c", "s/1", "s/2", "/", "a//b", "a.b/c", "é/🙂", "full/1", "x y", "a/*", "s/>", "tab\there"),
    "deep/" + "x/" * 50,
)
NO_SUBJECT: Final = ("x" * 5000, "y/" * 300)
RESERVED: Final = ("$JS/API/INFO", "$MQTT/x", "$SYS/x")
FILTERS: Final = (
    *TOPICS,
    "#",
    "+",
    "+/+",
    "few/#",
    "s/+",
    "few/+/c",
    "/+",
    "$share/g/few/#",
    "$share/g/s/+",
    "$SYS/broker/uptime",
)
BAD_FILTERS: Final = (
    "a#",
    "#/a",
    "a/#/b",
    "a+",
    "+a/b",
    "$share/",
    "$share/g",
    "$share//x",
    "$share/a+/x",
    "$MQTT/#",
    "y/" * 300 + "#",
)
_TOPIC_NAME: Final = 0x90


@dataclass(frozen=True)
class Owed:
    """A packet that the server owes. `codes`: by answer, the reason codes that are right; empty: the packet has none.

    `withheld`: a refusal that 3.1.1 has no answer for; the server may close instead.
    """

    type: PacketType
    packet_id: int = 0
    codes: tuple[frozenset[int], ...] = ()
    withheld: bool = False


@dataclass(frozen=True)
class Step:
    """Bytes of the client. `may_end`: the server may close for them; `received`: the PUBREC that must have come before."""

    name: str
    data: bytes
    owed: tuple[Owed, ...] = ()
    may_end: bool = False
    received: int = 0
    filters: tuple[tuple[str, int], ...] = ()
    identifier: int = 0


def _codes(*codes: int) -> tuple[frozenset[int], ...]:
    return (frozenset(codes),)


@dataclass
class Grammar:
    """The packets of one client. `subs`: its filters, None while a session from before may have some."""

    rng: Random
    level: int
    user: str = "all"
    subs: set[str] | None = field(default_factory=set)
    aliases_max: int = 0

    def __post_init__(self) -> None:
        self._aliases: dict[int, str] = {}
        #: packet identifiers of QoS 2 that the server holds
        self._held: list[int] = []
        self._next_id = 0

    @property
    def is_v5(self) -> bool:
        return self.level == 5

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    # -- CONNECT ---------------------------------------------------------------------------------------------------------

    def connect(self, client_id: str) -> Connect:
        """A CONNECT that the server accepts."""
        rng, clean = self.rng, self.chance(0.6) or not client_id
        will = None
        if self.chance(0.4):
            properties = self._message_properties() if self.is_v5 and self.chance(0.6) else None
            if properties is not None:
                properties.will_delay_interval = rng.choice((None, 0, 1, 3600))
            will = Will(
                rng.choice(TOPICS[:-1]),
                rng.randbytes(rng.randrange(60)),
                rng.randrange(3),
                self.chance(0.3),
                properties,
            )
        properties = None
        if self.is_v5 and self.chance(0.8):
            properties = Properties(
                session_expiry_interval=rng.choice((None, 0, 1, 3600, 0xFFFFFFFF)),
                receive_maximum=rng.choice((None, 1, 2, 65_535)),
                maximum_packet_size=rng.choice((None, None, 55, 60, 200, 5000, 0xFFFFFFFF)),
                topic_alias_maximum=rng.choice((None, 0, 1, 5)),
                request_problem_information=rng.choice((None, 0, 1)),
                request_response_information=rng.choice((None, 0, 1)),
                user_properties=self._pairs(),
            )
        keep_alive = rng.choice((0, 60, 65_535))
        return Connect(self.level, client_id, clean, keep_alive, self.user, self.user.encode(), will, properties)

    # -- what is allowed -------------------------------------------------------------------------------------------------

    def step(self) -> Step:
        """One step that the specification allows, and that leaves the connection up."""
        kind = self.rng.choices(
            (self.publish, self.subscribe, self.unsubscribe, self.release, self.unknown_answer, self.ping),
            (8, 3, 1, 2, 1, 1),
        )[0]
        return kind()

    def next_id(self) -> int:
        self._next_id = self._next_id % 65_535 + 1
        return self._next_id if self._next_id not in self._held else self.next_id()

    def publish(self) -> Step:
        rng, qos = self.rng, self.rng.randrange(3)
        part = rng.random()
        topic = rng.choice(TOPICS if part < 0.8 else RESERVED if part < 0.9 else NO_SUBJECT)
        payload = rng.randbytes(rng.choice((0, 1, 40, 3000)))
        packet_id = self.next_id() if qos else 0
        properties = self._message_properties() if self.is_v5 and self.chance(0.6) else None
        name = topic if properties is None else self._alias(topic, properties)
        data = encoder.publish(
            self.level, name, payload, qos=qos, retain=self.chance(0.3), dup=bool(qos) and self.chance(0.1), packet_id=packet_id,
            properties=properties,
        )  # fmt: skip
        codes = self._publish_codes(topic)
        may_end = not self.is_v5 and bool(codes & {_TOPIC_NAME, 0x97})
        if not qos:
            return Step(f"publish {topic[:20]!r}", data, may_end=may_end)
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        owed = Owed(kind, packet_id, (codes,) if self.is_v5 else (), withheld=may_end)
        if qos == 2 and min(codes) < 0x80:
            self._held.append(packet_id)
        return Step(f"publish {topic[:20]!r} at {qos}", data, (owed,), may_end)

    def _publish_codes(self, topic: str) -> frozenset[int]:
        if topics.to_subject(topic) is None:
            return frozenset({_TOPIC_NAME})
        if topic in RESERVED or (self.user == "few" and not topic.startswith("few/")):
            return frozenset({0x87})
        return frozenset({0, 0x10, 0x97} if topic.startswith("full/") else {0, 0x10})

    def _alias(self, topic: str, properties: Properties) -> str:
        """Set or use a topic alias; what the PUBLISH has as its topic."""
        if not self.aliases_max or self.chance(0.6):
            return topic
        known = [alias for alias, meant in self._aliases.items() if meant == topic]
        if known:
            properties.topic_alias = self.rng.choice(known)
            return ""
        properties.topic_alias = self.rng.randrange(1, self.aliases_max + 1)
        self._aliases[properties.topic_alias] = topic
        return topic

    def subscribe(self) -> Step:
        rng, packet_id = self.rng, self.next_id()
        wanted = []
        for _ in range(rng.randrange(1, 6)):
            name = rng.choice(FILTERS if self.chance(0.8) else BAD_FILTERS)
            asked = SubscriptionRequest(name, rng.randrange(3))
            if self.is_v5:
                asked.no_local = self.chance(0.3) and not name.startswith("$share/")
                asked.retain_as_published, asked.retain_handling = self.chance(0.5), rng.randrange(3)
            wanted.append(asked)
        identifier = rng.choice((1, 127, 128, 268_435_455)) if self.is_v5 and self.chance(0.4) else 0
        properties = Properties(
            subscription_identifiers=[identifier] if identifier else [], user_properties=self._pairs()
        )
        data = encoder.subscribe(self.level, Subscribe(packet_id, wanted, properties if self.is_v5 else None))
        codes = tuple(frozenset({self._granted(each)}) for each in wanted)
        taken = tuple((each.filter, each.qos) for each in wanted if self._granted(each) < 0x80)
        if self.subs is not None:
            self.subs.update(name for name, _ in taken)
        return Step(
            "subscribe", data, (Owed(PacketType.SUBACK, packet_id, codes),), filters=taken, identifier=identifier
        )  # fmt: skip

    def _granted(self, asked: SubscriptionRequest) -> int:
        if asked.filter in BAD_FILTERS:
            return 0x8F if self.is_v5 else 0x80
        inner = asked.filter.removeprefix("$share/g/")
        if self.user == "few" and not inner.startswith("few/"):
            return 0x87 if self.is_v5 else 0x80
        return asked.qos

    def unsubscribe(self) -> Step:
        packet_id = self.next_id()
        names = [self.rng.choice(FILTERS + BAD_FILTERS) for _ in range(self.rng.randrange(1, 4))]
        codes = []
        for name in names:
            if self.subs is None:
                codes.append(frozenset({0, 0x11}))
            else:
                codes.append(frozenset({0 if name in self.subs else 0x11}))
                self.subs.discard(name)
        data = encoder.unsubscribe(self.level, Unsubscribe(packet_id, names, None))
        owed = Owed(PacketType.UNSUBACK, packet_id, tuple(codes) if self.is_v5 else ())
        return Step("unsubscribe", data, (owed,))

    def release(self) -> Step:
        """PUBREL for a publish of QoS 2 that has its PUBREC."""
        if not self._held:
            return self.ping()
        packet_id = self._held.pop(self.rng.randrange(len(self._held)))
        # 0x92: the publish was refused, or belonged to a session that ended
        owed = Owed(PacketType.PUBCOMP, packet_id, _codes(0, 0x92) if self.is_v5 else ())
        return Step("release", encoder.pubrel(self.level, packet_id), (owed,), received=packet_id)

    def unknown_answer(self) -> Step:
        """An answer to nothing: ignored, or answered with "not found"."""
        packet_id = 65_000 + self.rng.randrange(500)
        kind = self.rng.randrange(4)
        if kind == 0:
            owed = Owed(PacketType.PUBREL, packet_id, _codes(0x92) if self.is_v5 else ())
            return Step("pubrec of nothing", encoder.pubrec(self.level, packet_id), (owed,))
        if kind == 1:
            owed = Owed(PacketType.PUBCOMP, packet_id, _codes(0x92) if self.is_v5 else ())
            return Step("pubrel of nothing", encoder.pubrel(self.level, packet_id), (owed,))
        encode = encoder.puback if kind == 2 else encoder.pubcomp
        return Step("answer to nothing", encode(self.level, packet_id))

    def ping(self) -> Step:
        return Step("ping", encoder.PINGREQ, (Owed(PacketType.PINGRESP),))

    def leave(self) -> Step:
        """DISCONNECT."""
        if not self.is_v5 or self.chance(0.4):
            return Step("disconnect", encoder.DISCONNECT)
        properties = Properties(reason_string="x", user_properties=self._pairs()) if self.chance(0.5) else None
        return Step("disconnect", encoder.disconnect(self.rng.choice((0, 4, 0x80, 0x97)), properties))

    # -- properties --------------------------------------------------------------------------------------------------------

    def _pairs(self) -> list[tuple[str, str]]:
        names = ("a", "", "Nats-Rollup", "x\r\nNats-Rollup", "Content-Type", "é", "a", "Nats-Msg-Id", "k" * 300)
        return [
            (self.rng.choice(names), self.rng.choice(("", "all", "v\r\n", "🙂", "1")))
            for _ in range(self.rng.randrange(4))
        ]

    def _message_properties(self) -> Properties:
        rng = self.rng
        return Properties(
            payload_format_indicator=rng.choice((None, 0)),
            message_expiry_interval=rng.choice((None, 1, 3600, 0xFFFFFFFF)),
            content_type=rng.choice((None, "", "text/plain", "a\r\nb")),
            response_topic=rng.choice((None, "few/answer", "a//b", "x y")),
            correlation_data=rng.choice((None, b"", b"\0\xff", bytes(300))),
            user_properties=self._pairs(),
        )
