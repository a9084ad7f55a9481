"""Logins with a user of the hub: the password is tried there, and the hub says who that is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec import Struct
from msgspec.structs import replace

from eyot_fleet.connection import connected
from eyot_fleet.errors import ConfigError, ConnectionLost, NoAnswer, Refused
from eyot_fleet.login import Login
from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web_options import NatsOptions, role_of
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_wire.frames import Msg

log = logging.getLogger("eyot.fleet")

#: Logins that are tried at the same time; further ones wait.
AT_ONCE: Final = 4
WITHIN_S: Final = 10.0
_INFO_S: Final = 3.0
_WHO: Final = "$SYS.REQ.USER.INFO"
_WRONG: Final = "the name or the password is wrong, or the user has no role here"


class _User(Struct, frozen=True):
    user: str = ""
    account: str = ""


class _Answer(Struct, frozen=True):
    data: _User = _User()


class NatsLogin:
    """Tries names and passwords at the servers that the service itself uses."""

    def __init__(self, options: NatsOptions, hub: Login) -> None:
        self._options = options
        self._hub = hub
        self._limit = trio.CapacityLimiter(AT_ONCE)

    async def check(self, user: str, password: str) -> Identity:
        """Return who logged in. Raises LoginRefused and LoginUnavailable."""
        if not user or not password:
            raise LoginRefused(_WRONG)
        login = replace(
            self._hub, user=user, password=password, creds="", nkey="", token="", password_file="", cert="", key=""
        )
        with trio.move_on_after(WITHIN_S):
            async with self._limit:
                found = await self._asked(login)
            return self._identity(user, found)
        raise LoginUnavailable(f"the hub has not answered within {WITHIN_S:g} s")

    async def _asked(self, login: Login) -> _User:
        answer, unknown = None, ""
        try:
            async with connected(login, "eyot-fleet login") as connection:
                try:  # here: an exception that leaves the block would come in a group
                    answer = await connection.request(_WHO, timeout_s=_INFO_S)
                except (NoAnswer, Refused) as error:
                    unknown = str(error)
        except Refused as error:
            log.info("Login of %s at the hub: %s", printable(login.user), error)
            raise LoginRefused(_WRONG) from None
        except (ConnectionLost, ConfigError) as error:
            log.warning("Logins cannot be checked: %s", error)
            raise LoginUnavailable("the hub cannot be reached, so no login can be checked") from None
        if answer is None:
            log.warning("Login of %s: %s", printable(login.user), unknown)
            raise LoginUnavailable(f"the hub does not say who that is: the user must be allowed to publish to {_WHO}")
        return _user_of(answer)

    def _identity(self, user: str, found: _User) -> Identity:
        options = self._options
        role = role_of((found.user,), options.viewers, options.operators)
        if found.account != options.account or not found.user or not role:
            log.info("Login of %s: account %s, no role here", printable(user), printable(found.account))
            raise LoginRefused(_WRONG)
        return Identity(name=found.user, role=role, method="nats")


def _user_of(answer: Msg) -> _User:
    try:
        return msgspec.json.decode(answer.payload, type=_Answer).data
    except msgspec.MsgspecError:
        raise LoginUnavailable("the hub's answer cannot be read") from None
