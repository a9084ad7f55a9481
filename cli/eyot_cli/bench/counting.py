"""Counts messages in what a server sends, without an object for each: a benchmark is to measure the server, not the tool."""

from __future__ import annotations

from collections.abc import Callable


class MessageCounter:
    """Takes the bytes of a connection as they come; frames may be split anywhere.

    `on_line` gets each line that is no message, without its end. `on_payload`, if any, gets the payload of each message, with
    its headers.
    """

    def __init__(self, on_line: Callable[[bytes], None], on_payload: Callable[[bytes], None] | None = None) -> None:
        self._on_line = on_line
        self._on_payload = on_payload
        self._rest = b""
        #: Messages so far, and bytes of their payloads with headers.
        self.messages = 0
        self.payload_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take bytes. Raises ValueError for a message without a size, and what the callbacks raise."""
        data = self._rest + data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            if not data.startswith((b"MSG ", b"HMSG "), at):
                self._on_line(data[at:end])
                at = end + 2
                continue
            size = int(data[data.rfind(b" ", at, end) + 1 : end])
            after = end + 2 + size + 2
            if after > len(data):
                break
            self.messages += 1
            self.payload_bytes += size
            if self._on_payload is not None:
                self._on_payload(data[end + 2 : after - 2])
            at = after
        self._rest = data[at:]
