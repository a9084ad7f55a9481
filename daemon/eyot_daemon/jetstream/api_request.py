"""One request of the JetStream API, and the table entry of its handler.

A handler takes an ApiRequest and answers exactly once: `respond(*parts)` with Structs that form the response, or
`refuse(error, *parts)`, or by raising JetStreamError. Handlers that change durable state answer in the `on_done` of
their commit. Requests without a reply subject are executed as well, without an answer.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar

from eyot_daemon.jetstream.nats_headers import level_is_offered
from eyot_daemon.version import API_LEVEL
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import (
    JSInvalidJSONErr,
    JSRequiredApiLevelErr,
    JSStreamGeneralErrorF,
    JSStreamInvalidConfigF,
    JSStreamNotFoundErr,
    JSStreamOfflineReasonErrF,
)
from eyot_wire.jetstream.errors import ApiError, JetStreamError, error, fail
from eyot_wire.jetstream.model import ErrorPart, InvalidJson, decode, encode_response
from eyot_wire.pattern_set import TooManySteps

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.router.subscription import Origin

log = logging.getLogger("eyot.jetstream")

T = TypeVar("T")
P = ParamSpec("P")

_SPACE = b" \t\r\n"


class ApiRequest:
    """A request as it arrived, its subject split into `tokens` (`$JS`, `API`, `STREAM`, `INFO`, name, ...)."""

    __slots__ = (
        "_answered",
        "answer_header",
        "body",
        "endpoint",
        "header",
        "jsa",
        "origin",
        "reply",
        "subject",
        "tokens",
    )

    def __init__(
        self,
        jsa: "JetStreamAccount",
        endpoint: "Endpoint",
        subject: bytes,
        tokens: list[str],
        reply: bytes,
        header: bytes,
        body: bytes,
        origin: "Origin | None",
        answered: "Callable[[ApiRequest, bytes, bool], None]",
    ) -> None:
        """`answered(request, response, failed)` sends an answer."""
        self.jsa = jsa
        self.endpoint = endpoint
        self.subject = subject
        self.tokens = tokens
        self.reply = reply
        self.header = header
        self.body = body
        self.origin = origin
        self._answered = answered
        #: header block of the answer, unless that is an error
        self.answer_header = b""

    def decode(self, kind: type[T], *, strict: bool | None = None) -> T:
        """Decode the body as `kind`. Raises JetStreamError 10025, by default also for unknown members."""
        if not self.body.strip():
            return kind()
        try:
            return decode(self.body, kind, strict=self.jsa.strict if strict is None else strict)
        except InvalidJson as err:
            raise fail(JSInvalidJSONErr, err=err) from None

    def check_level(self, level: int = API_LEVEL) -> None:
        """Check the required API level. Raises JetStreamError 10185 if it is above `level`."""
        if not level_is_offered(self.header, level):
            raise JetStreamError(error(JSRequiredApiLevelErr))

    @property
    def body_is_empty(self) -> bool:
        """nats-server's idea of an empty request: no bytes, or an empty JSON object."""
        return not self.body or b"".join(self.body.split()) == b"{}"

    @property
    def body_is_json(self) -> bool:
        """Return whether the body starts like an object or array; requests that need no body ignore others."""
        return self.body.lstrip(_SPACE)[:1] in (b"{", b"[")

    def stream(self, name: str) -> "Stream":
        """Return the stream of that name. Raises JetStreamError 10059, 10194."""
        stream = self.jsa.streams.get(name)
        if stream is None:
            damaged = self.jsa.server.offline.get((self.jsa.account.name, name))
            if damaged is not None:
                raise fail(JSStreamOfflineReasonErrF, err=damaged)
            raise fail(JSStreamNotFoundErr)
        return stream

    def respond(self, *parts: object) -> None:
        self._send(encode_response(self.endpoint.kind, *parts), failed=False)

    def refuse(self, error: ApiError, *parts: object, counts: bool = True) -> None:
        """Answer with an error; `parts` are members that are sent along (paging). Not all are counted as errors of the API."""
        self.jsa.api_errors_by_code[error.err_code] += 1
        self._send(encode_response(self.endpoint.kind, ErrorPart(error=error), *parts), failed=counts)

    def send_status(self, header: bytes) -> None:
        """Send a message without payload on the reply subject: `header` is a block with a status line."""
        if self.reply:
            self.jsa.account.publish(self.reply, header=header)

    def no_responders(self) -> None:
        """Answer as if the subject had no subscriber (MSG.NEXT of a missing consumer, direct get of a missing stream)."""
        self.send_status(b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % self.subject)

    def _send(self, response: bytes, *, failed: bool) -> None:
        self._answered(self, response, failed)


Handler = Callable[[ApiRequest], None]


class Endpoint(NamedTuple):
    """Handler of requests on `$JS.API.<words>...` with `extra` more tokens (None: any number).

    - `kind`: the end of the response's type, `stream_info_response`.
    - `words`: `STREAM.INFO`; the longest matching entry wins.
    - `empty`: the body must be empty (error 10038).
    - `on_error`: members sent along with an error (nats-server sends empty paging with the errors of lists).
    - `bare`: there is no JSON response (MSG.NEXT, direct get). The handler does everything itself, even without
      JetStream or the required API level.
    - `untold`: answers are not counted and give no advisory.
    - `body_first`: the API level is checked after the body, by the handler where the body is not `empty`.
    - `quiet`: only refusals count as requests and give an advisory.
    """

    words: str
    kind: str
    handler: Handler
    extra: int | None = 1
    empty: bool = False
    on_error: tuple[object, ...] = ()
    bare: bool = False
    body_first: bool = False
    quiet: bool = False
    untold: bool = False


def attempt(
    request: ApiRequest, fn: Callable[Concatenate[ApiRequest, P], None], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Let `fn` answer the request; a JetStreamError that it raises is the answer."""
    on_error = request.endpoint.on_error
    try:
        fn(request, *args, **kwargs)
    except JetStreamError as refusal:
        request.refuse(refusal.api_error, *on_error)
    except TooManySteps as refusal:
        request.refuse(error(JSStreamInvalidConfigF, err=refusal), *on_error)
    except StoreError as failure:
        request.refuse(error(JSStreamGeneralErrorF, err=failure.message), *on_error)
    except Exception:
        log.exception("request on %s failed", request.subject.decode("utf-8", "replace"))
        request.refuse(error(JSStreamGeneralErrorF, err="internal error"), *on_error)
