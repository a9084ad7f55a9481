"""Makes an origin's messages what the stream stores: subjects, the header that names the origin, epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eyot_sync.sourcing.origin import Origin
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.native import has_headers, stamp_run
from eyot_wire.jetstream.stream_source import epoch_field, identity_of


class MessageRewriter:
    """Rewrites the messages of one origin.

    `follows`: epoch and sequence of the origin's last stored message. `mirrored`: whether the stream has mirrors.
    """

    def __init__(self, origin: Origin, *, mirror: bool, follows: tuple[str, int], mirrored: Callable[[], bool]) -> None:
        self._origin = origin
        self._mirror = mirror
        self._follows = follows
        self._mirrored = mirrored

    def rewritten(self, batch: list[CopiedMessage], identity: str) -> list[CopiedMessage]:
        """Return the batch as the stream stores it. `identity`: the origin's, which says the epoch."""
        return self._marked(self._as_stored(batch), batch, identity)

    def _as_stored(self, batch: list[CopiedMessage]) -> list[CopiedMessage]:
        """Return a batch without marks of epochs.

        A source's messages name their origin, subjects are rewritten, and headers for the origin only are dropped.
        """
        origin, mirror = self._origin, self._mirror
        stamp, without = origin.stamp, origin.without_expectations
        if origin.transforms:
            rewrite = origin.rewrite
            return [
                CopiedMessage(
                    each.origin_seq,
                    each.ts_ns,
                    rewrite(each.subject),
                    without(each.header) if mirror else stamp(each.header, each.origin_seq, each.subject),
                    each.payload,
                )
                for each in batch
            ]
        if mirror and not has_headers(batch):
            return batch
        if mirror:
            return [
                CopiedMessage(each.origin_seq, each.ts_ns, each.subject, without(each.header), each.payload)
                if each.header
                else each
                for each in batch
            ]
        return stamp_run(batch, *origin.mark.around_seq, stamp)

    def _marked(
        self, copies: list[CopiedMessage], batch: Sequence[CopiedMessage], identity: str
    ) -> list[CopiedMessage]:
        """Add the epoch to the header of a source's first message, where mirrors of this stream would otherwise misread it.

        That is where another epoch of the origin begins, or it was set back.
        """
        if self._mirror or not batch:
            return copies
        first = batch[0]
        (epoch, seq), self._follows = self._follows, (identity_of(identity), batch[-1].origin_seq)
        goes_on = not seq or (epoch == self._follows[0] and first.origin_seq > seq)
        if goes_on or not self._mirrored():
            return copies
        field = epoch_field(identity)
        header = self._origin.stamp(first.header, first.origin_seq, first.subject, field, first.ts_ns)
        return [copies[0]._replace(header=header), *copies[1:]]
