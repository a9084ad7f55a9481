"""A bridge as the tracker of a stream's downstreams sees it: it reads the stream's log itself, without a consumer."""

from __future__ import annotations

from typing import Protocol


class BridgeReader(Protocol):
    """The reader of one stream for one bridge."""

    @property
    def delivered_sseq(self) -> int:
        """The last sequence that was sent to the remote."""
        ...

    @property
    def linked(self) -> bool:
        """Whether the bridge is connected with its remote."""
        ...

    @property
    def acknowledged(self) -> bool:
        """Whether the remote acknowledges what it has: with QoS 0 nobody knows."""
        ...

    @property
    def waiting(self) -> str:
        """The policy that holds the messages back; "": none does."""
        ...

    @property
    def trouble(self) -> tuple[str, str]:
        """Why nothing arrives, and what helps; empty where nothing is wrong."""
        ...

    def read_again(self) -> None:
        """Read again what is not confirmed: a removal failed, and what was passed over is still there."""
        ...


def bridge_trouble(bridge: BridgeReader | None, stream: str, name: str) -> tuple[str, str]:
    """(error, remedy); empty where nothing is wrong."""
    if bridge is None:
        return (
            f"no bridge {name} forwards {stream} at present",
            f"if it was removed for good: eyot sync forget {stream} {name}",
        )
    return bridge.trouble
