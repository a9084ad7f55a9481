"""What may change about an existing stream (nats-server 2.12's rules)."""

from collections.abc import Iterable

from eyot_daemon.jetstream.config.rules import ConfigRules, invalid
from eyot_daemon.jetstream.config.stream import checked
from eyot_wire.jetstream.error_codes import (
    JSStreamMirrorNotUpdatableErr,
    JSStreamReplicasNotSupportedErr,
    JSStreamUpdateErrF,
)
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import ConsumerConfig, StreamConfig


def checked_update(old: StreamConfig, new: StreamConfig, rules: ConfigRules, *, pedantic: bool = False) -> StreamConfig:
    """The configuration that `old` becomes. Raises JetStreamError."""
    new = checked(new, rules, pedantic=pedantic)
    if new.num_replicas > 1:
        raise fail(JSStreamReplicasNotSupportedErr)
    if new.name != old.name:
        raise invalid("stream configuration name must match original")
    if new.storage != old.storage:
        raise invalid("stream configuration update can not change storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise invalid("stream configuration update can not change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise invalid("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise invalid("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise invalid("stream configuration update can not cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise fail(JSStreamMirrorNotUpdatableErr)
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise invalid("message TTL status can not be disabled")
    if old.allow_msg_counter != new.allow_msg_counter:
        raise invalid("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise invalid("message schedules can not be disabled")
    if old.persist_mode != new.persist_mode:
        raise invalid("stream configuration update can not change persist mode")
    if new.sealed:
        new.max_age = 0
        new.discard = "new"
        new.deny_delete = new.deny_purge = True
        new.allow_rollup_hdrs = False
    return new


def check_consumer_limits(old: StreamConfig, new: StreamConfig, consumers: Iterable[ConsumerConfig]) -> None:
    """The stream's limits on consumers do not become tighter than those that are there. Raises JetStreamError 10069."""
    before, after = old.consumer_limits, new.consumer_limits
    threshold, pending = after.inactive_threshold, after.max_ack_pending
    tighter = (threshold > 0 and threshold != before.inactive_threshold) or (
        pending > 0 and pending != before.max_ack_pending
    )
    if not tighter:
        return
    beyond = [
        each.name or each.durable_name
        for each in consumers
        if 0 < threshold < each.inactive_threshold or 0 < pending < each.max_ack_pending
    ]
    if beyond:
        raise fail(JSStreamUpdateErrF, err=f"change to limits violates consumers: {', '.join(sorted(beyond))}")
