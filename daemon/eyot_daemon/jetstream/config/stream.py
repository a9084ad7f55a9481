"""A stream's configuration: nats-server's defaults, checks, error codes and words.

`checked(config, rules, pedantic)` returns the configuration as it will be stored, or raises JetStreamError. Rules for
mirrors and sources are in `jetstream/config/origins.py`. In pedantic
mode (ADR-1, 2.11) the server refuses where it would otherwise correct a value.

Allowed changes of an existing stream (nats-server 2.12's rules).
"""

from collections.abc import Iterable

import msgspec

from eyot_daemon.jetstream.config.origins import check_origins
from eyot_daemon.jetstream.config.rules import (
    ConfigRules,
    Taken,
    check_transform,
    invalid,
    own,
    stream_level,
    valid_name,
    with_level,
)
from eyot_store.log.log import JUMP_MAX
from eyot_wire.go.duration import format_duration
from eyot_wire.jetstream.error_codes import (
    JSPedanticErrF,
    JSReplicasCountCannotBeNegative,
    JSStreamMaxBytesRequired,
    JSStreamMaxStreamBytesExceeded,
    JSStreamMirrorNotUpdatableErr,
    JSStreamReplicasNotSupportedErr,
    JSStreamSubjectOverlapErr,
    JSStreamTransformInvalidDestination,
    JSStreamTransformInvalidSource,
    JSStreamUpdateErrF,
)
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import ConsumerConfig, Placement, Republish, StreamConfig
from eyot_wire.pattern_set import first_overlapping
from eyot_wire.subject import is_subset, is_valid, overlaps
from eyot_wire.transform import Transform, TransformError

NAME_LENGTH_MAX = 255
DESCRIPTION_LENGTH_MAX = 4096
METADATA_BYTES_MAX = 128 * 1024
REPLICAS_MAX = 5
MS_NS = 1_000_000
#: Default of the duplicate window.
DUPLICATE_WINDOW_NS = 120_000 * MS_NS
MAX_AGE_NS_MIN = 100 * MS_NS
DUPLICATE_WINDOW_NS_MIN = 100 * MS_NS
MARKER_TTL_NS_MIN = 1_000 * MS_NS

_API_PREFIXES = (b"$JS.>", b"$JSC.>", b"$NRG.>")


def checked(config: StreamConfig, rules: ConfigRules, *, pedantic: bool = False) -> StreamConfig:
    """Return a copy of `config` with defaults filled in. Raises JetStreamError with nats-server's code and words.

    Of several mistakes it reports the one that nats-server finds first.
    """
    _check_names(config)
    config = _with_limits(config, pedantic)
    _check_times(config, rules, pedantic)
    if config.deny_purge and config.allow_rollup_hdrs:
        raise invalid("roll-ups require the purge permission")
    _check_counter(config)
    _check_discard(config)
    _check_markers(config, pedantic)
    _check_schedules(config, pedantic)
    _check_persist_mode(config)
    check_origins(config, rules, pedantic=pedantic)
    if not config.subjects and config.mirror is None and not config.sources:
        config.subjects = [config.name]
    _check_subjects(config)
    if rules.max_bytes_required and config.max_bytes <= 0:
        raise fail(JSStreamMaxBytesRequired)
    if 0 < rules.stream_bytes_max < config.max_bytes:
        raise fail(JSStreamMaxStreamBytesExceeded)
    if config.subject_transform is not None:
        check_transform(
            config.subject_transform,
            source_error=JSStreamTransformInvalidSource,
            dest_error=JSStreamTransformInvalidDestination,
        )
    if config.republish is not None:
        config.republish = _checked_republish(config, config.republish, pedantic)
    if config.placement == Placement():
        config.placement = None
    if config.placement is not None and config.placement.preferred:
        raise invalid("preferred server not permitted in placement")
    config.metadata = with_level(config.metadata, stream_level(config))
    return config


def same(a: StreamConfig, b: StreamConfig) -> bool:
    """Return whether both are equivalent; the server's own metadata does not count."""
    a_metadata, b_metadata = own(a.metadata), own(b.metadata)
    return a_metadata == b_metadata and msgspec.structs.replace(a, metadata={}) == msgspec.structs.replace(
        b, metadata={}
    )


def _check_names(config: StreamConfig) -> None:
    if not valid_name(config.name):
        raise invalid(r"stream name is required and can not contain '.', '*', '>', '\', '/'")
    if len(config.name.encode()) > NAME_LENGTH_MAX:
        raise invalid(f"stream name is too long, maximum allowed is {NAME_LENGTH_MAX}")
    if len(config.description.encode()) > DESCRIPTION_LENGTH_MAX:
        raise invalid(f"stream description is too long, maximum allowed is {DESCRIPTION_LENGTH_MAX}")
    metadata = with_level(config.metadata, stream_level(config))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > METADATA_BYTES_MAX:
        raise invalid(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")


def _with_limits(config: StreamConfig, pedantic: bool) -> StreamConfig:
    config = msgspec.structs.replace(config)
    if config.num_replicas == 0:
        config.num_replicas = 1
    if config.num_replicas > REPLICAS_MAX:
        raise invalid(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise fail(JSReplicasCountCannotBeNegative)
    if config.first_seq > JUMP_MAX:
        raise invalid(f"first sequence can not be above {JUMP_MAX}")
    for field in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers"):
        value = getattr(config, field)
        if value == 0 or value < -1:
            if pedantic and value < -1:
                raise fail(JSPedanticErrF, err=f"{field} must be set to -1")
            setattr(config, field, -1)
    return config


def _check_times(config: StreamConfig, rules: ConfigRules, pedantic: bool) -> None:
    if config.max_age < 0:
        raise invalid("max age can not be negative")
    if 0 < config.max_age < MAX_AGE_NS_MIN:
        raise invalid("max age needs to be >= 100ms")
    _default_duplicate_window(config, rules, pedantic)
    window = config.duplicate_window
    if window < 0:
        raise invalid("duplicates window can not be negative")
    if config.max_age and window > config.max_age:
        raise invalid("duplicates window can not be larger then max age")
    if 0 < rules.duplicate_window_max_ns < window:
        limit = format_duration(rules.duplicate_window_max_ns)
        raise invalid(f"duplicates window can not be larger then server limit of {limit}")
    if 0 < window < DUPLICATE_WINDOW_NS_MIN:
        raise invalid("duplicates window needs to be >= 100ms")


def _default_duplicate_window(config: StreamConfig, rules: ConfigRules, pedantic: bool) -> None:
    """Set the default window: none for a stream that replicates, whose messages are identified by the origin's sequence.

    nats-server does so from 2.14. Before, two devices with the same message ids would lose messages at the hub.
    """
    if config.duplicate_window or config.mirror is not None or config.sources:
        return
    window = DUPLICATE_WINDOW_NS
    if 0 < rules.duplicate_window_max_ns < window:
        if pedantic:
            raise fail(JSPedanticErrF, err="duplicate window limits are higher than current limits")
        window = rules.duplicate_window_max_ns
    if 0 < config.max_age < window:
        if pedantic:
            raise fail(JSPedanticErrF, err="duplicate window cannot be bigger than max age")
        window = config.max_age
    config.duplicate_window = window


def _discards_new(config: StreamConfig) -> bool:
    """Return whether new messages are refused by choice: sealing sets that too, and a backup of a sealed stream has it."""
    return config.discard == "new" and not config.sealed


def _check_counter(config: StreamConfig) -> None:
    """Refuse what counters exclude."""
    if not config.allow_msg_counter:
        return
    if _discards_new(config):
        raise invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise invalid("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise invalid("counter stream can only use limits retention")


def _check_discard(config: StreamConfig) -> None:
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise invalid("discard new per subject requires max msgs per subject > 0")


def _check_markers(config: StreamConfig, pedantic: bool) -> None:
    """Delete markers need TTLs, roll-ups and purges."""
    ttl = config.subject_delete_marker_ttl
    if ttl < 0:
        raise invalid("subject delete marker TTL must not be negative")
    if not ttl:
        return
    if ttl < MARKER_TTL_NS_MIN:
        raise invalid("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise invalid("subject delete marker cannot be set if message TTLs are disabled")
        config.allow_msg_ttl = True
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise invalid("subject delete marker cannot be set if roll-ups are disabled")
        config.allow_rollup_hdrs, config.deny_purge = True, False


def _check_schedules(config: StreamConfig, pedantic: bool) -> None:
    """Schedules need roll-ups and purges."""
    if not config.allow_msg_schedules:
        return
    if _discards_new(config):
        raise invalid("message scheduling cannot use discard new")
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise invalid("message scheduling cannot be set if roll-ups are disabled")
        config.allow_rollup_hdrs, config.deny_purge = True, False


def _check_persist_mode(config: StreamConfig) -> None:
    if config.persist_mode != "async":
        return
    if config.storage != "file":
        raise invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise invalid("async persist mode is not supported with atomic batch publish")


def _check_subjects(config: StreamConfig) -> None:
    subjects = [subject.encode() for subject in config.subjects]
    overlapping = first_overlapping(subjects)
    for at, subject in enumerate(subjects):
        if not is_valid(subject):
            raise invalid("invalid subject")
        if subject == b">" and config.no_ack and config.num_replicas != 1:
            raise invalid("capturing all subjects requires replicas of 1")
        if not config.no_ack:
            _check_not_internal(subject)
        if at == overlapping:
            other = next(other for other in subjects[at + 1 :] if overlaps(other, subject))
            raise invalid(f'subject "{subject.decode()}" overlaps with "{other.decode()}"')


def check_no_overlap(config: StreamConfig, rules: ConfigRules) -> None:
    """Check that no other stream of the account has an overlapping subject. Raises JetStreamError 10065."""
    subjects = [subject.encode() for subject in config.subjects]
    taken = rules.taken
    if taken is None:
        taken = Taken()
        taken.follow((name, stream, stream.subjects) for name, stream in rules.streams.items())
    if taken.overlaps(subjects, but=config.name):
        raise fail(JSStreamSubjectOverlapErr)


def _check_not_internal(subject: bytes) -> None:
    """Refuse internal subjects: a stream that acknowledged its own traffic or the API's would feed itself."""
    if subject[:1] not in b"$*>":
        return
    if subject == b">":
        raise invalid("capturing all subjects requires no-ack to be true")
    if any(overlaps(subject, prefix) for prefix in _API_PREFIXES) and not is_subset(subject, b"$JS.EVENT.>"):
        raise invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, b"$SYS.>") and not is_subset(subject, b"$SYS.ACCOUNT.>"):
        raise invalid("subjects that overlap with system api require no-ack to be true")


def _checked_republish(config: StreamConfig, republish: Republish, pedantic: bool) -> Republish:
    """Return the checked `republish`: an empty source becomes `>`; `>` to `>` follows a transform of the stream's only subject."""
    if not republish.src:
        if pedantic:
            raise fail(JSPedanticErrF, err="republish source can not be empty")
        republish = msgspec.structs.replace(republish, src=">")
    transform = config.subject_transform
    if (republish.src, republish.dest) == (">", ">") and transform is not None and config.subjects == [transform.src]:
        if pedantic:
            raise fail(JSPedanticErrF, err="implicit republish based on subject transform")
        republish = msgspec.structs.replace(republish, src=transform.dest, dest=transform.dest)
    dest = republish.dest.encode()
    if any(overlaps(subject.encode(), dest) for subject in config.subjects):
        raise invalid("stream configuration for republish destination forms a cycle")
    try:
        Transform(republish.src.encode(), dest, republish=True)
    except TransformError:
        raise invalid(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        ) from None
    return republish


def checked_update(old: StreamConfig, new: StreamConfig, rules: ConfigRules, *, pedantic: bool = False) -> StreamConfig:
    """Return the configuration that `old` becomes. Raises JetStreamError."""
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
    """Check that the stream's new limits on consumers admit the existing ones. Raises JetStreamError 10069."""
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
