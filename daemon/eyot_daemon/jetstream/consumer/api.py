"""The JetStream API of consumers: CREATE in three forms, INFO, NAMES, LIST, DELETE, PAUSE, RESET, UNPIN, MSG.NEXT.

The subjects of creation:

    CONSUMER.CREATE.<stream>                         an ephemeral consumer, its name in the body or chosen here
    CONSUMER.CREATE.<stream>.<name>[.<filter>]       (2.9) the name, and the filter if there is exactly one
    CONSUMER.DURABLE.CREATE.<stream>.<name>          a durable consumer
"""

from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, Handler, attempt
from eyot_daemon.jetstream.config.consumer import consumer_level, valid_group
from eyot_daemon.jetstream.config.rules import with_level
from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.nats_headers import REQUIRED_LEVEL, STREAM_IDENTITY
from eyot_daemon.jetstream.sourcing.positions import with_stored_times, with_upstream_positions
from eyot_daemon.version import API_LEVEL
from eyot_store.errors import StoreError
from eyot_wire import headers
from eyot_wire.jetstream.error_codes import (
    JSConsumerCreateFilterSubjectMismatchErr,
    JSConsumerDurableNameNotInSubjectErr,
    JSConsumerDurableNameNotMatchSubjectErr,
    JSConsumerDurableNameNotSetErr,
    JSConsumerEphemeralWithDurableNameErr,
    JSConsumerInvalidGroupNameErr,
    JSConsumerInvalidPriorityGroupErr,
    JSConsumerInvalidResetErr,
    JSConsumerMultipleFiltersNotAllowed,
    JSConsumerNameContainsPathSeparatorsErr,
    JSConsumerNotFoundErr,
    JSConsumerStoreFailedErrF,
    JSConsumerStreamIdentityMismatchF,
    JSInvalidJSONErr,
    JSStreamMismatchErr,
    JSStreamReplicasNotSupportedErr,
)
from eyot_wire.jetstream.errors import error, fail
from eyot_wire.jetstream.model import (
    ConsumerListPart,
    ConsumerNamesPart,
    CreateConsumerRequest,
    PagePart,
    PageRequest,
    PauseRequest,
    PauseResponse,
    ResetPart,
    ResetRequest,
    SuccessPart,
    UnpinRequest,
    ns_to_rfc3339,
    rfc3339_to_ns,
)
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.nuid import short_id

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.consumers import Consumers
    from eyot_daemon.jetstream.stream.stream import Stream

#: API level of nats-server 2.15, of which Eyot has this part: streams tell their sources their identity.
IDENTITY_LEVEL = 5
NAMES_PAGE = 1024
LIST_PAGE = 256


def endpoints(consumers: "Consumers") -> tuple[Endpoint, ...]:
    """Return the table entries of all requests about consumers."""

    def bound(handler: "_Bound") -> Handler:
        return lambda request: handler(consumers, request)

    page = (PagePart(),)
    return (
        Endpoint("CONSUMER.CREATE", "consumer_create_response", bound(_create), extra=None, body_first=True),
        Endpoint(
            "CONSUMER.DURABLE.CREATE", "consumer_create_response", bound(_create_durable), extra=None, body_first=True
        ),
        Endpoint("CONSUMER.NAMES", "consumer_names_response", _names, on_error=page),
        Endpoint("CONSUMER.LIST", "consumer_list_response", _list, on_error=page),
        Endpoint("CONSUMER.INFO", "consumer_info_response", _info, extra=2, empty=True, body_first=True),
        Endpoint("CONSUMER.DELETE", "consumer_delete_response", _delete, extra=2, empty=True),
        Endpoint(
            "CONSUMER.PAUSE",
            "consumer_pause_response",
            bound(_pause),
            extra=2,
            on_error=(PauseResponse(),),
            body_first=True,
        ),
        Endpoint("CONSUMER.UNPIN", "consumer_unpin_response", _unpin, extra=2),
        Endpoint(
            "CONSUMER.RESET",
            "consumer_reset_response",
            bound(_reset),
            extra=2,
            on_error=(ResetPart(),),
            body_first=True,
            untold=True,
        ),
        Endpoint("CONSUMER.MSG.NEXT", "", _next, extra=2, bare=True),
    )


# -- creating ------------------------------------------------------------------------------------------------------


def _create(consumers: "Consumers", request: ApiRequest) -> None:
    """Handle CONSUMER.CREATE.<stream>[.<name>[.<filter>]]."""
    if len(request.tokens) < 5:
        return
    asked = request.decode(CreateConsumerRequest)
    request.check_level(_level_for(request, asked.config.direct or asked.config.sourcing))
    stream_name = request.tokens[4]
    _check_stream(asked, stream_name)
    config = asked.config
    if len(request.tokens) == 5:
        if config.durable_name:
            raise fail(JSConsumerEphemeralWithDurableNameErr)
        if config.name:
            _check_path(config.name)
        _create_checked(consumers, request, asked)
        return
    name = request.tokens[5]
    filter_subject = ".".join(request.tokens[6:])
    _check_path(name)
    if config.durable_name and config.durable_name != name:
        raise fail(JSConsumerDurableNameNotMatchSubjectErr)
    config.name = name
    if filter_subject and config.filter_subjects:
        raise fail(JSConsumerMultipleFiltersNotAllowed)
    if filter_subject and config.filter_subject != filter_subject:
        raise fail(JSConsumerCreateFilterSubjectMismatchErr)
    _create_checked(consumers, request, asked)


def _create_durable(consumers: "Consumers", request: ApiRequest) -> None:
    """Handle CONSUMER.DURABLE.CREATE.<stream>.<name>."""
    asked = request.decode(CreateConsumerRequest)
    request.check_level(_level_for(request, asked.config.direct or asked.config.sourcing))
    if len(request.tokens) != 7:
        raise fail(JSConsumerDurableNameNotInSubjectErr)
    stream_name, name = request.tokens[5], request.tokens[6]
    _check_stream(asked, stream_name)
    _check_path(name)
    if not asked.config.durable_name:
        raise fail(JSConsumerDurableNameNotSetErr)
    if asked.config.durable_name != name:
        raise fail(JSConsumerDurableNameNotMatchSubjectErr)
    asked.config.name = name
    _create_checked(consumers, request, asked)


def _check_stream(asked: CreateConsumerRequest, stream_name: str) -> None:
    if asked.stream_name != stream_name:
        raise fail(JSStreamMismatchErr)


def _check_path(name: str) -> None:
    if "/" in name or "\\" in name:
        raise fail(JSConsumerNameContainsPathSeparatorsErr)


def _level_for(request: ApiRequest, for_downstream: bool) -> int:
    """Return the API level that is offered: that of 2.15 to its sources, which want to know the stream's identity."""
    wants_identity = for_downstream and headers.get(request.header, STREAM_IDENTITY) is not None
    return IDENTITY_LEVEL if wants_identity else API_LEVEL


def _answer_identity(request: ApiRequest, stream: "Stream", *, refuse: bool) -> None:
    """Tell a source of nats-server 2.15 the stream's identity. Raises JetStreamError 10225 if it expects another one.

    A stream that was created again has another identity: the source copies it from its beginning. A source whose first
    request was refused (`stale_requests.py`) repeats it for level 4 without an identity, and takes one from the answer.
    """
    expected = headers.get(request.header, STREAM_IDENTITY)
    if expected is None and headers.get(request.header, REQUIRED_LEVEL) is None:
        return
    identity = identity_of(ns_to_rfc3339(stream.created_ns)).encode()
    if refuse and expected not in (None, b"", identity):
        raise fail(JSConsumerStreamIdentityMismatchF, msg=identity.decode())
    request.answer_header = headers.build(fields=[(STREAM_IDENTITY.decode(), identity.decode())])


def _create_checked(consumers: "Consumers", request: ApiRequest, asked: CreateConsumerRequest) -> None:
    if asked.config.num_replicas > 1:
        raise fail(JSStreamReplicasNotSupportedErr)
    stream = request.stream(asked.stream_name)
    if asked.config.direct or asked.config.sourcing:
        _answer_identity(request, stream, refuse=True)
    if asked.config.direct and asked.config.sourcing and asked.config.name:
        # Mirrors and sources of 2.14 request the same name repeatedly; each time they get a consumer of its own.
        asked.config.name += f"-{short_id()}"

    def told(consumer: Consumer) -> None:
        request.respond(
            with_upstream_positions(consumer.upstream_positions, with_stored_times(stream.log, consumer.info()))
        )
        if consumer.paused:
            consumer.advisories.paused(consumer.config.pause_until or "", paused=True)

    def done(consumer: Consumer, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSConsumerStoreFailedErrF, err=failure.message))
        else:
            stream.after_commits(lambda _: told(consumer))

    def create(_: ApiRequest) -> None:
        consumers.create(request.jsa, stream, asked.config, asked.action, pedantic=asked.pedantic, done=done)

    stream.subject_index_loader.for_consumer(asked.config, lambda: attempt(request, create))


# -- queries -----------------------------------------------------------------------------------------------------


def _consumer(request: ApiRequest) -> Consumer:
    """Return the consumer that `<stream>.<consumer>` at the end of the subject names. Raises JetStreamError 10059, 10014."""
    stream = request.stream(request.tokens[-2])
    consumer = stream.consumers.get(request.tokens[-1])
    if consumer is None:
        raise fail(JSConsumerNotFoundErr)
    assert isinstance(consumer, Consumer)
    return consumer


def _page(request: ApiRequest, limit: int) -> tuple[list[Consumer], PagePart]:
    """One page of a stream's consumers by name; hidden ones are left out."""
    asked = request.decode(PageRequest) if request.body_is_json else PageRequest()
    stream = request.stream(request.tokens[4])
    shown: list[Consumer] = []
    for name in sorted(stream.consumers):
        consumer = stream.consumers[name]
        if isinstance(consumer, Consumer) and not consumer.config.direct:
            shown.append(consumer)
    offset = min(max(asked.offset, 0), len(shown))
    return shown[offset : offset + limit], PagePart(total=len(shown), offset=offset, limit=limit)


def _names(request: ApiRequest) -> None:
    shown, page = _page(request, NAMES_PAGE)
    request.respond(page, ConsumerNamesPart(consumers=[consumer.name for consumer in shown]))


def _list(request: ApiRequest) -> None:
    shown, page = _page(request, LIST_PAGE)

    def answer(_: StoreError | None) -> None:
        request.respond(page, ConsumerListPart(consumers=[consumer.info(listed=True) for consumer in shown]))

    request.stream(request.tokens[4]).after_commits(answer)


def _info(request: ApiRequest) -> None:
    consumer = _consumer(request)
    # Messages published before the request count as pending, even if they are not on flash yet.
    consumer.stream.after_commits(lambda _: request.respond(consumer.info()))


# -- changing ------------------------------------------------------------------------------------------------------


def _delete(request: ApiRequest) -> None:
    def done(failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSConsumerStoreFailedErrF, err=failure.message))
        else:
            request.respond(SuccessPart(success=True))

    consumer = _consumer(request)
    if consumer.config.direct:
        consumer.stream.downstream.deleted_on_request(consumer)
    consumer.delete(done)


def _pause(consumers: "Consumers", request: ApiRequest) -> None:
    """Pause deliveries until `pause_until`; without it, or with a past time, resume."""
    asked = request.decode(PauseRequest) if request.body_is_json else PauseRequest()
    request.check_level()
    consumer = _consumer(request)
    try:
        until_ns = rfc3339_to_ns(asked.pause_until) if asked.pause_until else 0
    except ValueError as err:
        raise fail(JSInvalidJSONErr, err=err) from None
    config = msgspec.structs.replace(consumer.config, pause_until=ns_to_rfc3339(until_ns) if until_ns else None)
    config.metadata = with_level(config.metadata, consumer_level(config))

    def done(failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSConsumerStoreFailedErrF, err=failure.message))
            return
        left_ns = consumer.pause_left_ns()
        request.respond(PauseResponse(paused=left_ns > 0, pause_until=ns_to_rfc3339(until_ns), pause_remaining=left_ns))
        if config.pause_until != before:
            consumer.advisories.paused(config.pause_until or "", paused=left_ns > 0)

    before = consumer.config.pause_until
    consumers.reconfigure(consumer, config, done)


def _reset(consumers: "Consumers", request: ApiRequest) -> None:
    """Reset to a sequence (2.14). A missing consumer does not answer."""
    stream = request.jsa.streams.get(request.tokens[-2])
    consumer = stream.consumers.get(request.tokens[-1]) if stream is not None else None
    if not isinstance(consumer, Consumer) or not request.reply:
        return
    request.check_level(_level_for(request, for_downstream=True))
    _answer_identity(request, consumer.stream, refuse=False)
    if request.body and not request.body.strip():
        raise fail(JSInvalidJSONErr, err="unexpected end of JSON input")
    asked = ResetRequest() if not request.body else request.decode(ResetRequest, strict=False)

    def done(seq: int, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSConsumerInvalidResetErr, err=failure.message), ResetPart())
        else:
            request.respond(consumer.info(), ResetPart(reset_seq=seq))

    consumers.reset(consumer, asked.seq, done)


def _unpin(request: ApiRequest) -> None:
    if not request.body.strip():
        raise fail(JSInvalidJSONErr, err="unexpected end of JSON input")
    asked = request.decode(UnpinRequest, strict=False)
    if not asked.group:
        raise fail(JSInvalidJSONErr, err="consumer group not specified")
    if not valid_group(asked.group):
        raise fail(JSConsumerInvalidGroupNameErr)
    consumer = _consumer(request)
    if asked.group not in consumer.config.priority_groups or consumer.pull is None:
        raise fail(JSConsumerInvalidPriorityGroupErr)
    consumer.pull.unpin(asked.group)
    request.respond()


# -- messages ------------------------------------------------------------------------------------------------------


def _next(request: ApiRequest) -> None:
    """Handle a pull request; for a missing consumer, answer as without responders."""
    stream = request.jsa.streams.get(request.tokens[-2])
    consumer = stream.consumers.get(request.tokens[-1]) if stream is not None else None
    if isinstance(consumer, Consumer):
        consumer.request_next(request.reply, request.header, request.body)
    else:
        request.no_responders()


if TYPE_CHECKING:
    from collections.abc import Callable

    _Bound = Callable[[Consumers, ApiRequest], None]
