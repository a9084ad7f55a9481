"""Rules for mirrors (one origin, its sequences kept) and sources (any number, new sequences).

Origins in other domains (`external`) are not checked: they need not be reachable. Local origins need not exist either,
but where they do, sizes and cycles are checked.
"""

from collections import deque

from eyot_daemon.jetstream.config.rules import ConfigRules, check_transform, invalid, literal_prefix, valid_name
from eyot_wire.jetstream.error_codes import (
    JSMirrorDurableConsumerCfgInvalid,
    JSMirrorInvalidStreamName,
    JSMirrorInvalidSubjectFilter,
    JSMirrorInvalidTransformDestination,
    JSMirrorMaxMessageSizeTooBigErr,
    JSMirrorMultipleFiltersNotAllowed,
    JSMirrorOverlappingSubjectFilters,
    JSMirrorWithAtomicPublishErr,
    JSMirrorWithBatchPublishErr,
    JSMirrorWithCountersErr,
    JSMirrorWithFirstSeqErr,
    JSMirrorWithMsgSchedulesErr,
    JSMirrorWithSourcesErr,
    JSMirrorWithSubjectsErr,
    JSPedanticErrF,
    JSSourceDuplicateDetected,
    JSSourceDurableConsumerCfgInvalid,
    JSSourceDurableConsumerDuplicateDetected,
    JSSourceInvalidStreamName,
    JSSourceInvalidSubjectFilter,
    JSSourceInvalidTransformDestination,
    JSSourceMaxMessageSizeTooBigErr,
    JSSourceMultipleFiltersNotAllowed,
    JSSourceOverlappingSubjectFilters,
    JSSourceWithMsgSchedulesErr,
    JSStreamCreateErrF,
    JSStreamExternalApiOverlapErrF,
    JSStreamExternalDelPrefixOverlapsErrF,
    JSStreamInvalidExternalDeliverySubjErrF,
)
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import StreamConfig, StreamSource
from eyot_wire.pattern_set import PatternSet, bounded
from eyot_wire.subject import is_literal, is_valid, overlaps

_API_PREFIX = "$JS.API"


def check_origins(config: StreamConfig, rules: ConfigRules, *, pedantic: bool = False) -> None:
    """Check `config.mirror` and `config.sources`, and what they exclude.

    `mirror_direct` follows a local origin's `allow_direct`. Raises JetStreamError.
    """
    if config.mirror is not None:
        _check_mirror(config, config.mirror, rules, pedantic)
    if config.sources:
        _check_sources(config, rules)
    origins = [origin for origin in (config.mirror, *config.sources) if origin is not None]
    _check_external(origins, rules)
    _check_cycle(config, rules)


def _check_mirror(config: StreamConfig, mirror: StreamSource, rules: ConfigRules, pedantic: bool) -> None:
    refused = (
        (config.first_seq, JSMirrorWithFirstSeqErr),
        (config.subjects, JSMirrorWithSubjectsErr),
        (config.sources, JSMirrorWithSourcesErr),
        (config.allow_msg_counter, JSMirrorWithCountersErr),
        (config.allow_atomic, JSMirrorWithAtomicPublishErr),
        (config.allow_batched, JSMirrorWithBatchPublishErr),
        (config.allow_msg_schedules, JSMirrorWithMsgSchedulesErr),
    )
    for there, code in refused:
        if there:
            raise fail(code)
    _check_consumer(mirror, JSMirrorDurableConsumerCfgInvalid)
    if mirror.filter_subject and mirror.subject_transforms:
        raise fail(JSMirrorMultipleFiltersNotAllowed)
    if config.subject_delete_marker_ttl:
        raise invalid("subject delete markers forbidden on mirrors")
    others = bounded(transform.src.encode() for transform in mirror.subject_transforms)
    for transform in mirror.subject_transforms:
        check_transform(
            transform, source_error=JSMirrorInvalidSubjectFilter, dest_error=JSMirrorInvalidTransformDestination
        )
        others.discard(transform.src.encode())
        if others.overlaps(transform.src.encode()):
            raise fail(JSMirrorOverlappingSubjectFilters)
        others.add(transform.src.encode())
    if mirror.external is not None:
        return
    if not valid_name(mirror.name):
        raise fail(JSMirrorInvalidStreamName)
    origin = rules.streams.get(mirror.name)
    if origin is not None:
        if 0 < config.max_msg_size < origin.max_msg_size:
            raise fail(JSMirrorMaxMessageSizeTooBigErr)
        if pedantic and config.mirror_direct != origin.allow_direct:
            raise fail(JSPedanticErrF, err="origin stream has direct get set, mirror has it disabled")
        config.mirror_direct = origin.allow_direct


def _check_sources(config: StreamConfig, rules: ConfigRules) -> None:
    if config.allow_msg_schedules:
        raise fail(JSSourceWithMsgSchedulesErr)
    seen: set[tuple[str, str, str, str, str]] = set()
    consumers: set[tuple[str, str, str]] = set()
    for source in config.sources:
        if not valid_name(source.name):
            raise fail(JSSourceInvalidStreamName)
        key = index_name(source)
        if key in seen:
            raise fail(JSSourceDuplicateDetected)
        seen.add(key)
        if source.filter_subject and source.subject_transforms:
            raise fail(JSSourceMultipleFiltersNotAllowed)
        for transform in source.subject_transforms:
            check_transform(
                transform, source_error=JSSourceInvalidSubjectFilter, dest_error=JSSourceInvalidTransformDestination
            )
        filters = bounded(transform.src.encode() for transform in source.subject_transforms)
        if any(filters.covers(transform.src.encode()) > 1 for transform in source.subject_transforms):
            raise fail(JSSourceOverlappingSubjectFilters)
        _check_consumer(source, JSSourceDurableConsumerCfgInvalid)
        if source.consumer is not None:
            through = (source.name, source.external.api if source.external else "", source.consumer.name)
            if through in consumers:
                raise fail(JSSourceDurableConsumerDuplicateDetected)
            consumers.add(through)
        origin = rules.streams.get(source.name) if source.external is None else None
        if origin is not None and 0 < config.max_msg_size < origin.max_msg_size:
            raise fail(JSSourceMaxMessageSizeTooBigErr)


def check_filters(config: StreamConfig) -> None:
    """Check filters of origins, which nats-server checks last. Raises JetStreamError 10049."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_valid(mirror.filter_subject.encode()):
        raise fail(JSStreamCreateErrF, err=f"subject filter '{mirror.filter_subject}' for the mirror invalid subject")
    for source in config.sources:
        if source.filter_subject and not is_valid(source.filter_subject.encode()):
            raise fail(
                JSStreamCreateErrF, err=f"subject filter '{source.filter_subject}' for the source: invalid subject"
            )


def index_name(source: StreamSource) -> tuple[str, str, str, str, str]:
    """Return the key of a stream's source: origin, API prefix, filters, transforms, consumer."""
    if source.subject_transforms:
        filters = "\f".join(transform.src or ">" for transform in source.subject_transforms)
        dests = "\f".join(transform.dest or ">" for transform in source.subject_transforms)
    else:
        filters, dests = source.filter_subject or ">", ">"
    consumer = source.consumer.name if source.consumer is not None else ""
    return source.name, source.external.api if source.external else "", filters, dests, consumer


def _check_consumer(source: StreamSource, err_code: int) -> None:
    """Check a pre-created consumer, which has its own filter and start."""
    consumer = source.consumer
    if consumer is None:
        return
    deliver = consumer.deliver_subject.encode()
    own = source.filter_subject or source.opt_start_seq or source.opt_start_time is not None
    if own or not valid_name(consumer.name) or not (is_valid(deliver) and is_literal(deliver)):
        raise fail(err_code)


def _check_external(origins: list[StreamSource], rules: ConfigRules) -> None:
    """Check prefixes of external origins. Their deliveries must not overlap subjects of local origins."""
    local = [rules.streams[one.name] for one in origins if one.external is None and one.name in rules.streams]
    externals = [one.external for one in origins if one.external is not None]
    # `a.b` can only overlap `deliver.a.b` where one of them ends in a wildcard.
    subjects = list(dict.fromkeys(each for config in local for each in config.subjects if each.endswith(">")))
    endless = bounded(subject.encode() for subject in subjects)
    for external in externals:
        if not external.deliver:
            continue
        if not literal_prefix(external.deliver):
            raise fail(JSStreamInvalidExternalDeliverySubjErrF, prefix=external.deliver)
        if not endless.overlaps(f"{external.deliver}.>".encode()):
            continue
        for subject in subjects:
            if overlaps(subject.encode(), f"{external.deliver}.{subject}".encode()):
                raise fail(JSStreamExternalDelPrefixOverlapsErrF, prefix=external.deliver, subject=subject)
    for external in externals:
        if not external.api:
            continue
        if not literal_prefix(external.api):
            raise invalid(f'stream external api prefix "{external.api}" must be a valid subject without wildcards')
        if overlaps(external.api.encode(), _API_PREFIX.encode()):
            raise fail(JSStreamExternalApiOverlapErrF, prefix=external.api, subject=_API_PREFIX)


def _check_cycle(config: StreamConfig, rules: ConfigRules) -> None:
    """Refuse local streams that would replicate themselves indirectly, or replicate one origin directly and through a mirror.

    nats-server counts the latter as a cycle, too, and considers the stream's own subjects.
    """
    waiting, visited = deque([config]), set[str]()
    while waiting:
        current = waiting.popleft()
        goes_on = current.name not in visited  # else it occurs twice, and its origins are known
        visited.add(current.name)
        own = bounded(subject.encode() for subject in current.subjects)
        sources = [(source, _takes(own, source)) for source in current.sources]
        for origin, counts in [*sources, (current.mirror, True)]:
            if origin is None or origin.external is not None:
                continue
            if origin.name in visited:
                if counts:
                    raise invalid("detected cycle")
            elif goes_on and origin.name in rules.streams:
                waiting.append(rules.streams[origin.name])


def _takes(own: PatternSet, source: StreamSource) -> bool:
    """Return whether a source's filter overlaps the stream's own subjects."""
    if not source.filter_subject:
        return True
    return own.overlaps(source.filter_subject.encode())
