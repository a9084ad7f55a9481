"""Settings of Python's garbage collector for a broker.

Objects that exist when the daemon is ready stay: a collection that scans all of them takes tens of milliseconds, in
which no client is served, and frees nothing. They are therefore excluded (`gc.freeze`). Later objects are freed by
reference counts. Cycles are rare (exceptions, closed connections), so Python's default of a collection after every 700
new objects only costs time.
"""

import gc

#: New objects before a collection of the youngest generation, and such collections before older ones: about 0.2 ms
#: each.
YOUNG_OBJECTS = 10_000
YOUNG_LOOKS = 20
OLD_LOOKS = 20


def settle() -> None:
    """Freeze all objects that live as long as the daemon, after they were created."""
    gc.collect()
    gc.freeze()
    gc.enable()  # the launcher loads without it
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, OLD_LOOKS)
