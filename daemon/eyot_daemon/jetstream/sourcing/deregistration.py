"""A mirror or source that was taken out of the configuration tells its origin, also if that was out of reach at the time.

The origin keeps a record of each reader (`downstream.py`), shows it as behind, and may keep messages for it. So it is told to forget it,
when the link is up and the copies that go on have begun, again and again until it answers. What is still to be told is kept among the
positions of the stream that copied; of a stream that was deleted it is known until the daemon ends (then: `eyot sync forget`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.position import OWN_KEYS
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.sourcing import origin as origins
from eyot_wire.jetstream.error_codes import JSStreamNotFoundErr
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.forget_reader import WORDS, ForgetRequest, ForgottenPart
from eyot_wire.jetstream.stream import StreamConfig, StreamSource
from eyot_wire.jetstream.struct import InvalidJson, decode, encode
from eyot_wire.nuid import short_id

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.sync")

_KEY = OWN_KEYS + b"bye."
#: After a link came up, so that copies of the same origin that go on are there first; then again if nothing is heard.
TOLD_AFTER_S = 5.0
_AGAIN_AFTER_S = 30.0
#: An origin that leaves so many unanswered does not know of it (a nats-server, say): nothing more is to be done.
_TRIES_MAX = 10
#: The stream that was read is gone, too.
_NO_STREAM = JSStreamNotFoundErr


class _Answer(ForgottenPart, kw_only=True):
    error: ApiError | None = None


class RemovedSource(msgspec.Struct, frozen=True, array_like=True):
    """A copy that is no more: the origin's API and stream, the request for a consumer there, and what the origin knows it by."""

    api: str
    stream: str
    asked_on: bytes
    kind: str
    target: str
    server: str
    filters: tuple[str, ...]

    @property
    def key(self) -> bytes:
        what = " ".join((self.api, self.stream, self.kind, *self.filters))
        return _KEY + sha256(what.encode()).hexdigest()[:32].encode()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RemovedSource).decode


def removed_source(stream: Stream, origin: origins.Origin, *, mirror: bool) -> RemovedSource:
    """What is to be told of this copy."""
    return RemovedSource(
        api=origin.api,
        stream=origin.stream,
        asked_on=origin.api_subject.encode(),
        kind="mirror" if mirror else "source",
        target=origin.target,
        server=origin.home or stream.broker.options.server_name,
        filters=origin.filters,
    )


class Deregistration:
    """One of them; a destination for the origin's answer. `done` hears that there is nothing more to tell."""

    kind = Kind.JETSTREAM

    def __init__(self, stream: Stream, what: RemovedSource, done: Callable[[Deregistration], None]) -> None:
        self.what = what
        self._stream = stream
        self._account = stream.account
        self._done = done
        self._tries = 0
        self._sub: Subscription | None = None
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        if self._account.has_interest(self.api_subject()):
            self._tell_after(TOLD_AFTER_S)

    def end(self) -> None:
        """The daemon stops."""
        if self._timer is not None:
            self._timer.cancel()
        self._unsubscribe()

    def cancel(self) -> None:
        """It was told, or the copy is back."""
        self.end()
        if self._stream.jsa.streams.get(self._stream.name) is self._stream:
            store = self._stream.store
            txn = store.begin()
            self._stream.log.delete_position(txn, self.what.key)
            store.submit(txn)

    # -- as copies are found by their origin (`copies_by_origin.py`) ---------------------------------------------------

    def api_subject(self) -> bytes:
        return self._mapped(self.what.asked_on)

    def interest_added(self) -> None:
        self._tell_after(TOLD_AFTER_S)

    def interest_removed(self) -> None:
        """When it is back the origin is told."""

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._stream.broker.timers.call_later(seconds, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._unsubscribe()
        if not self._account.has_interest(self.api_subject()):
            return
        if self._tries == _TRIES_MAX:
            log.info("%s at %s does not answer that %s is gone", self.what.stream, self.what.api, self.what.target)
            self._done(self)
            return
        self._tries += 1
        what = self.what
        reply = f"$JSC.R.{short_id(self._stream.broker.ids)}".encode()
        self._sub = self._account.subscribe(reply, self)
        asked = ForgetRequest(server=what.server, kind=what.kind, target=what.target, filters=list(what.filters))
        self._account.publish(self._mapped(f"{what.api}.{WORDS}.{what.stream}".encode()), reply, b"", encode(asked))
        self._tell_after(_AGAIN_AFTER_S)

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        try:
            answer = decode(payload, _Answer, strict=False)
        except InvalidJson:
            return True
        if answer.error is None and answer.reading:
            return True  # an old connection is not known to be dead yet
        if answer.error is None or answer.error.err_code == _NO_STREAM:
            self._done(self)
        return True

    def flush(self) -> None:
        """Nothing is gathered."""

    def _mapped(self, subject: bytes) -> bytes:
        return self._account.mappings.apply(subject) or subject

    def _unsubscribe(self) -> None:
        if self._sub is not None:
            self._account.unsubscribe(self._sub)
            self._sub = None


def stage_deregistrations(stream: Stream, txn: Txn, old: StreamConfig, new: StreamConfig) -> None:
    """With a new configuration, what is to be told of the copies that are not in it any more."""
    copied_now = origins_of(new)
    for config, mirror in origins_of(old):
        if (config, mirror) not in copied_now:
            origin = origins.Origin.of(config, stream.name, stream.jsa.domain)
            what = removed_source(stream, origin, mirror=mirror)
            stream.log.put_position(txn, what.key, _encode(what))


def origins_of(config: StreamConfig) -> list[tuple[StreamSource, bool]]:
    """What a stream's configuration says it copies, and whether as a mirror."""
    mirror = [(config.mirror, True)] if config.mirror is not None else []
    return mirror + [(each, False) for each in config.sources]


def kept(stream: Stream) -> list[RemovedSource]:
    """What a stream still has to tell."""
    return [_decode(value) for key, value in stream.log.positions().items() if key.startswith(_KEY)]
