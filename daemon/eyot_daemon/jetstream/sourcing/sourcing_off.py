"""Streams with mirrors and sources when nothing copies: configured, shown, never fed. Used by tests of other rooms and
by tools that open a store without links."""

from typing import TYPE_CHECKING

from eyot_wire.jetstream.model import StreamConfig, StreamSource, StreamSourceInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream


def idle_info(source: StreamSource) -> StreamSourceInfo:
    """The info of an origin from which nothing was ever heard."""
    return StreamSourceInfo(
        name=source.name,
        external=source.external,
        filter_subject=source.filter_subject,
        subject_transforms=source.subject_transforms,
    )


class SourcingOff:
    """A SourcingPort that copies nothing."""

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
