"""Converts consumers to and from nats-server's terms in backups.

The differences: nats-server counts redeliveries where Eyot counts deliveries, stores the time of a delivery where Eyot
stores when it is due again, and stores its ack floor, which Eyot computes from the pending messages.
"""

from typing import Any, cast

import msgspec

from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.consumer.consumers import StoredConsumer
from eyot_daemon.jetstream.consumer.state import QUEUED, ConsumerState, ack_rules
from eyot_daemon.jetstream.consumer.stored_state import encode_state
from eyot_wire.archive.values import ConsumerPart, ConsumerProgress
from eyot_wire.jetstream.model import ConsumerConfig, InvalidJson, decode, encode, ns_to_rfc3339, rfc3339_to_ns

_SEQ_END = 1 << 63


class ArchivedConsumer(msgspec.Struct, frozen=True):
    """A consumer as a backup holds it; `created` RFC 3339, `config` JSON."""

    name: str
    created: str
    config: bytes
    progress: ConsumerProgress


def archived(consumer: Consumer) -> ArchivedConsumer:
    """Return the consumer's present state."""
    clock = consumer.broker.clock
    return ArchivedConsumer(
        consumer.name,
        ns_to_rfc3339(consumer.created_ns),
        encode(consumer.config),
        progress_of(consumer.state, clock.monotonic(), clock.now_ns()),
    )


def progress_of(state: ConsumerState, now: float, now_ns: int) -> ConsumerProgress:
    """`state` in nats-server's terms; `now` in monotonic seconds, `now_ns` in wall nanoseconds, both of this moment."""
    pending: dict[int, tuple[int, int]] = {}
    for sseq, (cseq, due) in state.pending.items():
        remaining_s = 0.0 if due == QUEUED else due - now
        waited_s = state.rules.wait_s(state.deliveries(sseq)) - remaining_s
        pending[sseq] = (cseq, now_ns - int(waited_s * 1e9))
    return ConsumerProgress(
        delivered=(state.delivered_cseq, state.delivered_sseq),
        ack_floor=state.ack_floor(),
        pending=pending,
        redelivered={sseq: deliveries - 1 for sseq, deliveries in state.redelivered.items() if deliveries > 1},
    )


def state_of(progress: ConsumerProgress, config: ConsumerConfig, now: float, now_ns: int) -> ConsumerState:
    """Inverse of :func:`progress_of`."""
    rules = ack_rules(config)
    state = ConsumerState(rules)
    redelivered = {sseq: times + 1 for sseq, times in progress.redelivered.items()}
    if rules.policy == "none":
        state.restore(progress.delivered, [], [], {}, now)
        return state
    pending = []
    for sseq, (cseq, ts_ns) in sorted(progress.pending.items()):
        wait_s = rules.wait_s(redelivered.get(sseq, 1))
        pending.append((sseq, cseq, min(wait_s, max(0.0, wait_s - (now_ns - ts_ns) / 1e9))))
    kept = {sseq: times for sseq, times in redelivered.items() if sseq in progress.pending}
    state.restore(progress.delivered, pending, [], kept, now)
    return state


def config_of(part: ConsumerPart) -> tuple[ConsumerConfig, int]:
    """Return the configuration of a restored consumer and its creation time (ns; 0: unknown). Raises InvalidJson."""
    config = decode(part.config, ConsumerConfig, strict=False)
    told = cast(dict[str, Any], msgspec.json.decode(part.config))
    created = told.get("Created") or told.get("created")
    try:
        created_ns = rfc3339_to_ns(created) if isinstance(created, str) else 0
    except ValueError as problem:
        raise InvalidJson(str(problem)) from None
    if not config.durable_name:
        config.name = part.name
    return config, created_ns


def records_of(
    part: ConsumerPart,
    config: ConsumerConfig,
    created_ns: int,
    start_sseq: int,
    held_sseq: int,
    now: float,
    now_ns: int,
) -> tuple[bytes, bytes]:
    """Return the stored records of a restored consumer: configuration and state.

    `start_sseq`: where a consumer without deliveries begins that is created now. `held_sseq`: the stream's last sequence when
    the consumer was created: what came since is not skipped by `new`, and delivered one by one by `last_per_subject`.
    """
    progress = part.progress
    if progress.delivered == (0, 0):
        begun_sseq = held_sseq - 1 if config.deliver_policy == "last" else held_sseq
        if config.deliver_policy in ("new", "last", "last_per_subject"):
            start_sseq = min(start_sseq, max(begun_sseq, 0))
        progress = msgspec.structs.replace(progress, delivered=(0, start_sseq))
    if max(*progress.delivered, *progress.ack_floor, *progress.pending, *progress.redelivered, 0) >= _SEQ_END:
        raise InvalidJson("its sequences are out of range")
    state = state_of(progress, config, now, now_ns)
    stored = StoredConsumer(
        config=config,
        created_ns=created_ns or now_ns,
        resume_seq=held_sseq if config.deliver_policy == "last_per_subject" else 0,
    )
    return encode(stored), encode_state(state, now, now_ns)
