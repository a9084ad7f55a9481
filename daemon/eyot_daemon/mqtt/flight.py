"""Messages of QoS 1 and 2 on their way to a client, and their packet identifiers.

Packet identifiers of queued messages follow from the sequence in the stream, so that they are the same after a restart
or a power cut without being stored [MQTT-4.4.0-1]: `sequence % QUEUED_IDS + 1`. Identifiers above are given to messages
from memory: retained ones, and those of groups. Sessions that are not persistent have no queue, and give any.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from eyot_daemon.mqtt.session_link import Outgoing

#: Identifiers of queued messages are 1 to this; those above are for messages from memory.
QUEUED_IDS: Final = 61_440
LAST_ID: Final = 65_535


class Phase(Enum):
    """How far a message of QoS 1 or 2 has come: the packet that was sent last."""

    PUBLISH = "publish"
    #: PUBREC came, its record is on the way to flash
    RECEIVED = "received"
    PUBREL = "pubrel"


class Source(Protocol):
    """A queue that a message came from."""

    @property
    def ack(self) -> Callable[[int], bool]:
        """Have the queue forget the message of this sequence; False: it was not handed over, or was taken back."""
        ...


class Flight:
    """A message on its way to the client. `sseq` and `source`: its sequence in a queue, 0 and None for one from memory."""

    __slots__ = ("message", "packet_id", "phase", "source", "sseq")

    def __init__(
        self,
        packet_id: int,
        outgoing: Outgoing | None,
        sseq: int = 0,
        source: Source | None = None,
        phase: Phase = Phase.PUBLISH,
    ) -> None:
        self.packet_id = packet_id
        self.sseq = sseq
        self.source = source
        #: None once the client has it: only the PUBREL remains
        self.message = outgoing
        self.phase = phase
