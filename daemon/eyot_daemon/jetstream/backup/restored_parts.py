"""What an archive has given of a stream so far: messages in the store, the rest held until the end.

`waiting` are parts that were read and not yet stored; `store_some` does a slice of that, and says whether more can be done at
once. When it cannot, `on_room` is called later.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.backup.restored_marks import RestoredMarks
from eyot_daemon.jetstream.backup.restoring_log import RestoringLog
from eyot_store.errors import StoreError
from eyot_store.log.log import JUMP_MAX
from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.values import ConsumerPart, EndPart, GonePart, MessagesPart, Part, StatePart, StreamPart
from eyot_wire.jetstream.error_codes import JSMemoryResourcesExceededErr, JSStorageResourcesExceededErr
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import StreamConfig

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount

#: Bytes of consumers' configurations and states, held until the messages are in.
CONSUMERS_BYTES_MAX = 32 << 20
_PENDING_BYTES = 200  # what a pending message of a consumer takes in memory


class RestoredParts:
    """Parts of the stream that is to have `config` (checked)."""

    def __init__(self, jsa: "JetStreamAccount", config: StreamConfig) -> None:
        self.waiting: deque[Part] = deque()
        self.consumers: list[ConsumerPart] = []
        self.last_seq = self.last_ts_ns = 0
        self.on_room: Callable[[], None] = lambda: None
        self._jsa = jsa
        self._config = config
        self.marks = RestoredMarks(config)
        self._log: RestoringLog | None = None
        self._at = 0  # of the messages of the first waiting part
        self._gone: Iterator[int] | None = None
        self._consumers_bytes = 0
        self._settled: Callable[[StoreError | None], None] | None = None
        self._discarded = False

    @property
    def restoring(self) -> RestoringLog:
        """The log, once the archive has begun. Raises ArchiveError before."""
        if self._log is None:
            raise ArchiveError("unexpected EOF")
        return self._log

    @property
    def has_begun(self) -> bool:
        """There is a log."""
        return self._log is not None

    @property
    def stored_bytes(self) -> int:
        """What the stream takes up so far."""
        return self._log.log.state.bytes if self._log is not None else 0

    def store_some(self) -> bool:
        """Do a slice of what waits. Raises what is wrong with it (ArchiveError, JetStreamError, StoreError)."""
        if self._log is not None and self._log.failure is not None:
            raise self._log.failure
        part = self.waiting[0]
        match part:
            case MessagesPart(messages):
                if not self.restoring.has_room:
                    return False
                if not self._at:
                    self.marks.look_at(messages)
                self._at = self.restoring.store_slice(messages, self._at)
                if self._at < len(messages):
                    return True
                self._at = 0
            case GonePart():
                self.restoring.flush()
                if not self.restoring.is_settled:
                    return False
                self._gone = self._gone or self.restoring.gone(part)
                if self.restoring.remove_slice(self._gone):
                    return True
                self._gone = None
            case _:
                self._note(part)
        self.waiting.popleft()
        return True

    def when_settled(self, then: Callable[[StoreError | None], None]) -> None:
        """Call `then` when everything stored so far is on flash, or has failed."""
        if self._log is None:
            then(None)
            return
        self._log.flush()
        if self._log.is_settled:
            then(self._log.failure)
        else:
            self._settled = then

    def discard(self) -> None:
        """Forget everything; a second call does nothing."""
        self.waiting.clear()
        if self._log is not None and not self._discarded:
            self._discarded = True
            self._log.discard()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _note(self, part: Part) -> None:
        match part:
            case StreamPart(created_ns=created_ns):
                self._begin(created_ns or self._jsa.account.broker.clock.now_ns())
            case StatePart(bytes=size):
                self._allow(size)
                self._begin(self._jsa.account.broker.clock.now_ns())
            case ConsumerPart(_, config, progress):
                self._consumers_bytes += len(config) + _PENDING_BYTES * len(progress.pending)
                if self._consumers_bytes > CONSUMERS_BYTES_MAX:
                    raise ArchiveError("the consumers' state is too large")
                self.consumers.append(part)
            case EndPart(last_seq, last_ts_ns):
                if last_seq > JUMP_MAX:
                    raise ArchiveError(f"last sequence {last_seq} is too high")
                self.last_seq, self.last_ts_ns = last_seq, last_ts_ns
            case _:
                raise AssertionError(part)

    def _begin(self, created_ns: int) -> None:
        self._log = RestoringLog(
            self._jsa.engine.store,
            self._jsa.account.name,
            self._config.name,
            created_ns,
            memory=self._config.storage == "memory",
            allow=self._allow,
        )
        self._log.on_room = self._room

    def _allow(self, size: int, messages: int = 0) -> None:
        """Raises JetStreamError when the account or the server has no room for `size` more bytes."""
        storage = self._config.storage
        if self._jsa.no_storage_for(storage, size, messages) is not None:
            raise fail(JSStorageResourcesExceededErr if storage == "file" else JSMemoryResourcesExceededErr)

    def _room(self) -> None:
        assert self._log is not None
        if self._settled is not None and self._log.is_settled:
            then, self._settled = self._settled, None
            then(self._log.failure)
        else:
            self.on_room()
