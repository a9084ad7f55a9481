"""All that the service does at one connection to the hub: loads, listens, answers, and writes while it leads."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from eyot_fleet.actions import Actions
from eyot_fleet.audit import Audit, RefusalPace
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.errors import ApiFailure, ConnectionLost, FleetError, NoAnswer
from eyot_fleet.fleet import CONFIG, STATUS, Fleet, Refusal
from eyot_fleet.jetstream import JetStream
from eyot_fleet.rollout_steps import EVERY_S as ROLLOUTS_S
from eyot_fleet.rollout_steps import RolloutSteps
from eyot_fleet.sourcing import EVERY_S as SOURCING_S
from eyot_fleet.sourcing import Sourcing
from eyot_fleet.state import State
from eyot_fleet.status_reader import StatusError
from eyot_fleet.status_streams import StatusStream, came_from
from eyot_wire.quoting import printable
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eyot_fleet.config import FleetConfig
    from eyot_fleet.connection import Connection, Subscription
    from eyot_fleet.jetstream import Delivered
    from eyot_fleet.leadership import Leadership

log = logging.getLogger("eyot.fleet")

SAVE_S: Final = 2.0
#: Writes under way at the same time.
WRITES: Final = 32
#: Between two looks whether the buckets are still there and still the same, seconds.
BUCKETS_S: Final = 15.0
#: Between two looks for streams of statuses.
STREAMS_S: Final = 30.0
#: Refusals that wait for their line in the audit; beyond, they are only counted.
REFUSALS_MAX: Final = 1000
#: Devices that are loaded or heard between two breaths of the loop.
_BREATH: Final = 500
#: Between two steps of sourcing at least, so that many changes make one step; seconds.
_PAUSE_S: Final = 1.0
#: A step that failed is told again after this time, seconds.
_TELL_S: Final = 60.0


class HubSession:
    """One connection's part of the service."""

    def __init__(self, connection: Connection, config: FleetConfig, fleet: Fleet, leadership: Leadership) -> None:
        self.connection = connection
        self.config = config
        self.fleet = fleet
        self.leadership = leadership
        self.jetstream = JetStream(connection)
        self.state = State(self.jetstream, config.state)
        self.audit = Audit(self.jetstream, config.state)
        self.actions = Actions(self.state, self.audit)
        self.sourcing = Sourcing(self.jetstream, self.audit, fleet)
        self.rollouts = RolloutSteps(self.actions, fleet)
        #: writes that the hub did not take; what they held is tried again
        self.save_errors = 0
        self.loaded = trio.Event()
        self._streams: dict[str, StatusStream] = {}
        self._pace = RefusalPace()
        self._refusals: list[Refusal] = []
        self._told: dict[str, float] = {}
        self._status: Subscription | None = None
        self._desired_changed = trio.Event()

    @property
    def dropped(self) -> int:
        """Statuses that found no room between the connection and the fleet."""
        return 0 if self._status is None else self._status.dropped

    async def run(self) -> None:
        """Work until cancelled. Raises FleetError."""
        prefix = self.config.devices.prefix
        self._status = self.connection.subscribe(f"{prefix}.*.{STATUS}")
        questions = self.connection.subscribe(f"{prefix}.*.{CONFIG}")
        await self.state.open()
        await self.audit.open()
        await self._load()
        self.fleet.index.listening_since = time.time()
        failed: list[FleetError] = []
        async with trio.open_nursery() as nursery:

            async def guarded(task: Callable[[], Awaitable[None]]) -> None:
                try:
                    await task()
                except FleetError as error:
                    failed.append(error)
                    nursery.cancel_scope.cancel()

            async def lead() -> None:
                await self.leadership.keep(self.state.state)

            async def hear() -> None:
                await self._hear(self._status)

            async def answer() -> None:
                await self._answer(questions)

            own = (self._watch_desired, self._follow_streams, self._save_all, self._source, self._roll_out)
            for task in (lead, hear, answer, *own):
                nursery.start_soon(guarded, task)
            self.loaded.set()
        if failed:
            raise failed[0]

    # -- what is there ---------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        now = time.time()
        for entry in await self.state.desired.all():
            self._take_desired(entry.key, entry.value)
        stored = set()
        for number, entry in enumerate(await self.state.devices.all()):
            if entry.value is not None:
                stored.add(entry.key)
                try:
                    self.fleet.load(decode_json(entry.value, DeviceRecord), now)
                except msgspec.DecodeError as error:
                    log.warning("the record of %s cannot be read: %s", printable(entry.key), error)
            if number % _BREATH == 0:
                await trio.lowlevel.checkpoint()
        # The bucket may have been emptied while the hub was away.
        self.fleet.urgent.update(record.name for record in self.fleet.index if record.name not in stored)
        for entry in await self.state.history.all():
            if entry.value is not None:
                self.fleet.load_history(entry.key, entry.value)

    async def _watch_desired(self) -> None:
        watched = self.state.desired.watch()
        try:
            async for entries in watched:
                for entry in entries:
                    self._take_desired(entry.key, entry.value)
        finally:
            await watched.aclose()

    def _take_desired(self, key: str, value: bytes | None) -> None:
        problem = self.fleet.set_desired(key, value, time.time())
        self._desired_changed.set()
        if problem is not None:
            log.warning("what is desired cannot be used: %s", problem)

    # -- what is heard ---------------------------------------------------------------------------------------------

    async def _hear(self, subscription: Subscription | None) -> None:
        assert subscription is not None
        while True:
            for number, message in enumerate(await subscription.take(), 1):
                subject = message.subject.decode("utf-8", "replace")
                refusal = self.fleet.hear_status(subject, message.payload, time.time(), live=True)
                if refusal is not None:
                    self._refuse(refusal)
                if number % _BREATH == 0:
                    await trio.lowlevel.checkpoint()

    def _take_stored(self, message: Delivered) -> None:
        name = message.subject.removeprefix(f"{self.config.devices.prefix}.").partition(".")[0]
        if not came_from(message, name, self.fleet.index.get(name)):
            self.fleet.counts["forged"] += 1
            self._refuse(Refusal(name, "a status that the hub sourced from another device", forged=True))
            return
        refusal = self.fleet.hear_status(message.subject, message.payload, message.stored_at, live=False)
        if refusal is not None:
            self._refuse(refusal)

    async def _follow_streams(self) -> None:
        subject = f"{self.config.devices.prefix}.*.{STATUS}"
        async with trio.open_nursery() as nursery:
            while True:
                wanted = [name for name in self.config.devices.status_streams if name != "*"]
                if "*" in self.config.devices.status_streams:
                    wanted += await self.jetstream.stream_names(subject)
                for name in set(wanted) - set(self._streams):
                    self._streams[name] = StatusStream(self.jetstream, self.state, name, subject)
                    nursery.start_soon(self._follow, name)
                await trio.sleep(STREAMS_S)

    async def _follow(self, name: str) -> None:
        """Read one stream while it is there. A failure that is not the connection's is told and tried again."""
        stream = self._streams[name]
        try:
            await stream.read(self._take_stored)
        except ConnectionLost:
            raise
        except FleetError as error:
            self._tell(f"stream {name}", error)
        finally:
            self._streams.pop(name, None)

    async def _answer(self, questions: Subscription) -> None:
        """Answer devices that ask for their configuration. All services hear the report; who leads answers once it is stored."""
        while True:
            for message in await questions.take():
                if not message.reply:
                    continue
                subject = message.subject.decode("utf-8", "replace")
                try:
                    name, report = self.fleet.take_report(subject, message.payload, time.time())
                except StatusError as error:
                    device = subject.removeprefix(f"{self.config.devices.prefix}.").partition(".")[0]
                    self._refuse(Refusal(device, str(error), forged=error.forged))
                    continue
                if not self.leadership.is_leader:
                    continue
                try:
                    await self._store_report(name, msgspec.json.encode(report))
                except (ApiFailure, NoAnswer) as error:
                    self.save_errors += 1
                    self._tell("reports", error)
                    continue
                answer = msgspec.json.encode(self.fleet.document(name))
                await self.connection.publish(message.reply.decode("utf-8", "replace"), answer)

    async def _store_report(self, name: str, report: bytes) -> None:
        found = await self.state.reported.get(name)
        if found is None or found.value != report:
            await self.state.reported.put(name, report)

    def _refuse(self, refusal: Refusal) -> None:
        if len(self._refusals) < REFUSALS_MAX:
            self._refusals.append(refusal)

    # -- what is written -------------------------------------------------------------------------------------------

    async def _save_all(self) -> None:
        looked_at = trio.current_time()
        while True:
            await trio.sleep(SAVE_S)
            if not self.leadership.is_leader:
                self._refusals.clear()  # who leads hears them, too
                continue
            if trio.current_time() - looked_at >= BUCKETS_S:
                await self._reopen()
                looked_at = trio.current_time()
            try:
                await self._note_refusals()
                await self._save()
            except ConnectionLost:
                raise
            except (ApiFailure, NoAnswer) as error:
                self.save_errors += 1
                self._tell("state", error)
                if isinstance(error, NoAnswer):  # a bucket that is gone is made anew, and filled
                    await self._reopen()

    async def _reopen(self) -> None:
        """Make buckets that are gone, and fill those that are not the ones that this service filled."""
        devices, history = self.state.devices, self.state.history
        before = devices.created, history.created
        try:
            await self.state.open()
            await self.audit.open()
        except ConnectionLost:
            raise
        except FleetError as error:
            self._tell("state", error)
            return
        if (devices.created, history.created) != before:
            self.fleet.write_all()

    async def _save(self) -> None:
        fleet, per_step = self.fleet, SAVE_S / self.config.state.save_every_s
        streams = list(self._streams.values())
        positions = not fleet.waiting and not fleet.urgent
        quiet = _share(fleet.waiting, per_step)
        await self._write(fleet.urgent | quiet, self._write_record)
        await self._write(_share(fleet.histories_changed, per_step), self._write_history)
        if positions or not fleet.urgent:
            for stream in streams:
                await stream.save()

    async def _write(self, names: set[str], write: Callable[[str], Awaitable[None]]) -> None:
        """Write so many at once as WRITES. Raises the first error; what was not written stays marked."""
        errors: list[FleetError] = []
        limit = trio.CapacityLimiter(WRITES)

        async def one(name: str) -> None:
            async with limit:
                if errors:
                    return
                try:
                    await write(name)
                except FleetError as error:
                    errors.append(error)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(one, name)
        if errors:
            raise errors[0]

    async def _write_record(self, name: str) -> None:
        fleet, record = self.fleet, self.fleet.index.get(name)
        marked = name in fleet.urgent
        fleet.urgent.discard(name)
        fleet.waiting.discard(name)
        if record is None:
            return
        try:
            await self.state.devices.put(name, msgspec.json.encode(record))
        except FleetError:
            (fleet.urgent if marked else fleet.waiting).add(name)
            raise

    async def _write_history(self, name: str) -> None:
        data = self.fleet.encoded_history(name)
        self.fleet.histories_changed.discard(name)
        if data is None:
            return
        try:
            await self.state.history.put(name, data)
        except FleetError:
            self.fleet.histories_changed.add(name)
            raise

    async def _note_refusals(self) -> None:
        refusals, self._refusals = self._refusals, []
        for each in refusals:
            left_out = self._pace.take(each.name)
            if left_out is not None:
                by = f"device {each.name}" if each.name else "a device"
                detail = {"forged": "yes"} if each.forged else {}
                await self.audit.note("refused", by, each.name, error=each.reason, detail=detail, left_out=left_out)

    async def _source(self) -> None:
        """Compare rules and streams every SOURCING_S, and soon after an operator has changed something."""
        while True:
            await self.leadership.became.wait()
            self._desired_changed = trio.Event()
            if self.leadership.is_leader:
                try:
                    await self.sourcing.step()
                    await self._forget()
                except ConnectionLost:
                    raise
                except FleetError as error:
                    self._tell("sources", error)
            await trio.sleep(_PAUSE_S)
            with trio.move_on_after(SOURCING_S - _PAUSE_S):
                await self._desired_changed.wait()

    async def _roll_out(self) -> None:
        while True:
            await self.leadership.became.wait()
            if self.leadership.is_leader:
                try:
                    await self.rollouts.step(time.time())
                except ConnectionLost:
                    raise
                except FleetError as error:
                    self._tell("rollouts", error)
            await trio.sleep(ROLLOUTS_S)

    async def _forget(self) -> None:
        """Forget devices that are gone for good, once nothing sources them. Each step may be repeated after an interruption."""
        fleet, state = self.fleet, self.state
        for name in fleet.forgotten():
            record = fleet.index.get(name)
            domain = name if record is None else record.domain or name
            shared = record is not None and fleet.owner_of_domain(record) is not None
            if not shared and not self.sourcing.is_free(domain):
                continue
            settings = fleet.settings[name]
            await self.audit.note("forgotten", settings.by, name, detail={"reason": settings.reason})
            fleet.forget(name)
            for bucket in (state.devices, state.history, state.reported):
                await bucket.remove(name)
            # Every service that hears of this forgets the device, too.
            await state.desired.remove(f"device.{name}")
            log.info("device %s is forgotten, for %s", name, printable(settings.by))

    def _tell(self, what: str, error: FleetError) -> None:
        now = trio.current_time()
        if now - self._told.get(what, -_TELL_S) >= _TELL_S:
            self._told[what] = now
            log.warning("%s: %s; tried again", what, error)


def _share(names: set[str], part: float) -> set[str]:
    """Return a part of the names, so that all of them take their turn in the time of `part`; at least ten."""
    count = max(10, int(len(names) * part * 2))
    return {name for name, _ in zip(names, range(count), strict=False)}
