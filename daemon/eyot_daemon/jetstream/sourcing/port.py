"""What JetStream needs of sourcing, and a stand-in without it: mirrors and sources are configured and shown, but never run.

The latter serves tests of other packages and tools that open a store without links.
"""

from typing import TYPE_CHECKING, Protocol

from eyot_wire.jetstream.model import StreamConfig, StreamSource, StreamSourceInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream


def idle_info(source: StreamSource) -> StreamSourceInfo:
    """Return the info of an origin that never answered."""
    return StreamSourceInfo(
        name=source.name,
        external=source.external,
        filter_subject=source.filter_subject,
        subject_transforms=source.subject_transforms,
    )


class SourcingPort(Protocol):
    """Mirrors and sources: started and stopped with the streams that have them, and shown by the API."""

    def stream_created(self, stream: "Stream") -> None:
        """Start a stream with `config.mirror` or `config.sources` (created, or restored at start)."""
        ...

    def stream_updated(self, stream: "Stream", old: StreamConfig) -> None:
        """Apply an update where the old or the new configuration has a mirror or sources."""
        ...

    def stream_deleted(self, stream: "Stream") -> None: ...

    def stream_stopped(self, stream: "Stream") -> None:
        """Stop a stream that stays on disk (JetStream is off for its account)."""
        ...

    def stop(self) -> None:
        """Stop all mirrors and sources with the daemon."""
        ...

    def mirror_info(self, stream: "Stream") -> StreamSourceInfo | None: ...

    def sources_info(self, stream: "Stream") -> list[StreamSourceInfo]: ...


class SourcingOff:
    """A SourcingPort that runs no mirror and no source."""

    def stream_created(self, stream: "Stream") -> None:
        """Nothing to start."""

    def stream_updated(self, stream: "Stream", old: StreamConfig) -> None:
        """Nothing to change."""

    def stream_deleted(self, stream: "Stream") -> None:
        """Nothing to stop."""

    def stream_stopped(self, stream: "Stream") -> None:
        """Nothing to stop."""

    def stop(self) -> None:
        """Nothing to stop."""

    def mirror_info(self, stream: "Stream") -> StreamSourceInfo | None:
        return idle_info(stream.config.mirror) if stream.config.mirror is not None else None

    def sources_info(self, stream: "Stream") -> list[StreamSourceInfo]:
        return [idle_info(source) for source in stream.config.sources]
