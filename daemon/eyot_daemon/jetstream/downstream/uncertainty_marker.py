"""Whether the stored records of downstreams may claim too much, kept where a full disk cannot prevent it.

A downstream that was restored from a backup has less than it had confirmed. Until the corrected record is on flash, the
stored one is wrong. If this server loses power in between (a full disk makes that time long), it must not trust the old
record. A marker (`eyot_store.journal.marker`) says so. A server that finds it set trusts no record until the downstream
has resumed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from eyot_store.journal.marker import Marker

if TYPE_CHECKING:
    from eyot_store.store import Store

log = logging.getLogger("eyot.sync")

_NAME = "readers-doubted"


class UncertaintyMarker:
    """The open corrections for all downstreams of one store. `at_start`: records from before the start are uncertain."""

    def __init__(self, store: Store) -> None:
        self._marker = Marker(store.path, _NAME)
        self.at_start = self._marker.is_on
        self._open: set[object] = set()

    def begin(self, doubt: object) -> None:
        """Set the marker: a stored record claims too much, or may do so."""
        if not self._open and not self._marker.turn(on=True):
            log.warning("Losses of downstreams cannot be recorded: the store's directory is not writable")
        self._open.add(doubt)

    def end(self, doubt: object) -> None:
        """Clear a correction: the stored record is right again."""
        if doubt in self._open:
            self._open.discard(doubt)
            if not self._open:
                self._marker.turn(on=False)


_by_store: WeakKeyDictionary[Store, UncertaintyMarker] = WeakKeyDictionary()


def uncertainty_of(store: Store) -> UncertaintyMarker:
    """Return the store's UncertaintyMarker, made on first use."""
    found = _by_store.get(store)
    if found is None:
        found = _by_store[store] = UncertaintyMarker(store)
    return found
