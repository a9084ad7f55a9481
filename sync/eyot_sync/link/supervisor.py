"""Keeps one remote linked: connect when allowed, run the connection, wait, repeat; for weeks.

One task per remote. An attempt uses the next address. A connection runs until it ends, and its end determines the wait:
errors that need an operator have delays of their own, all others back off with full jitter. When the network is back
(`network_changed`), a link that waits is dialled at once, and a dial that hangs is begun anew.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable

import trio
from msgspec import Struct

from eyot_sync.leaf.errors import is_loop, remedy
from eyot_sync.link.backoff import Backoff
from eyot_sync.link.dialer import Dialer, DialError
from eyot_sync.link.ports import ClockPort, LinkEnd, LinkRunner
from eyot_sync.link.state import LinkPhase, LinkState
from eyot_sync.link.urls import LinkAddress, LinkUrls
from eyot_sync.policy.stream_gate import LOOK_AGAIN_S, Hold

log = logging.getLogger("eyot.leaf")

# Between the first retry and the longest delay: quarter of, and twice, the configured reconnect time.
_BACKOFF_BASE = 0.25
_BACKOFF_CAP = 2.0
#: How long a hub may keep a lost link, seconds: another hub, linked to that one, regards its successor as a loop.
LINGERS_S = 30.0


class RemoteSpec(Struct, frozen=True):
    """A remote as the supervisor sees it. Times in seconds; `error_reports`: every how many failed attempts to log one.

    `title`: what log lines call a remote that is no leaf node's.
    """

    name: str
    account: str
    addresses: tuple[LinkAddress, ...]
    randomize: bool = True
    ignore_discovered: bool = False
    dial_timeout_s: float = 1.0
    reconnect_s: float = 1.0
    error_reports: int = 3600
    title: str = ""


class LinkSupervisor:
    """Keeps one remote linked. `run` never returns by itself; cancel it."""

    def __init__(
        self,
        spec: RemoteSpec,
        *,
        dialer: Dialer,
        runner: LinkRunner,
        clock: ClockPort,
        rng: random.Random,
        gate: Callable[[], Hold | None] = lambda: None,
        remedy: Callable[[str], str] = remedy,
    ) -> None:
        self.spec = spec
        self.urls = LinkUrls(spec.addresses, rng, randomize=spec.randomize)
        self.state = LinkState(spec.name, spec.account, solicited=True, since_ns=clock.now_ns())
        self._dialer = dialer
        self._runner = runner
        self._gate = gate
        self._remedy = remedy
        self._clock = clock
        self._backoff = Backoff(spec.reconnect_s * _BACKOFF_BASE, spec.reconnect_s * _BACKOFF_CAP, rng)
        self._wake = trio.Event()
        #: waits only because an attempt failed or a link was lost
        self._backing_off = False
        self._dialling: trio.CancelScope | None = None
        self._redialled = False
        # A restarted daemon may have had a link to another of its hubs.
        self._lost_at = clock.monotonic() if len(spec.addresses) > 1 else -math.inf

    def wake(self) -> None:
        """Try now: what made the link wait is gone."""
        self._backoff.reset()
        self._wake.set()

    def network_changed(self) -> None:
        """Dial now, or anew: the network is back. Waits that have another reason, such as a refusal, go on.

        The second of two dials in a row is not cut short: on a network that changes all the time, none would end.
        """
        if self._backing_off:
            self.wake()
        elif self._dialling is not None and not self._redialled:
            self._redialled = True
            self._dialling.cancel()

    def learned(self, host_ports: Iterable[str]) -> None:
        """Set the addresses that the hub announced."""
        if not self.spec.ignore_discovered:
            self.urls.discovered(host_ports)

    async def run(self) -> None:
        while True:
            await self._allowed()
            begun = self._clock.monotonic()
            end = await self._attempt(self.urls.next())
            delay_s = self._delay_s(end, self._clock.monotonic() - begun)
            self._backing_off = end.retry_after_s is None
            await self._pause(delay_s)
            self._backing_off = False

    async def _allowed(self) -> None:
        """Wait until no policy keeps the link from being there."""
        state = self.state
        while (hold := self._gate()) is not None:
            if state.waiting != hold.reason:
                log.info("%s waits: %s", self.spec.title or f"Leafnode remote {state.name}", hold.reason)
            state.waiting = hold.reason
            await self._pause(min(hold.wait_s, LOOK_AGAIN_S))
        state.waiting = ""

    async def _attempt(self, address: LinkAddress) -> LinkEnd:
        state = self.state
        state.phase = LinkPhase.DIALING
        state.address = str(address)
        state.attempts += 1
        state.next_attempt_ns = 0
        try:
            stream = await self._dial(address)
        except DialError as error:
            end = LinkEnd(str(error), established=False)
        else:
            state.phase = LinkPhase.HANDSHAKE
            end = await self._run_link(stream, address)
        self._note(end, address)
        return end

    async def _dial(self, address: LinkAddress) -> trio.abc.Stream:
        """Open a stream; once more if the network changes meanwhile. Raises DialError."""
        self._redialled = False
        while True:
            with trio.CancelScope() as self._dialling:
                try:
                    return await self._dialer.dial(address, self.spec.dial_timeout_s)
                finally:
                    self._dialling = None

    async def _run_link(self, stream: trio.abc.Stream, address: LinkAddress) -> LinkEnd:
        """Run one connection. An unexpected error ends this connection only."""
        try:
            return await self._runner.run_link(stream, address, self.state, self.learned)
        except OSError as error:
            return LinkEnd(error.strerror or str(error), established=False)
        except Exception as error:
            log.exception("%s connection to %s failed", self.spec.title or "Leafnode", address)
            return LinkEnd(f"internal error: {error!r}", established=False)

    def _note(self, end: LinkEnd, address: LinkAddress) -> None:
        state = self.state
        now_ns = self._clock.now_ns()
        repeated = end.reason == state.last_error and not end.established
        state.went_down(now_ns)
        state.failed(end.reason, self._remedy(end.reason))
        title = self.spec.title
        if title and end.established:
            log.warning("%s: connection to %s closed: %s", title, address, end.reason)
        elif title:
            if not repeated or state.attempts % self.spec.error_reports == 0:
                log.error("%s: no connection to %s (attempt %d): %s", title, address, state.attempts, end.reason)
        elif end.established:
            log.warning("Leafnode connection of account %s to %s closed: %s", state.account, address, end.reason)
        elif not repeated or state.attempts % self.spec.error_reports == 0:
            log.error(
                "Error trying to connect as leafnode to remote server %s (attempt %d): %s",
                address,
                state.attempts,
                end.reason,
            )

    def _delay_s(self, end: LinkEnd, lasted_s: float) -> float:
        now = self._clock.monotonic()
        if is_loop(end.reason) and now - self._lost_at < LINGERS_S:
            # The next address may be that of the hub that still has the lost link: there its successor replaces it.
            return self._backoff.next_delay_s()
        # A link that comes up and is closed at once counts as a failure: otherwise the loop would have no pause, and a hub
        # that accepts and refuses would keep the link from the others.
        if end.established and lasted_s >= self._backoff.cap_s:
            self.urls.restart()
            self._backoff.reset()
            self._lost_at = now
        return self._backoff.next_delay_s() if end.retry_after_s is None else end.retry_after_s

    async def _pause(self, delay_s: float) -> None:
        self.state.next_attempt_ns = self._clock.now_ns() + int(delay_s * 1e9)
        with trio.move_on_after(delay_s):
            await self._wake.wait()
        self._wake = trio.Event()
