"""What a stream keeps beside its messages, among its positions: where TTLs begin, when schedules are due next, and whether any
message has an id.

A backup does not hold it, so it is found again in the messages' headers as they come.
"""

from typing import TYPE_CHECKING

from eyot_daemon.jetstream.messages.dedupe import IDS_POSITION, NONE_YET, USED
from eyot_daemon.jetstream.messages.headers import MSG_ID, TTL, nats_fields
from eyot_daemon.jetstream.messages.schedule import SCHEDULE, TIME_ZONE, InvalidPattern, InvalidTimeZone, Schedule
from eyot_daemon.jetstream.messages.schedules import position_key
from eyot_daemon.jetstream.retention.expiry import TTL_POSITION
from eyot_wire.archive.values import ArchivedMessage
from eyot_wire.jetstream.model import StreamConfig

if TYPE_CHECKING:
    from eyot_store.log.log import Log
    from eyot_store.txn import Txn


class RestoredMarks:
    """Looks at the messages of a stream that is to have `config`."""

    def __init__(self, config: StreamConfig) -> None:
        self._ttls = config.allow_msg_ttl
        self._schedules_too = config.allow_msg_schedules
        self._first_ttl = 0
        self._ids = False
        self._schedules: dict[bytes, ArchivedMessage] = {}  # by subject; without payload

    def look_at(self, messages: list[ArchivedMessage]) -> None:
        if not self._ids:
            self._ids = any(MSG_ID in each.header for each in messages)
        if self._ttls and not self._first_ttl:
            self._first_ttl = next((each.seq for each in messages if TTL in each.header), 0)
        if self._schedules_too:
            for each in messages:
                if SCHEDULE in each.header:
                    self._schedules[each.subject] = each._replace(payload=b"")
                else:
                    self._schedules.pop(each.subject, None)  # it has ended

    def stage(self, log: "Log", txn: "Txn", now_ns: int) -> None:
        """Put what was found among the positions."""
        log.put_position(txn, IDS_POSITION, USED if self._ids else NONE_YET)
        if self._first_ttl:
            log.put_position(txn, TTL_POSITION, self._first_ttl.to_bytes(8, "big"))
        for each in self._schedules.values():
            due_ns = _due(each, now_ns)
            if due_ns and log.get(each.seq) is not None:
                log.put_position(txn, position_key(each.seq), due_ns.to_bytes(8, "big"))


def _due(message: ArchivedMessage, now_ns: int) -> int:
    """When a schedule is due; 0: never. What repeats and was due before goes on at its next time, not at once."""
    fields = nats_fields(message.header)
    try:
        schedule = Schedule(fields.get(SCHEDULE, b""), fields.get(TIME_ZONE))
    except (InvalidPattern, InvalidTimeZone):
        return 0
    due_ns = schedule.first(message.ts_ns)
    return schedule.following(now_ns) if 0 < due_ns < now_ns and not schedule.once else due_ns
