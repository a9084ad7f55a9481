"""Rules for streams that copy: mirrors (one origin, its sequences kept) and sources (any number, new sequences).

Origins in other domains (`external`) are not looked at: they need not be reachable. Local origins need not exist
either, but where they do, sizes and cycles are checked.
"""

from itertools import combinations

from eyot_daemon.jetstream.config_rules import ConfigRules, check_transform, invalid, literal_prefix, valid_name
from eyot_wire.js_errors import fail
from eyot_wire.js_model import StreamConfig, StreamSource
from eyot_wire.subject import is_literal, is_valid, overlaps

_API_PREFIX = "$JS.API"


def check_mirror(config: StreamConfig, rules: ConfigRules) -> None:
    """`config.mirror` and what does not go with it. `mirror_direct` follows a local origin's `allow_direct`."""
    mirror = config.mirror
    assert mirror is not None
    if config.first_seq:
        raise fail(10143)
    if config.subjects:
        raise fail(10034)
    if config.sources:
        raise fail(10031)
    if config.allow_msg_counter:
        raise fail(10173)
    if config.allow_atomic:
        raise fail(10198)
    if config.allow_msg_schedules:
        raise fail(10186)
    if config.allow_batched:
        raise fail(10209)
    if config.subject_delete_marker_ttl:
        raise invalid("subject delete markers forbidden on mirrors")
    if mirror.filter_subject and mirror.subject_transforms:
        raise fail(10150)
    _check_filters(mirror, bad_src=10151, bad_dest=10154, overlap=10152)
    _check_consumer(mirror, 10213)
    if mirror.external is None:
        if not valid_name(mirror.name):
            raise fail(10142)
        origin = rules.streams.get(mirror.name)
        if origin is not None:
            if 0 < config.max_msg_size < origin.max_msg_size or (config.max_msg_size > 0 and origin.max_msg_size < 0):
                raise fail(10030)
            config.mirror_direct = origin.allow_direct
    else:
        _check_external(mirror, rules)
    _check_cycle(config, rules)


def check_sources(config: StreamConfig, rules: ConfigRules) -> None:
    """`config.sources` and what does not go with them."""
    if config.allow_msg_schedules:
        raise fail(10187)
    seen: set[tuple[str, str, str, str, str]] = set()
    for source in config.sources:
        if not source.name or (source.external is None and not valid_name(source.name)):
            raise fail(10141)
        key = index_name(source)
        if key in seen:
            raise fail(10140)
        seen.add(key)
        if source.filter_subject and source.subject_transforms:
            raise fail(10144)
        _check_filters(source, bad_src=10145, bad_dest=10146, overlap=10147)
        _check_consumer(source, 10215)
        if source.external is not None:
            _check_external(source, rules)
            continue
        origin = rules.streams.get(source.name)
        if origin is not None and 0 < config.max_msg_size < origin.max_msg_size:
            raise fail(10046)
    _check_cycle(config, rules)


def index_name(source: StreamSource) -> tuple[str, str, str, str, str]:
    """What tells one source of a stream from another: origin, API prefix, filters, transforms, consumer."""
    if source.subject_transforms:
        filters = "\f".join(transform.src or ">" for transform in source.subject_transforms)
        dests = "\f".join(transform.dest or ">" for transform in source.subject_transforms)
    else:
        filters, dests = source.filter_subject or ">", ">"
    consumer = source.consumer.name if source.consumer is not None else ""
    return source.name, source.external.api if source.external else "", filters, dests, consumer


def _check_consumer(source: StreamSource, err_code: int) -> None:
    """A consumer that is there beforehand brings its own filter and start."""
    consumer = source.consumer
    if consumer is None:
        return
    deliver = consumer.deliver_subject.encode()
    own = source.filter_subject or source.opt_start_seq or source.opt_start_time is not None
    if own or not valid_name(consumer.name) or not (is_valid(deliver) and is_literal(deliver)):
        raise fail(err_code)


def _check_filters(source: StreamSource, *, bad_src: int, bad_dest: int, overlap: int) -> None:
    for transform in source.subject_transforms:
        check_transform(transform, source_error=bad_src, dest_error=bad_dest)
    for a, b in combinations(source.subject_transforms, 2):
        if overlaps((a.src or ">").encode(), (b.src or ">").encode()):
            raise fail(overlap)
    if source.filter_subject and not is_valid(source.filter_subject.encode()):
        raise invalid("invalid subject")


def _check_external(source: StreamSource, rules: ConfigRules) -> None:
    external = source.external
    assert external is not None
    if external.deliver:
        if not is_literal(external.deliver.encode()):
            raise fail(10024, prefix=external.deliver)
        for config in rules.streams.values():
            for subject in config.subjects:
                if overlaps(subject.encode(), f"{external.deliver}.>".encode()):
                    raise fail(10022, prefix=external.deliver, subject=subject)
    if external.api:
        if not literal_prefix(external.api):
            raise invalid(f'stream external api prefix "{external.api}" must be a valid subject without wildcards')
        if overlaps(external.api.encode(), _API_PREFIX.encode()):
            raise fail(10021, prefix=external.api, subject=_API_PREFIX)


def _check_cycle(config: StreamConfig, rules: ConfigRules) -> None:
    """Local streams that would copy from themselves round a corner, or take one origin twice: directly and through a mirror.

    nats-server counts the second as a cycle too, and looks at the subjects of the copying stream.
    """
    waiting, visited = [config], set()
    while waiting:
        current = waiting.pop(0)
        visited.add(current.name)
        sources = [(source, _takes(current, source)) for source in current.sources]
        for origin, counts in [*sources, (current.mirror, True)]:
            if origin is None or origin.external is not None:
                continue
            if origin.name in visited:
                if counts:
                    raise invalid("detected cycle")
            elif origin.name in rules.streams:
                waiting.append(rules.streams[origin.name])


def _takes(stream: StreamConfig, source: StreamSource) -> bool:
    """True if a source's filter touches what the copying stream takes itself."""
    if not source.filter_subject:
        return True
    wanted = source.filter_subject.encode()
    return any(overlaps(subject.encode(), wanted) for subject in stream.subjects)
