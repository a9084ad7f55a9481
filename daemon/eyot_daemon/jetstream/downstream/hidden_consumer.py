"""The hidden (`direct`) consumer of a downstream, as its tracker sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eyot_daemon.jetstream.stream_core import ConsumerPort


class Delivered(Protocol):
    """Its position."""

    @property
    def delivered_sseq(self) -> int: ...


class Filtered(Protocol):
    """Its filters."""

    @property
    def filters(self) -> Sequence[bytes]: ...


class Unconfirmed(Protocol):
    """Its deliveries that the downstream has not confirmed."""

    def take_confirmed(self, sseq: int) -> list[int]:
        """Return the messages up to `sseq`, which the downstream has confirmed, for removal from the stream."""
        ...

    def give_back(self, sseqs: Sequence[int]) -> None:
        """Take back messages that the stream could not remove."""
        ...


class PushSide(Protocol):
    """Its deliveries: whether there is a subscriber, where they began, and what was confirmed."""

    @property
    def active(self) -> bool: ...

    @property
    def begun_after(self) -> int: ...

    @property
    def confirmed_sseq(self) -> int: ...

    @property
    def held(self) -> str: ...


class HiddenConsumer(ConsumerPort, Protocol):
    """The hidden consumer of a downstream, as the downstream's tracker uses it."""

    @property
    def state(self) -> Delivered: ...

    @property
    def reader(self) -> Filtered: ...

    @property
    def acks(self) -> Unconfirmed: ...

    @property
    def push(self) -> PushSide | None: ...
