"""The JetStream API: which request goes to which handler, and what is common to all of them.

Requests on `$JS.API.<words>` that no endpoint knows are not answered at all, as nats-server does. The order of the
common checks: API level (10185), JetStream on in the account (10039), empty body (10038).
"""

from typing import TYPE_CHECKING

from eyot_daemon.jetstream.advisories import tell_system
from eyot_daemon.jetstream.api import account as api_account
from eyot_daemon.jetstream.api import archive as api_archive
from eyot_daemon.jetstream.api import direct_get, packed_reads
from eyot_daemon.jetstream.api import forget as api_forget
from eyot_daemon.jetstream.api import messages as api_messages
from eyot_daemon.jetstream.api import streams as api_streams
from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, attempt
from eyot_wire.jetstream.error_codes import JSNotEmptyRequestErr, JSNotEnabledForAccountErr
from eyot_wire.jetstream.errors import JetStreamError, error

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.router.subscription import Origin

_WORDS_MAX = 3

Table = dict[tuple[str, ...], Endpoint]


def table(consumer_endpoints: tuple[Endpoint, ...]) -> Table:
    """All endpoints by their words; consumers bring their own."""
    endpoints = (
        *api_account.ENDPOINTS,
        *api_streams.ENDPOINTS,
        *api_archive.ENDPOINTS,
        *api_messages.ENDPOINTS,
        *direct_get.ENDPOINTS,
        *packed_reads.ENDPOINTS,
        *api_forget.ENDPOINTS,
        *consumer_endpoints,
    )
    return {tuple(endpoint.words.split(".")): endpoint for endpoint in endpoints}


def find(endpoints: Table, tokens: list[str]) -> Endpoint | None:
    """The endpoint for a subject's tokens (`$JS`, `API`, ...), the one with the most words first."""
    for words in range(min(_WORDS_MAX, len(tokens) - 2), 0, -1):
        endpoint = endpoints.get(tuple(tokens[2 : 2 + words]))
        if endpoint is not None and endpoint.extra in (None, len(tokens) - 2 - words):
            return endpoint
    return None


def dispatch(
    jsa: "JetStreamAccount", subject: bytes, reply: bytes, header: bytes, body: bytes, origin: "Origin | None"
) -> None:
    """Answer one request."""
    tokens = subject.decode("utf-8", "surrogateescape").split(".")
    endpoint = find(jsa.engine.endpoints, tokens)
    if endpoint is None:
        return
    request = ApiRequest(jsa, endpoint, subject, tokens, reply, header, body, origin)
    attempt(request, _handle)


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
