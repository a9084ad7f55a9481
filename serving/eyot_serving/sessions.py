"""Sessions of browsers, and the limit on attempts to log in. Both are bounded, and in memory alone.

What acts needs two secrets. The cookie is HttpOnly: no script reads it. The token is returned once, by the login, and
lives in the page's own origin, which unlike a cookie's includes the port. A site that makes the browser send the cookie
has no token, and another server on this machine that receives the cookie has none either.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

#: Sessions at a time. A further login ends the oldest.
SESSIONS_MAX = 16
#: A session ends after this time, and earlier when nothing was done with it for the shorter one.
SESSION_S = 8 * 3600.0
IDLE_S = 30 * 60.0
#: Failed attempts within `WINDOW_S`: from one address, and from all together.
ADDRESS_FAILURES_MAX = 5
FAILURES_MAX = 20
WINDOW_S = 60.0
_SECRET_BYTES = 32


class Session(Struct):
    """A browser that has logged in."""

    user: str
    #: what the login was checked against, "" if that is not kept: the session's owner ends it when this changes
    proof: str
    token: str
    #: monotonic, seconds
    begun_at: float
    used_at: float
    #: what the user may do, "" where there is but one role
    role: str = ""
    #: how the user logged in, "" where there is but one way
    method: str = ""

    def __repr__(self) -> str:
        return f"Session({self.user!r})"


class Sessions:
    """The sessions there are. `now`: monotonic time, seconds.

    A login beyond `sessions_max` ends the oldest session, one beyond `user_sessions_max` the oldest of the same user.
    """

    def __init__(
        self,
        now: Callable[[], float],
        sessions_max: int = SESSIONS_MAX,
        *,
        user_sessions_max: int | None = None,
        whole_s: float = SESSION_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._now = now
        self._user_sessions_max = user_sessions_max
        self._sessions_max = sessions_max
        self._whole_s = whole_s
        self._idle_s = idle_s
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, user: str, proof: str = "", *, role: str = "", method: str = "") -> tuple[str, str]:
        """Begin a session; return its cookie and its token."""
        cookie, token = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        now = self._now()
        own = [key for key, each in self._sessions.items() if each.user == user]
        if self._user_sessions_max is not None and len(own) >= self._user_sessions_max:
            del self._sessions[own[0]]
        self._sessions[_digest(cookie)] = Session(user, proof, token, now, now, role, method)
        while len(self._sessions) > self._sessions_max:
            self._sessions.popitem(last=False)
        return cookie, token

    def find(self, cookie: str, token: str) -> Session | None:
        """Return the session of these two secrets, without counting as its use."""
        session = self.reader(cookie)
        if session is None:
            return None
        return session if hmac.compare_digest(session.token.encode(), token.encode("utf-8", "replace")) else None

    def reader(self, cookie: str) -> Session | None:
        """Return the session of a cookie: enough to read by, where a page's reads need a login, and never to act."""
        key = _digest(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._now()
        if now - session.begun_at >= self._whole_s or now - session.used_at >= self._idle_s:
            del self._sessions[key]
            return None
        return session

    def is_open(self, session: Session) -> bool:
        """Return whether a session has neither ended nor expired."""
        now = self._now()
        if now - session.begun_at >= self._whole_s or now - session.used_at >= self._idle_s:
            return False
        return any(each is session for each in self._sessions.values())

    def used(self, session: Session) -> None:
        """Count an action: the session is not idle."""
        session.used_at = self._now()

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions = OrderedDict((key, each) for key, each in self._sessions.items() if each is not session)

    def __len__(self) -> int:
        return len(self._sessions)


class Attempts:
    """Limits attempts to log in: `failures_max` from all addresses together. An attempt counts as failed from its begin until it succeeds."""

    def __init__(self, now: Callable[[], float], failures_max: int = FAILURES_MAX) -> None:
        self._now = now
        self._failures_max = failures_max
        self._failures: deque[tuple[float, str]] = deque()

    def begin(self, address: str) -> tuple[float, str] | None:
        """Count an attempt; None: too many failed, try again after `WINDOW_S`."""
        now = self._now()
        while self._failures and now - self._failures[0][0] >= WINDOW_S:
            self._failures.popleft()
        of_address = sum(1 for _, other in self._failures if other == address)
        if of_address >= ADDRESS_FAILURES_MAX or len(self._failures) >= self._failures_max:
            return None
        attempt = (now, address)
        self._failures.append(attempt)
        return attempt

    def succeeded(self, attempt: tuple[float, str]) -> None:
        """Take an attempt back that did not fail."""
        if attempt in self._failures:
            self._failures.remove(attempt)


def _digest(cookie: str) -> bytes:
    """Sessions are looked up by a digest: the time of a look-up says nothing about the cookie."""
    return sha256(cookie.encode("utf-8", "replace")).digest()
