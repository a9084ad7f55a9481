"""Logins with a user of the hub: a password or credentials are tried there, and the hub says who that is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec.structs import replace

from eyot_fleet.connection import connected
from eyot_fleet.errors import ConfigError, ConnectionLost, NoAnswer, Refused
from eyot_fleet.login import Login
from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web_options import NatsOptions, role_of
from eyot_wire.quoting import printable
from eyot_wire.trust.creds import Credentials, parse_creds
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.nkey import NkeyError
from eyot_wire.user_info import USER_INFO, UserInfo, user_info

if TYPE_CHECKING:
    from eyot_wire.frames import Msg

log = logging.getLogger("eyot.fleet")

#: Logins that are tried at the same time; further ones wait.
AT_ONCE: Final = 4
WITHIN_S: Final = 10.0
_INFO_S: Final = 3.0
_WRONG: Final = "the name or the password is wrong, or the user has no role here"


class _Presented(Login, frozen=True, kw_only=True):
    """A login with the text of a credentials file, which is kept nowhere."""

    text: str

    def _credentials(self) -> Credentials:
        return parse_creds(self.text)


class NatsLogin:
    """Tries passwords and credentials at the servers that the service itself uses."""

    def __init__(self, options: NatsOptions, hub: Login) -> None:
        self._options = options
        self._hub = hub
        self._limit = trio.CapacityLimiter(AT_ONCE)

    async def check(self, user: str, password: str) -> Identity:
        """Return who logged in. Raises LoginRefused and LoginUnavailable."""
        if not user or not password:
            raise LoginRefused(_WRONG)
        return await self._tried(replace(self._at_hub(), user=user, password=password), user)

    async def check_creds(self, text: str) -> Identity:
        """Return who logged in with a credentials file. Raises LoginRefused and LoginUnavailable."""
        try:
            credentials = parse_creds(text)
            name = decode(credentials.jwt).name if credentials.jwt else ""
        except (NkeyError, JwtError):
            raise LoginRefused("that is no credentials file of a user") from None
        hub = self._at_hub()
        known = {member: getattr(hub, member) for member in Login.__struct_fields__}
        return await self._tried(_Presented(**known, text=text), name or "a key")

    def _at_hub(self) -> Login:
        """Return the hub's addresses, without the service's own login."""
        return replace(self._hub, user="", password="", creds="", nkey="", token="", password_file="", cert="", key="")

    async def _tried(self, login: Login, called: str) -> Identity:
        with trio.move_on_after(WITHIN_S):
            async with self._limit:
                found = await self._asked(login, called)
            return self._identity(called, found)
        raise LoginUnavailable(f"the hub has not answered within {WITHIN_S:g} s")

    async def _asked(self, login: Login, called: str) -> UserInfo:
        answer, unknown = None, ""
        try:
            async with connected(login, "eyot-fleet login") as connection:
                try:  # here: an exception that leaves the block would come in a group
                    answer = await connection.request(USER_INFO, timeout_s=_INFO_S)
                except (NoAnswer, Refused) as error:
                    unknown = str(error)
        except Refused as error:
            log.info("Login of %s at the hub: %s", printable(called), error)
            raise LoginRefused(_WRONG) from None
        except (ConnectionLost, ConfigError) as error:
            log.warning("Logins cannot be checked: %s", error)
            raise LoginUnavailable("the hub cannot be reached, so no login can be checked") from None
        if answer is None:
            log.warning("Login of %s: %s", printable(called), unknown)
            raise LoginUnavailable(
                f"the hub does not say who that is: the user must be allowed to publish to {USER_INFO}"
            )
        return _user_of(answer)

    def _identity(self, called: str, found: UserInfo) -> Identity:
        """Return who that is. A role goes by what the hub says: a name or a public key, never by what a token calls itself."""
        options = self._options
        role = role_of((found.user,), options.viewers, options.operators)
        if found.account != options.account or not found.user or not role:
            log.info("Login of %s: account %s, no role here", printable(called), printable(found.account))
            raise LoginRefused(_WRONG)
        name = found.user if called == found.user else f"{printable(called)[:100]} ({found.user})"
        return Identity(name=name, role=role, method="nats")


def _user_of(answer: Msg) -> UserInfo:
    try:
        return user_info(answer.payload)
    except msgspec.MsgspecError:
        raise LoginUnavailable("the hub's answer cannot be read") from None
