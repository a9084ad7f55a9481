"""A client on a leaf that works through a stream of the hub with a durable consumer, over the link, across all its cuts.

It asks for messages, acknowledges each with a request for confirmation, and notes what was confirmed: that is never delivered again.
In the end everything has come, and the hub waits for no acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import trio

from eyot_daemon.router.subscription import Kind, Origin, Subscription
from offline_sync.journal import StreamEpoch, identify
from offline_sync.model import Violation
from offline_sync.node import Node

_ACK_WAIT_NS = 4_000_000_000
_ASK_EVERY_S = 3.0
_BATCH = 500
#: What a hub sent before it lost power is not under way any more after this time.
UNDER_WAY_S = 15.0


class Confirmed(NamedTuple):
    """An acknowledgement was confirmed: when, by which run of the hub's daemon, and the last delivery that this had sent by then.

    A slow link lets answers go before bulk, and one that is down one way holds back what it has: what was sent before
    may come later.
    """

    at: float
    by: object
    last_sent: int


class Worker:
    """One durable consumer `W_<leaf>` of `stream` in `domain`, at `hub`, and its client on `node`."""

    def __init__(self, node: Node, hub: Node, domain: str, stream: str) -> None:
        self.node = node
        self.hub = hub
        self.domain = domain
        self.stream = stream
        self.name = f"W_{node.name}"
        #: What came at least once, and of that when it was confirmed (confirmations are lost with the link).
        self.came: set[tuple[StreamEpoch, int]] = set()
        self.done: dict[tuple[StreamEpoch, int], Confirmed] = {}
        self.failure: Violation | None = None
        #: How often the hub was taken back: an acknowledgement from before is worth nothing.
        self._restarts = 0
        self._client: object = None
        self._asked = 0
        self._heard_at = 0.0

    async def run(self) -> None:
        """Until cancelled: ask again whenever nothing has come for a while."""
        while True:
            if self.node.running and trio.current_time() >= self._heard_at + _ASK_EVERY_S:
                self._ask()
            await trio.sleep(_ASK_EVERY_S / 2)

    def restart(self) -> None:
        """The hub, or its stream, was taken back to a backup, the consumer with it."""
        self.done.clear()
        self._restarts += 1

    def _ask(self) -> None:
        node = self.node
        if self._client is not node.client:  # the daemon was started again: other subscriptions
            self._client = node.client
            node.account.subscribe(self._inbox(b"*"), self).slow = True  # hears by `deliver`, not through a buffer
        config = {"durable_name": self.name, "ack_policy": "explicit", "ack_wait": _ACK_WAIT_NS, "max_deliver": -1}
        body = msgspec.json.encode({"stream_name": self.stream, "config": config})
        api = f"$JS.{self.domain}.API.CONSUMER".encode()
        path = f".{self.stream}.{self.name}".encode()
        node.client.ask(api + b".DURABLE.CREATE" + path, body, _ignore)
        self._asked += 1
        asked = msgspec.json.encode({"batch": _BATCH, "expires": int(_ASK_EVERY_S * 1e9)})
        node.account.publish(api + b".MSG.NEXT" + path, self._inbox(b"%d" % self._asked), b"", asked)
        node.broker.flush()

    def _inbox(self, token: bytes) -> bytes:
        return b"_WORK.%b.%b" % (self.node.name.encode(), token)

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        if payload and reply.startswith(b"$JS.ACK."):
            self._heard_at = trio.current_time()
            epoch, n = identify(payload)
            self.came.add((epoch, n))
            confirmed = self.done.get((epoch, n))
            if confirmed is not None and self._was_sent_later(confirmed, reply) and self.failure is None:
                self.failure = Violation(
                    f"{self.name}: {n} of {epoch} came again after its acknowledgement was confirmed"
                )
            self.node.client.ask(reply.partition(b"@")[0], b"+ACK", self._confirmed(epoch, n))
        return True

    kind = Kind.CLIENT

    def flush(self) -> None:
        """Nothing is sent anywhere."""

    def _confirmed(self, epoch: StreamEpoch, n: int) -> Callable[[bytes], None]:
        restarts = self._restarts

        def heard(_: bytes) -> None:
            if restarts != self._restarts:
                return
            self.done.setdefault((epoch, n), Confirmed(trio.current_time(), self.hub.broker, self._last_sent()))

        return heard

    def _last_sent(self) -> int:
        """The consumer's number of the last delivery; 0 if there is no consumer."""
        stream = self.hub.stream(self.stream) if self.hub.running else None
        consumer: Any = None if stream is None else stream.consumers.get(self.name)
        sent: int = 0 if consumer is None else consumer.state.delivered_cseq
        return sent

    def _was_sent_later(self, confirmed: Confirmed, reply: bytes) -> bool:
        if confirmed.by is self.hub.broker:
            return int(reply.split(b".")[6]) > confirmed.last_sent > 0
        return trio.current_time() > confirmed.at + UNDER_WAY_S


def _ignore(_: bytes) -> None:
    """An answer that says nothing new."""
