"""The API of backups: STREAM.SNAPSHOT and STREAM.RESTORE (`snapshot.py`, `restore.py` do the work).

A daemon loads those with the first backup or restore: on a small device neither may ever happen.
"""

from collections.abc import Callable
from typing import Any

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint
from eyot_daemon.jetstream.config.stream import check_no_overlap, checked
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import (
    JSBadRequestErr,
    JSInsufficientResourcesErr,
    JSSnapshotDeliverSubjectInvalidErr,
    JSStreamMismatchErr,
    JSStreamNameContainsPathSeparatorsErr,
    JSStreamNameExistRestoreFailedErr,
    JSStreamNotFoundErr,
    JSStreamReplicasNotSupportedErr,
    JSStreamRestoreErrF,
    JSStreamSnapshotErrF,
)
from eyot_wire.jetstream.errors import JetStreamError, error, fail
from eyot_wire.jetstream.model import RestorePart, RestoreRequest, SnapshotPart, SnapshotRequest
from eyot_wire.subject import is_valid_literal


def _snapshot(request: ApiRequest) -> None:
    if request.body_is_empty:
        raise fail(JSBadRequestErr)
    stream = request.stream(request.tokens[4])
    asked = request.decode(SnapshotRequest)
    if not is_valid_literal(asked.deliver_subject.encode()):
        raise fail(JSSnapshotDeliverSubjectInvalidErr)
    _check_room(request)
    if stream in request.jsa.snapshots:
        raise fail(JSStreamSnapshotErrF, err="snapshot in progress")
    request.jsa.snapshots[stream] = None
    if asked.jsck:
        from eyot_daemon.jetstream.backup.snapshot import check_messages

        check_messages(stream.core, lambda problem: _checked(request, stream, asked, problem))
    else:
        stream.after_commits(lambda failure: _begin_snapshot(request, stream, asked))


def _checked(request: ApiRequest, stream: Stream, asked: SnapshotRequest, problem: str) -> None:
    if problem:
        del request.jsa.snapshots[stream]
        request.refuse(error(JSStreamSnapshotErrF, err=problem))
    else:
        stream.after_commits(lambda failure: _begin_snapshot(request, stream, asked))


def _begin_snapshot(request: ApiRequest, stream: Stream, asked: SnapshotRequest) -> None:
    from eyot_daemon.jetstream.backup.snapshot import Snapshot

    sessions = request.jsa.snapshots
    if not stream.live:
        sessions.pop(stream, None)
        request.refuse(error(JSStreamNotFoundErr))
        return
    try:
        session = Snapshot(request, stream, asked, ended=_forget(sessions, stream))
    except StoreError as failure:
        sessions.pop(stream, None)
        request.refuse(error(JSStreamSnapshotErrF, err=failure.message))
        return
    sessions[stream] = session
    request.respond(SnapshotPart(config=stream.config, state=session.state))
    session.begin()


def _restore(request: ApiRequest) -> None:
    if request.body_is_empty:
        raise fail(JSBadRequestErr)
    asked = request.decode(RestoreRequest)
    jsa, name = request.jsa, request.tokens[4]
    asked.config.name = asked.config.name or name
    if asked.config.name != name:
        raise fail(JSStreamMismatchErr)
    if "/" in name or "\\" in name:
        raise fail(JSStreamNameContainsPathSeparatorsErr)
    config = checked(asked.config, jsa.rules(asked.config))
    if name in jsa.streams:
        raise fail(JSStreamNameExistRestoreFailedErr)
    if config.num_replicas > 1:
        raise fail(JSStreamReplicasNotSupportedErr)
    jsa.check_stream_limits(config, None)
    check_no_overlap(config, jsa.rules(config))
    if name in jsa.restores:
        raise fail(JSStreamNameExistRestoreFailedErr)
    if jsa.server.store.stream(jsa.account.name, name) is not None:
        raise fail(JSStreamRestoreErrF, err="a stream of this name is on disk")
    _check_room(request)
    from eyot_daemon.jetstream.backup.restore import Restore

    session = Restore(request, config, ended=_forget(jsa.restores, name))
    jsa.restores[name] = session
    request.respond(RestorePart(deliver_subject=session.deliver_subject))
    session.begin()


def _forget(sessions: dict[Any, Any], what: Any) -> Callable[[], None]:
    return lambda: sessions.pop(what, None)


def _check_room(request: ApiRequest) -> None:
    if not request.jsa.has_transfer_room():
        raise JetStreamError(error(JSInsufficientResourcesErr))


ENDPOINTS = (
    Endpoint("STREAM.SNAPSHOT", "stream_snapshot_response", _snapshot),
    Endpoint("STREAM.RESTORE", "stream_restore_response", _restore, on_error=(RestorePart(),)),
)
