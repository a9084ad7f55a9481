"""A consumer's configuration: defaults, checks, and allowed updates. Codes and texts are nats-server 2.12's.

`complete` fills in defaults, `check` refuses invalid configurations; both run on creation and on update, in this order.
`check_update` then compares with the configuration in force. All raise JetStreamError. Nothing here knows time or
state; sizes are bytes, durations nanoseconds. Source: ADR-13, ADR-42, and nats-server's order of checks.
"""

import re
from collections.abc import Iterable

import msgspec

from eyot_daemon.jetstream.config.rules import own, valid_name
from eyot_wire import subject as subjects
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.jetstream.error_codes import (
    JSConsumerAckFCRequiresFCErr,
    JSConsumerAckFCRequiresMaxAckPendingErr,
    JSConsumerAckFCRequiresNoAckWaitErr,
    JSConsumerAckFCRequiresNoMaxDeliverErr,
    JSConsumerAckFCRequiresPushErr,
    JSConsumerAckWaitNegativeErr,
    JSConsumerBackOffNegativeErr,
    JSConsumerCreateDurableAndNameMismatch,
    JSConsumerCreateErrF,
    JSConsumerDeliverCycleErr,
    JSConsumerDeliverToWildcardsErr,
    JSConsumerDescriptionTooLongErrF,
    JSConsumerDirectRequiresEphemeralErr,
    JSConsumerDirectRequiresPushErr,
    JSConsumerDuplicateFilterSubjects,
    JSConsumerEmptyFilter,
    JSConsumerEmptyGroupName,
    JSConsumerFCRequiresPushErr,
    JSConsumerHBRequiresPushErr,
    JSConsumerInactiveThresholdExcess,
    JSConsumerInvalidDeliverSubject,
    JSConsumerInvalidGroupNameErr,
    JSConsumerInvalidPolicyErrF,
    JSConsumerInvalidSamplingErrF,
    JSConsumerMaxDeliverBackoffErr,
    JSConsumerMaxPendingAckExcessErrF,
    JSConsumerMaxPendingAckPolicyRequiredErr,
    JSConsumerMaxRequestBatchExceededF,
    JSConsumerMaxRequestExpiresTooSmall,
    JSConsumerMetadataLengthErrF,
    JSConsumerNameExistErr,
    JSConsumerNameTooLongErrF,
    JSConsumerOverlappingSubjectFilters,
    JSConsumerPinnedTTLWithoutPriorityPolicyNone,
    JSConsumerPriorityGroupWithPolicyNone,
    JSConsumerPriorityPolicyWithoutGroup,
    JSConsumerPullRequiresAckErr,
    JSConsumerPullWithRateLimitErr,
    JSConsumerPushMaxWaitingErr,
    JSConsumerPushWithPriorityGroupErr,
    JSConsumerReplicasExceedsStream,
    JSConsumerReplicasShouldMatchStream,
    JSConsumerSmallHeartbeatErr,
    JSConsumerWithFlowControlNeedsHeartbeats,
    JSConsumerWQConsumerNotDeliverAllErr,
    JSConsumerWQConsumerNotUniqueErr,
    JSConsumerWQMultipleUnfilteredErr,
    JSConsumerWQRequiresExplicitAckErr,
    JSInvalidJSONErr,
    JSPedanticErrF,
    JSReplicasCountCannotBeNegative,
    JSStreamInvalidConfigF,
)
from eyot_wire.jetstream.errors import JetStreamError, error, fail
from eyot_wire.jetstream.model import ConsumerConfig, StreamConfig
from eyot_wire.pattern_set import bounded

S = 1_000_000_000
MS = 1_000_000

_INT64_END = 1 << 63
# More digits are beyond every number, leading zeros or not: `int` itself refuses more than 4,300.
_SAMPLING_DIGITS_MAX = 100
ACK_WAIT_DEFAULT_NS = 30 * S
MAX_ACK_PENDING_DEFAULT = 1000
MAX_WAITING_DEFAULT = 512
INACTIVE_THRESHOLD_DEFAULT_NS = 5 * S
PINNED_TTL_DEFAULT_NS = 120 * S
HEARTBEAT_NS_MIN = 100 * MS
#: The heartbeat of consumers with acknowledging flow control: each one requests the receiver's position.
FLOW_CONTROL_HEARTBEAT_NS = 1 * S
REQUEST_EXPIRES_NS_MIN = 1 * MS
NAME_MAX = 255
DESCRIPTION_MAX = 4096
METADATA_MAX = 128 * 1024

_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}", re.ASCII)


class ConsumerRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of server and account; 0 or less: unlimited."""

    max_ack_pending: int = 0
    max_ack_pending_account: int = 0
    max_request_batch: int = 0


def filters_of(config: ConsumerConfig) -> tuple[bytes, ...]:
    """Return the subject filters in effect; empty: everything."""
    if config.filter_subject:
        return (config.filter_subject.encode(),)
    return tuple(filter_.encode() for filter_ in config.filter_subjects)


def consumer_level(config: ConsumerConfig) -> int:
    """Return the lowest API level that supports everything in `config`."""
    if config.ack_policy == "flow_control":
        return 4
    pauses = config.pause_until is not None and rfc3339_to_ns(config.pause_until) > 0
    if pauses or config.priority_policy != "none" or config.priority_timeout or config.priority_groups:
        return 1
    return 0


def valid_group(name: str) -> bool:
    """Return whether `name` is a valid name of a priority group."""
    return _GROUP_NAME.fullmatch(name) is not None


def sample_percent(config: ConsumerConfig) -> int:
    """Return how many of a hundred acknowledgements are reported, 0 to 100."""
    text = config.sample_freq.removesuffix("%")
    return min(100, int(text)) if text else 0


# -- defaults ------------------------------------------------------------------------------------------------------

#: (member, its default, pedantic mode's error for a value that is otherwise corrected silently)
_NOT_NEGATIVE = (
    ("max_waiting", 0, "max_waiting must not be negative"),
    ("max_ack_pending", -1, "max_ack_pending must be set to -1"),
    ("max_batch", 0, "max_batch must not be negative"),
    ("max_expires", 0, "max_expires must not be negative"),
    ("max_bytes", 0, "max_bytes must not be negative"),
    ("idle_heartbeat", 0, "idle_heartbeat must not be negative"),
    ("inactive_threshold", 0, "inactive_threshold must not be negative"),
    ("priority_timeout", 0, "priority_timeout must not be negative"),
)


def _pedantic(text: str) -> JetStreamError:
    return fail(JSPedanticErrF, err=text)


def complete(
    config: ConsumerConfig, stream: StreamConfig, rules: ConsumerRules, *, pedantic: bool, durable: bool | None = None
) -> None:
    """Fill in defaults. In pedantic mode (2.11) contradictory values are refused, not corrected.

    `durable`: whether the existing consumer is durable.
    """
    if config.max_deliver == 0 or config.max_deliver < -1:
        if pedantic and config.max_deliver < -1:
            raise _pedantic("max_deliver must be set to -1")
        config.max_deliver = -1
    for member, default, text in _NOT_NEGATIVE:
        if getattr(config, member) < default:
            if pedantic:
                raise _pedantic(text)
            setattr(config, member, default)
    pull = not config.deliver_subject
    if pull and config.max_waiting == 0:
        config.max_waiting = MAX_WAITING_DEFAULT
    acks = config.ack_policy != "none"
    if config.ack_policy == "flow_control":
        _complete_flow_control(config, pedantic)
    elif acks and config.ack_wait == 0:
        config.ack_wait = ACK_WAIT_DEFAULT_NS
    if config.backoff and config.ack_policy != "flow_control":
        if pedantic and config.ack_wait != config.backoff[0]:
            raise _pedantic("first backoff value has to equal batch AckWait")
        config.ack_wait = config.backoff[0]
    _complete_limits(config, stream, rules, acks, pedantic)
    if pull and config.max_batch == 0 and rules.max_request_batch > 0:
        if pedantic:
            raise _pedantic("max_request_batch must be set if it's JetStream limits are set")
        config.max_batch = rules.max_request_batch
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = PINNED_TTL_DEFAULT_NS
    stays = bool(config.durable_name) if durable is None else durable
    if not stays and config.inactive_threshold == 0:
        config.inactive_threshold = INACTIVE_THRESHOLD_DEFAULT_NS


def _complete_flow_control(config: ConsumerConfig, pedantic: bool) -> None:
    """Flow control that acknowledges (2.14) needs flow control, and heartbeats of one second."""
    if pedantic and config.deliver_subject:
        if not config.flow_control:
            raise fail(JSConsumerAckFCRequiresFCErr)
        if config.idle_heartbeat != FLOW_CONTROL_HEARTBEAT_NS:
            raise fail(JSStreamInvalidConfigF, err="flow control ack policy heartbeat needs to be 1s")
    if config.deliver_subject:
        config.flow_control = True
        config.idle_heartbeat = FLOW_CONTROL_HEARTBEAT_NS


def _complete_limits(
    config: ConsumerConfig, stream: StreamConfig, rules: ConsumerRules, acks: bool, pedantic: bool
) -> None:
    limits = stream.consumer_limits
    if config.max_ack_pending == 0 and limits.max_ack_pending:  # -1 as well: as many as it likes
        if pedantic and limits.max_ack_pending > 0:
            raise _pedantic("max_ack_pending must be set if it's configured in stream limits")
        config.max_ack_pending = limits.max_ack_pending
    if config.inactive_threshold == 0 and limits.inactive_threshold > 0:
        if pedantic:
            raise _pedantic("inactive_threshold must be set if it's configured in stream limits")
        config.inactive_threshold = limits.inactive_threshold
    if acks and config.max_ack_pending == 0:
        bounds = [MAX_ACK_PENDING_DEFAULT, rules.max_ack_pending, rules.max_ack_pending_account]
        config.max_ack_pending = min(bound for bound in bounds if bound > 0)


# -- checks --------------------------------------------------------------------------------------------------------


def check(config: ConsumerConfig, stream: StreamConfig, rules: ConsumerRules, *, overlapping: bool = False) -> None:
    """Refuse an invalid completed configuration; the first mistake found is reported.

    `overlapping`: the filters may overlap, as the daemon's own consumers' may.
    """
    _check_basics(config, stream)
    if config.ack_policy == "flow_control":
        _check_flow_control(config)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, rules)
    _check_limits(config, stream, rules)
    if config.direct:
        if not config.deliver_subject:
            raise fail(JSConsumerDirectRequiresPushErr)
        if config.durable_name:
            raise fail(JSConsumerDirectRequiresEphemeralErr)
    _check_filters(config, overlapping=overlapping)
    _check_start(config)
    _check_rest(config)
    _check_priority(config)
    if stream.placement is not None and stream.placement.preferred:
        raise fail(JSStreamInvalidConfigF, err="preferred server not permitted in placement")
    _check_name(config.durable_name or config.name)


def _check_basics(config: ConsumerConfig, stream: StreamConfig) -> None:
    for name, what in ((config.name, "name"), (config.durable_name, "durable name")):
        if name and not valid_name(name):
            raise fail(JSStreamInvalidConfigF, err=rf"consumer {what} can not contain '.', '*', '>', '\', '/'")
    if config.num_replicas > 0 and config.num_replicas > max(1, stream.num_replicas):
        raise fail(JSConsumerReplicasExceedsStream)
    if config.num_replicas < 0:
        raise fail(JSReplicasCountCannotBeNegative)
    if stream.retention != "limits" and config.num_replicas not in (0, max(1, stream.num_replicas)):
        raise fail(JSConsumerReplicasShouldMatchStream)
    if any(wait < 0 for wait in config.backoff):
        raise fail(JSConsumerBackOffNegativeErr)
    if config.ack_wait < 0:
        raise fail(JSConsumerAckWaitNegativeErr)
    if config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise fail(JSConsumerMaxDeliverBackoffErr)
    if len(config.description.encode()) > DESCRIPTION_MAX:
        raise fail(JSConsumerDescriptionTooLongErrF, max=DESCRIPTION_MAX)


def _check_flow_control(config: ConsumerConfig) -> None:
    """Refuse what acknowledging flow control does not support: waits, redeliveries, pulls."""
    if not config.deliver_subject:
        raise fail(JSConsumerAckFCRequiresPushErr)
    if config.max_ack_pending <= 0:
        raise fail(JSConsumerAckFCRequiresMaxAckPendingErr)
    if config.ack_wait or config.backoff:
        raise fail(JSConsumerAckFCRequiresNoAckWaitErr)
    if config.max_deliver > 0:
        raise fail(JSConsumerAckFCRequiresNoMaxDeliverErr)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    deliver = config.deliver_subject.encode()
    if not subjects.is_literal(deliver):
        raise fail(JSConsumerDeliverToWildcardsErr)
    if not subjects.is_valid(deliver):
        raise fail(JSConsumerInvalidDeliverSubject)
    if any(subjects.matches(subject.encode(), deliver) for subject in stream.subjects):
        raise fail(JSConsumerDeliverCycleErr)
    if config.max_waiting != 0:
        raise fail(JSConsumerPushMaxWaitingErr)
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise fail(JSConsumerMaxPendingAckPolicyRequiredErr)
    if 0 < config.idle_heartbeat < HEARTBEAT_NS_MIN:
        raise fail(JSConsumerSmallHeartbeatErr)


def _check_pull(config: ConsumerConfig, stream: StreamConfig, rules: ConsumerRules) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise fail(JSConsumerPullRequiresAckErr)
    if config.rate_limit_bps > 0:
        raise fail(JSConsumerPullWithRateLimitErr)
    if config.idle_heartbeat > 0:
        raise fail(JSConsumerHBRequiresPushErr)
    if config.flow_control:
        raise fail(JSConsumerFCRequiresPushErr)
    if config.max_expires != 0 and config.max_expires < REQUEST_EXPIRES_NS_MIN:
        raise fail(JSConsumerMaxRequestExpiresTooSmall)
    if 0 < rules.max_request_batch < config.max_batch:
        raise fail(JSConsumerMaxRequestBatchExceededF, limit=rules.max_request_batch)


def _check_limits(config: ConsumerConfig, stream: StreamConfig, rules: ConsumerRules) -> None:
    limits = stream.consumer_limits
    for limit in (rules.max_ack_pending, rules.max_ack_pending_account, limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            raise fail(JSConsumerMaxPendingAckExcessErrF, limit=limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        raise fail(JSConsumerInactiveThresholdExcess, limit=limits.inactive_threshold)


def _check_filters(config: ConsumerConfig, *, overlapping: bool) -> None:
    if config.filter_subject and config.filter_subjects:
        raise fail(JSConsumerDuplicateFilterSubjects)
    if config.filter_subject and not subjects.is_valid(config.filter_subject.encode()):
        raise fail(JSStreamInvalidConfigF, err="invalid subject")
    if "" in config.filter_subjects:
        raise fail(JSConsumerEmptyFilter)
    filters = filters_of(config)
    found = bounded(filters)
    for filter_ in filters:
        if not subjects.is_valid(filter_):
            raise fail(JSStreamInvalidConfigF, err="invalid subject")
        if not overlapping and found.covers(filter_) > 1:
            raise fail(JSConsumerOverlappingSubjectFilters)


_POLICY_WORDS = {
    "all": "all",
    "last": "last",
    "last_per_subject": "last per subject",
    "new": "new",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
}


def _check_start(config: ConsumerConfig) -> None:
    """Check that the delivery policy and the optional start fit."""

    def set_too(start: str) -> JetStreamError:
        text = f"consumer delivery policy is deliver {words}, but optional start {start} is also set"
        return fail(JSConsumerInvalidPolicyErrF, err=text)

    def not_set(what: str) -> JetStreamError:
        return fail(
            JSConsumerInvalidPolicyErrF,
            err=f"consumer delivery policy is deliver {words}, but optional {what} is not set",
        )

    policy = config.deliver_policy
    words = _POLICY_WORDS[policy]
    if policy == "by_start_sequence":
        if config.opt_start_seq == 0:
            raise not_set("start sequence")
        if config.opt_start_time is not None:
            raise set_too("time")
        return
    if policy == "by_start_time":
        if config.opt_start_time is None:
            raise not_set("start time")
        if config.opt_start_seq != 0:
            raise set_too("start sequence")
        return
    if config.opt_start_seq > 0:
        raise set_too("sequence")
    if config.opt_start_time is not None:
        raise set_too("time")
    if policy == "last_per_subject" and not filters_of(config):
        raise not_set("filter subject")


def _check_rest(config: ConsumerConfig) -> None:
    if config.sample_freq:
        text = config.sample_freq.removesuffix("%")
        if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
            raise fail(JSConsumerInvalidSamplingErrF, err=f'strconv.Atoi: parsing "{text}": invalid syntax')
        if len(text) > _SAMPLING_DIGITS_MAX or not -_INT64_END <= int(text) < _INT64_END:
            raise fail(JSConsumerInvalidSamplingErrF, err=f'strconv.Atoi: parsing "{text}": value out of range')
        if int(text) < 0:
            raise fail(JSConsumerInvalidSamplingErrF, err="<nil>")
    if config.flow_control and config.idle_heartbeat == 0:
        raise fail(JSConsumerWithFlowControlNeedsHeartbeats)
    if config.durable_name and config.name and config.durable_name != config.name:
        raise fail(JSConsumerCreateDurableAndNameMismatch)
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_MAX:
        raise fail(JSConsumerMetadataLengthErrF, limit=f"{METADATA_MAX // 1024}KB")
    for member in ("opt_start_time", "pause_until"):
        text = getattr(config, member)
        if text is not None:
            try:
                rfc3339_to_ns(text)
            except ValueError as err:
                raise fail(JSInvalidJSONErr, err=err) from None


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        if config.priority_groups:
            raise fail(JSConsumerPriorityGroupWithPolicyNone)
        if config.priority_timeout > 0:
            raise fail(JSConsumerPinnedTTLWithoutPriorityPolicyNone)
        return
    if config.deliver_subject:
        raise fail(JSConsumerPushWithPriorityGroupErr)
    if not config.priority_groups:
        raise fail(JSConsumerPriorityPolicyWithoutGroup)
    for group in config.priority_groups:
        if not group:
            raise fail(JSConsumerEmptyGroupName)
        if not valid_group(group):
            raise fail(JSConsumerInvalidGroupNameErr)


def _check_name(name: str) -> None:
    if len(name.encode()) > NAME_MAX:
        raise fail(JSConsumerNameTooLongErrF, max=NAME_MAX)


def check_workqueue(config: ConsumerConfig, others: Iterable[ConsumerConfig]) -> None:
    """On a work queue every message has at most one consumer: `others` are those already there."""
    if config.ack_policy not in ("explicit", "flow_control"):
        raise fail(JSConsumerWQRequiresExplicitAckErr)
    if config.deliver_policy != "all":
        raise fail(JSConsumerWQConsumerNotDeliverAllErr)
    others = list(others)
    if others:
        if not filters_of(config):
            raise fail(JSConsumerWQMultipleUnfilteredErr)
        check_workqueue_filters(config, others)


def check_workqueue_filters(config: ConsumerConfig, others: Iterable[ConsumerConfig]) -> None:
    """No message of a work queue may belong to two consumers."""
    mine = bounded(filters_of(config) or (b">",))
    if any(mine.overlaps(their) for other in others for their in filters_of(other) or (b">",)):
        raise fail(JSConsumerWQConsumerNotUniqueErr)


# -- updates -------------------------------------------------------------------------------------------------------

#: Members that cannot change, and nats-server's words for them.
_FIXED = (
    ("deliver_policy", "deliver policy can not be updated"),
    ("mem_storage", "storage type can not be updated"),
    ("direct", "direct can not be updated"),
    ("sourcing", "sourcing can not be updated"),
    ("opt_start_seq", "start sequence can not be updated"),
    ("opt_start_time", "start time can not be updated"),
    ("ack_policy", "ack policy can not be updated"),
    ("replay_policy", "replay policy can not be updated"),
    ("idle_heartbeat", "heart beats can not be updated"),
    ("flow_control", "flow control can not be updated"),
)


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, bound: bool) -> None:
    """Refuse changes that are not allowed; `bound`: the old deliver subject has a subscriber."""
    for member, text in _FIXED:
        before, after = getattr(old, member), getattr(new, member)
        if member == "opt_start_time" and before and after:
            before, after = rfc3339_to_ns(before), rfc3339_to_ns(after)
        if before != after:
            raise fail(JSConsumerCreateErrF, err=text)
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            raise fail(JSConsumerCreateErrF, err="can not update pull consumer to push based")
        if not new.deliver_subject:
            raise fail(JSConsumerCreateErrF, err="can not update push consumer to pull based")
        if bound:
            raise JetStreamError(error(JSConsumerNameExistErr))
    if old.max_waiting != new.max_waiting:
        raise fail(JSConsumerCreateErrF, err="max waiting can not be updated")


def same_config(old: ConsumerConfig, new: ConsumerConfig) -> bool:
    """Equal as far as users are concerned: the server's own metadata does not count."""
    return _comparable(old) == _comparable(new)


def _comparable(config: ConsumerConfig) -> ConsumerConfig:
    return msgspec.structs.replace(config, metadata=own(config.metadata))
