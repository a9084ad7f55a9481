"""`EYOT_MQTT.*`: the MQTT sessions and retained messages of an account, for operators (`eyot mqtt sessions`, `retained`).

The requests are an extension of Eyot to the JetStream API, and permissions apply to their subjects as to those of streams:

| subject after `$JS.API.` | body | answer |
|---|---|---|
| `EYOT_MQTT.SESSION.LIST` | `SessionListRequest` | `SessionListPart` |
| `EYOT_MQTT.SESSION.INFO` | `SessionRequest` | `SessionPart` |
| `EYOT_MQTT.SESSION.DELETE` | `SessionRequest` | `SessionDeletedPart` |
| `EYOT_MQTT.RETAINED.LIST` | `RetainedRequest` | `RetainedListPart` |
| `EYOT_MQTT.RETAINED.DELETE` | `RetainedRequest` | `RetainedDeletedPart` |

Client ids and topics stand in the bodies, since a token of a subject cannot hold all of them.
"""

from __future__ import annotations

from typing import Final

from eyot_wire.jetstream.struct import Int, JsStruct, UInt, always, always_list

SESSION_LIST: Final = "EYOT_MQTT.SESSION.LIST"
SESSION_INFO: Final = "EYOT_MQTT.SESSION.INFO"
SESSION_DELETE: Final = "EYOT_MQTT.SESSION.DELETE"
RETAINED_LIST: Final = "EYOT_MQTT.RETAINED.LIST"
RETAINED_DELETE: Final = "EYOT_MQTT.RETAINED.DELETE"


class SessionListRequest(JsStruct, kw_only=True):
    """`offset`: how many sessions to pass over; `user`: only those of this user, "" for all."""

    offset: Int = 0
    user: str = ""


class SessionRequest(JsStruct, kw_only=True):
    client_id: str = ""


class SessionFilter(JsStruct, kw_only=True):
    """One subscription of a session."""

    filter: str = always("")
    qos: int = always(0)
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0


class MqttSession(JsStruct, kw_only=True):
    """One session. `user`: its owner; `level`: protocol level of its last connection, 3, 4 or 5."""

    client_id: str = always("")
    user: str = ""
    level: int = always(4)
    connected: bool = always(False)
    #: of the connection; 0 and "" without one
    cid: int = 0
    address: str = ""
    #: outlives its connection
    persistent: bool = always(False)
    #: how long it outlives its connection, seconds; null: for ever
    expiry_s: int | None = always(None)
    #: until it ends; null: not while it is connected, or never
    expires_in_s: float | None = always(None)
    subscriptions: int = always(0)
    #: messages of QoS 1 and 2 that are stored for it and not acknowledged, and their bytes
    queued_msgs: int = always(0)
    queued_bytes: int = always(0)
    #: messages that were sent to the client and wait for its answer
    inflight: int = always(0)
    #: publishes of the client of QoS 2 that it has not released
    unreleased: int = always(0)
    #: publishes refused because its queue was full
    refused: int = 0
    #: messages that it did not get, by reason, since the daemon started
    dropped: dict[str, int] = always({})
    #: topic of its will, "" without one
    will: str = ""


class SessionListPart(JsStruct, kw_only=True):
    """A page of the sessions, by client id; `total`: of all pages."""

    total: int = always(0)
    offset: int = always(0)
    sessions: list[MqttSession] = always_list()


class SessionPart(JsStruct, kw_only=True):
    """`session` is null where the account has none of that client id."""

    session: MqttSession | None = always(None)
    filters: list[SessionFilter] = always_list()


class SessionDeletedPart(JsStruct, kw_only=True):
    """`deleted`: False where the account has no session of that client id. `was_connected`: its connection was closed."""

    deleted: bool = always(False)
    was_connected: bool = always(False)


class RetainedRequest(JsStruct, kw_only=True):
    """`filter`: a topic filter; `seq`: where to go on, 0 for the beginning."""

    filter: str = "#"
    seq: UInt = 0


class RetainedMessage(JsStruct, kw_only=True):
    """One retained message. `size`: of its payload, bytes; `time`: when it was stored, RFC 3339."""

    topic: str = always("")
    qos: int = always(0)
    size: int = always(0)
    time: str = always("")
    age_s: float = always(0.0)
    #: until its expiry; null: it does not expire
    expires_in_s: float | None = always(None)
    #: client id of the publisher, "" where none is known
    publisher: str = ""


class RetainedListPart(JsStruct, kw_only=True):
    """A slice, oldest first. `next_seq`: where to go on; 0 at the end. `msgs` and `bytes`: of all that are retained."""

    msgs: int = always(0)
    bytes: int = always(0)
    retained: list[RetainedMessage] = always_list()
    next_seq: int = always(0)


class RetainedDeletedPart(JsStruct, kw_only=True):
    """How many were deleted, on flash; `next_seq` as in `RetainedListPart`."""

    deleted: int = always(0)
    next_seq: int = always(0)
