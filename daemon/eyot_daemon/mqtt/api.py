"""The requests of operators about sessions and retained messages: `$JS.API.EYOT_MQTT.*` (`eyot_wire.jetstream.mqtt_sessions`).

They belong to the JetStream API, so that the permissions, imports and domains that apply to streams apply to them. Lists
come in pages; a request reads and deletes a bounded slice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, attempt
from eyot_daemon.mqtt import message
from eyot_daemon.mqtt.retained_store import RETAINED_PREFIX, SLICE_BYTES, SLICE_MESSAGES
from eyot_daemon.mqtt.session_record import NEVER
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import JSBadRequestErr, JSStreamGeneralErrorF
from eyot_wire.jetstream.errors import error, fail
from eyot_wire.jetstream.model import ns_to_rfc3339
from eyot_wire.jetstream.mqtt_sessions import (
    RETAINED_DELETE,
    RETAINED_LIST,
    SESSION_DELETE,
    SESSION_INFO,
    SESSION_LIST,
    MqttSession,
    RetainedDeletedPart,
    RetainedListPart,
    RetainedMessage,
    RetainedRequest,
    SessionDeletedPart,
    SessionFilter,
    SessionListPart,
    SessionListRequest,
    SessionPart,
    SessionRequest,
)
from eyot_wire.jetstream.struct import JsStruct
from eyot_wire.mqtt import topics

if TYPE_CHECKING:
    from eyot_daemon.mqtt.session import Session
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_daemon.router.account import Account
    from eyot_store import StoredMessage

Handler = Callable[["ApiRequest", "AccountSessions"], None]
#: Sessions in one page.
PAGE: Final = 256
_NS: Final = 1_000_000_000


def endpoints(opened: Callable[[Account], AccountSessions | None]) -> tuple[Endpoint, ...]:
    """Return the endpoints; `opened` finds the sessions of an account, None where MQTT was never used."""

    def on(words: str, kind: str, handler: Handler, nothing: type[JsStruct], *, changes: bool = False) -> Endpoint:
        def handle(request: ApiRequest) -> None:
            sessions = opened(request.jsa.account)
            if sessions is None:
                request.respond(nothing())
            else:
                sessions.when_open(lambda failure: attempt(request, _open, handler, sessions, failure))

        return Endpoint(words, f"eyot_mqtt_{kind}_response", handle, extra=0, untold=not changes)

    return (
        on(SESSION_LIST, "session_list", _list_sessions, SessionListPart),
        on(SESSION_INFO, "session_info", _describe_session, SessionPart),
        on(SESSION_DELETE, "session_delete", _delete_session, SessionDeletedPart, changes=True),
        on(RETAINED_LIST, "retained_list", _list_retained, RetainedListPart),
        on(RETAINED_DELETE, "retained_delete", _delete_retained, RetainedDeletedPart, changes=True),
    )


def _open(request: ApiRequest, handler: Handler, sessions: AccountSessions, failure: str) -> None:
    if failure:
        raise fail(JSStreamGeneralErrorF, err=failure)
    handler(request, sessions)


# -- sessions ----------------------------------------------------------------------------------------------------------


def _list_sessions(request: ApiRequest, sessions: AccountSessions) -> None:
    asked = request.decode(SessionListRequest)
    found = sorted(
        (each for each in sessions.each() if not asked.user or each.record.owner == asked.user),
        key=lambda session: session.client_id,
    )
    offset = max(0, min(asked.offset, len(found)))
    shown = [_described(sessions, each) for each in found[offset : offset + PAGE]]
    request.respond(SessionListPart(total=len(found), offset=offset, sessions=shown))


def _describe_session(request: ApiRequest, sessions: AccountSessions) -> None:
    session = sessions.session(_client_id(request))
    if session is None:
        request.respond(SessionPart())
        return
    filters = [
        SessionFilter(
            filter=topic_filter,
            qos=options.qos,
            no_local=options.no_local,
            retain_as_published=options.retain_as_published,
            identifier=options.identifier,
        )
        for topic_filter, options in session.record.subs.items()
    ]
    request.respond(SessionPart(session=_described(sessions, session), filters=filters))


def _delete_session(request: ApiRequest, sessions: AccountSessions) -> None:
    client_id = _client_id(request)
    session = sessions.session(client_id)
    if session is None:
        request.respond(SessionDeletedPart())
        return
    part = SessionDeletedPart(deleted=True, was_connected=session.link is not None)

    def done(failure: str) -> None:
        if failure:
            request.refuse(error(JSStreamGeneralErrorF, err=failure))
        else:
            request.respond(part)

    sessions.delete(client_id, done)


def _client_id(request: ApiRequest) -> str:
    client_id = request.decode(SessionRequest).client_id
    if not client_id:
        raise fail(JSBadRequestErr)
    return client_id


def _described(sessions: AccountSessions, session: Session) -> MqttSession:
    record, link = session.record, session.link
    lasts = None if record.expiry_s == NEVER else record.expiry_s
    left = None
    if link is None and lasts is not None:
        left = max(0.0, lasts - (sessions.account.broker.clock.now_ns() - record.ended_ns) / _NS)
    messages, size = session.backlog
    return MqttSession(
        client_id=record.client_id,
        user=record.owner,
        level=record.level,
        connected=link is not None,
        cid=0 if link is None else link.cid,
        address="" if link is None else link.address,
        persistent=session.persistent,
        expiry_s=lasts,
        expires_in_s=left,
        subscriptions=len(record.subs),
        queued_msgs=messages,
        queued_bytes=size,
        inflight=len(session.flights),
        unreleased=len(session.held),
        refused=session.refused,
        dropped={reason: count for reason, count in session.drops.by_reason.items() if count},
        will="" if record.will is None else record.will.topic,
    )


# -- retained messages -------------------------------------------------------------------------------------------------


def _list_retained(request: ApiRequest, sessions: AccountSessions) -> None:
    log = sessions.store.retained.stream.log
    now_ns = sessions.account.broker.clock.now_ns()

    def answer(found: list[StoredMessage], next_seq: int) -> None:
        state = log.state
        request.respond(
            RetainedListPart(
                msgs=state.messages,
                bytes=state.bytes,
                retained=[_shown(each, now_ns) for each in found],
                next_seq=next_seq,
            )
        )

    _read_retained(request, sessions, answer)


def _delete_retained(request: ApiRequest, sessions: AccountSessions) -> None:
    retained = sessions.store.retained

    def delete(found: list[StoredMessage], next_seq: int) -> None:
        retained.remove([each.seq for each in found])

        def settled(failure: StoreError | None) -> None:
            if failure is not None:
                request.refuse(error(JSStreamGeneralErrorF, err=failure.message))
            else:
                request.respond(RetainedDeletedPart(deleted=len(found), next_seq=next_seq))

        retained.stream.after_commits(settled)

    _read_retained(request, sessions, delete)


def _read_retained(
    request: ApiRequest, sessions: AccountSessions, then: Callable[[list[StoredMessage], int], None]
) -> None:
    """Read a slice of the retained messages that the request means; `then` gets them, and where to go on (0: at the end)."""
    asked = request.decode(RetainedRequest)
    subjects = topics.filter_subjects(asked.filter)
    if subjects is None:
        raise fail(JSStreamGeneralErrorF, err=f"'{asked.filter}' is not a topic filter")
    retained = sessions.store.retained

    def read(request: ApiRequest) -> None:
        found, next_seq = retained.slice_of(subjects, max(1, asked.seq), SLICE_MESSAGES, SLICE_BYTES)
        then(found, next_seq if next_seq <= retained.stream.log.committed_seq else 0)

    retained.stream.subject_index_loader.then(partial(attempt, request, read))


def _shown(stored: StoredMessage, now_ns: int) -> RetainedMessage:
    subject = stored.subject[len(RETAINED_PREFIX) :]
    until = message.expires_ns(stored.header)
    return RetainedMessage(
        topic=topics.to_topic(subject) or subject.decode("utf-8", "backslashreplace"),
        qos=message.qos_of(stored.header),
        size=len(stored.payload),
        time=ns_to_rfc3339(stored.ts_ns),
        age_s=round(max(0, now_ns - stored.ts_ns) / _NS, 3),
        expires_in_s=round(max(0, until - now_ns) / _NS, 3) if until else None,
        publisher=message.client_of(stored.header),
    )
