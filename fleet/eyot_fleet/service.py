"""The service: dials the hub again and again, listens to the system account, reads enrolment records, lets time pass.

Everything that a connection needs lives and dies with it (`hub_session.py`); the fleet in memory outlives it.
"""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from eyot_fleet.connection import Backoff, connected
from eyot_fleet.enrolment import EVERY_S as ENROLMENT_S
from eyot_fleet.enrolment import EnrolmentFolder
from eyot_fleet.errors import FleetError
from eyot_fleet.fleet import Fleet
from eyot_fleet.hub_session import HubSession
from eyot_fleet.leadership import Leadership
from eyot_fleet.link_events import ANSWERS_S, EVENTS, LEAFZ, LIST_EVERY_S, LinkTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eyot_fleet.config import FleetConfig
    from eyot_fleet.connection import Connection, Subscription

log = logging.getLogger("eyot.fleet")

TICK_S: Final = 5.0
#: After so long somebody else leads.
LEADER_S: Final = 20.0


class Service:
    """One `eyot-fleet`. `session` is there while the hub is."""

    def __init__(self, config: FleetConfig) -> None:
        self.config = config
        self.fleet = Fleet(config.devices.prefix, config.alerts, config.devices.devices_max)
        self.leadership = Leadership()
        self.links = LinkTable("" if config.system is None else config.system.account)
        self.session: HubSession | None = None
        #: since when the hub is there or away, and the error of the last attempt
        self.since = time.time()
        self.error = "not connected yet"
        self.system_error = ""
        self.enrolment_error = ""
        #: connections to the hub that were made
        self.connections = 0
        self.fleet.index.listening_since = math.inf

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_time)
            nursery.start_soon(self._dial_hub)
            if self.config.system is not None:
                nursery.start_soon(self._dial_system)
            if self.config.devices.enrolment:
                nursery.start_soon(self._read_enrolment)

    async def _pass_time(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            self.fleet.tick(time.time())

    # -- the hub ---------------------------------------------------------------------------------------------------

    async def _dial_hub(self) -> None:
        async def use(connection: Connection) -> None:
            session = HubSession(connection, self.config, self.fleet, self.leadership)
            self.session, self.error, self.since = session, "", time.time()
            self.connections += 1
            log.info("connected to the hub at %s", connection.server)
            try:
                await session.run()
            finally:
                self.session, self.since = None, time.time()
                self.fleet.index.listening_since = math.inf
                self.leadership.lose()

        def failed(text: str) -> None:
            self.error = text

        await _again(lambda: connected(self.config.hub), use, failed, "the hub")

    async def _dial_system(self) -> None:
        login = self.config.system_login()

        async def use(connection: Connection) -> None:
            self.system_error = ""
            events = [connection.subscribe(subject) for subject in EVENTS]
            async with trio.open_nursery() as nursery:
                for each in events:
                    nursery.start_soon(self._hear_links, each)
                await self._list_links(connection)

        def failed(text: str) -> None:
            self.system_error = text

        await _again(lambda: connected(login, "eyot-fleet links"), use, failed, "the system account")

    async def _hear_links(self, events: Subscription) -> None:
        while True:
            for message in await events.take():
                changed = self.links.take_event(message, self.fleet.enrolled)
                if changed is not None:
                    name, is_up, at = changed
                    self.fleet.note_link(name, is_up, time.time() if at is None else at)

    async def _list_links(self, connection: Connection) -> None:
        """Ask all servers for their leaf nodes now and then: events that nobody heard are made up for."""
        while True:
            inbox = connection.new_inbox()
            answers = connection.subscribe(inbox)
            await connection.publish(LEAFZ, b"{}", inbox)
            await trio.sleep(ANSWERS_S)
            found = [message.payload for message in answers.take_now()]
            connection.unsubscribe(answers)
            for name, is_up in self.links.take_lists(found).items():
                self.fleet.note_link(name, is_up, time.time())
            await trio.sleep(LIST_EVERY_S)

    # -- enrolment -------------------------------------------------------------------------------------------------

    async def _read_enrolment(self) -> None:
        folder = EnrolmentFolder(Path(self.config.devices.enrolment))
        while True:
            # Before the state is loaded a device that is gone from the folder would not be known.
            if self.session is not None and self.session.loaded.is_set():
                with trio.move_on_after(LEADER_S):  # who leads notes in the audit what it finds
                    await self.leadership.became.wait()
                try:
                    found = await trio.to_thread.run_sync(folder.read)
                except FleetError as error:
                    if self.enrolment_error != str(error):
                        log.warning("%s", error)
                    self.enrolment_error = str(error)
                else:
                    self.enrolment_error = ""
                    await self._enrol(*self.fleet.enrol(found, time.time()))
            await trio.sleep(ENROLMENT_S if self.session is not None else 1.0)

    async def _enrol(self, came: list[str], revoked: list[str]) -> None:
        session = self.session
        if session is None or not self.leadership.is_leader:
            return
        try:
            for name in came:
                await session.audit.note("enrolled", "eyot-fleet", name)
            for name in revoked:
                log.info("device %s was revoked; its sources stay until it is released", name)
                await session.audit.note("revoked", "eyot-fleet", name)
        except FleetError as error:
            log.warning("the audit: %s", error)


async def _again(
    connect: Callable[[], object],
    use: Callable[[Connection], Awaitable[None]],
    failed: Callable[[str], None],
    what: str,
) -> None:
    """Connect and use the connection, again and again, with pauses; tell each kind of failure once."""
    backoff, told = Backoff(), ""
    while True:
        try:
            async with connect() as connection:  # type: ignore[attr-defined]
                backoff.begin(trio.current_time())
                told = ""
                await use(connection)
        except FleetError as error:
            failed(str(error))
            if str(error) != told:
                log.warning("%s: %s; dialled again", what, error)
            told = str(error)
        await trio.sleep(backoff.pause_s(trio.current_time()))
