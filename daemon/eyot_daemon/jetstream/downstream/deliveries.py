"""What each downstream was sent: messages that leave the stream before it confirms them may have arrived, or never do.

The positions of hidden consumers and bridges say it while they read. Their last ones are kept when they end, and the record
of a downstream keeps the sum (`Downstream.sent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from eyot_daemon.jetstream.downstream.downstream import Downstream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eyot_daemon.jetstream.downstream.downstream import BridgeReader, Delivered, HiddenConsumer
    from eyot_daemon.jetstream.stream_core import ConsumerPort


class Deliveries:
    """The deliveries of one stream to its downstreams, by the keys of their records."""

    def __init__(
        self, stored_seq: int, consumers: Mapping[str, ConsumerPort], known: Iterable[tuple[bytes, Downstream]]
    ) -> None:
        """`stored_seq`: the last sequence of the stream at its start, which any downstream that read then may have been sent."""
        self._consumers = consumers
        # Up to the consumers of `_sending`.
        self._sent = {key: stored_seq if each.sent is None else each.sent for key, each in known}
        #: Of each the states of the consumers that it reads or read last.
        self._sending: dict[bytes, list[Delivered]] = {}
        #: Sequence after which each downstream requested messages last.
        self._requested_after: dict[bytes, int] = {}
        #: The bridges that read this stream at present.
        self.bridges: dict[bytes, BridgeReader] = {}

    def upto(self, key: bytes, *, since_request: bool = False) -> int:
        """Return the last sequence sent to a downstream, as far as is known.

        With `since_request`, what was sent before the last request counts only as far as that request confirms it.
        """
        known = self._requested_after if since_request and key in self._requested_after else self._sent
        return max([known.get(key, 0), *(state.delivered_sseq for state in self._sending.get(key, ()))])

    def at_present(self, key: bytes) -> list[Delivered]:
        """Return the states of the consumers that this downstream reads at present."""
        if key in self.bridges:
            return [self.bridges[key]]
        hidden = [cast("HiddenConsumer", each) for each in self._consumers.values() if each.config.direct]
        active = {id(each.state) for each in hidden if each.push is not None and each.push.active}
        return [state for state in self._sending.get(key, ()) if id(state) in active]

    def begin(self, key: bytes, state: Delivered) -> int:
        """Note that a downstream reads the consumer with this state, too; return the last sequence that it was sent before."""
        sent = self._sent[key] = self.upto(key)
        others = [each for each in self.at_present(key) if each is not state]
        self._sending[key] = [*others, state]
        return sent

    def begin_bridge(self, key: bytes, bridge: BridgeReader, after: int) -> None:
        """Note that a bridge reads from after `after` on."""
        self.bridges[key] = bridge
        self._sending[key] = [bridge]
        self._requested_after[key] = after

    def requested(self, key: bytes, after: int) -> None:
        """Note a new request: what was sent before, and comes after `after`, did not arrive."""
        self._requested_after[key] = after

    def reader_of(self, state: Delivered) -> bytes:
        """Return the key of the downstream that reads, or read last, the consumer with this state; b"": there is none."""
        return next((key for key, states in self._sending.items() if state in states), b"")
