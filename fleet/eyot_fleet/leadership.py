"""Which of several services beside one hub writes: the one whose key `leader` in the state's bucket keeps changing.

The key is written by comparing revisions, so that of two that try one succeeds. A follower takes over when the revision has
stood still for TAKEOVER_S by its own monotonic clock; no wall clock is compared.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from eyot_fleet.errors import Conflict, FleetError, NoAnswer
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_fleet.bucket import Bucket

log = logging.getLogger("eyot.fleet")

KEY: Final = "leader"
RENEW_S: Final = 3.0
TAKEOVER_S: Final = 15.0
#: How long the end of a service waits for the hub to take back the key.
GIVE_BACK_S: Final = 1.0


class Leadership:
    """One service's part; `is_leader` is false while it is not certain."""

    def __init__(self, monotonic: Callable[[], float] = trio.current_time) -> None:
        self.id = nuid()
        self._monotonic = monotonic
        self._revision = 0
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self.became = trio.Event()

    @property
    def is_leader(self) -> bool:
        """Whether this service writes: it renewed the key so lately that nobody can have taken over."""
        return self._renewed_at is not None and self._monotonic() - self._renewed_at < TAKEOVER_S - RENEW_S

    def lose(self) -> None:
        """Stop writing: the connection is gone, or somebody else leads."""
        if self._renewed_at is not None:
            log.info("another service leads from now on, or the hub is away")
            self._renewed_at = None
            self.became = trio.Event()

    async def step(self, bucket: Bucket) -> None:
        """Renew the key, or try to take over when its holder has stood still."""
        now = self._monotonic()
        try:
            if self._renewed_at is not None and not self.is_leader:
                self.lose()
            if self._renewed_at is not None:
                self._revision = await bucket.put(KEY, self.id.encode(), self._revision)
                self._renewed_at = now
                return
            found = await bucket.get(KEY)
            revision = 0 if found is None else found.revision
            if revision != self._revision or not self._seen_at:
                self._revision, self._seen_at = revision, now
            is_free = found is None or not found.value or found.value == self.id.encode()
            if is_free or now - self._seen_at > TAKEOVER_S:
                self._revision = await bucket.put(KEY, self.id.encode(), revision)
                self._renewed_at = now
                self.became.set()
                log.info("this service leads")
        except Conflict:
            self.lose()
            self._seen_at = 0.0
        except NoAnswer as error:  # the hub is slow: the key may be written or not, and the next step finds out
            log.warning("the key of the leader: %s", error)
            self._seen_at = 0.0

    async def keep(self, bucket: Bucket) -> None:
        """Step again and again, until cancelled; then leave the key to others at once."""
        try:
            while True:
                await self.step(bucket)
                await trio.sleep(RENEW_S)
        finally:
            if self._renewed_at is not None:
                with trio.move_on_after(GIVE_BACK_S, shield=True):
                    try:
                        await bucket.put(KEY, b"", self._revision)
                        self._renewed_at, self.became = None, trio.Event()
                        log.info("this service leads no more")
                    except FleetError:
                        log.debug("the key of the leader was not given back", exc_info=True)
            self.lose()
