"""Dispatch of JetStream API requests to handlers, the checks common to all, and audit advisories (ADR-3).

An account with JetStream, or with an import of it, answers on `$JS.API.>` (`AccountApi`). As in nats-server, requests
on unknown `$JS.API.<words>` are not answered. The order of the common checks: API level (10185), JetStream enabled for
the account (10039), empty body (10038). Requests are copied for the system account.
"""

import logging
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.advisories import PREFIX, Advisory, AuditClient, publish, wanted
from eyot_daemon.jetstream.api import account as api_account
from eyot_daemon.jetstream.api import archive as api_archive
from eyot_daemon.jetstream.api import messages as api_messages
from eyot_daemon.jetstream.api import packed_reads
from eyot_daemon.jetstream.api import streams as api_streams
from eyot_daemon.jetstream.api.request_queue import Queued, RequestQueue
from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, attempt
from eyot_daemon.jetstream.nats_headers import REQUEST_INFO
from eyot_daemon.router.account_setup import add_domain_mappings
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.subscription import IMPORTED, Kind, Origin, Subscription
from eyot_wire import headers
from eyot_wire.jetstream.error_codes import JSNotEmptyRequestErr, JSNotEnabledForAccountErr
from eyot_wire.jetstream.errors import JetStreamError, error
from eyot_wire.jetstream.model import ns_to_rfc3339
from eyot_wire.jetstream.struct import InvalidJson, always, decode, encode
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount

log = logging.getLogger("eyot.jetstream")

_AUDIT_SUBJECT = f"{PREFIX}.API".encode()
_LIMIT_SUBJECT = f"{PREFIX}.API.LIMIT_REACHED".encode()


class LimitReached(Advisory, kw_only=True):
    server: str = always("")
    domain: str = ""
    dropped: int = always(0)


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
    if not wanted(account, _AUDIT_SUBJECT):
        return
    event = ApiAudit(
        server=account.broker.server_name,
        client=_client(request),
        subject=request.subject.decode("utf-8", "replace"),
        request=request.body.decode("utf-8", "replace"),
        response=response.decode("utf-8", "replace"),
        domain=request.jsa.domain,
    )
    publish(account, _AUDIT_SUBJECT, event, "api_audit")


API_SUBJECT = b"$JS.API.>"
_INFO_SUBJECT = b"$JS.API.INFO"
_WORDS_MAX = 3

Table = dict[tuple[str, ...], Endpoint]


def table(consumer_endpoints: tuple[Endpoint, ...]) -> Table:
    """Return all endpoints by their words; consumers bring their own."""
    endpoints = (
        *api_account.ENDPOINTS,
        *api_streams.ENDPOINTS,
        *api_archive.ENDPOINTS,
        *api_messages.ENDPOINTS,
        *packed_reads.ENDPOINTS,
        *consumer_endpoints,
    )
    return {tuple(endpoint.words.split(".")): endpoint for endpoint in endpoints}


def find(endpoints: Table, tokens: list[str]) -> Endpoint | None:
    """Return the endpoint of a subject's tokens (`$JS`, `API`, ...), the one with the most words first."""
    for words in range(min(_WORDS_MAX, len(tokens) - 2), 0, -1):
        endpoint = endpoints.get(tuple(tokens[2 : 2 + words]))
        if endpoint is not None and endpoint.extra in (None, len(tokens) - 2 - words):
            return endpoint
    return None


class AccountApi:
    """The API of one account. Requests are answered after messages that their turn published before them (`RequestQueue`)."""

    kind = Kind.JETSTREAM

    def __init__(self, jsa: "JetStreamAccount", endpoints: Table) -> None:
        self._jsa = jsa
        self._account = jsa.account
        self._endpoints = endpoints
        limit = jsa.server.options.request_queue_limit
        self._queue = RequestQueue(self._account.broker, limit, self._answer, self._dropped)
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Answer from now on, under the domain's name too."""
        if self._jsa.domain:
            add_domain_mappings(self._account, self._jsa.domain)
        self.answer()

    def answer(self) -> None:
        """Subscribe to the API or unsubscribe: an account without JetStream that imports `$JS.API.INFO` does not answer itself."""
        wanted = self._jsa.enabled or not self._imports_info()
        if wanted and self._subscription is None:
            self._subscription = self._account.subscribe(API_SUBJECT, self)
        elif not wanted:
            self.stop()

    def stop(self) -> None:
        """Answer nothing more."""
        if self._subscription is not None:
            self._account.unsubscribe(self._subscription)
            self._subscription = None

    def _imports_info(self) -> bool:
        configured = next(
            (one for one in self._account.broker.options.accounts if one.name == self._account.name), None
        )
        imports = () if configured is None else configured.imports
        return any(matches(one.to or one.subject, _INFO_SUBJECT) for one in imports if one.kind == "service")

    # -- Destination -----------------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Queue a request."""
        if self._queue.add((subject, reply, header, payload, origin)):
            self._account.broker.mark_dirty(self)
        return True

    def flush(self) -> None:
        self._queue.run()

    def _answer(self, queued: Queued) -> None:
        subject, reply, header, payload, origin = queued
        tokens = subject.decode("utf-8", "surrogateescape").split(".")
        endpoint = find(self._endpoints, tokens)
        if endpoint is not None:
            request = ApiRequest(self._jsa, endpoint, subject, tokens, reply, header, payload, origin, self._answered)
            attempt(request, _handle)

    def _dropped(self, count: int) -> None:
        """Count and tell requests that found no room."""
        self._jsa.api_total += count
        self._jsa.api_errors += count
        log.warning("JetStream API queue limit reached, %d requests of account %s dropped", count, self._account.name)
        system = self._jsa.server.broker.system_account
        if system is not None and wanted(system, _LIMIT_SUBJECT):
            event = LimitReached(server=system.broker.server_id, domain=self._jsa.domain, dropped=count)
            publish(system, _LIMIT_SUBJECT, event, "api_limit_reached")

    def _answered(self, request: ApiRequest, response: bytes, failed: bool) -> None:
        """Send the answer of a request."""
        endpoint = request.endpoint
        told = not endpoint.untold and (failed or not endpoint.quiet)
        self._jsa.api_total += told
        if told and failed:
            self._jsa.api_errors += 1
        if request.reply:
            self._account.publish(request.reply, header=b"" if failed else request.answer_header, payload=response)
        if told:
            api_audit(request, response)


def _handle(request: ApiRequest) -> None:
    if not request.endpoint.bare:
        tell_system(request)
        _check(request)
    request.endpoint.handler(request)


def _check(request: ApiRequest) -> None:
    endpoint = request.endpoint
    if not endpoint.body_first:
        request.check_level()
    if not request.jsa.enabled:
        raise JetStreamError(error(JSNotEnabledForAccountErr))
    if endpoint.empty and not request.body_is_empty:
        raise JetStreamError(error(JSNotEmptyRequestErr))
    if endpoint.body_first and endpoint.empty:
        request.check_level()
