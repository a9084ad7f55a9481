"""The MQTT sessions of one account: who has which client id, take-over, expiry, wills, and which subjects are queued."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from eyot_daemon.mqtt.counters import Drops, Traffic
from eyot_daemon.mqtt.publishing import Publisher, publish
from eyot_daemon.mqtt.repetitions import Repetitions
from eyot_daemon.mqtt.session import Session, SessionLimits
from eyot_daemon.mqtt.session_link import Queued
from eyot_daemon.mqtt.session_queue import QUEUE_PREFIX
from eyot_daemon.mqtt.session_record import NEVER, SessionRecord, StoredWill
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from eyot_daemon.mqtt.stored_topics import StoredTopics
from eyot_daemon.mqtt.sys_topics import SysTopics
from eyot_daemon.mqtt.will import publication_of
from eyot_daemon.router.providers import MqttAccountFigures
from eyot_wire.mqtt import topics
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_daemon.mqtt.publication import Publication
    from eyot_daemon.mqtt.replies import Replies
    from eyot_daemon.mqtt.session_queue import SharedQueue
    from eyot_daemon.mqtt.store import MqttStore
    from eyot_daemon.router.access import Access
    from eyot_daemon.router.account import Account
    from eyot_daemon.turn.timers import TimerHandle

log = logging.getLogger("eyot.mqtt")

_NS: Final = 1_000_000_000
#: A client id that is taken over this often within `STORM_S` has two owners: the newcomer waits `STORM_PAUSE_S`.
STORM_TAKEOVERS: Final = 5
STORM_S: Final = 10.0
STORM_PAUSE_S: Final = 1.0
#: A group's queue may have this many times the window of one session on its way, or more than its members together:
#: those that are away keep what was begun with QoS 2, which must not hold up the others.
GROUP_WINDOWS: Final = 8


def _log_failure(session: Session) -> Callable[[str], None]:
    """Return what logs the failure of a group's queue."""

    def done(failure: str) -> None:
        if failure:
            log.error("MQTT session '%s': shared subscription: %s", printable(session.client_id), failure)

    return done


class Limits(NamedTuple):
    """Bounds in force. Sizes in bytes, times in seconds."""

    packet_bytes: int
    aliases: int
    inflight_in: int
    window: int
    keep_alive_s: int
    refusal_pause_s: float
    sessions_max: int
    queue_msgs: int
    queue_bytes: int
    sys_interval_s: float
    store: MqttStoreOptions = MqttStoreOptions()


class Opening(NamedTuple):
    """What a CONNECT asks of its session. `expiry_s`: 0 ends it with the connection."""

    client_id: str
    owner: str
    level: int
    clean: bool
    expiry_s: int
    will: StoredWill | None


class Opened(NamedTuple):
    """The session for a CONNECT, or why there is none (`reason` and `text`)."""

    session: Session | None
    present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    text: str = ""


#: Another CONNECT with the client id came while this one waited for flash: the newer one has the session.
SUPERSEDED: Final = Opened(None, reason=ReasonCode.SERVER_BUSY, text="another connection of the client came meanwhile")


class _FilterChange:
    """A change of a session's filters: its queue follows them, and its record is written.

    `followed` comes before `saved`: the queue's configuration is handed in first.
    """

    __slots__ = ("error", "when_done")

    def __init__(self, done: Callable[[str], None]) -> None:
        #: called when both are on flash, or with the reason why not
        self.when_done = [done]
        #: why the queue could not follow
        self.error = ""

    def saved(self, error: str) -> None:
        """Report the end of the change."""
        for done in self.when_done:
            done(self.error or error)


class _Known:
    """A session with what belongs to it here."""

    __slots__ = ("access", "change", "opening", "session", "takeovers", "timer")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.timer: TimerHandle | None = None
        self.takeovers: list[float] = []
        #: the last change of its filters, while it is on the way to flash
        self.change: _FilterChange | None = None
        #: CONNECT packets that wait until its record is on flash
        self.opening = 0
        #: permissions of the last connection, for its will
        self.access: Access | None = None


class AccountSessions:
    """`sessions` by client id; `store` is where the persistent ones are on flash."""

    def __init__(
        self, account: Account, store: MqttStore | None, limits: Limits, drops: Drops, replies: Replies
    ) -> None:
        self.account = account
        self._store = store
        self.limits = limits
        self.drops = drops
        self.replies = replies
        self.traffic = Traffic()
        self.sys_topics = SysTopics(account.broker, self, limits.sys_interval_s)
        self.stored_topics = StoredTopics(account)
        self.repetitions = Repetitions()
        self._known: dict[str, _Known] = {}
        self._ready = False
        self._failure = ""
        self._when_ready: list[Callable[[], None]] = []

    def queues(self, subject: bytes) -> bool:
        """Return whether a persistent session wants messages of QoS 1 and 2 on this subject."""
        return self._store is not None and self._ready and self._store.wants(subject)

    def record_of(self, client_id: str) -> SessionRecord:
        """Return the record of a session that there is."""
        return self._known[client_id].session.record

    def each(self) -> Iterator[Session]:
        """Return all sessions."""
        return (known.session for known in self._known.values())

    @property
    def _is_open(self) -> bool:
        return self._ready and not self._failure

    @property
    def queued_state(self) -> tuple[int, int]:
        """Messages on flash that wait for sessions, each once, and their bytes."""
        return self.store.queued_state if self._is_open else (0, 0)

    @property
    def retained_count(self) -> int:
        return self.store.retained.size[0] if self._is_open else 0

    def figures(self) -> MqttAccountFigures:
        """Return the figures for `/metrics`."""
        traffic, queued = self.traffic, self.queued_state
        retained = self.store.retained.size if self._is_open else (0, 0)
        return MqttAccountFigures(
            account=self.account.name,
            clients=traffic.clients,
            sessions=len(self._known),
            expired=traffic.expired,
            queued_msgs=queued[0],
            queued_bytes=queued[1],
            retained_msgs=retained[0],
            retained_bytes=retained[1],
            received=tuple(traffic.received),
            sent=tuple(traffic.sent),
            packets=(traffic.packets_in, traffic.packets_out),
            bytes=(traffic.bytes_in, traffic.bytes_out),
            dropped=dict(self.drops.by_reason),
        )

    def session(self, client_id: str) -> Session | None:
        known = self._known.get(client_id)
        return None if known is None else known.session

    def __len__(self) -> int:
        return len(self._known)

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store and bring back the sessions that are on flash."""
        if self._store is None:
            self._opened(f"MQTT needs JetStream, which is not enabled for account {self.account.name}")
        else:
            self._store.open(self._opened)

    def set_limits(self, limits: Limits) -> None:
        """Use changed limits: for all sessions, and for what queues may hold from now on."""
        self.limits = limits
        for known in self._known.values():
            known.session.set_limits(self._session_limits())
        self.sys_topics.interval_s = limits.sys_interval_s
        if self._store is not None:
            self._store.set_options(limits.store)

    def when_open(self, step: Callable[[str], None]) -> None:
        """Call `step` once the sessions on flash were brought back, with "" or with what is wrong."""
        if self._ready:
            step(self._failure)
        else:
            self._when_ready.append(lambda: step(self._failure))

    @property
    def store(self) -> MqttStore:
        """Where the account's sessions are on flash; only for accounts with JetStream."""
        assert self._store is not None, "no session is opened without"
        return self._store

    def _opened(self, failure: str) -> None:
        self._failure, self._ready = failure, True
        if not failure:
            for record in self.store.sessions():
                self._bring_back(record)
        waiting, self._when_ready = self._when_ready, []
        for step in waiting:
            step()

    def _bring_back(self, record: SessionRecord) -> None:
        """Take up a session from flash. One that was connected ended with the daemon: its will is due."""
        known = self._add(record, persistent=True)
        session = known.session
        self._follow_filters(known)
        now_ns = self.account.broker.clock.now_ns()
        if not record.ended_ns:
            # Of a session that was connected, nobody knows what was sent last.
            record.ended_ns, record.sent = now_ns, self.store.last_queued()
            self._save(session)
        session.restore(self.store.pubrels(record), self.store.held_ids(record), sent_upto=record.sent)
        self._schedule(known, now_ns)

    # -- opening -------------------------------------------------------------------------------------------------------

    def open(self, opening: Opening, done: Callable[[Opened], None]) -> None:
        """Find or make the session of a CONNECT; `done` is called when it is on flash, if it is to be."""
        if not self._ready:
            self._when_ready.append(lambda: self.open(opening, done))
            return
        if self._failure:
            done(Opened(None, reason=ReasonCode.SERVER_UNAVAILABLE, text=self._failure))
            return
        known = self._known.get(opening.client_id)
        if known is None:
            if len(self._known) >= self.limits.sessions_max:
                done(Opened(None, reason=ReasonCode.QUOTA_EXCEEDED, text="too many sessions"))
            else:
                self._make(opening, done)
            return
        if known.session.record.owner != opening.owner:
            done(Opened(None, reason=ReasonCode.NOT_AUTHORIZED, text="the client id belongs to another user"))
            return
        if known.session.link is not None and self._is_storm(known):
            pause = self.account.broker.timers.call_later
            pause(STORM_PAUSE_S, lambda: self._take_over(opening, done))
            return
        self._take_over(opening, done)

    def _is_storm(self, known: _Known) -> bool:
        """Note a take-over; return whether two clients with one id push each other off."""
        now = self.account.broker.clock.monotonic()
        known.takeovers = [at for at in known.takeovers if now - at < STORM_S] + [now]
        if len(known.takeovers) == STORM_TAKEOVERS:
            log.warning(
                "Account %s: two MQTT clients use the client id '%s' and push each other off",
                self.account.name,
                printable(known.session.client_id),
            )
        return len(known.takeovers) >= STORM_TAKEOVERS

    def _take_over(self, opening: Opening, done: Callable[[Opened], None]) -> None:
        known = self._known.get(opening.client_id)
        if known is not None and known.session.link is not None:
            known.session.link.taken_over()  # ends the connection, and the session if it does not outlive that
            known = self._known.get(opening.client_id)
        if known is None:
            self._make(opening, done)
        elif opening.clean:
            record = known.session.record
            if record.will is not None and not known.opening:  # its delay ends with the session [MQTT-3.1.2-8]
                self._publish_will(known, record.will)
                record.will = None
            self._discard(known, lambda error: self._cleaned(error, opening, done))
        else:
            self._resume(known, opening, done)

    def _cleaned(self, error: str, opening: Opening, done: Callable[[Opened], None]) -> None:
        if error:
            done(Opened(None, reason=ReasonCode.SERVER_UNAVAILABLE, text=error))
            return
        known = self._known.get(opening.client_id)
        if known is None:
            self._make(opening, done)
        elif known.opening or known.session.link is not None:
            done(SUPERSEDED)
        else:
            self._take_over(opening, done)

    def _make(self, opening: Opening, done: Callable[[Opened], None]) -> None:
        record = SessionRecord(client_id=opening.client_id, owner=opening.owner, level=opening.level)
        known = self._add(record, persistent=opening.expiry_s > 0)
        self._begin(known, opening, done, present=False)

    def _resume(self, known: _Known, opening: Opening, done: Callable[[Opened], None]) -> None:
        known.session.record.level = opening.level
        self._begin(known, opening, done, present=True)

    def _begin(self, known: _Known, opening: Opening, done: Callable[[Opened], None], *, present: bool) -> None:
        session, record = known.session, known.session.record
        if known.timer is not None:
            known.timer.cancel()
            known.timer = None
        told = (record.expiry_s, record.will, record.ended_ns)
        record.expiry_s, record.will, record.ended_ns = opening.expiry_s, opening.will, 0
        is_stored = present and not known.opening and told == (record.expiry_s, record.will, record.ended_ns)
        if is_stored or not session.persistent:
            done(Opened(session, present))
            return

        def saved(error: str) -> None:
            known.opening -= 1
            if self._known.get(record.client_id) is not known:
                done(SUPERSEDED)  # which discarded this session
                return
            if not error or present:
                if error:  # a full disk, perhaps: fetching what is queued makes room
                    log.warning(
                        "Account %s: the MQTT session of '%s' is resumed, its expiry interval and will are not on flash: %s",
                        self.account.name,
                        printable(record.client_id),
                        error,
                    )
                done(Opened(session, present))
                return
            self._remove(known)
            done(Opened(None, reason=ReasonCode.SERVER_UNAVAILABLE, text=error))

        known.opening += 1
        self.store.put_session(record, saved)

    def _session_limits(self) -> SessionLimits:
        return SessionLimits(self.limits.window, self.limits.queue_msgs, self.limits.queue_bytes)

    def _add(self, record: SessionRecord, *, persistent: bool) -> _Known:
        session = Session(
            record,
            self.store,
            persistent=persistent,
            limits=self._session_limits(),
            drops=Drops(self.drops),
            now_ns=self.account.broker.clock.now_ns,
            topic_of=lambda subject: topics.to_topic(subject) or "",
        )
        known = self._known[record.client_id] = _Known(session)
        return known

    # -- the end of a connection ---------------------------------------------------------------------------------------

    def connection_ended(self, session: Session, access: Access | None, *, publishes_will: bool) -> None:
        """Handle the end of a session's connection, which has left the session's `link` in place."""
        known = self._known.get(session.client_id)
        session.detach()
        if known is None or known.session is not session or known.opening:
            return  # it is gone, or a newer connection continues it
        known.access = access
        record = session.record
        now_ns = self.account.broker.clock.now_ns()
        if not publishes_will:
            record.will = None
        record.ended_ns = now_ns
        if session.queue is not None:
            # Deliveries are written after a while, and a power cut may come before.
            record.sent = max(record.sent, session.queue.handed_over)
        if session.persistent and record.expiry_s:
            self._save(session)
        self._schedule(known, now_ns)

    def _schedule(self, known: _Known, now_ns: int) -> None:
        """Publish the will and end the session where that is due, and set the timer for what is not."""
        record = known.session.record
        lasts_s = record.expiry_s - (now_ns - record.ended_ns) / _NS if record.expiry_s != NEVER else float("inf")
        if record.will is not None:
            left_s = min(record.will.delay_s - (now_ns - record.ended_ns) / _NS, lasts_s)
            if left_s <= 0:
                self._publish_will(known, record.will)
                record.will = None
                if known.session.persistent and lasts_s > 0:
                    self._save(known.session)
            else:
                lasts_s = min(lasts_s, left_s)
        if lasts_s <= 0:
            self.traffic.expired += bool(record.expiry_s)
            self._discard(known, lambda error: None)
        elif lasts_s != float("inf"):
            known.timer = self.account.broker.timers.call_later(lasts_s, lambda: self._time_passed(known))

    def _time_passed(self, known: _Known) -> None:
        known.timer = None
        if known.session.link is None and self._known.get(known.session.client_id) is known:
            self._schedule(known, self.account.broker.clock.now_ns())

    def _publish_will(self, known: _Known, will: StoredWill) -> None:
        publisher = Publisher(known.session.client_id, self.account, known.access, self)
        publish(publisher, publication_of(will), publisher, lambda result: None)

    def _save(self, session: Session) -> None:
        """Write the record; the daemon goes on if that fails, with what is on flash."""

        def saved(error: str) -> None:
            if error:
                log.error("MQTT session '%s' could not be written: %s", printable(session.client_id), error)

        self.store.put_session(session.record, saved)

    def _discard(self, known: _Known, done: Callable[[str], None]) -> None:
        """End a session with all it holds; `done` when nothing of it is on flash any more."""
        self._remove(known)
        for topic_filter in list(known.session.shared):
            self.leave_group(known.session, topic_filter)
        if known.session.persistent:
            self.store.delete_session(known.session.record, done)
        else:
            done("")

    def delete(self, client_id: str, done: Callable[[str], None]) -> None:
        """Delete a session with all it holds, for an operator; `done` when it is gone from flash, or with the reason why not.

        Its connection ends, and its will is published: a session that ends publishes it [MQTT-3.1.2-8].
        """
        known = self._known.get(client_id)
        if known is not None and known.opening:
            done("its client is connecting at this moment: try again")
            return
        if known is not None and known.session.link is not None:
            known.session.link.session_deleted()
            known = self._known.get(client_id)
        if known is None:  # it did not outlive its connection
            done("")
            return
        if known.session.record.will is not None:
            self._publish_will(known, known.session.record.will)
        self._discard(known, done)

    def _remove(self, known: _Known) -> None:
        if known.timer is not None:
            known.timer.cancel()
            known.timer = None
        if self._known.get(known.session.client_id) is known:
            del self._known[known.session.client_id]

    # -- filters -------------------------------------------------------------------------------------------------------

    def filters_changed(self, session: Session, done: Callable[[str], None]) -> None:
        """Have the queue follow the filters of a session's record, and write the record; `done` when both are on flash.

        Both are handed in at once. A publish behind the SUBSCRIBE is acknowledged with the record or after it: a client
        that sees its publishes acknowledged has its subscription, although a power cut may take the SUBACK.
        """
        known = self._known.get(session.client_id)
        if known is None or known.session is not session:
            done("")
            return
        if not session.persistent:
            self._follow_shared(session)
            done("")
            return
        change = known.change = _FilterChange(done)

        def followed(error: str) -> None:
            change.error = error
            if not error:
                session.pull()

        def saved(error: str) -> None:
            if known.change is change:
                known.change = None
            change.saved(error)
            if change.error and not error and self._known.get(session.client_id) is known:
                self._save(session)  # without the filters that the queue does not have

        self._follow_filters(known, followed)
        if change.error:
            saved(change.error)
        else:
            self.store.put_session(session.record, saved)

    def when_filters_stored(self, session: Session, done: Callable[[str], None]) -> None:
        """Call `done` when the filters of a session's record are on flash, or with the reason why not."""
        known = self._known.get(session.client_id)
        if known is None or known.session is not session or known.change is None:
            done("")
        else:
            known.change.when_done.append(done)

    def _follow_filters(self, known: _Known, done: Callable[[str], None] = lambda error: None) -> None:
        session = known.session
        self._follow_shared(session)
        wanted = session.queued_subjects()
        if session.queue is None:
            if not wanted:
                done("")
                return
            session.queue = self.store.queue(session.record, lambda *queued: session.from_queue(Queued(*queued)))
            session.queue.drops = session.drops
        session.queue.configure([QUEUE_PREFIX + subject for subject in wanted], self.limits.window, done)

    def _follow_shared(self, session: Session) -> None:
        """Join the groups of the session's shared subscriptions, and leave those that it no longer has."""
        wanted = {each: options for each, options in session.record.subs.items() if options.group and options.qos}
        for topic_filter in [each for each in session.shared if each not in wanted]:
            self.leave_group(session, topic_filter)
        for topic_filter, options in wanted.items():
            if topic_filter in session.shared:
                continue
            queue = self._group_queue(topic_filter)
            session.shared[topic_filter] = queue.join(
                lambda *queued, topic_filter=topic_filter: session.from_shared(topic_filter, Queued(*queued)),
                session.may_receive,
            )
            filters = [QUEUE_PREFIX + subject for subject in options.subjects]
            windows = max(GROUP_WINDOWS, len(queue) + 1)
            queue.configure(filters, min(self.limits.window * windows, 0xFFFF), _log_failure(session))
        session.pull()

    def leave_group(self, session: Session, topic_filter: str) -> None:
        """Have a session get nothing more from the queue of a shared subscription, if it does."""
        member = session.shared.pop(topic_filter, None)
        if member is None:
            return
        session.complete_shared(member)
        self._group_queue(topic_filter).remove(member, _log_failure(session))

    def _group_queue(self, topic_filter: str) -> SharedQueue:
        shared = topics.shared(topic_filter)
        assert shared is not None, "checked at SUBSCRIBE"
        return self.store.shared(shared.group, shared.filter)

    def group_is_queued(self, topic_filter: str) -> bool:
        """Return whether a group gets messages of QoS 1 and 2 from its queue: one of its members asked for that."""
        return len(self._group_queue(topic_filter)) > 0

    def reply_subject(self, publisher: Publisher, publication: Publication) -> bytes:
        """Return the reply subject for subscribers of NATS: of the response topic, b"" without one."""
        return self.replies.subject_for(publisher, publication)

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Nothing is stored any more: the store did not open, or its streams ended with JetStream of the account."""
        return self._ready and (bool(self._failure) or self.store.over)

    def end(self) -> None:
        """End with JetStream of the account; sessions stay as they are on flash."""
        for known in tuple(self._known.values()):
            if known.session.link is not None:
                known.session.link.fail(f"MQTT needs JetStream, which was switched off for account {self.account.name}")
        self.stop()

    def stop(self) -> None:
        """Stop with the daemon: sessions stay as they are on flash, and their wills are published after the next start."""
        for known in self._known.values():
            if known.timer is not None:
                known.timer.cancel()
        self.replies.stop()
        self.sys_topics.stop()
        if self._ready and not self._failure:
            self.store.stop()
