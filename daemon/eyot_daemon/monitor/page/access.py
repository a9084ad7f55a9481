"""Login and actions of the local page: who may do what, and each done thing as a line of the log.

Every address here but a backup's download takes a POST of JSON from the page's own origin. Passwords are accepted over the Unix socket, from this
machine, and over TLS alone. Without `eyot { http { users } }` nobody logs in, and nothing acts.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec
import trio
from msgspec import Struct

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Deferred, Login, Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.monitor.page.addresses import BACK_UP, LOGIN, LOGOUT, RECONNECT, SESSION
from eyot_daemon.monitor.page.backup_download import BackupDownloads
from eyot_daemon.monitor.page.controls import Backup, Controls
from eyot_serving.browsers import cookie_of, foreign_problem, quoted, set_cookie
from eyot_serving.http_messages import HttpRequest, HttpResponse, PeerAddress
from eyot_serving.sessions import SESSION_S, WINDOW_S, Attempts, Session, Sessions
from eyot_wire.info import ClientConnect
from eyot_wire.jetstream.forget_downstream import ForgetRequest

log = logging.getLogger("eyot.monitor")

COOKIE = "eyot_session"
#: The header with the session's token: a form of another site cannot send it.
PROOF_HEADER = "x-eyot-token"
_HEADERS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


class LoginOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a login."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"LoginOrder({self.user!r})"


class LinkOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Connect this remote now."""

    link: str


class ForgetOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Forget one downstream, as `eyot sync forget STREAM SERVER --copy TARGET` does."""

    account: str
    stream: str
    server: str
    kind: str
    target: str


class BackupOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Back one stream up, as `eyot backup STREAM` does."""

    account: str
    stream: str


class SessionReport(Struct, frozen=True, kw_only=True):
    """What the page offers to this browser.

    `user`: who is logged in, null: nobody. `offered`: whether anybody may log in. `secure`: whether passwords are accepted
    over this connection. `bundle`: how the support bundle is given here: `open`, `login` (logged-in users), or `never`.
    `token`: by a login alone.
    """

    user: str | None
    offered: bool
    secure: bool
    bundle: str
    token: str | None = None


class _Known(NamedTuple):
    options: Options
    authenticator: ConfigAuthenticator
    passwords: dict[str, str]


class Access:
    """Logs users in, and acts for them."""

    def __init__(self, clients: Clients, controls: Controls) -> None:
        self._broker = clients.broker
        self._controls = controls
        now = self._broker.clock.monotonic
        self._sessions = Sessions(now)
        self._attempts = Attempts(now)
        self._known_users: _Known | None = None
        self._downloads = BackupDownloads(self._broker)

    async def answer(self, path: str, request: HttpRequest) -> HttpResponse:
        """Answer one of `addresses.ACTIONS`."""
        if request.method != "POST":
            return refusal(405, "this address takes POST", ("Allow", "POST"))
        if problem := foreign_problem(request):
            return refusal(403, problem)
        if path == SESSION:
            session = self.session(request)
            return _json(self._report(request, "" if session is None else session.user))
        if not self._users():
            return refusal(403, "the page has no users: see eyot { http { users } }")
        if not _is_secure(request.peer):
            return refusal(403, "log in over https, or from the device itself")
        try:
            if path == LOGIN:
                return await self._login(request, msgspec.json.decode(request.body, type=LoginOrder))
            session = self.session(request)
            if session is None:
                return refusal(401, "log in first")
            self._sessions.used(session)
            if path == LOGOUT:
                return self._logout(request, session)
            if path == RECONNECT:
                return self._reconnect(request, session, msgspec.json.decode(request.body, type=LinkOrder))
            if path == BACK_UP:
                return await self._back_up(request, session, msgspec.json.decode(request.body, type=BackupOrder))
            return await self._forget(request, session, msgspec.json.decode(request.body, type=ForgetOrder))
        except (msgspec.DecodeError, UnicodeError):
            return refusal(400, "the body is not the JSON that this address takes")

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session(self, request: HttpRequest) -> Session | None:
        """Return the session of a request, if its user may still log in with the same password."""
        session = self._sessions.find(cookie_of(request, COOKIE), request.headers.get(PROOF_HEADER, ""))
        return None if session is None else self._still_allowed(session)

    def _still_allowed(self, session: Session) -> Session | None:
        if session.user not in self._users() or self._known().passwords.get(session.user) != session.proof:
            self._sessions.end(session)
            return None
        return session

    def bundle_rule(self, peer: PeerAddress) -> str:
        """Return how the support bundle is given over this connection: `open`, `login` or `never`."""
        if peer.unix or (peer.is_local and not self._users()):
            return "open"
        return "login" if self._users() and _is_secure(peer) else "never"

    def may_have_bundle(self, request: HttpRequest) -> HttpResponse | None:
        """Return None when the support bundle may be given, else the refusal. A user's download is logged."""
        rule = self.bundle_rule(request.peer)
        if rule == "open":
            return None
        if rule == "never":
            return refusal(403, "the bundle is given on the device, or over https to users of eyot { http { users } }")
        if request.method != "POST":
            return refusal(403, "log in on the page first")
        session = None if (problem := foreign_problem(request)) else self.session(request)
        if session is None:
            return refusal(401, problem or "log in first")
        self._sessions.used(session)
        self._audit(request, session, "downloads the support bundle")
        return None

    def _users(self) -> tuple[str, ...]:
        return self._broker.options.eyot.http.users

    def _known(self) -> _Known:
        """Return the users of the present configuration, and what checks their passwords."""
        options = self._broker.options
        if self._known_users is None or self._known_users.options is not options:
            passwords = {user.user: user.password for user in options.users if user.user and user.password}
            if options.authorization.user and not passwords:
                passwords[options.authorization.user] = options.authorization.password
            old = None if self._known_users is None else self._known_users.authenticator.passwords
            checker = ConfigAuthenticator(options, background=self._controls.in_background, passwords=old)
            self._known_users = _Known(options, checker, passwords)
        return self._known_users

    def _report(self, request: HttpRequest, user: str, token: str | None = None) -> SessionReport:
        return SessionReport(
            user=user or None,
            offered=bool(self._users()),
            secure=_is_secure(request.peer),
            bundle=self.bundle_rule(request.peer),
            token=token,
        )

    async def _login(self, request: HttpRequest, order: LoginOrder) -> HttpResponse:
        attempt = self._attempts.begin(request.peer.host)
        if attempt is None:
            text = f"too many failed logins: try again in {WINDOW_S:.0f} seconds"
            return refusal(429, text, ("Retry-After", f"{WINDOW_S:.0f}"))
        password = self._known().passwords.get(order.user, "")  # of now: a reload may change it meanwhile
        if not await self._is_user(order):
            log.warning("Page: login of %s from %s failed", quoted(order.user), _address(request.peer))
            return refusal(401, "the name or the password is wrong")
        self._attempts.succeeded(attempt)
        cookie, token = self._sessions.begin(order.user, password)
        log.info("Page: %s logged in from %s", quoted(order.user), _address(request.peer))
        return _json(self._report(request, order.user, token), _set_cookie(request, cookie, SESSION_S))

    async def _is_user(self, order: LoginOrder) -> bool:
        """Return whether a user of the page has this password.

        For a name that may not log in, the password of one that may is compared, so that both answers take as long.
        """
        users = self._users()
        may = order.user in users
        connect = ClientConnect(user=order.user if may else users[0], password=order.password)
        found: Login | Deferred | None = None
        if order.password:  # without one the configuration's no_auth_user would be taken
            found = self._known().authenticator.client(connect, "", Peer())
        if isinstance(found, Deferred):
            found = await _settled(found)
        return may and found is not None and found.user == order.user

    def _logout(self, request: HttpRequest, session: Session) -> HttpResponse:
        self._sessions.end(session)
        self._audit(request, session, "logged out")
        return _json(self._report(request, ""), _set_cookie(request, "", 0))

    # -- actions -----------------------------------------------------------------------------------------------------

    def _audit(self, request: HttpRequest, session: Session, words: str) -> None:
        log.info("Page: %s from %s %s", quoted(session.user), _address(request.peer), words)

    def _reconnect(self, request: HttpRequest, session: Session, order: LinkOrder) -> HttpResponse:
        problem = self._controls.reconnect(order.link)
        self._broker.flush()
        words = f"reconnects link {quoted(order.link)}"
        self._audit(request, session, f"{words}: refused: {problem}" if problem else words)
        return refusal(409, problem) if problem else _done(f"Connecting {order.link}.")

    async def _forget(self, request: HttpRequest, session: Session, order: ForgetOrder) -> HttpResponse:
        ended = trio.Event()
        outcome: list[tuple[str, int]] = []

        def done(forgotten: int, kept: int, error: str) -> None:
            problem, status = _forgotten(forgotten, kept, error)
            # Logged also when the browser has left meanwhile.
            self._audit(request, session, f"{words}: refused: {problem}" if problem else words)
            outcome.append((problem, status))
            ended.set()

        asked = ForgetRequest(server=order.server, kind=order.kind, target=order.target)
        words = f"forgets {quoted(order.kind)} {quoted(order.target)} of {quoted(order.account)} {quoted(order.stream)} at {quoted(order.server)}"
        if not order.server or not self._controls.forget(order.account, order.stream, asked, done):
            self._audit(request, session, f"{words}: refused: not known")
            return refusal(404, "there is no such stream or downstream")
        self._broker.flush()
        await ended.wait()
        problem, status = outcome[0]
        return refusal(status, problem) if problem else _done("Forgotten.")

    async def _back_up(self, request: HttpRequest, session: Session, order: BackupOrder) -> HttpResponse:
        ended = trio.Event()
        outcome: list[tuple[Backup | None, str]] = []
        is_waiting = True

        def begun(backup: Backup | None, problem: str) -> None:
            self._audit(request, session, f"{words}: refused: {problem}" if problem else words)
            if backup is not None and not is_waiting:
                backup.stop("the browser has gone")
            outcome.append((backup, problem))
            ended.set()

        words = f"backs up {quoted(order.account)} {quoted(order.stream)}"
        self._controls.back_up(order.account, order.stream, begun)
        self._broker.flush()
        try:
            await ended.wait()
        finally:
            is_waiting = False
        backup, problem = outcome[0]
        if backup is None:
            return refusal(409, problem)
        ticket = self._downloads.add(backup, session, order.stream)
        return _json({"done": f"The backup of {order.stream} is downloaded.", "download": f"backup?ticket={ticket}"})

    def backup(self, request: HttpRequest) -> HttpResponse:
        """Answer `BACKUP`: the download of a backup that the same session has begun, once."""
        if request.method != "GET":
            return refusal(405, "this address takes GET", ("Allow", "GET"))
        ticket = request.query.get("ticket", "")
        own = self._sessions.reader(cookie_of(request, COOKIE))
        if own is None or self._still_allowed(own) is None or not _is_secure(request.peer):
            return refusal(401, "log in first")
        if self._downloads.session_of(ticket) is not own:
            return refusal(404, "the download has begun or has expired: back up again")
        return self._downloads.response(ticket, _HEADERS)


def _forgotten(forgotten: int, kept: int, error: str) -> tuple[str, int]:
    """Return why nothing was forgotten, "" if something was, and the status of the answer."""
    if error:
        return f"the store refuses: {error}", 503
    if kept:
        return "it replicates the stream at present: remove the mirror or source there, or the bridge here, first", 409
    return ("", 200) if forgotten else ("there is no such stream or downstream", 404)


async def _settled(deferred: Deferred) -> Login | None:
    """Wait for a decision; abandon it when the connection ends."""
    event = trio.Event()
    deferred.when_done(lambda login: event.set())
    try:
        await event.wait()
    finally:
        deferred.abandoned = True
    return deferred.outcome


def _is_secure(peer: PeerAddress) -> bool:
    return peer.tls or peer.is_local


def _set_cookie(request: HttpRequest, value: str, age_s: float) -> tuple[str, str]:
    return set_cookie(COOKIE, value, age_s=age_s, secure=request.peer.tls)


def _address(peer: PeerAddress) -> str:
    return "the control socket" if peer.unix else peer.host


def _json(report: object, *headers: tuple[str, str]) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(report), headers=(*_HEADERS, *headers))


def _done(text: str) -> HttpResponse:
    return _json({"done": text})


def refusal(status: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    """Return an error with its reason, for the page to show."""
    return HttpResponse(msgspec.json.encode({"error": text}), status=status, headers=(*_HEADERS, *headers))
