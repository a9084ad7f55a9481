"""How much of a stream has reached those who copy it, as far as they have confirmed: the origin's side of mirrors and sources.

Whoever copies a stream reads it through a hidden (`direct`) consumer with flow control. A reader answers a flow-control request
when it has taken everything that was sent before it (an Eyot reader when that is on flash), so an answer confirms every sequence
up to the request. It is asked when half of the window is full, as nats-server does, and besides that a second after something
was delivered. What was confirmed is kept among the stream's positions: it is known after a restart and while the link is down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from eyot_wire.js_time import ns_to_rfc3339
from eyot_wire.status import SyncStatus

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer import Consumer
    from eyot_daemon.jetstream.stream import Stream

#: A delivery is confirmed no later than this after it, seconds, if its reader answers.
CONFIRM_WITHIN_S = 1.0
#: Messages whose sizes are added up one by one; a larger backlog is reckoned from the stream's average.
_SUMMED_MAX = 1000
_SUMMED_BYTES = 16 << 20
_KEY = b"eyot.out."
#: Who reads, by the middle token of its deliver subject.
_KINDS = {b"M": "mirror", b"S": "source"}
_LOCAL = "this server"


class Reader(msgspec.Struct, array_like=True):
    """One mirror or source elsewhere. `peer` is the server's name, `domain` its JetStream domain."""

    peer: str
    domain: str
    kind: str
    filters: tuple[bytes, ...]
    seq: int = 0
    at_ns: int = 0
    rate: float = 0.0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reader).decode


class CopiedOut:
    """The readers of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        positions = stream.log.positions()
        self._readers = {key: _decode(value) for key, value in positions.items() if key.startswith(_KEY)}

    def confirmed(self, consumer: Consumer, seq: int) -> None:
        """The reader behind this consumer has everything up to `seq`."""
        stream = self._stream
        found = _reader(consumer)
        key = _KEY + f"{found.peer} {found.kind} ".encode() + b"\f".join(found.filters)
        known = self._readers.get(key)
        found.seq, found.at_ns = seq, stream.broker.clock.now_ns()
        if known is not None:
            if seq <= known.seq and stream.log.state.last_seq >= known.seq:
                return
            elapsed_s = (found.at_ns - known.at_ns) / 1e9
            found.rate = (seq - known.seq) / elapsed_s if elapsed_s > 0 and seq > known.seq else 0.0
        self._readers[key] = found
        txn = stream.store.begin()
        stream.log.put_position(txn, key, _encode(found))
        stream.store.submit(txn)

    def statuses(self) -> list[SyncStatus]:
        return [self._status(reader) for _, reader in sorted(self._readers.items())]

    def _status(self, reader: Reader) -> SyncStatus:
        stream = self._stream
        log = stream.log
        seq = min(reader.seq, log.committed_seq)
        backlog = log.count(seq + 1, reader.filters)
        oldest_ns = 0
        size = 0
        if backlog:
            read = log.read(seq + 1, max_messages=_SUMMED_MAX, max_bytes=_SUMMED_BYTES, filters=reader.filters)
            sizes = [log.message_bytes(each.subject, each.header, each.payload) for each in read.messages]
            oldest_ns = read.messages[0].ts_ns if read.messages else 0
            size = sum(sizes)
            if len(sizes) < backlog and log.state.messages:
                size = max(size, log.state.bytes * backlog // log.state.messages)
        now_ns = stream.broker.clock.now_ns()
        links = [one for one in stream.broker.links.states() if one.account in ("", stream.account.name)]
        linked = reader.peer == _LOCAL or any(one.is_up and one.peer_name == reader.peer for one in links)
        failed = next((one for one in links if not one.is_up and one.last_error), None)
        return SyncStatus(
            account=stream.account.name,
            stream=stream.name,
            peer=reader.peer,
            peer_domain=reader.domain,
            kind=reader.kind,
            filters=[each.decode("utf-8", "replace") for each in reader.filters],
            linked=linked,
            confirmed_seq=seq,
            confirmed_at=ns_to_rfc3339(reader.at_ns),
            last_seq=log.committed_seq,
            backlog=backlog,
            backlog_bytes=size,
            oldest_s=max(0.0, (now_ns - oldest_ns) / 1e9) if oldest_ns else None,
            rate=reader.rate,
            eta_s=backlog / reader.rate if backlog and linked and reader.rate else None,
            error=failed.last_error if failed is not None and not linked else None,
            remedy=failed.remedy or None if failed is not None and not linked else None,
        )


def _reader(consumer: Consumer) -> Reader:
    """Who listens on a consumer's deliver subject."""
    subject = consumer.config.deliver_subject.encode()
    tokens = subject.split(b".")
    kind = _KINDS.get(tokens[-2], "reader") if len(tokens) > 1 else "reader"
    peer, domain = _LOCAL, ""
    states = {id(link): link.state for link in consumer.broker.links.connections.values()}
    for member in consumer.account.route(subject).leafs:
        state = states.get(id(member.dest))
        if state is not None:
            peer, domain = state.peer_name, state.peer_domain
    return Reader(peer, domain, kind, tuple(consumer.reader.filters))


_by_stream: WeakKeyDictionary[Stream, CopiedOut] = WeakKeyDictionary()


def copied_out_of(stream: Stream) -> CopiedOut:
    """The stream's CopiedOut, made on first use."""
    found = _by_stream.get(stream)
    if found is None:
        found = _by_stream[stream] = CopiedOut(stream)
    return found
