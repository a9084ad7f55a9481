"""A link that goes down right behind a piece of text: in the middle of what two servers say to each other.

The servers must not compress (`compression: off`).
"""

from __future__ import annotations

import asyncio
import re
import threading

from support.links.link import Link

_LONGEST = 200


class WatchedLink(Link):
    """`heard` holds what has passed since `cut_after`, both ways."""

    def __init__(self, target_port: int) -> None:
        self._text: bytes | None = None
        self.was_cut = threading.Event()
        self.heard = bytearray()
        super().__init__(target_port)

    def cut_after(self, text: bytes) -> None:
        """Takes the link down as soon as `text` has passed in either direction; `was_cut` tells."""
        self.was_cut.clear()
        self.heard.clear()
        self._text = text

    def find(self, pattern: bytes) -> bytes | None:
        """Returns the last match of the pattern's first group in what has passed."""
        found = re.findall(pattern, bytes(self.heard))
        return found[-1] if found else None

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upward: bool) -> None:
        before = b""
        try:
            while data := await reader.read(65536):
                self.heard += data
                text = self._text
                at = -1 if text is None else (before + data).find(text)
                if text is not None and at >= 0:
                    self._text = None
                    writer.write(data[: at + len(text) - len(before)])
                    await writer.drain()
                    await asyncio.sleep(0.02)  # the peer reads it: a reset would take it away
                    self.was_cut.set()
                    self._loop.create_task(self._drop())
                    return
                before = (before + data)[-_LONGEST:]
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
