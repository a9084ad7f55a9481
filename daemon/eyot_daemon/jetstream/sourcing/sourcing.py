"""Runs the mirrors and sources of all streams.

Starts and stops them as configurations change, and resumes them as soon as interest in their origin's API appears. A
reconnecting fleet adds and removes interest by the ten thousand, nearly all of it in literal subjects outside of any API:
the mirrors and sources that a change concerns are looked up by the subject of their origin's API, not searched for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from eyot_daemon.jetstream.sourcing.deregistration import Deregistration, RemovedSource, kept, origins_of
from eyot_daemon.jetstream.sourcing.source_task import SourceTask
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Kind, SubjectSpace, Subscription
from eyot_wire.jetstream.stream import StreamConfig, StreamSourceInfo
from eyot_wire.subject import is_literal, matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream


class AsksOrigin(Protocol):
    """A listener for the reach of its origin: a mirror, a source, or the deregistration of one (`deregistration.py`)."""

    def api_subject(self) -> bytes:
        """Return the subject of requests to the origin, after this account's mappings."""

    def interest_added(self) -> None: ...

    def interest_removed(self) -> None: ...


class SourcesByOrigin:
    """Subjects are as they are routed, so the table is rebuilt when the account's mappings have changed."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._tasks: dict[AsksOrigin, None] = {}
        self._by_subject: dict[bytes, list[AsksOrigin]] = {}
        # The subjects by their first two tokens: wildcards begin behind those (`$JS.leaf.API.>`).
        self._by_head: dict[bytes, list[bytes]] = {}
        self._mapped_at = -1

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: AsksOrigin) -> None:
        self._tasks[task] = None
        self._mapped_at = -1

    def discard(self, task: AsksOrigin) -> None:
        self._tasks.pop(task, None)
        self._mapped_at = -1

    def asked_on(self, pattern: bytes) -> Iterator[AsksOrigin]:
        """Yield the listeners whose request subject `pattern` matches."""
        if self._mapped_at != self._account.mappings.changes:
            self._make()
        if is_literal(pattern):
            yield from tuple(self._by_subject.get(pattern, ()))
            return
        head = _head(pattern)
        subjects = self._by_head.get(head, ()) if is_literal(head) else self._by_subject
        for subject in tuple(subjects):
            if matches(pattern, subject):
                yield from tuple(self._by_subject[subject])

    def _make(self) -> None:
        self._mapped_at = self._account.mappings.changes
        self._by_subject.clear()
        self._by_head.clear()
        for task in self._tasks:
            subject = task.api_subject()
            if subject not in self._by_subject:
                self._by_head.setdefault(_head(subject), []).append(subject)
            self._by_subject.setdefault(subject, []).append(task)


def _head(subject: bytes) -> bytes:
    return b".".join(subject.split(b".", 2)[:2])


#: Deregistrations that wait for their origin. Beyond that, the oldest are dropped.
DEREGISTRATIONS_MAX = 256


class Sourcing:
    """The source tasks of all streams of the daemon."""

    def __init__(self) -> None:
        self._tasks: dict[Stream, list[SourceTask]] = {}
        self._accounts: dict[SubjectSpace, SourcesByOrigin] = {}
        self._deregistrations: list[tuple[Account, Deregistration]] = []

    def tasks(self) -> Iterator[SourceTask]:
        for tasks in self._tasks.values():
            yield from tasks

    def stream_created(self, stream: Stream) -> None:
        config = stream.config
        tasks = [SourceTask(stream, config.mirror, mirror=True, others=self.tasks)] if config.mirror is not None else []
        tasks += [SourceTask(stream, each, mirror=False, others=self.tasks) for each in config.sources]
        self._tasks[stream] = tasks
        self._listen(stream.account, tasks, ())
        for task in tasks:
            self._start(task)
        back = [task.known_as for task in tasks]
        for left in kept(stream.log):
            if left in back:
                Deregistration(stream.core, left, self._deregistered).cancel()
            else:
                self._deregister(stream, left)

    def _start(self, task: SourceTask) -> None:
        """Start a task; a pending deregistration of the same mirror or source is cancelled."""
        for account, deregistration in [*self._deregistrations]:
            if account is task.account and deregistration.what == task.known_as:
                self._deregistered(deregistration)
        task.start()

    def stream_updated(self, stream: Stream, old: StreamConfig) -> None:
        """Apply an update: unchanged origins keep their task, removed ones are stopped, new ones start.

        New tasks start when the batches of removed ones are on flash: they begin where these end.
        """
        wanted = origins_of(stream.config)
        before = self._tasks.get(stream, [])
        stay = [task for task in before if (task.config, task.mirror) in wanted]
        for task in stay:
            task.policy_changed()
        for task in before:
            if task not in stay:
                self._deregister(stream, task.stop(release=True))
        self._tasks[stream] = stay
        self._listen(stream.account, stay, before)
        stream.after_commits(lambda _: self._start_new(stream))

    def _start_new(self, stream: Stream) -> None:
        """Start the configured mirrors and sources that have no task yet."""
        before = self._tasks.get(stream)
        if before is None:
            return  # deleted, or the daemon stops
        started: list[SourceTask] = []
        after: list[SourceTask] = []
        for source, mirror in origins_of(stream.config):
            task = next((each for each in before if each.config == source and each.mirror == mirror), None)
            if task is None:
                task = SourceTask(stream, source, mirror=mirror, others=self.tasks)
                started.append(task)
            after.append(task)
        self._tasks[stream] = after
        self._listen(stream.account, after, before)
        for task in started:
            self._start(task)

    def stream_deleted(self, stream: Stream) -> None:
        self._end(stream, release=True)

    def stream_stopped(self, stream: Stream) -> None:
        self._end(stream, release=False)

    def _end(self, stream: Stream, *, release: bool) -> None:
        tasks = self._tasks.pop(stream, [])
        for task in tasks:
            left = task.stop(release=release)
            if release:
                self._deregister(stream, left)
        self._listen(stream.account, (), tasks)

    def stop(self) -> None:
        """Stop with the daemon: the consumers at the origins lose their interest, and nothing new arrives."""
        for stream in list(self._tasks):
            self._end(stream, release=False)
        for account, deregistration in self._deregistrations:
            deregistration.end()
            self._listen(account, (), (deregistration,))
        self._deregistrations.clear()

    # -- removed mirrors and sources ---------------------------------------------------------------------------------

    def _deregister(self, stream: Stream, left: RemovedSource) -> Deregistration:
        """Send the deregistration when the origin can be reached."""
        deregistration = Deregistration(stream.core, left, self._deregistered)
        self._deregistrations.append((stream.account, deregistration))
        self._listen(stream.account, (deregistration,), ())
        deregistration.begin()
        if len(self._deregistrations) > DEREGISTRATIONS_MAX:
            self._deregistered(self._deregistrations[0][1])
        return deregistration

    def _deregistered(self, deregistration: Deregistration) -> None:
        deregistration.cancel()
        account = next(account for account, each in self._deregistrations if each is deregistration)
        self._deregistrations = [each for each in self._deregistrations if each[1] is not deregistration]
        self._listen(account, (), (deregistration,))

    def mirror_info(self, stream: Stream) -> StreamSourceInfo | None:
        return next((task.report.info() for task in self._tasks.get(stream, ()) if task.mirror), None)

    def sources_info(self, stream: Stream) -> list[StreamSourceInfo]:
        return [task.report.info() for task in self._tasks.get(stream, ()) if not task.mirror]

    # -- interest of leaf links --------------------------------------------------------------------------------------

    def sub_added(self, sub: Subscription) -> None:
        if sub.dest.kind is Kind.LEAF:
            for each in self._asked_on(sub):
                each.interest_added()

    def sub_removed(self, sub: Subscription) -> None:
        if sub.dest.kind is Kind.LEAF:
            for each in self._asked_on(sub):
                each.interest_removed()

    def weight_changed(self, sub: Subscription, previous: int) -> None:
        """Do nothing: mirrors and sources do not depend on queue weights."""

    def _asked_on(self, sub: Subscription) -> Iterator[AsksOrigin]:
        copies = self._accounts.get(sub.account)
        return iter(()) if copies is None else copies.asked_on(sub.subject)

    def _listen(self, account: Account, now: Sequence[AsksOrigin], before: Sequence[AsksOrigin]) -> None:
        """Listen to an account's interest while it has mirrors or sources."""
        copies = self._accounts.get(account)
        if copies is None:
            copies = self._accounts[account] = SourcesByOrigin(account)
        had = len(copies)
        for task in before:
            copies.discard(task)
        for task in now:
            copies.add(task)
        if not had and len(copies):
            account.add_interest_listener(self)
        elif had and not len(copies):
            account.remove_interest_listener(self)
            del self._accounts[account]
