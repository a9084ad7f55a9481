"""What the local page may steer: functions of other parts of the daemon, given at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from eyot_wire.jetstream.forget_downstream import ForgetRequest

#: Account, stream, which downstreams, and what receives the counts forgotten and kept, and the store's error ("": none).
#: Returns False where there is no such stream.
Forget = Callable[[str, str, "ForgetRequest", Callable[[int, int, str], None]], bool]


class Controls(NamedTuple):
    """`reconnect`: connect the remote of this name now; why not, "" if it does. `in_background`: a slow check in a thread."""

    reconnect: Callable[[str], str]
    forget: Forget
    in_background: Callable[[Callable[[], bool], Callable[[bool], None]], None]
