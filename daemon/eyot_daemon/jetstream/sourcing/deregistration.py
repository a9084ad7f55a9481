"""Deregistration: notifies the origin of a removed mirror or source, even if the origin was out of reach at the time.

The origin keeps a record of each downstream, shows it as behind, and may keep messages for it. The request to forget it
is sent when the link is up and the remaining mirrors and sources have resumed, repeatedly until an answer comes.
Pending deregistrations are kept among the positions of the stream; for a deleted stream until the daemon stops (then:
`eyot sync forget`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.sourcing.positions import OWN_KEYS
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.sourcing import origin as origins
from eyot_wire.jetstream.error_codes import JSStreamNotFoundErr
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.forget_downstream import WORDS, ForgetRequest, ForgottenPart
from eyot_wire.jetstream.stream import StreamConfig, StreamSource
from eyot_wire.jetstream.struct import InvalidJson, decode, encode
from eyot_wire.nuid import short_id

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.sync")

_KEY = OWN_KEYS + b"bye."
#: Delay after a link came up, seconds: remaining mirrors and sources of the same origin reconnect first. Also the interval
#: between attempts that get no answer.
NOTICE_AFTER_S = 5.0
_AGAIN_AFTER_S = 30.0
#: Requests without an answer after which the origin counts as one without deregistration (nats-server); no more are sent.
_TRIES_MAX = 10
#: Answers that end a deregistration: the origin stream does not exist any more.
_NO_STREAM = JSStreamNotFoundErr


class _Answer(ForgottenPart, kw_only=True):
    error: ApiError | None = None


class RemovedSource(msgspec.Struct, frozen=True, array_like=True):
    """A removed mirror or source: the origin's API and stream, the consumer request there, and its identity at the origin."""

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


def removed_source(stream: StreamCore, origin: origins.Origin, *, mirror: bool) -> RemovedSource:
    """Return the deregistration of a mirror or source of `stream`."""
    return RemovedSource(
        api=origin.api,
        stream=origin.stream,
        asked_on=origin.api_subject.encode(),
        kind="mirror" if mirror else "source",
        target=origin.target,
        server=origin.home or stream.account.broker.options.server_name,
        filters=origin.filters,
    )


class Deregistration:
    """One deregistration; a destination for the origin's answer. `done` is called when it is complete."""

    kind = Kind.JETSTREAM

    def __init__(self, stream: StreamCore, what: RemovedSource, done: Callable[[Deregistration], None]) -> None:
        self.what = what
        self._stream = stream
        self._account = stream.account
        self._done = done
        self._tries = 0
        self._sub: Subscription | None = None
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        if self._account.has_interest(self.api_subject()):
            self._tell_after(NOTICE_AFTER_S)

    def end(self) -> None:
        """Stop with the daemon."""
        if self._timer is not None:
            self._timer.cancel()
        self._unsubscribe()

    def cancel(self) -> None:
        """Stop: the origin has received the deregistration, or the mirror or source is back."""
        self.end()
        if self._stream.live:
            store = self._stream.store
            txn = store.begin()
            self._stream.log.delete_position(txn, self.what.key)
            store.submit(txn)

    # -- found by origin, as mirrors and sources are (`SourcesByOrigin`) -----------------------------------------------

    def api_subject(self) -> bytes:
        return self._mapped(self.what.asked_on)

    def interest_added(self) -> None:
        self._tell_after(NOTICE_AFTER_S)

    def interest_removed(self) -> None:
        """Do nothing: the deregistration is sent when the interest is back."""

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._stream.timers.call_later(seconds, self._tell)

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
        reply = f"$JSC.R.{short_id(self._account.broker.ids)}".encode()
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
        """Do nothing: answers are handled at once."""

    def _mapped(self, subject: bytes) -> bytes:
        return self._account.mappings.apply(subject) or subject

    def _unsubscribe(self) -> None:
        if self._sub is not None:
            self._account.unsubscribe(self._sub)
            self._sub = None


def stage_deregistrations(stream: StreamCore, txn: Txn, old: StreamConfig, new: StreamConfig) -> None:
    """Stage the deregistrations of mirrors and sources that the new configuration does not have any more."""
    copied_now = origins_of(new)
    for config, mirror in origins_of(old):
        if (config, mirror) not in copied_now:
            origin = origins.Origin.of(config, stream.name, stream.domain)
            what = removed_source(stream, origin, mirror=mirror)
            stream.log.put_position(txn, what.key, _encode(what))


def origins_of(config: StreamConfig) -> list[tuple[StreamSource, bool]]:
    """Return the origins in a stream's configuration, each with whether it is a mirror's."""
    mirror = [(config.mirror, True)] if config.mirror is not None else []
    return mirror + [(each, False) for each in config.sources]


def kept(log: Log) -> list[RemovedSource]:
    """Return the stored deregistrations of a stream."""
    return [_decode(value) for key, value in log.positions().items() if key.startswith(_KEY)]
