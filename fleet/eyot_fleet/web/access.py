"""Who is logged in. Logins are limited, sessions are bounded and expire, and each login is a line of the audit stream.

Reading needs the session's cookie. Acting needs the session's token, too, which only the page's own script can send.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from eyot_fleet.errors import FleetError
from eyot_fleet.web.answers import json_answer, redirect, refusal, with_headers
from eyot_fleet.web.backend import AuditEntry
from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web_options import ACTIONS, OPERATOR
from eyot_serving.browsers import cookie_of, foreign_problem, quoted, set_cookie
from eyot_serving.sessions import WINDOW_S, Attempts, Session, Sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_fleet.web.backend import Backend
    from eyot_fleet.web.nats_login import NatsLogin
    from eyot_fleet.web.oidc import OidcLogin
    from eyot_fleet.web_options import WebOptions
    from eyot_serving.http_messages import HttpRequest, HttpResponse

log = logging.getLogger("eyot.fleet")

SESSIONS_MAX: Final = 500
USER_SESSIONS_MAX: Final = 10
#: Failed logins a minute from all addresses together.
FAILURES_MAX: Final = 100
#: A session ends after this time, and earlier when its browser has asked nothing for the shorter one.
SESSION_S: Final = 8 * 3600.0
IDLE_S: Final = 30 * 60.0
#: The header with the session's token: a form of another site cannot send it.
PROOF_HEADER: Final = "x-eyot-token"
_COOKIE: Final = "eyot_fleet"
_LOGIN_COOKIE: Final = "eyot_fleet_login"
_LOGIN_S: Final = 600.0
CALLBACK: Final = "/login/callback"


class LoginOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a login at the hub: a name and a password, or the text of a credentials file."""

    user: str = ""
    password: str = ""
    creds: str = ""

    def __repr__(self) -> str:
        return f"LoginOrder({self.user!r})"


class SessionReport(Struct, frozen=True, kw_only=True):
    """What the page offers to this browser."""

    #: who is logged in; None: nobody
    user: str | None
    role: str = ""
    #: of what an operator may do, what this session may do
    actions: tuple[str, ...] = ()
    #: what acts must send this
    token: str = ""
    #: passwords are accepted, over this connection
    nats: bool = False
    #: what the button of the login provider says; "": there is none
    oidc: str = ""
    #: passwords are not accepted because this connection is not encrypted
    insecure: bool = False


class Access:
    """Logs users in and out, and knows them. `now`: monotonic time, seconds."""

    def __init__(
        self,
        options: WebOptions,
        backend: Backend,
        now: Callable[[], float],
        nats: NatsLogin | None = None,
        oidc: OidcLogin | None = None,
    ) -> None:
        self._options = options
        self._backend = backend
        self._now = now
        self._nats = nats
        self._oidc = oidc
        self._sessions = Sessions(
            now, SESSIONS_MAX, user_sessions_max=USER_SESSIONS_MAX, whole_s=SESSION_S, idle_s=IDLE_S
        )
        self._attempts = Attempts(now, FAILURES_MAX)
        #: since the start, by what became of them: `done`, `refused`, `limited`, `unavailable`
        self.logins: Counter[str] = Counter()
        self._cookie = f"__Host-{_COOKIE}" if options.is_secure else _COOKIE
        self._login_cookie = f"__Host-{_LOGIN_COOKIE}" if options.is_secure else _LOGIN_COOKIE

    def __len__(self) -> int:
        return len(self._sessions)

    # -- sessions --------------------------------------------------------------------------------------------------

    def reader(self, request: HttpRequest, *, used: bool = True) -> Session | None:
        """Return the session that may read. `used`: the request counts as use of it."""
        session = self._sessions.reader(cookie_of(request, self._cookie))
        if session is not None and used:
            self._sessions.used(session)
        return session

    def actor(self, request: HttpRequest) -> Session | HttpResponse:
        """Return the session that may act, or the refusal."""
        if problem := foreign_problem(request):
            return refusal(403, problem)
        session = self._sessions.find(cookie_of(request, self._cookie), request.headers.get(PROOF_HEADER, ""))
        if session is None:
            return refusal(401, "log in first")
        self._sessions.used(session)
        return session

    def is_open(self, session: Session) -> bool:
        """Return whether a session has neither ended nor expired."""
        return self._sessions.is_open(session)

    def report(self, request: HttpRequest, session: Session | None) -> HttpResponse:
        """Answer what this browser may do. The token goes to the page's own script alone, which another site cannot read."""
        safe = self._is_encrypted(request)
        return json_answer(
            SessionReport(
                user=None if session is None else session.user,
                role="" if session is None else session.role,
                actions=self.allowed(session),
                token="" if session is None else session.token,
                nats=self._nats is not None and safe,
                oidc="" if self._oidc is None or self._options.oidc is None else self._options.oidc.label,
                insecure=self._nats is not None and not safe,
            )
        )

    def allowed(self, session: Session | None) -> tuple[str, ...]:
        """Return the actions that a session may do."""
        if session is None or session.role != OPERATOR:
            return ()
        without = {"revoke", "withdraw"} if self._options.trust is None else set()
        return tuple(each for each in ACTIONS if each in self._options.actions and each not in without)

    # -- logins ----------------------------------------------------------------------------------------------------

    async def login(self, request: HttpRequest) -> HttpResponse:
        """Answer a login with a name and a password."""
        if problem := foreign_problem(request):
            return refusal(403, problem)
        if self._nats is None:
            return refusal(403, "logins with a password are not configured: see [web.nats]")
        if not self._is_encrypted(request):
            return refusal(403, "passwords are accepted over https, or on this machine")
        try:
            order = msgspec.json.decode(request.body, type=LoginOrder)
        except (msgspec.DecodeError, UnicodeError):
            return refusal(400, "the body is not the JSON that this address takes")
        attempt = self._attempts.begin(self.address(request))
        if attempt is None:
            self.logins["limited"] += 1
            log.warning("Page: too many failed logins, the last from %s", self.address(request))
            seconds = f"{WINDOW_S:.0f}"
            return refusal(429, f"too many failed logins: try again in {seconds} seconds", ("Retry-After", seconds))
        try:
            if order.creds:
                identity = await self._nats.check_creds(order.creds)
            else:
                identity = await self._nats.check(order.user, order.password)
        except LoginRefused as refused:
            await self._note_login(request, order.user or "credentials", "nats", str(refused))
            return refusal(401, str(refused))
        except LoginUnavailable as away:
            self.logins["unavailable"] += 1
            self._attempts.succeeded(attempt)
            return refusal(503, str(away))
        self._attempts.succeeded(attempt)
        session, header = await self._begin(request, identity)
        answer = self.report(request, session)
        return with_headers(answer, header)

    async def begin_oidc(self, request: HttpRequest) -> HttpResponse:
        """Send a browser to the login provider."""
        if self._oidc is None:
            return refusal(404, "no login provider is configured: see [web.oidc]")
        try:
            address, secret = await self._oidc.begin(self.address(request))
        except LoginUnavailable:
            self.logins["unavailable"] += 1
            return redirect("/#/login/unavailable")
        # Lax: the provider's answer is a navigation from its site to this one.
        cookie = set_cookie(self._login_cookie, secret, age_s=_LOGIN_S, secure=self._options.is_secure, same_site="Lax")
        return redirect(address, cookie)

    async def finish_oidc(self, request: HttpRequest) -> HttpResponse:
        """Take a browser back from the login provider."""
        if self._oidc is None:
            return refusal(404, "no login provider is configured: see [web.oidc]")
        gone = set_cookie(self._login_cookie, "", age_s=0, secure=self._options.is_secure, same_site="Lax")
        attempt = self._attempts.begin(self.address(request))
        if attempt is None:
            self.logins["limited"] += 1
            return redirect("/#/login/limited", gone)
        try:
            identity = await self._oidc.finish(request.query, cookie_of(request, self._login_cookie))
        except LoginRefused as refused:
            await self._note_login(request, "", "oidc", str(refused))
            return redirect(f"/#/login/{refused.code}", gone)
        except LoginUnavailable:
            self.logins["unavailable"] += 1
            self._attempts.succeeded(attempt)
            return redirect("/#/login/unavailable", gone)
        self._attempts.succeeded(attempt)
        _, header = await self._begin(request, identity)
        return redirect("/", gone, header)

    async def logout(self, request: HttpRequest) -> HttpResponse:
        """End a session."""
        session = self.actor(request)
        if not isinstance(session, Session):
            return session
        self._sessions.end(session)
        await self._note(request, session.user, session.method, session.role, "logout", "done")
        return with_headers(
            self.report(request, None), set_cookie(self._cookie, "", age_s=0, secure=self._options.is_secure)
        )

    async def _begin(self, request: HttpRequest, identity: Identity) -> tuple[Session, tuple[str, str]]:
        """Begin a session; return it, and the header with its cookie. A session that the browser had ends."""
        before = self._sessions.reader(cookie_of(request, self._cookie))
        if before is not None:
            self._sessions.end(before)
        cookie, _ = self._sessions.begin(identity.name, role=identity.role, method=identity.method)
        session = self._sessions.reader(cookie)
        assert session is not None
        self.logins["done"] += 1
        log.info("Page: %s logged in from %s as %s", quoted(identity.name), self.address(request), identity.role)
        await self._note(request, identity.name, identity.method, identity.role, "login", "done")
        return session, set_cookie(self._cookie, cookie, age_s=SESSION_S, secure=self._options.is_secure)

    async def _note_login(self, request: HttpRequest, user: str, method: str, reason: str) -> None:
        self.logins["refused"] += 1
        log.warning("Page: login of %s from %s failed: %s", quoted(user), self.address(request), reason)
        await self._note(request, user[:200], method, "", "login", "refused", reason)

    async def _note(
        self, request: HttpRequest, user: str, method: str, role: str, action: str, outcome: str, detail: str = ""
    ) -> None:
        """Note a login. It holds also while the hub cannot store the line: the log has it."""
        entry = AuditEntry(
            at=self._backend.now(),
            actor=user,
            method=method,
            role=role,
            address=self.address(request),
            action=action,
            outcome=outcome,
            detail=detail,
        )
        try:
            await self._backend.audit(entry)
        except FleetError as error:
            log.warning("Page: the audit stream cannot be written: %s", error)

    # -- where a request comes from --------------------------------------------------------------------------------

    def address(self, request: HttpRequest) -> str:
        """Return the address of the browser: behind known proxies, the one that the first of them saw."""
        host = request.peer.host
        if host in self._options.proxies:
            for each in reversed(request.headers.get("x-forwarded-for", "").split(",")):
                host = each.strip()[:64] or host
                if host not in self._options.proxies:
                    break
        return host or "the machine itself"

    def _is_encrypted(self, request: HttpRequest) -> bool:
        if request.peer.tls:
            return True
        if request.peer.host in self._options.proxies:
            return self._options.url.startswith("https://")
        return request.peer.is_local
