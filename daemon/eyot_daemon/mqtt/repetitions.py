"""Repetitions of QoS 1: a publish that came before, in streams that store such a one once.

A client that got no PUBACK sends its publish again with the DUP flag, and MQTT lets a stream store it twice. A stream
with `eyot.mqtt_duplicates: drop` in its metadata stores it once within its duplicate window. Its messages get a
`Nats-Msg-Id`: a digest of client id, packet identifier, topic and payload, and a part that no other publish has. A
publish with DUP gets the id of the last publish with its digest, so the stream's own window finds it, also after a
power cut. A publish without DUP always gets a new id: a client may use an identifier again for an equal reading.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from eyot_daemon.jetstream.config.rules import MQTT_DROP, MQTT_DUPLICATES_KEY

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.mqtt.publication import Publication

#: What ids of publishes begin with.
_PREFIX: Final = b"mqtt1-"
_DIGEST_BYTES: Final = 15
#: Prefix and digest (base64url without padding).
_KEY_BYTES: Final = len(_PREFIX) + _DIGEST_BYTES * 8 // 6
#: Ids that have left the window are forgotten when this many are known beyond twice those in it.
_SLACK: Final = 1024


def wanted(stream: Stream) -> bool:
    """Return whether a stream asks to store a repeated publish of QoS 1 once."""
    return stream.config.metadata.get(MQTT_DUPLICATES_KEY) == MQTT_DROP


class Repetitions:
    """The ids of the publishes of one account."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        #: of each stream that asked: the last id that was given, by its prefix and digest
        self._known: WeakKeyDictionary[Stream, dict[bytes, bytes]] = WeakKeyDictionary()

    def msg_id(self, stream: Stream, client_id: str, publication: Publication) -> bytes:
        """Return the `Nats-Msg-Id` of a publish of QoS 1 for a stream that asks for it."""
        known = self._known_of(stream)
        key = _PREFIX + _digest(client_id, publication)
        if publication.dup and key in known:
            return known[key]
        made = known[key] = b"%b-%b" % (key, secrets.token_urlsafe(12).encode())
        return made

    def _known_of(self, stream: Stream) -> dict[bytes, bytes]:
        """Return the ids of a stream; at first those that its duplicate window has, in the order of the messages."""
        known = self._known.get(stream)
        if known is None or len(known) > 2 * len(stream.dedupe) + _SLACK:
            found = sorted((seq, each) for each, seq in stream.dedupe.ids() if each.startswith(_PREFIX))
            known = self._known[stream] = {each[:_KEY_BYTES]: each for _, each in found}
        return known


def _digest(client_id: str, publication: Publication) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (client_id.encode(), publication.topic.encode()):
        digest.update(b"%d:%b" % (len(part), part))
    digest.update(b"%d:%b" % (publication.packet_id, publication.payload))
    return base64.urlsafe_b64encode(digest.digest())
