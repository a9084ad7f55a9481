"""Free memory of the machine that its host has given it already.

A virtual machine gets memory from its host at the first use, and gives back what is free for some seconds. Here the first
use of a page of 4 KiB takes 8 to 10 us, twenty times as long as a write into it. A row that fills new pages of a file would
measure the host, and whoever writes more of them would seem slow.
"""

from __future__ import annotations

import mmap

_PAGE = 4096


def touch(size: int) -> None:
    """Use so many bytes of memory and free them. In large pages: a file's pages come from whole free blocks."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, _PAGE):
            memory[at] = 1
