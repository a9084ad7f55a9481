"""What the local page may steer: functions of other parts of the daemon, given at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from eyot_wire.jetstream.forget_downstream import ForgetRequest

#: Account, stream, which downstreams, and what receives the counts forgotten and kept, and the store's error ("": none).
#: Returns False where there is no such stream.
Forget = Callable[[str, str, "ForgetRequest", Callable[[int, int, str], None]], bool]


class Backup(Protocol):
    """A backup under way, which whoever began it pulls part after part."""

    @property
    def meta(self) -> bytes:
        """The stream's configuration and state, JSON."""
        ...

    def next(self, receive: Callable[[bytes, str], None]) -> None:
        """Have `receive` called with the next part, b"" at the end, and with why the backup failed, "" if it did not."""
        ...

    def stop(self, why: str) -> None:
        """End before the end."""
        ...


#: Account and stream, and what receives the backup, or None and why there is none.
BackUp = Callable[[str, str, Callable[[Backup | None, str], None]], None]


class Controls(NamedTuple):
    """`reconnect`: connect the remote of this name now; why not, "" if it does. `in_background`: a slow check in a thread."""

    reconnect: Callable[[str], str]
    forget: Forget
    back_up: BackUp
    in_background: Callable[[Callable[[], bool], Callable[[bool], None]], None]
