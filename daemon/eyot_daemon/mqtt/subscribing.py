"""SUBSCRIBE and UNSUBSCRIBE: checks, the subscriptions in the account, and the replay of retained messages.

A filter becomes one subject, or two: `sport/#` takes `sport` as well. SUBACK of a persistent session is sent when its
filters are on flash, since it is a promise that nothing is lost from then on.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eyot_daemon.mqtt import message, stream_context, sys_topics
from eyot_daemon.mqtt.overlaps import Overlaps
from eyot_daemon.mqtt.session import Session
from eyot_daemon.mqtt.session_link import BACKLOG_BYTES, Outgoing
from eyot_daemon.mqtt.session_record import SubOptions
from eyot_daemon.router.subscription import Destination, Subscription
from eyot_wire.mqtt import topics
from eyot_wire.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from eyot_wire.mqtt.reason_codes import ReasonCode

if TYPE_CHECKING:
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_daemon.router.access import Access
    from eyot_daemon.router.account import Account
    from eyot_wire.mqtt.packets import SubscriptionRequest

#: After a filter's text: the second subscription of `sport/#`, as nats-server names it.
REST_SID: Final = b" fwc"
#: Filters of a session that outlives its connection: each change writes all of them.
FILTERS_MAX: Final = 10_000
#: Filters that one turn reviews after a change of permissions.
REVIEWED_MAX: Final = 256
#: Filters that are written in the time of one operation.
STORED_PER_OPERATION: Final = 8
#: When to send retained messages (MQTT 5, retain handling).
REPLAY_ALWAYS: Final = 0
REPLAY_IF_NEW: Final = 1


class _Placed(NamedTuple):
    """A filter of a SUBSCRIBE: its options now, and those before it; None: there were none."""

    filter: str
    options: SubOptions
    before: SubOptions | None


class _Change(NamedTuple):
    """What one packet did to the filters. `answer` sends its answer, with "" or with why the filters are not on flash."""

    placed: list[_Placed]
    is_new: bool
    answer: Callable[[str], None]


class Subscribing(Destination, Protocol):
    """The connection as its subscriptions use it."""

    session: Session
    sessions: AccountSessions
    access: Access | None
    account: Account | None
    subs: dict[bytes, Subscription]
    closed: bool

    @property
    def backlog(self) -> int: ...

    def allows(self, topic_filter: str) -> bool:
        """Return whether the client may have messages for one of its filters."""
        ...

    def tell_violation(self, subject: bytes, topic_filter: str) -> None:
        """Log a subscription that is not allowed."""
        ...

    @property
    def subscriptions_max(self) -> int:
        """How many subscriptions it may have; -1: any number."""
        ...

    @property
    def downgrades_qos2(self) -> bool: ...

    def send_suback(self, packet: Suback) -> None: ...

    def filters_stored(self) -> None:
        """Go on behind what was answered."""
        ...

    def send_unsuback(self, packet: Unsuback) -> None: ...


class Subscriber:
    """The subscriptions of one connection. `options` by the sid of the subscription in the account."""

    __slots__ = (
        "_changes",
        "_connection",
        "_ended_by_review",
        "_has_sys_filters",
        "_is_reviewing",
        "_stores_once",
        "_storing",
        "options",
        "overlaps",
        "unreviewed",
    )

    def __init__(self, connection: Subscribing) -> None:
        self._connection = connection
        self.options: dict[bytes, SubOptions] = {}
        self.overlaps = Overlaps(self.options, connection.subs)
        self._has_sys_filters = False
        #: of consecutive packets, which are stored together: each stores all filters of the session
        self._changes: list[_Change] = []
        #: changes that were handed in and are not on flash
        self._storing = 0
        self._stores_once = False
        #: filters that changed permissions do not apply to yet, the next one last; see `allows`
        self.unreviewed: dict[str, None] = {}
        #: a later turn goes on with them
        self._is_reviewing = False
        #: the review has ended filters, which the session on flash still has
        self._ended_by_review = False

    @property
    def is_storing(self) -> bool:
        """Whether the answer to a SUBSCRIBE or UNSUBSCRIBE waits for the disk."""
        return self._storing > 0

    @contextmanager
    def storing_once(self) -> Iterator[None]:
        """Store what changes meanwhile at the end alone."""
        self._stores_once = True
        try:
            yield
        finally:
            self._stores_once = False
        self.hand_in()

    def hand_in(self) -> int:
        """Store what SUBSCRIBE and UNSUBSCRIBE changed since the last call, and answer them when it is on flash.

        Returns as how many operations that counts: all filters of a session that outlives its connection are written.
        """
        if not self._changes or self._stores_once:
            return 0
        changes, self._changes = self._changes, []
        connection = self._connection

        self._storing += 1

        def settled(error: str) -> None:
            self._storing -= 1
            if error and not connection.closed:
                for change in reversed(changes):
                    self._go_back(change.placed)
            for change in changes:
                if not connection.closed:
                    change.answer(error)
            if not connection.closed:
                connection.filters_stored()

        if any(change.is_new for change in changes):
            session = connection.session
            connection.sessions.filters_changed(session, settled)
            return len(session.record.subs) // STORED_PER_OPERATION if session.persistent else 0
        connection.sessions.when_filters_stored(connection.session, settled)
        return 0

    # -- SUBSCRIBE -------------------------------------------------------------------------------------------------------

    def subscribe(self, packet: Subscribe) -> None:
        """Process SUBSCRIBE: one reason code a filter; `hand_in` follows."""
        connection = self._connection
        session = connection.session
        placed: list[_Placed] = []
        reasons: list[ReasonCode] = []
        replays: list[tuple[str, SubOptions]] = []
        identifiers = packet.properties.subscription_identifiers if packet.properties is not None else []
        context = stream_context.is_asked(packet.properties)
        for asked in packet.filters:
            options = self._options(asked, identifiers[0] if identifiers else 0)
            if isinstance(options, SubOptions):
                options.context = context
            if isinstance(options, ReasonCode):
                reasons.append(options)
                continue
            known = session.record.subs.get(asked.filter)
            if known is not None and known.qos:
                options.since = known.since
            session.record.subs[asked.filter] = options
            placed.append(_Placed(asked.filter, options, known))
            self._follow(asked.filter, options)
            reasons.append(ReasonCode(options.qos))
            replay = asked.retain_handling
            if options.group:
                continue  # no retained messages [MQTT-3.8.4]
            if replay == REPLAY_ALWAYS or (replay == REPLAY_IF_NEW and known is None):
                replays.append((asked.filter, options))

        def answer(error: str) -> None:
            if error:
                refused = [ReasonCode.UNSPECIFIED_ERROR if reason < 0x80 else reason for reason in reasons]
                connection.send_suback(Suback(packet.packet_id, refused))
                return
            connection.send_suback(Suback(packet.packet_id, reasons))
            if replays and not connection.closed:
                self._replay(replays)

        is_new = any(each.options != each.before for each in placed)
        self._changes.append(_Change(placed, is_new, answer))

    def end(self) -> None:
        """End with the connection: each would keep the other."""
        self.unreviewed.clear()
        self._store_review()
        if self._has_sys_filters:
            self._connection.sessions.sys_topics.leave(self._connection)
        self.options.clear()
        self._changes.clear()
        del self._connection

    def _options(self, asked: SubscriptionRequest, identifier: int) -> SubOptions | ReasonCode:
        connection = self._connection
        shared = topics.shared(asked.filter)
        if shared is None and topics.is_shared(asked.filter):
            return ReasonCode.TOPIC_FILTER_INVALID
        plain = asked.filter if shared is None else shared.filter
        subjects = topics.filter_subjects(plain)
        if subjects is None and sys_topics.is_sys_filter(plain):
            subjects = sys_topics.filter_subjects(plain)
        if subjects is None or any(subject.startswith(b"$MQTT.") for subject in subjects):
            return ReasonCode.TOPIC_FILTER_INVALID
        access = connection.access
        if access is not None and not all(access.may_subscribe(subject) for subject in subjects):
            connection.tell_violation(subjects[0], asked.filter)
            return ReasonCode.NOT_AUTHORIZED
        if 0 <= connection.subscriptions_max < len(connection.subs) + len(subjects):
            return ReasonCode.QUOTA_EXCEEDED
        session = connection.session
        if session.persistent and len(session.record.subs) >= FILTERS_MAX and asked.filter not in session.record.subs:
            return ReasonCode.QUOTA_EXCEEDED
        qos = asked.qos
        if qos == 2 and connection.downgrades_qos2:
            qos = 1
        return SubOptions(
            qos=qos,
            subjects=list(subjects),
            no_local=asked.no_local,
            retain_as_published=asked.retain_as_published,
            ignores_dollar=topics.filter_ignores_dollar(plain),
            group="" if shared is None else shared.group,
            identifier=identifier,
            since=connection.sessions.store.last_queued() if qos else 0,
        )

    def _follow(self, topic_filter: str, options: SubOptions) -> None:
        """Subscribe in the account, or use the subscriptions that are there."""
        connection = self._connection
        account, access = connection.account, connection.access
        assert account is not None
        self.overlaps.changed()
        if sys_topics.is_sys_filter(topic_filter):
            self._has_sys_filters = True
            connection.sessions.sys_topics.subscribe(connection, topic_filter, options)
        for subject, sid in zip(options.subjects, sids(topic_filter), strict=False):
            self.options[sid] = options
            if sid in connection.subs:
                continue
            sub = Subscription(account, subject, connection, queue_group(options.group), sid)
            sub.slow = True  # frames of NATS must not reach its buffer
            sub.deny_filter = access is not None and access.needs_deny_filter(subject)
            connection.subs[sid] = sub
            account.attach(sub)

    def restore(self) -> None:
        """Subscribe to what the session already has; what its client may no longer hear ends."""
        connection, session = self._connection, self._connection.session
        for topic_filter, options in list(session.record.subs.items()):
            if self._is_allowed(options):
                self._follow(topic_filter, options)
            else:
                del session.record.subs[topic_filter]
                self._ended_by_review = True
        self._store_review()
        session.drop_forbidden(connection.access)

    # -- changed permissions ---------------------------------------------------------------------------------------------

    def reauthorized(self) -> None:
        """End what the client may no longer hear, in the session too; filter the rest by the new permissions.

        Filters beyond `REVIEWED_MAX` are reviewed in later turns. Until then `allows` decides for them.
        """
        session = self._connection.session
        self.unreviewed = dict.fromkeys(reversed(session.record.subs))
        for topic_filter in (
            session.shared.keys() & session.record.subs.keys()
        ):  # nobody else in the group gets what its queue hands over to this client
            self._review(topic_filter)
        session.drop_forbidden(self._connection.access)
        if not self._is_reviewing:
            self._review_some()

    def allows(self, topic_filter: str) -> bool:
        """Return whether the client may have messages for one of its filters."""
        if topic_filter not in self.unreviewed:
            return True
        options = self._connection.session.record.subs.get(topic_filter)
        return options is not None and self._is_allowed(options)

    def _is_allowed(self, options: SubOptions) -> bool:
        access = self._connection.access
        return access is None or all(access.may_subscribe(subject) for subject in options.subjects)

    def _review_some(self) -> None:
        self._is_reviewing = False
        for topic_filter in list(islice(reversed(self.unreviewed), REVIEWED_MAX)):
            self._review(topic_filter)
        if self.unreviewed:
            self._is_reviewing = True
            self._connection.sessions.account.broker.later_turns.add(self._review_some)
        else:
            self._store_review()

    def _review(self, topic_filter: str) -> None:
        """Apply changed permissions to one filter."""
        self.unreviewed.pop(topic_filter, None)
        connection = self._connection
        access, filters = connection.access, connection.session.record.subs
        if not self._is_allowed(filters[topic_filter]):
            del filters[topic_filter]
            self._end(topic_filter)
            connection.sessions.leave_group(connection.session, topic_filter)
            self._ended_by_review = True
            return
        for sid in sids(topic_filter):
            sub = connection.subs.get(sid)
            if sub is not None:
                sub.deny_filter = access is not None and access.needs_deny_filter(sub.subject)

    def _store_review(self) -> None:
        """Store the filters that the review has left, once: each time writes all of them."""
        if self._ended_by_review:
            self._ended_by_review = False
            self._connection.sessions.filters_changed(self._connection.session, lambda error: None)

    def _go_back(self, placed: list[_Placed]) -> None:
        """Take back a SUBSCRIBE that is refused; what a later one has changed stays."""
        subs = self._connection.session.record.subs
        for each in reversed(placed):
            if subs.get(each.filter) is not each.options:
                continue
            if each.before is None:
                del subs[each.filter]
                self._end(each.filter)
            else:
                subs[each.filter] = each.before
                self._follow(each.filter, each.before)

    # -- UNSUBSCRIBE -----------------------------------------------------------------------------------------------------

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Process UNSUBSCRIBE; `hand_in` follows, and the answer when the session on flash no longer has the filters."""
        connection = self._connection
        session = connection.session
        reasons: list[ReasonCode] = []
        for topic_filter in packet.filters:
            known = session.record.subs.pop(topic_filter, None)
            if known is not None:
                self._end(topic_filter)
            reasons.append(ReasonCode.SUCCESS if known is not None else ReasonCode.NO_SUBSCRIPTION_EXISTED)

        def answer(error: str) -> None:
            codes = [ReasonCode.UNSPECIFIED_ERROR] * len(reasons) if error else reasons
            connection.send_unsuback(Unsuback(packet.packet_id, codes))

        self._changes.append(_Change([], ReasonCode.SUCCESS in reasons, answer))

    def _end(self, topic_filter: str) -> None:
        if self._has_sys_filters and sys_topics.is_sys_filter(topic_filter):
            self._connection.sessions.sys_topics.unsubscribe(self._connection, topic_filter)
        self.overlaps.changed()
        self.unreviewed.pop(topic_filter, None)
        for sid in sids(topic_filter):
            self.options.pop(sid, None)
            sub = self._connection.subs.pop(sid, None)
            if sub is not None:
                sub.account.unsubscribe(sub)

    # -- retained messages -----------------------------------------------------------------------------------------------

    def _replay(self, wanted: Iterable[tuple[str, SubOptions]]) -> None:
        """Send the retained messages of new subscriptions, as fast as the client reads."""
        for topic_filter, options in wanted:
            if sys_topics.is_sys_filter(topic_filter):
                self._connection.sessions.sys_topics.replay(self._connection, topic_filter)
            self._connection.sessions.store.retained.replay(
                options.subjects, _Replay(self._connection, topic_filter, options)
            )


class _Replay:
    """Hands retained messages to one connection; `ready` holds the replay while the client does not read."""

    def __init__(self, connection: Subscribing, topic_filter: str, options: SubOptions) -> None:
        self._connection = connection
        self._filter = topic_filter
        self._options = options

    @property
    def over(self) -> bool:
        """The connection or the filter ended, or may no longer be: nothing more is wanted [MQTT-3.10.4-2]."""
        connection = self._connection
        return (
            connection.closed
            or self._filter not in connection.session.record.subs
            or not connection.allows(self._filter)
        )

    @property
    def ready(self) -> bool:
        return self._connection.backlog <= BACKLOG_BYTES and not self._connection.session.has_waiting

    def message(self, subject: bytes, header: bytes, payload: bytes) -> None:
        """Send one retained message."""
        connection, options = self._connection, self._options
        access = connection.access
        if options.ignores_dollar and subject.startswith(b"$"):
            return
        if access is not None and not access.may_receive(subject):
            return
        topic = topics.to_topic(subject)
        if topic is None:
            return
        qos = min(message.qos_of(header), options.qos)
        identifiers = (options.identifier,) if options.identifier else ()
        connection.session.send(Outgoing(topic, b"", header, payload, qos, True, identifiers))


def queue_group(group: str) -> bytes:
    """Return the queue group of a shared subscription, apart from those of NATS clients; b"" without a group."""
    if not group:
        return b""
    plain = group.isascii() and group.replace("-", "").replace("_", "").isalnum()
    return b"$share." + (group.encode() if plain else base64.urlsafe_b64encode(group.encode()).rstrip(b"="))


def filter_of(sid: bytes) -> str:
    """Return the filter of a subscription's id."""
    return sid.removesuffix(REST_SID).decode()


def sids(topic_filter: str) -> tuple[bytes, bytes]:
    """Return the ids of a filter's subscriptions in the account, as nats-server names them."""
    sid = topic_filter.encode()
    return sid, sid + REST_SID
