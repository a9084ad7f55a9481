"""Python's garbage collector in a broker.

What is there when the daemon is ready stays there: a collection that looks through all of it takes tens of milliseconds, in
which nobody is served, and finds nothing. So it is set aside (`gc.freeze`). What comes later is freed by reference counts;
cycles are rare (exceptions, closed connections), and looking for them after every 700 new objects, Python's habit, only
costs.
"""

import gc

#: New objects before the youngest are looked through, and how many such looks before the older ones are: about 0.2 ms each.
YOUNG_OBJECTS = 10_000
YOUNG_LOOKS = 20
OLD_LOOKS = 20


def settle() -> None:
    """All that lives as long as the daemon has been made."""
    gc.collect()
    gc.freeze()
    gc.enable()  # the launcher loads without it
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, OLD_LOOKS)
