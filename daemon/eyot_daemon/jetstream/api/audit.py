"""Audit advisories (ADR-3) about JetStream API requests, and their copies for the system account."""

from typing import TYPE_CHECKING

from eyot_daemon.jetstream.advisories import PREFIX, Advisory, AuditClient, publish, wanted
from eyot_daemon.jetstream.nats_headers import REQUEST_INFO
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.subscription import IMPORTED, Kind
from eyot_wire import headers
from eyot_wire.jetstream.model import ns_to_rfc3339
from eyot_wire.jetstream.struct import InvalidJson, always, decode, encode

if TYPE_CHECKING:
    from eyot_daemon.jetstream.api_request import ApiRequest

_API_SUBJECT = f"{PREFIX}.API".encode()


class ApiAudit(Advisory, kw_only=True):
    server: str = always("")
    client: AuditClient | None = None
    subject: str = always("")
    request: str = ""
    response: str = always("")
    domain: str = ""


def _client(request: "ApiRequest") -> AuditClient:
    """Return the requester, as an importing account's request describes it."""
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
    """Publish an account's API request in the system account, for `nats server watch api`.

    There the API is a service that all accounts import; a header names the requester.
    """
    system = request.jsa.server.broker.system_account
    if system is None or not system.has_interest(request.subject):
        return
    header = headers.set_field(request.header, REQUEST_INFO, encode(_client(request)))
    system.publish(request.subject, header=header, payload=request.body)


def api_audit(request: "ApiRequest", response: bytes) -> None:
    """Publish the audit advisory of an answered request."""
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
