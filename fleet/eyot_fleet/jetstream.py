"""The part of the JetStream API that the service uses: streams, stored messages, acknowledged publishes, and pulls."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import Struct

from eyot_fleet.errors import ApiFailure, Conflict, FleetError, NoAnswer
from eyot_wire import headers
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from eyot_fleet.connection import Connection
    from eyot_wire import frames

STREAM_NOT_FOUND: Final = 10059
STREAM_EXISTS: Final = 10058
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
TIMEOUT_S: Final = 10.0
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
#: One pull asks for so many messages; the server ends it after so long without any.
PULL_BATCH: Final = 500
#: A pull that nobody answers is made again so often, with a pause of so many seconds.
REPEATS_MAX: Final = 20
REPEAT_S: Final = 0.25
#: A pull request waits so long at the hub, and the hub says so often that it is there, seconds.
PULL_S: Final = 30.0
HEARTBEAT_S: Final = 5.0
#: A consumer is asked for so often, and the answer waited for so long, seconds; the last time, as long as any answer.
#: A cluster places the consumer on one of the stream's servers, for minutes also on one that died: it answers at once or never.
#: Consumers that are answered too late go, since nobody pulls from them.
CREATE_S: Final = (1.0, 1.0, 2.0, 4.0)
#: A consumer that nobody pulls from goes after this time.
_INACTIVE_NS: Final = 60 * 10**9


class Delivered(Struct, frozen=True):
    """A stored message that a pull delivered. `stored_at`: seconds since 1970; `pending`: messages after it."""

    subject: str
    payload: bytes
    header: bytes
    sequence: int
    stored_at: float
    pending: int


class Stored(Struct, frozen=True):
    """A stored message that was asked for."""

    subject: str
    payload: bytes
    header: bytes
    sequence: int


class JetStream:
    """The API at one connection."""

    def __init__(self, connection: Connection, timeout_s: float = TIMEOUT_S) -> None:
        self.connection = connection
        self._timeout_s = timeout_s

    @property
    def domain(self) -> str:
        """The hub's own JetStream domain; "" without one."""
        return self.connection.info.domain

    async def api(self, subject: str, body: object = None, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the answer of `$JS.API.<subject>`. Raises ApiFailure, NoAnswer and Refused."""
        payload = b"" if body is None else msgspec.json.encode(body)
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            answer = await self.connection.request(f"$JS.API.{subject}", payload, timeout_s=wait_s)
        except NoAnswer as error:
            raise NoAnswer(f"{error}: is JetStream enabled at the hub for this account?") from None
        return _answer(answer.payload)

    async def stream_info(self, name: str) -> dict[str, Any] | None:
        """Return a stream's info; None: there is no such stream."""
        try:
            return await self.api(f"STREAM.INFO.{name}")
        except ApiFailure as failure:
            if failure.code == STREAM_NOT_FOUND:
                return None
            raise

    async def stream_names(self, subject: str = "") -> list[str]:
        """Return the names of all streams, or of those that store a subject."""
        found: list[str] = []
        while True:
            page = await self.api("STREAM.NAMES", {"offset": len(found)} | ({"subject": subject} if subject else {}))
            names = page.get("streams") or []
            found += names
            if not names or len(found) >= int(page.get("total") or 0):
                return found

    async def publish(
        self, subject: str, payload: bytes, *, expected: int | None = None, fields: tuple[tuple[str, str], ...] = ()
    ) -> int:
        """Publish to a stream; return the sequence once it is stored.

        `expected`: the subject's last sequence, 0: none. Raises Conflict if it is another one, ApiFailure and NoAnswer.
        """
        if expected is not None:
            fields = (*fields, (_EXPECTED, str(expected)))
        header = headers.build(fields=fields) if fields else b""
        answer = await self.connection.request(subject, payload, header, self._timeout_s)
        try:
            return int(_answer(answer.payload)["seq"])
        except ApiFailure as failure:
            if failure.code in WRONG_LAST_SEQUENCE:
                raise Conflict(f"{subject} has changed meanwhile") from None
            raise

    async def last_message(self, stream: str, subject: str) -> Stored | None:
        """Return the last message of a subject, from any replica; None: there is none. Raises NoAnswer and ApiFailure."""
        answer = await self.connection.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", timeout_s=self._timeout_s)
        status = headers.status(answer.header)
        if status is not None:
            if status[0] == 404:
                return None
            raise ApiFailure(status[0], status[1])
        sequence = headers.get(answer.header, b"Nats-Sequence")
        return Stored(subject, answer.payload, answer.header, int(sequence or b"0"))

    async def _create_consumer(self, stream: str, config: dict[str, Any]) -> dict[str, Any]:
        full = {"ack_policy": "none", "inactive_threshold": _INACTIVE_NS, "mem_storage": True, **config}
        subject, body = f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": full}
        for wait_s in CREATE_S:
            with contextlib.suppress(NoAnswer):
                return await self.api(subject, body, wait_s)
        return await self.api(subject, body)

    async def pull(self, stream: str, config: dict[str, Any]) -> AsyncGenerator[list[Delivered], None]:
        """Yield messages of a stream as they come, without end; [] once each time that there are no more.

        `config`: of the consumer, as in `deliver_policy` and `opt_start_seq`. Raises FleetError where messages were
        missed, and what `api` raises.
        """
        made = await self._create_consumer(stream, config)
        inbox = self.connection.new_inbox()
        subscription = self.connection.subscribe(inbox)
        next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}"
        body = msgspec.json.encode(
            {"batch": PULL_BATCH, "expires": int(PULL_S * 1e9), "idle_heartbeat": int(HEARTBEAT_S * 1e9)}
        )
        expected, due, waits_told, repeated = 1, 0, False, 0
        try:
            while True:
                if due <= 0:
                    due = PULL_BATCH
                    await self.connection.publish(next_subject, body, inbox)
                if not waits_told and made.get("num_pending") == 0:
                    waits_told = True
                    yield []
                with trio.move_on_after(3 * HEARTBEAT_S) as quiet:
                    messages = await subscription.take()
                if quiet.cancelled_caught:
                    raise NoAnswer(f"stream {stream}: the hub has said nothing for {3 * HEARTBEAT_S:g} s")
                batch = []
                for message in messages:
                    status = headers.status(message.header)
                    if status is not None and status[0] == 503 and repeated < REPEATS_MAX:
                        # In a cluster a consumer may be made, or move to another server, before this server knows of it.
                        repeated, due = repeated + 1, 0
                        await trio.sleep(REPEAT_S)
                        continue
                    if status is not None:
                        due = _after_status(stream, status, due)
                        continue
                    due, repeated = due - 1, 0
                    found, number = _delivered(message)
                    if number != expected:
                        raise FleetError(f"stream {stream}: messages were missed between the hub and here")
                    expected += 1
                    batch.append(found)
                if batch:
                    yield batch
                    if not batch[-1].pending:
                        yield []
        finally:
            self.connection.unsubscribe(subscription)


def _after_status(stream: str, status: tuple[int, str], due: int) -> int:
    """Return how many messages the pull can still deliver. Raises NoAnswer where the consumer is gone."""
    if status[0] == 100:
        return due
    if status[0] in (404, 408) or "batch completed" in status[1].lower():
        return 0
    raise NoAnswer(f"stream {stream}: {status[0]} {status[1]}")


def _delivered(message: frames.Msg) -> tuple[Delivered, int]:
    reply = decode_ack_reply(message.reply)
    if reply is None:
        raise FleetError("the hub delivered a message without its sequence")
    subject = message.subject.decode("utf-8", "replace")
    found = Delivered(subject, message.payload, message.header, reply.stream_seq, reply.ts_ns / 1e9, reply.pending)
    return found, reply.consumer_seq


def _answer(payload: bytes) -> dict[str, Any]:
    try:
        answer = decode_json(payload)
    except msgspec.DecodeError as error:
        raise ApiFailure(0, f"JetStream's answer cannot be read: {error}") from None
    if not isinstance(answer, dict):
        raise ApiFailure(0, "JetStream's answer cannot be read")
    failure = answer.get("error")
    if isinstance(failure, dict):
        code = int(failure.get("err_code") or failure.get("code") or 0)
        raise ApiFailure(code, str(failure.get("description") or "error"))
    return answer
