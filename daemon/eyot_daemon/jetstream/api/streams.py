"""The API of streams: create, update, delete, purge, info, names, list (ADR-1, ADR-8).

`STREAM.EYOT_FORGET` forgets downstreams of a stream that will not return.
"""

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, attempt
from eyot_daemon.jetstream.config.rules import invalid
from eyot_daemon.jetstream.config.stream import checked
from eyot_daemon.jetstream.stream.info import SUBJECTS_PAGE, stream_info
from eyot_daemon.jetstream.stream.stream import Stream, after_all_commits
from eyot_daemon.jetstream.subject_index_loader import SMALL, after_subjects_loaded
from eyot_store.errors import StoreError
from eyot_store.log.log import JUMP_MAX
from eyot_wire.jetstream.error_codes import (
    JSBadRequestErr,
    JSConsumerStoreFailedErrF,
    JSStreamCreateErrF,
    JSStreamDeleteErrF,
    JSStreamGeneralErrorF,
    JSStreamMismatchErr,
    JSStreamNameContainsPathSeparatorsErr,
    JSStreamPurgeFailedF,
    JSStreamSealedErr,
    JSStreamUpdateErrF,
)
from eyot_wire.jetstream.errors import error, fail
from eyot_wire.jetstream.forget_downstream import WORDS, ForgetRequest, ForgottenPart
from eyot_wire.jetstream.model import (
    ClusterInfo,
    DidCreatePart,
    PagePart,
    PurgePart,
    PurgeRequest,
    StreamConfigRequest,
    StreamInfoRequest,
    StreamListPart,
    StreamListRequest,
    StreamNamesPart,
    StreamNamesRequest,
    SuccessPart,
)
from eyot_wire.subject import overlaps

NAMES_PAGE = 1024
INFOS_PAGE = 256


def _create(request: ApiRequest) -> None:
    asked = request.decode(StreamConfigRequest)
    name = request.tokens[4]
    if asked.name != name:
        raise fail(JSStreamMismatchErr)
    if "/" in name or "\\" in name:
        raise fail(JSStreamNameContainsPathSeparatorsErr)
    if asked.sealed:
        raise invalid("stream configuration for create can not be sealed")
    if asked.mirror_direct and asked.mirror is None:
        raise invalid("stream has no mirror but does have mirror direct")

    def done(stream: Stream, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSStreamCreateErrF, err=failure.message))
        else:
            request.respond(stream_info(stream, request.jsa.sourcing, created=True), DidCreatePart(did_create=True))

    # Whether the storage was named only changes the order of errors.
    named = b'"storage"' in request.body
    request.jsa.create_stream(asked.plain(), pedantic=asked.pedantic, storage_named=named, done=done)


def _update(request: ApiRequest) -> None:
    asked = request.decode(StreamConfigRequest)
    config = checked(asked.plain(), request.jsa.rules(asked), pedantic=asked.pedantic)
    if config.name != request.tokens[4]:
        raise fail(JSStreamMismatchErr)
    stream = request.stream(config.name)

    def done(stream: Stream, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSStreamUpdateErrF, err=failure.message))
        else:
            request.respond(stream_info(stream, request.jsa.sourcing))

    request.jsa.update_stream(stream, config, pedantic=asked.pedantic, done=done)


def _delete(request: ApiRequest) -> None:
    def done(failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSStreamDeleteErrF, err=failure.message))
        else:
            request.respond(SuccessPart(success=True))

    name, jsa = request.tokens[4], request.jsa
    if (jsa.account.name, name) in jsa.server.offline:
        jsa.delete_offline(name, done)
        return
    jsa.delete_stream(request.stream(name), lambda _, failure: done(failure))


def _purge(request: ApiRequest) -> None:
    asked = request.decode(PurgeRequest) if request.body_is_json else PurgeRequest()
    if asked.seq and asked.keep:
        raise fail(JSBadRequestErr)
    stream = request.stream(request.tokens[4])
    if stream.config.sealed:
        raise fail(JSStreamSealedErr)
    if stream.config.deny_purge:
        raise fail(JSStreamPurgeFailedF, err="stream purge not permitted")

    def done(removed: int, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSStreamPurgeFailedF, err=failure.message))
        else:
            request.respond(PurgePart(success=True, purged=removed))

    below_seq = min(asked.seq, JUMP_MAX + 1)  # an empty stream continues at it
    stream.purge(below_seq=below_seq, subject_filter=asked.filter.encode(), keep=asked.keep, done=done)


def _info(request: ApiRequest) -> None:
    asked = request.decode(StreamInfoRequest) if request.body_is_json else StreamInfoRequest()
    stream = request.stream(request.tokens[4])
    # Messages published before the request count, even if they are not on flash yet.
    stream.after_commits(
        lambda _: stream.subject_index_loader.then(lambda: attempt(request, _answer_info, stream, asked))
    )


def _answer_info(request: ApiRequest, stream: Stream, asked: StreamInfoRequest) -> None:
    info = stream_info(stream, request.jsa.sourcing, deleted_details=asked.deleted_details)
    info.cluster = ClusterInfo(leader=stream.broker.server_name)
    if not asked.subjects_filter:
        request.respond(PagePart(), info)
        return
    matched, offset = stream.log.matched(asked.subjects_filter.encode()), max(asked.offset, 0)

    def listed() -> dict[str, int]:
        found = matched.page(offset, SUBJECTS_PAGE)
        return {subject.decode("utf-8", "replace"): count for subject, count in found}

    def answer(subjects: dict[str, int], failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSStreamGeneralErrorF, err=failure.message))
            return
        info.state.subjects = subjects
        request.respond(
            PagePart(total=len(matched), offset=offset, limit=SUBJECTS_PAGE) if len(matched) else PagePart(), info
        )

    if len(matched) > SMALL:
        request.jsa.server.beside.run(listed, answer)
    else:
        answer(listed(), None)


def _matching(request: ApiRequest, asked: StreamNamesRequest) -> list[Stream]:
    """Return the account's streams by name, limited to those whose subjects overlap `asked.subject`."""
    streams = [stream for _, stream in sorted(request.jsa.streams.items())]
    if not asked.subject:
        return streams
    wanted = asked.subject.encode()
    return [
        stream for stream in streams if any(overlaps(subject.encode(), wanted) for subject in stream.config.subjects)
    ]


def _names(request: ApiRequest) -> None:
    asked = request.decode(StreamNamesRequest) if request.body_is_json else StreamNamesRequest()
    names = [stream.name for stream in _matching(request, asked)]
    offset = _clamp(asked.offset, len(names))
    page = names[offset : offset + NAMES_PAGE]
    request.respond(PagePart(total=len(names), offset=offset, limit=NAMES_PAGE), StreamNamesPart(streams=page or None))


def _list(request: ApiRequest) -> None:
    asked = request.decode(StreamListRequest) if request.body_is_json else StreamListRequest()
    streams = _matching(request, asked)
    offset = _clamp(asked.offset, len(streams))
    shown = streams[offset : offset + INFOS_PAGE]

    def answer(request: ApiRequest) -> None:
        infos = [stream_info(stream, request.jsa.sourcing, listed=True) for stream in shown]
        request.respond(PagePart(total=len(streams), offset=offset, limit=INFOS_PAGE), StreamListPart(streams=infos))

    loaders = [stream.subject_index_loader for stream in shown]
    after_all_commits(shown, lambda: after_subjects_loaded(loaders, lambda: attempt(request, answer)))


def _clamp(offset: int, total: int) -> int:
    return max(0, min(offset, total))


def _forget(request: ApiRequest) -> None:
    stream = request.stream(request.tokens[4])
    asked = request.decode(ForgetRequest)
    if not asked.server:
        raise fail(JSBadRequestErr)

    def done(forgotten: int, reading: int, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSConsumerStoreFailedErrF, err=failure.message))
        else:
            request.respond(ForgottenPart(forgotten=forgotten, reading=reading))

    stream.downstream.forget_those(asked, done)


ENDPOINTS = (
    Endpoint("STREAM.CREATE", "stream_create_response", _create),
    Endpoint("STREAM.UPDATE", "stream_update_response", _update),
    Endpoint("STREAM.DELETE", "stream_delete_response", _delete, empty=True),
    Endpoint("STREAM.PURGE", "stream_purge_response", _purge, on_error=(PurgePart(),)),
    Endpoint("STREAM.INFO", "stream_info_response", _info, on_error=(PagePart(),)),
    Endpoint("STREAM.NAMES", "stream_names_response", _names, extra=0, on_error=(PagePart(),)),
    Endpoint("STREAM.LIST", "stream_list_response", _list, extra=0, on_error=(PagePart(),)),
    Endpoint(WORDS, "eyot_forget_response", _forget, untold=True),
)
