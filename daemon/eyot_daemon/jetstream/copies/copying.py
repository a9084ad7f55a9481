"""The mirrors and sources of all streams: starts and stops them as configurations change, and wakes those whose origin can be reached
(again) the moment interest in its API appears."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.copies.copies_by_origin import AsksOrigin, CopiesByOrigin
from eyot_daemon.jetstream.copies.farewell import Farewell, Gone, kept, origins_of
from eyot_daemon.jetstream.copies.task import CopyTask
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Kind, Subscription
from eyot_wire.jetstream.stream import StreamConfig, StreamSourceInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

#: Of more copies that are no more, the oldest are not told of.
FAREWELLS_MAX = 256


class Copying:
    """The copy tasks of all streams of the daemon."""

    def __init__(self) -> None:
        self._tasks: dict[Stream, list[CopyTask]] = {}
        self._accounts: dict[Account, CopiesByOrigin] = {}
        self._farewells: list[tuple[Account, Farewell]] = []

    def tasks(self) -> Iterator[CopyTask]:
        for tasks in self._tasks.values():
            yield from tasks

    def stream_created(self, stream: Stream) -> None:
        config = stream.config
        tasks = [CopyTask(stream, config.mirror, mirror=True, others=self.tasks)] if config.mirror is not None else []
        tasks += [CopyTask(stream, each, mirror=False, others=self.tasks) for each in config.sources]
        self._tasks[stream] = tasks
        self._listen(stream.account, tasks, ())
        for task in tasks:
            self._start(task)
        back = [task.known_as for task in tasks]
        for left in kept(stream):
            if left in back:
                Farewell(stream, left, self._told).cancel()
            else:
                self._say_farewell(stream, left)

    def _start(self, task: CopyTask) -> None:
        """A copy that is back takes its farewell with it."""
        for account, farewell in [*self._farewells]:
            if account is task.account and farewell.what == task.known_as:
                self._told(farewell)
        task.start()

    def stream_updated(self, stream: Stream, old: StreamConfig) -> None:
        """Origins that stay keep their copier; those that went are stopped. New ones start when what those that went have handed
        to the writer is on flash: they begin where it ends."""
        wanted = origins_of(stream.config)
        before = self._tasks.get(stream, [])
        stay = [task for task in before if (task.config, task.mirror) in wanted]
        for task in stay:
            task.policy_changed()
        for task in before:
            if task not in stay:
                self._say_farewell(stream, task.stop(release=True))
        self._tasks[stream] = stay
        self._listen(stream.account, stay, before)
        stream.after_commits(lambda _: self._start_new(stream))

    def _start_new(self, stream: Stream) -> None:
        """Start what the configuration names and has no copier yet."""
        before = self._tasks.get(stream)
        if before is None:
            return  # deleted, or the daemon stops
        started: list[CopyTask] = []
        after: list[CopyTask] = []
        for source, mirror in origins_of(stream.config):
            task = next((each for each in before if each.config == source and each.mirror == mirror), None)
            if task is None:
                task = CopyTask(stream, source, mirror=mirror, others=self.tasks)
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
                self._say_farewell(stream, left)
        self._listen(stream.account, (), tasks)

    def stop(self) -> None:
        """The daemon stops: the consumers at the origins lose their interest, nothing new comes in."""
        for stream in list(self._tasks):
            self._end(stream, release=False)
        for account, farewell in self._farewells:
            farewell.end()
            self._listen(account, (), (farewell,))
        self._farewells.clear()

    # -- copies that are no more -------------------------------------------------------------------------------------

    def _say_farewell(self, stream: Stream, left: Gone) -> Farewell:
        """Its origin is told when it can be reached."""
        farewell = Farewell(stream, left, self._told)
        self._farewells.append((stream.account, farewell))
        self._listen(stream.account, (farewell,), ())
        farewell.begin()
        if len(self._farewells) > FAREWELLS_MAX:
            self._told(self._farewells[0][1])
        return farewell

    def _told(self, farewell: Farewell) -> None:
        farewell.cancel()
        account = next(account for account, each in self._farewells if each is farewell)
        self._farewells = [each for each in self._farewells if each[1] is not farewell]
        self._listen(account, (), (farewell,))

    def mirror_info(self, stream: Stream) -> StreamSourceInfo | None:
        return next((task.info() for task in self._tasks.get(stream, ()) if task.mirror), None)

    def sources_info(self, stream: Stream) -> list[StreamSourceInfo]:
        return [task.info() for task in self._tasks.get(stream, ()) if not task.mirror]

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
        """Queue weights mean nothing to copies."""

    def _asked_on(self, sub: Subscription) -> Iterator[AsksOrigin]:
        copies = self._accounts.get(sub.account)
        return iter(()) if copies is None else copies.asked_on(sub.subject)

    def _listen(self, account: Account, now: Sequence[AsksOrigin], before: Sequence[AsksOrigin]) -> None:
        """Listens to an account's interest while it has copies."""
        copies = self._accounts.get(account)
        if copies is None:
            copies = self._accounts[account] = CopiesByOrigin(account)
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
