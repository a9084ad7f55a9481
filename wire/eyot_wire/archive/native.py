"""The archive's functions that run once per byte: compiled where possible, else in plain Python.

As in `eyot_wire.native`, `EYOT_PLAIN=1` in the environment forces the plain twins. Tests compare both.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_wire.archive.crc32c import crc32c
    from eyot_wire.archive.highwayhash import HighwayHash64
    from eyot_wire.archive.plain_chunks import plain_chunks
    from eyot_wire.archive.s2_block import decode_block

    COMPILED: Final[bool] = False
else:
    try:
        if os.environ.get("EYOT_PLAIN", "0") not in ("", "0"):
            raise ImportError("EYOT_PLAIN is set")
        from eyot_wire._archive import HighwayHash64, crc32c, decode_block, plain_chunks

        COMPILED = True
    except ImportError:
        from eyot_wire.archive.crc32c import crc32c
        from eyot_wire.archive.highwayhash import HighwayHash64
        from eyot_wire.archive.plain_chunks import plain_chunks
        from eyot_wire.archive.s2_block import decode_block

        COMPILED = False

__all__ = ["COMPILED", "HighwayHash64", "crc32c", "decode_block", "plain_chunks"]
