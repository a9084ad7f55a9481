"""The part of the JetStream API that a reader needs: streams, their state, and consumers.

The Structs declare only the members in use, so that the answers of servers from 2.9 on decode, newer ones included.
Every request is safe to repeat: a broken connection is opened again and the request repeated, for up to `retry_s`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ApiFailure, ConnectionFailed, HubError, NoAnswer, NoResponders, Refused
from eyot_hub.offsets import LastRow
from eyot_hub.origins import Origin, Origins, domain_of_prefix
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.stream_source import index_name
from eyot_wire.nuid import short_id

log = logging.getLogger(__name__)

T = TypeVar("T")
DEFAULT_PREFIX: Final = "$JS.API"
NS_PER_S: Final = 1_000_000_000
STREAM_NOT_FOUND: Final = 10059
MESSAGE_NOT_FOUND: Final = 10037
ACK_TOKENS: Final = 9  # tokens in the reply subject of a delivery; 11 and more with domain and account
NEXT_ONE: Final = b'{"batch": 1, "no_wait": true}'
ZERO_TIME: Final = "0001-01-01T00:00:00Z"
RETRY_PAUSE_S: Final = 0.5
ACCOUNT_QUESTION_S: Final = 2.0
_CALLED: Final = {"domain": "domain", "apiPrefix": "prefix"}
LISTED_FROM: Final = 16  # from this many streams on, one list request replaces a request for each stream


class External(msgspec.Struct):
    api: str = ""


class SourceConsumer(msgspec.Struct):
    """A consumer that an operator made at the origin (nats-server 2.14)."""

    name: str = ""


class Source(msgspec.Struct):
    """A mirror's origin or one of a stream's sources."""

    name: str
    external: External | None = None
    filter_subject: str = ""
    subject_transforms: list[Any] | None = None
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    consumer: SourceConsumer | None = None

    @property
    def index_name(self) -> str:
        """Return the first field of `Nats-Stream-Source` of its messages."""
        return index_name(self.name, self.api_prefix, self.consumer.name if self.consumer else "")

    @property
    def api_prefix(self) -> str:
        return self.external.api if self.external else ""

    @property
    def selective(self) -> bool:
        """Whether the source selects a part of the origin's messages."""
        started_late = self.opt_start_seq > 1 or self.opt_start_time is not None
        return started_late or bool(self.subject_transforms) or self.filter_subject not in ("", ">")


class Config(msgspec.Struct):
    name: str
    retention: str = "limits"
    subjects: list[str] | None = None
    subject_transform: Any = None
    mirror: Source | None = None
    sources: list[Source] | None = None

    @property
    def copies(self) -> list[Source]:
        """All origins: the mirror's, or the sources'."""
        return [self.mirror] if self.mirror else list(self.sources or ())

    @property
    def published(self) -> tuple[str, ...]:
        """The subjects of messages that clients may have published: all, where a transform may have changed them."""
        return (">",) if self.subjects and self.subject_transform else tuple(self.subjects or ())


class State(msgspec.Struct):
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    last_ts: str = ""  # time of the last message
    deleted: list[int] | None = None


class StreamInfo(msgspec.Struct):
    """One stream; `created` distinguishes it from other streams of the same name, before or after."""

    config: Config
    state: State
    created: str
    domain: str | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def created_ns(self) -> int:
        return rfc3339_to_ns(self.created)

    @property
    def last_row(self) -> LastRow | None:
        """The last message, as positions record it; None for a stream that never held one."""
        if not self.state.last_seq or self.state.last_ts in ("", ZERO_TIME):
            return None
        return LastRow(self.state.last_seq, rfc3339_to_ns(self.state.last_ts))

    def origins(self) -> Origins:
        """Return the origins in the configuration, by their index name in `Nats-Stream-Source`."""

        def origin(source: Source) -> Origin:
            return Origin(source.name, domain_of_prefix(source.api_prefix) if source.api_prefix else self.domain)

        named = {source.index_name: origin(source) for source in self.config.sources or ()}
        mirror = origin(self.config.mirror) if self.config.mirror else None
        return Origins(named, mirror, self.domain, self.config.published)


class Delivered(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerConfig(msgspec.Struct):
    filter_subject: str = ""
    filter_subjects: list[str] | None = None


class ConsumerInfo(msgspec.Struct):
    name: str
    delivered: Delivered
    num_pending: int = 0
    config: ConsumerConfig | None = None


class _Head(msgspec.Struct):
    error: ApiError | None = None


class _Names(msgspec.Struct):
    total: int = 0
    streams: list[str] | None = None


class _Listed(msgspec.Struct):
    total: int = 0
    streams: list[StreamInfo] | None = None
    missing: list[str] | None = None  # in a cluster: streams whose leader did not answer in time


class _StoredMessage(msgspec.Struct):
    time: str


class _MessageAnswer(msgspec.Struct):
    message: _StoredMessage


class _Account(msgspec.Struct):
    domain: str = ""


class _UserInfo(msgspec.Struct):
    account: str = ""


class _UserInfoAnswer(msgspec.Struct):
    data: _UserInfo | None = None


class JetStream:
    """Client of the JetStream API below `api_prefix`; opens its connection on first use, and again when it broke."""

    def __init__(self, options: ConnectOptions, api_prefix: str = DEFAULT_PREFIX) -> None:
        self.options = options
        self.api_prefix = api_prefix
        self._connection: Connection | None = None
        self._no_message_get = False

    def __enter__(self) -> JetStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stream_names(self) -> list[str]:
        """Return the names of all streams, sorted."""
        names: list[str] = []
        while True:
            page = self._ask("STREAM.NAMES", {"offset": len(names)}, _Names)
            names += page.streams or []
            if len(names) >= page.total or not page.streams:
                return sorted(names)

    def stream(self, name: str) -> StreamInfo:
        """Return configuration and state of a stream. Raises ApiFailure with err_code 10059 for an unknown stream."""
        return self._ask(f"STREAM.INFO.{name}", None, StreamInfo)

    def stream_or_none(self, name: str) -> StreamInfo | None:
        try:
            return self.stream(name)
        except ApiFailure as failure:
            if failure.error.err_code == STREAM_NOT_FOUND:
                return None
            raise

    def streams(self, names: Collection[str]) -> dict[str, StreamInfo]:
        """Return the info of many streams, without those that do not exist.

        A page of 256 costs the server little more than one stream. Lists need a permission of their own (STREAM.LIST);
        without it, each stream is requested on its own.
        """
        found: dict[str, StreamInfo] = {}
        if len(names) >= LISTED_FROM:
            try:
                found = {info.name: info for info in self._listed() if info.name in names}
            except Refused as refused:
                log.info("requesting the streams one by one: %s", refused)
                self.close()
        for name in names:
            if name not in found:
                info = self.stream_or_none(name)
                if info is not None:
                    found[name] = info
        return found

    def _listed(self) -> Iterator[StreamInfo]:
        """Yield the info of all streams whose leader answers, page by page."""
        offset = 0
        while True:
            page = self._ask("STREAM.LIST", {"offset": offset}, _Listed)
            yield from page.streams or ()
            step = len(page.streams or ()) + len(page.missing or ())
            offset += step
            if offset >= page.total or not step:
                return

    def deleted(self, name: str) -> list[int]:
        """Return the sequences between first and last that were deleted individually."""
        return self._ask(f"STREAM.INFO.{name}", {"deleted_details": True}, StreamInfo).state.deleted or []

    def sequence_at(self, stream: str, time_rfc3339: str) -> int:
        """Return the sequence of the first message stored at or after a time; last + 1 when there is none."""
        consumer = self._consumer(stream, {"deliver_policy": "by_start_time", "opt_start_time": time_rfc3339})
        self._ask(f"CONSUMER.DELETE.{stream}.{consumer.name}", None, _Head)
        return consumer.delivered.stream_seq + 1

    def stored_ns(self, stream: str, sequence: int, subjects: Collection[str] = ()) -> int | None:
        """Return the stored time of the message with this sequence; None when the stream does not hold it.

        Without permission for STREAM.MSG.GET, a consumer with the filter of the reads serves the request.
        """
        if not self._no_message_get:
            try:
                answer = self._ask(f"STREAM.MSG.GET.{stream}", {"seq": sequence}, _MessageAnswer)
                return rfc3339_to_ns(answer.message.time)
            except ApiFailure as failure:
                if failure.error.err_code == MESSAGE_NOT_FOUND:
                    return None
                raise
            except Refused as refused:
                log.info("reading single messages through a consumer: %s", refused)
                self._no_message_get = True
                self.close()
        start: dict[str, object] = {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence}
        if len(subjects) == 1:
            start["filter_subject"] = next(iter(subjects))
        try:
            consumer = self._consumer(stream, start)
        except Refused as refused:
            log.warning(
                "cannot check whether message %d of stream %s is the same as before: %s", sequence, stream, refused
            )
            self.close()
            return None
        try:
            subject = f"{self.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer.name}"
            found = self._retry(lambda connection: connection.request(subject, NEXT_ONE, delivery=True))
        finally:
            self._ask(f"CONSUMER.DELETE.{stream}.{consumer.name}", None, _Head)
        delivered = _delivered(found.reply)
        return delivered.stored_ns if delivered is not None and delivered.sequence == sequence else None

    def _consumer(self, stream: str, start: dict[str, object]) -> ConsumerInfo:
        """Create a consumer for one message; the server removes it after its inactivity threshold if the removal fails."""

        def create(connection: Connection) -> ConsumerInfo:
            # A new name each time: a cluster may place a consumer on a server that died, where the name gets no answer.
            config: dict[str, object] = {
                "name": f"eyot_{short_id()}",
                **start,
                "ack_policy": "none",
                "inactive_threshold": 5 * NS_PER_S,
                "mem_storage": True,
                "num_replicas": 1,
            }
            subject = f"{self.api_prefix}.{create_words(stream, config)}"
            return call(connection, subject, {"stream_name": stream, "config": config}, ConsumerInfo)

        return self._retry(create)

    def account_name(self) -> str | None:
        """Return the account of this connection; None where the server does not tell it (before 2.10)."""
        connection = self._retry(lambda connection: connection)
        if connection.info.remote_account:
            return connection.info.remote_account
        try:
            answer = connection.request("$SYS.REQ.USER.INFO", timeout_s=ACCOUNT_QUESTION_S)
            found = msgspec.json.decode(answer.payload, type=_UserInfoAnswer)
        except (NoAnswer, msgspec.DecodeError):
            return None
        return found.data.account or None if found.data else None

    def _ask(self, what: str, body: object, kind: type[T]) -> T:
        try:
            return self._retry(lambda connection: call(connection, f"{self.api_prefix}.{what}", body, kind))
        except NoResponders as error:
            raise NoResponders(f"{error}: {self._unanswered()}") from None

    def _unanswered(self) -> str:
        """Return why nobody answers below the prefix, and which option to change.

        A missing permission is no such reason: servers refuse the request then.
        """
        peer, local = "the server", None
        chosen = domain_of_prefix(self.api_prefix)
        option = "apiPrefix" if chosen == self.api_prefix else "domain"
        try:
            connection = self._connection or Connection.open(self.options)
            peer = connection.peer
            local = call(connection, f"{DEFAULT_PREFIX}.INFO", None, _Account)
        except ApiFailure as failure:
            return f"{peer} says: {failure.error.description}"
        except NoResponders:
            pass
        except HubError:
            return f"it is unknown what answers there; check option '{option}' ({chosen!r})"
        finally:
            self.close()  # a refused request may have ended the connection
        if self.api_prefix == DEFAULT_PREFIX and local is not None:
            return f"JetStream of {peer} has begun to answer since"
        if self.api_prefix == DEFAULT_PREFIX:
            return f"{peer} has no JetStream; where another server has it, give its domain in option 'domain'"
        unknown = f"option '{option}' is {chosen!r}, and {peer} knows no such {_CALLED[option]}"
        if local is None:
            return f"{unknown}, nor JetStream of its own"
        return f"{unknown}; its own JetStream has {f'the domain {local.domain!r}' if local.domain else 'no domain'}"

    def _retry(self, act: Callable[[Connection], T]) -> T:
        begun, told = time.monotonic(), False
        while True:
            try:
                if self._connection is None:
                    self._connection = Connection.open(self.options)
                return act(self._connection)
            except NoResponders:
                # JetStream may still be starting on a server that is up. The domain may also be misspelled.
                patience_s = min(self.options.retry_s, self.options.timeout_s)
                if time.monotonic() + RETRY_PAUSE_S > begun + patience_s:
                    raise
            except (ConnectionFailed, NoAnswer) as error:
                self.close()
                if time.monotonic() + RETRY_PAUSE_S > begun + self.options.retry_s:
                    raise
                if not told:
                    log.warning("%s; trying again for %g s", error, self.options.retry_s)
                    told = True
            time.sleep(RETRY_PAUSE_S)


def create_words(stream: str, config: Mapping[str, object]) -> str:
    """Return the subject (below the API prefix) that creates the consumer `config["name"]`.

    As in the official clients, it holds stream, consumer and, for a single filter, the filter: permissions may depend
    on these.
    """
    words = f"CONSUMER.CREATE.{stream}.{config['name']}"
    return f"{words}.{config['filter_subject']}" if config.get("filter_subject") else words


def _delivered(reply: bytes | None) -> LastRow | None:
    """Return stream sequence and stored time of a delivery from its reply subject ($JS.ACK...; v2 has domain and account)."""
    tokens = (reply or b"").split(b".")
    if tokens[:2] != [b"$JS", b"ACK"] or len(tokens) < ACK_TOKENS:
        return None
    at = 5 if len(tokens) == ACK_TOKENS else 7
    return LastRow(int(tokens[at]), int(tokens[at + 2]))


def call(connection: Connection, subject: str, body: object, kind: type[T]) -> T:
    """Send one request to the JetStream API. Raises ApiFailure for its errors, ConnectionFailed for a malformed answer."""
    answer = connection.request(subject, b"" if body is None else msgspec.json.encode(body))
    return decoded(subject, answer.payload, kind)


def decoded(subject: str, answer: bytes, kind: type[T]) -> T:
    """Decode the API's answer to a request on `subject`. Raises as `call`."""
    try:
        error = msgspec.json.decode(answer, type=_Head).error
        if error is None:
            return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as mistake:
        raise ConnectionFailed(f"the answer on {subject} is malformed: {mistake}") from None
    raise ApiFailure(subject, error)
