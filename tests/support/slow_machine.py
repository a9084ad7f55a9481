"""A machine so slow that everything that looks at the clock ends at its first look: `pytest --slow-machine`.

What is searched in slices goes on in later turns. On a quick machine that happens to a test once in many runs.
"""

from __future__ import annotations

import eyot_store.lmdb.reader
import eyot_store.log.subjects
import eyot_store.reader
from eyot_daemon.turn import readers

_NONE_NS = -1
_HARDLY_ANY_S = 1e-9


def apply() -> None:
    """Take the time from reads of heads, from slices of the index of subjects, and from turns."""
    eyot_store.reader.HEADS_NS_MAX = _NONE_NS
    eyot_store.lmdb.reader.HEADS_NS_MAX = _NONE_NS
    eyot_store.log.subjects._SLICE_NS = _NONE_NS
    readers.TURN_S = readers.STAY_S = readers.ENDS_S = _HARDLY_ANY_S
