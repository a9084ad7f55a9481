"""Whether what is on disk says too much of those who copy streams: kept where a full disk cannot prevent it.

A reader that was restored from a backup has less than it had confirmed. From the moment that this is known until the record that
says so is on flash, what was written before is not true: should this server lose power in between, which a full disk makes long, it
must not claim it again. A marker (`eyot_store.journal.marker`) says so; a server that finds it turned on believes no record until its reader
has asked again.
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
    """The doubts about all readers of one store's streams. `at_start`: nothing that was written before it was opened is certain."""

    def __init__(self, store: Store) -> None:
        self._marker = Marker(store.path, _NAME)
        self.at_start = self._marker.is_on
        self._open: set[object] = set()

    def begin(self, doubt: object) -> None:
        """What is on disk says more than is true, or may do so."""
        if not self._open and not self._marker.turn(on=True):
            log.warning("What copies have lost cannot be written down: the store's directory cannot be changed")
        self._open.add(doubt)

    def end(self, doubt: object) -> None:
        """What is on disk is true again, as far as this goes."""
        if doubt in self._open:
            self._open.discard(doubt)
            if not self._open:
                self._marker.turn(on=False)


_by_store: WeakKeyDictionary[Store, UncertaintyMarker] = WeakKeyDictionary()


def uncertainty_of(store: Store) -> UncertaintyMarker:
    """The store's UncertaintyMarker, made on first use."""
    found = _by_store.get(store)
    if found is None:
        found = _by_store[store] = UncertaintyMarker(store)
    return found
