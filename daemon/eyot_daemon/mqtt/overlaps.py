"""Overlapping filters of one client of MQTT 5: a message comes once, with the identifiers of all of them [MQTT-3.3.4-4].

MQTT allows a copy for each filter, too; clients of 3.1.1 get these, as from nats-server. What comes from a session's queue
comes once in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eyot_wire.subject import matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eyot_daemon.mqtt.session_record import SubOptions
    from eyot_daemon.router.subscription import Subscription

#: Above this number of filters each has its own copy: each new subject is compared with all of them.
FILTERS_MAX: Final = 200
#: Subjects for which the filters that match are remembered.
SUBJECTS_MAX: Final = 256


class Overlaps:
    """The filters of one connection: `options` and `subs` by the sid of the subscription in the account."""

    __slots__ = ("_found", "_options", "_subs")

    def __init__(self, options: Mapping[bytes, SubOptions], subs: Mapping[bytes, Subscription]) -> None:
        self._options = options
        self._subs = subs
        self._found: dict[bytes, tuple[bytes, ...]] = {}

    def changed(self) -> None:
        """Forget what matches: the filters are others."""
        self._found.clear()

    def matched(self, sid: bytes, subject: bytes, *, is_own: bool, is_queued: bool) -> Sequence[SubOptions]:
        """Return the options of all filters that a message delivered for `sid` stands for; empty: another delivery has it.

        `is_own`: this client published it. `is_queued`: for filters of QoS 1 and 2 it comes from the session's queue.
        """
        options = self._options[sid]
        if len(self._options) < 2 or len(self._options) > FILTERS_MAX:
            return (options,)
        found = self._found.get(subject)
        if found is None:
            found = self._match(subject)
        if len(found) < 2 or sid not in found:
            return (options,)
        matched = {each: self._options[each] for each in found if each in self._options}
        if is_own or is_queued:
            matched = {
                each: one
                for each, one in matched.items()
                if not (is_own and one.no_local) and not (is_queued and one.qos)
            }
        return tuple(matched.values()) if next(iter(matched), sid) == sid else ()

    def _match(self, subject: bytes) -> tuple[bytes, ...]:
        dollar = subject.startswith(b"$")
        found = tuple(
            sid
            for sid, options in self._options.items()
            if not options.group
            and not (dollar and options.ignores_dollar)
            and sid in self._subs
            and matches(self._subs[sid].subject, subject)
        )
        if len(self._found) >= SUBJECTS_MAX:
            self._found.clear()
        self._found[subject] = found
        return found
