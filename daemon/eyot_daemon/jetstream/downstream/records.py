"""The records of a stream's downstreams: what each has confirmed, as it is on flash or will be in a moment.

They are among the stream's positions, so they survive restarts and lost links. A new record that a full disk refuses is
kept in the store's spare positions. A record is uncertain while the stored one may claim more than its downstream has
(`UncertaintyMarker`): nothing counts as confirmed by it then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, ItemsView, Iterable, ValuesView
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.downstream.downstream import RECORD_KEY, Downstream, decode_record, encode_record
from eyot_daemon.jetstream.downstream.uncertainty import uncertainty_of
from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import CommitCallback, StreamCore
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.sync")


class DownstreamRecords:
    """The records of one stream, by their keys among its positions. `changed` is called after each change of them."""

    def __init__(self, stream: StreamCore, changed: Callable[[], None]) -> None:
        self._stream = stream
        self._changed = changed
        positions = stream.log.positions()
        self._downstreams = {
            key: decode_record(value) for key, value in positions.items() if key.startswith(RECORD_KEY)
        }
        #: Keys of the records that are on flash.
        self._written = set(self._downstreams)
        # Met while the disk was full.
        for key, value in stream.store.spare_positions.of(stream.log.id).items():
            if key.startswith(RECORD_KEY):
                self._downstreams.setdefault(key, decode_record(value))
        self._uncertain = uncertainty_of(stream.store)
        # Downstreams with an uncertain position, until they resume.
        self._to_confirm = set(self._downstreams) if self._uncertain.at_start else set()
        for key in self._to_confirm:
            self.doubt(key)
        self._has_mirror = any(each.kind == "mirror" for each in self.values())

    # -- what they say -----------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Downstream | None:
        """Return the downstream with the record under `key`; None: it is unknown."""
        return self._downstreams.get(key)

    def items(self) -> ItemsView[bytes, Downstream]:
        """Return all downstreams, with the keys of their records."""
        return self._downstreams.items()

    def values(self) -> ValuesView[Downstream]:
        """Return all downstreams."""
        return self._downstreams.values()

    @property
    def known(self) -> bool:
        """Return whether any downstream has confirmed anything."""
        return bool(self._downstreams)

    @property
    def confirmed_seq(self) -> int:
        """Return the highest sequence that any downstream has confirmed."""
        return max((each.seq for each in self.values()), default=0)

    @property
    def confirmed_at_ns(self) -> int:
        """Return when a downstream confirmed something last, ns since 1970; 0: never."""
        return max((each.at_ns for each in self.values()), default=0)

    @property
    def is_single(self) -> bool:
        """Return whether there is one downstream, and its record is certain."""
        return len(self._downstreams) == 1 and not self._to_confirm

    @property
    def mirrored(self) -> bool:
        """Return whether there is a mirror, which may be promoted to this stream's place."""
        return self._has_mirror

    def asked_by_mirror(self) -> None:
        """Note a mirror's request; it may not be subscribed yet."""
        self._has_mirror = True

    def wants(self, subject: bytes) -> bool:
        """Return whether a downstream replicates this subject."""
        return any(downstream.copies(subject) for downstream in self.values())

    def needs(self, seq: int, subject: bytes | None) -> bool:
        """Return whether a downstream replicates this message and has not confirmed it. None: its subject is unknown."""
        return any(
            (seq > downstream.seq or key in self._to_confirm or not downstream.takes(seq))
            and downstream.copies(subject)
            for key, downstream in self.items()
        )

    def has(self, seq: int, subject: bytes | None) -> bool:
        """Return whether a downstream has confirmed this message. None: its subject is unknown."""
        return any(
            seq <= downstream.seq and downstream.takes(seq) and downstream.copies(subject)
            for downstream in self.values()
        )

    # -- certainty ---------------------------------------------------------------------------------------------------

    def is_doubted(self, key: bytes) -> bool:
        """Return whether this record may claim too much since the start: its downstream has not resumed."""
        return key in self._to_confirm

    def resumed(self, key: bytes) -> None:
        """Note that a downstream has resumed, and so told its position."""
        self._to_confirm.discard(key)

    def doubt(self, key: bytes) -> None:
        """Set the store's marker: until the next record is on flash, the stored one claims too much."""
        self._uncertain.begin((self._stream.log.id, key))

    def _trust(self, key: bytes) -> None:
        self._uncertain.end((self._stream.log.id, key))

    # -- changes -----------------------------------------------------------------------------------------------------

    def assume(self, key: bytes, downstream: Downstream) -> None:
        """Use a record for what is staged from now on; `stage` stores it."""
        self._downstreams[key] = downstream

    def put(self, key: bytes, downstream: Downstream, txn: Txn) -> None:
        """Stage a record with other changes in `txn`, which the caller submits."""
        self.assume(key, downstream)
        self._stream.log.put_position(txn, key, encode_record(downstream))

    def stage(
        self,
        key: bytes,
        downstream: Downstream,
        txn: Txn,
        done: CommitCallback | None = None,
        before: Downstream | None = None,
    ) -> None:
        """Store a record with the changes in `txn`. `before`: the previous record, if it is not the present one."""
        before = before or self.get(key)
        if before is not None and (downstream.seq < before.seq or downstream.ahead < before.ahead):
            self.doubt(key)
        self._has_mirror = self._has_mirror or downstream.kind == "mirror"
        self.put(key, downstream, txn)

        def settle(failure: StoreError | None) -> None:
            if failure is not None and self.get(key) is downstream:
                # Confirmed positions are confirmed again; losses stay.
                downstream.seq = min(downstream.seq, before.seq if before is not None else 0)
                self._changed()
                if key not in self._written:
                    self._keep_aside(key, downstream)
            elif self.get(key) is downstream and key not in self._to_confirm:
                self._trust(key)
            if failure is None:
                self._written.add(key)
                self._stream.store.spare_positions.remove(self._stream.log.id, key)
            if done is not None:
                done(failure)

        self._stream.store.submit(txn, settle)
        self._changed()

    def renamed(self, key: bytes, txn: Txn) -> Downstream | None:
        """Stage the removal of the record under `key`, and return it: it goes on under another key."""
        known = self._downstreams.pop(key, None)
        if known is not None:
            self._stream.log.delete_position(txn, key)
            self._written.discard(key)
        return known

    def drop(self, keys: Iterable[bytes], also: Callable[[Txn], None], done: CommitCallback) -> None:
        """Remove these records, with what `also` stages once they are gone. They come back if the transaction fails."""
        stream = self._stream
        txn = stream.store.begin()
        dropped = {key: self._downstreams.pop(key) for key in keys}

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self._downstreams = dropped | self._downstreams
                self._changed()
            for key in dropped if failure is None else ():
                if key not in self._downstreams:
                    self._written.discard(key)
                    stream.store.spare_positions.remove(stream.log.id, key)
                    self._to_confirm.discard(key)
                    self._trust(key)
            done(failure)

        for key in dropped:
            stream.log.delete_position(txn, key)
        also(txn)
        stream.store.submit(txn, settle)
        self._changed()

    def stream_deleted(self) -> None:
        """Forget what is kept of the records outside the deleted stream."""
        for key in self._downstreams:
            self._trust(key)
        self._stream.store.spare_positions.remove_stream(self._stream.log.id)

    def _keep_aside(self, key: bytes, downstream: Downstream) -> None:
        """Make a new downstream known after a power cut although its record cannot be stored: it lacks what leaves until it asks."""
        stream = self._stream
        if not stream.store.spare_positions.put(stream.log.id, key, encode_record(downstream)):
            log.warning("%s: %s is not known after a power cut: the disk is full", stream.name, downstream.name)
