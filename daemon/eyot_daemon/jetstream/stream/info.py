"""StreamInfo as the API shows it."""

from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.config.rules import answered
from eyot_wire.jetstream.model import StreamConfig, StreamInfo, StreamState, ns_to_rfc3339

if TYPE_CHECKING:
    from eyot_daemon.jetstream.sourcing.port import SourcingPort
    from eyot_daemon.jetstream.stream.stream import Stream

#: Subjects on one page of STREAM.INFO with a subjects filter.
SUBJECTS_PAGE = 100_000
#: Deleted sequences listed at most (nats-server lists all; a bound keeps the answer below the payload limit).
DELETED_LISTED_MAX = 100_000


def shown_config(config: StreamConfig) -> StreamConfig:
    """Return the configuration as responses show it: with the metadata of the server that answers."""
    return msgspec.structs.replace(config, metadata=answered(config.metadata))


def stream_state(stream: "Stream", *, deleted_details: bool = False) -> StreamState:
    """Return the state of the stream, uncommitted messages included."""
    state = stream.log.state
    return StreamState(
        messages=state.messages,
        bytes=state.bytes,
        # An empty stream whose configured `first_seq` is 1 shows 1.
        first_seq=state.first_seq or int(stream.config.first_seq == 1),
        first_ts=ns_to_rfc3339(state.first_ts_ns),
        last_seq=state.last_seq,
        last_ts=ns_to_rfc3339(state.last_ts_ns),
        num_subjects=len(stream.log.subjects()),
        num_deleted=state.num_deleted,
        deleted=stream.log.deleted(DELETED_LISTED_MAX) if deleted_details and state.num_deleted else [],
        consumer_count=sum(1 for consumer in stream.consumers.values() if not consumer.config.direct),
    )


def stream_info(
    stream: "Stream",
    sourcing: "SourcingPort",
    *,
    deleted_details: bool = False,
    created: bool = False,
    listed: bool = False,
) -> StreamInfo:
    """Everything about a stream, except the per-subject counts.

    `created`: in the answer to CREATE, without the domain; `listed`: in that to LIST, which shows the stored
    configuration.
    """
    config = stream.config
    return StreamInfo(
        config=config if listed else shown_config(config),
        created=ns_to_rfc3339(stream.created_ns),
        state=stream_state(stream, deleted_details=deleted_details),
        domain="" if created else stream.core.domain,
        mirror=sourcing.mirror_info(stream) if config.mirror is not None else None,
        sources=sourcing.sources_info(stream) if config.sources else [],
        ts=ns_to_rfc3339(stream.broker.clock.now_ns()),
    )
