"""Who has logged in."""

from __future__ import annotations

from msgspec import Struct


class Identity(Struct, frozen=True, kw_only=True):
    """A user that has proved who it is."""

    #: shown, and written to the audit stream
    name: str
    role: str
    #: `nats` or `oidc`
    method: str


class LoginRefused(Exception):
    """The login is wrong, or the user has no role here; the text is for the user.

    `code`: how the page names it after a login at the provider: `refused`, `stale` (begin again) or `role`.
    """

    def __init__(self, text: str, code: str = "refused") -> None:
        super().__init__(text)
        self.code = code


class LoginUnavailable(Exception):
    """The login could not be checked: whoever checks it cannot be reached."""
