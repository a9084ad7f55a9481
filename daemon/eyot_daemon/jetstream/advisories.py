"""Advisories about streams and API requests (ADR-3): events in the stream's account, published only if somebody listens."""

from typing import TYPE_CHECKING, Literal

from eyot_daemon.jetstream.messages.headers import REQUEST_INFO
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.subscription import IMPORTED, Kind
from eyot_wire import headers
from eyot_wire.jetstream.model import ns_to_rfc3339
from eyot_wire.jetstream.struct import InvalidJson, JsStruct, always, decode, empty, encode
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.jetstream.api_request import ApiRequest
    from eyot_daemon.router.account import Account

PREFIX = "$JS.EVENT.ADVISORY"
_API_SUBJECT = f"{PREFIX}.API".encode()
#: Why an atomic batch was dropped.
AbandonReason = Literal["timeout", "large", "incomplete", "unsupported"]
_STREAM_EVENTS = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}


class Advisory(JsStruct, kw_only=True):
    """What all advisories begin with."""

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
    """Who asked. `svc`: the account whose API it is, where another asked it through an import. `rtt` in nanoseconds."""

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


class ApiAudit(Advisory, kw_only=True):
    server: str = always("")
    client: AuditClient | None = None
    subject: str = always("")
    request: str = ""
    response: str = always("")
    domain: str = ""


def wanted(account: "Account", subject: bytes) -> bool:
    """True if somebody in the account listens to `subject`."""
    return account.has_interest(subject)


def publish(account: "Account", subject: bytes, event: Advisory, kind: str) -> None:
    """Publish `event` with its type, id and time filled in. `kind` is the type's last part."""
    event.type = f"io.nats.jetstream.advisory.v1.{kind}"
    event.id = nuid()
    event.timestamp = ns_to_rfc3339(account.broker.clock.now_ns())
    account.publish(subject, payload=encode(event))


def stream_action(account: "Account", stream: str, action: Literal["create", "modify", "delete"], domain: str) -> None:
    """A stream was created, changed or deleted."""
    subject = f"{PREFIX}.STREAM.{_STREAM_EVENTS[action]}.{stream}".encode()
    if wanted(account, subject):
        publish(account, subject, StreamAction(stream=stream, action=action, domain=domain), "stream_action")


def batch_abandoned(account: "Account", stream: str, batch: bytes, reason: AbandonReason) -> None:
    """An atomic batch was dropped before it was complete."""
    subject = f"{PREFIX}.STREAM.BATCH_ABANDONED.{stream}".encode()
    if wanted(account, subject):
        event = BatchAbandoned(stream=stream, batch=batch.decode("utf-8", "replace"), reason=reason)
        publish(account, subject, event, "stream_batch_abandoned")


def _client(request: "ApiRequest") -> AuditClient:
    """As the request says, where it came through an import."""
    account, origin = request.jsa.account, request.origin
    told = headers.get(request.header, REQUEST_INFO) if request.header and origin is IMPORTED else None
    if told:
        try:
            asker = decode(told, AuditClient, strict=False)
        except InvalidJson:
            pass
        else:
            asker.svc, asker.server = account.name, asker.server or account.broker.server_name
            return asker
    server = account.broker.server_name
    if not isinstance(origin, KnownClient):
        kind = "Leafnode" if origin is not None and origin.kind is Kind.LEAF else ""
        return AuditClient(acc=account.name, server=server if kind else "", kind=kind)
    return AuditClient(
        start=ns_to_rfc3339(origin.started_ns),
        host=origin.peer.host,
        id=origin.cid,
        acc=account.name,
        user=origin.user,
        name=origin.name,
        lang=origin.lang,
        ver=origin.version,
        rtt=int(origin.rtt_s * 1e9),
        server=server,
        kind="Client",
        client_type=origin.peer.client_type,
        **{name: value for name, value in origin.token_members().items() if name != "jwt"},
    )


def tell_system(request: "ApiRequest") -> None:
    """A request of an account's API, as those who listen in the system account see it (`nats server watch api`): there it is
    a service that all accounts import. Who asks is said in a header."""
    system = request.jsa.account.broker.system_account
    if system is None or not system.has_interest(request.subject):
        return
    header = headers.set_field(request.header, REQUEST_INFO, encode(_client(request)))
    system.publish(request.subject, header=header, payload=request.body)


def api_audit(request: "ApiRequest", response: bytes) -> None:
    """A request of the API was answered."""
    account = request.jsa.account
    if not wanted(account, _API_SUBJECT):
        return
    event = ApiAudit(
        server=account.broker.server_name,
        client=_client(request),
        subject=request.subject.decode("utf-8", "replace"),
        request=request.body.decode("utf-8", "replace"),
        response=response.decode("utf-8", "replace"),
        domain=request.jsa.domain,
    )
    publish(account, _API_SUBJECT, event, "api_audit")
