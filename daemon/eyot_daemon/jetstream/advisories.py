"""Advisories about streams (ADR-3): events in the stream's account, published only with a subscriber."""

from typing import TYPE_CHECKING, Literal

from eyot_wire.jetstream.model import ns_to_rfc3339
from eyot_wire.jetstream.struct import JsStruct, always, empty, encode
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account

PREFIX = "$JS.EVENT.ADVISORY"
#: Why an atomic batch was dropped.
AbandonReason = Literal["timeout", "large", "incomplete", "unsupported"]
_STREAM_EVENTS = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}


class Advisory(JsStruct, kw_only=True):
    """The common members of all advisories."""

    type: str = always("")
    id: str = always("")
    timestamp: str = always("")


class StreamAction(Advisory, kw_only=True):
    stream: str = always("")
    action: str = always("")
    domain: str = ""


class BatchAbandoned(Advisory, kw_only=True):
    stream: str = always("")
    batch: str = always("")
    reason: str = always("")


class AuditClient(JsStruct, kw_only=True):
    """The requester. `svc`: the account of the API, if the request came through an import. `rtt` in nanoseconds."""

    start: str = ""
    host: str = ""
    id: int = 0
    acc: str = always("")
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    server: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = empty(list)
    kind: str = ""
    client_type: str = ""


def wanted(account: "Account", subject: bytes) -> bool:
    """Return whether `subject` has a subscriber in the account."""
    return account.has_interest(subject)


def publish(account: "Account", subject: bytes, event: Advisory, kind: str) -> None:
    """Publish `event` with its type, id and time filled in. `kind`: the type's last part."""
    event.type = f"io.nats.jetstream.advisory.v1.{kind}"
    event.id = nuid()
    event.timestamp = ns_to_rfc3339(account.broker.clock.now_ns())
    account.publish(subject, payload=encode(event))


def stream_action(account: "Account", stream: str, action: Literal["create", "modify", "delete"], domain: str) -> None:
    """Publish that a stream was created, changed or deleted."""
    subject = f"{PREFIX}.STREAM.{_STREAM_EVENTS[action]}.{stream}".encode()
    if wanted(account, subject):
        publish(account, subject, StreamAction(stream=stream, action=action, domain=domain), "stream_action")


def batch_abandoned(account: "Account", stream: str, batch: bytes, reason: AbandonReason) -> None:
    """Publish that an incomplete atomic batch was dropped."""
    subject = f"{PREFIX}.STREAM.BATCH_ABANDONED.{stream}".encode()
    if wanted(account, subject):
        event = BatchAbandoned(stream=stream, batch=batch.decode("utf-8", "replace"), reason=reason)
        publish(account, subject, event, "stream_batch_abandoned")
