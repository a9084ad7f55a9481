"""The state of a client connection that its operations read and change.

`ServedClient` is the connection above it, `ClientConnection` the one that speaks NATS.
"""

from __future__ import annotations

from eyot_daemon.auth.login import Peer
from eyot_daemon.client.context import ClientContext
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.subscription import Origin, Subscription
from eyot_wire.frames import encode_err


class ClientState(KnownClient):
    """A client while it is served.

    `clients`        what it shares with others.
    `subs`           its subscriptions by sid.
    `unreviewed`     those that changed permissions were not applied to yet, the next one last.
    `verbose`, `pedantic`, `no_responders`  as in CONNECT; nats-server's assumptions before.
    """

    __slots__ = ("clients", "no_responders", "pedantic", "subs", "unreviewed", "verbose")

    def __init__(self, clients: ClientContext, peer: Peer, cid: int) -> None:
        super().__init__(peer, cid, clients.broker.clock.now_ns())
        self.clients = clients
        self.nonce = clients.new_nonce()
        self.verbose = True
        self.pedantic = True
        self.no_responders = False
        self.subs: dict[bytes, Subscription] = {}
        self.unreviewed: dict[Subscription, None] = {}

    def queue_output(self, data: bytes) -> None:
        """Add to `out`; it is sent when the turn ends."""
        self.out.extend(data)
        if self.clients.trace is not None:
            self.trace_output(data)
        if not self.dirty:
            self.dirty = True
            self.clients.broker.mark_dirty(self)

    def renew_out(self) -> None:
        """Put a new buffer in the place of `out`, which is empty; see `net/transport.py`."""
        self.out = bytearray()

    def trace_output(self, data: bytes) -> None:
        """Enter whole operations that were queued into the protocol trace, which is on."""
        if self.clients.trace is not None:
            self.clients.trace.sent(self, data)

    def send_error(self, text: str, times: int = 1) -> None:
        """Send `-ERR 'text'`, once for each of the `times` that it happened."""
        self.clients.broker.client_errors.sent(text, times)
        self.queue_output(encode_err(text) * times)

    def close(self, reason: str, *, linger: bool) -> None:
        """End the connection: subscriptions reach nobody from now on, `out` is sent if the peer may `linger`."""
        raise NotImplementedError

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """One message for one of its subscriptions; see `Destination.deliver`."""
        raise NotImplementedError
