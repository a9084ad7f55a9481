"""What a broken connection leaves to the garbage collector, which may come hours later."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import trio

#: SO_LINGER of no time: closing sends RST
RESET = b"\1\0\0\0\0\0\0\0"


def close_with_reset(peer: socket.socket | trio.socket.SocketType) -> None:
    """Close a connection with RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect what there is; within the block, the garbage collector frees nothing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def is_freed(here: weakref.ref[object]) -> bool:
    """Tell whether the object is freed without the collector. Trio's task keeps how a stream was closed until it goes on."""
    with trio.move_on_after(30):
        while here() is not None:
            await trio.sleep(0.005)
    return here() is None


def left_frames(package: str) -> list[str]:
    """Return the functions of a package whose frames only the garbage collector would free, as `file:function`."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        frames = [left for left in gc.garbage if isinstance(left, FrameType)]
        return [
            f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            for frame in frames
            if f"/{package}/" in frame.f_code.co_filename
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
