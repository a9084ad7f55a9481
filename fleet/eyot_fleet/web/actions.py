"""What operators do. Nothing is done without a line in the audit stream first; a second line holds what came of it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import Struct

from eyot_fleet.desired import DesiredError
from eyot_fleet.errors import Conflict, FleetError, NoAnswer, Refused
from eyot_fleet.web.answers import json_answer, refusal
from eyot_fleet.web.ask import REPORTS, ask, connect
from eyot_fleet.web.backend import AuditEntry
from eyot_serving.browsers import quoted
from eyot_serving.sessions import Session
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_fleet.web.access import Access
    from eyot_fleet.web.backend import Backend
    from eyot_fleet.web.trust_commands import TrustCommands
    from eyot_serving.http_messages import HttpRequest, HttpResponse

log = logging.getLogger("eyot.fleet")

PREFIX: Final = "/api/actions/"
#: Actions at the same time, and of one session.
AT_ONCE: Final = 32
SESSION_AT_ONCE: Final = 4
LABELS_MAX: Final = 32
LABEL_CHARS_MAX: Final = 64
DOCUMENT_BYTES_MAX: Final = 32 << 10
DETAIL_CHARS_MAX: Final = 1000


class AskOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Ask a device for a report."""

    device: str
    report: str


class ConnectOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Have a device connect a link now."""

    device: str
    link: str


class LabelOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Set a device's own labels, if they still have the revision which the operator saw."""

    device: str
    labels: list[str]
    revision: int


class ConfigureOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Set a device's own settings, if they still have the revision which the operator saw."""

    device: str
    settings: dict[str, Any]
    revision: int


class RevokeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Revoke a device; `sure` repeats its name."""

    device: str
    sure: str


class WithdrawOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Withdraw a one-time token."""

    token: str


class TokensOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """List the tokens that can still be used."""


class _Bad(Exception):
    """An order that cannot be meant; the text says why."""


Order = AskOrder | ConnectOrder | LabelOrder | ConfigureOrder | RevokeOrder | WithdrawOrder | TokensOrder
_FORMS: Final[dict[str, type[Order]]] = {
    "ask": AskOrder,
    "connect": ConnectOrder,
    "label": LabelOrder,
    "configure": ConfigureOrder,
    "revoke": RevokeOrder,
    "withdraw": WithdrawOrder,
    "tokens": TokensOrder,
}
#: Who may do the one may do the other.
_PERMISSION: Final = {"tokens": "withdraw"}


class Actions:
    """Carries out orders of operators."""

    def __init__(self, backend: Backend, access: Access, trust: TrustCommands | None) -> None:
        self._backend = backend
        self._access = access
        self._trust = trust
        self._running: Counter[str] = Counter()

    async def answer(self, name: str, request: HttpRequest) -> HttpResponse:
        """Answer a POST to the address of action `name`."""
        session = self._access.actor(request)
        if not isinstance(session, Session):
            return session
        form = _FORMS.get(name)
        if form is None:
            return refusal(404, "there is no such action")
        if _PERMISSION.get(name, name) not in self._access.allowed(session):
            await self._note(request, session, name, "", "refused", "not allowed")
            return refusal(403, "your role does not allow this")
        try:
            order = msgspec.json.decode(request.body, type=form)
            self._check(order)
        except (msgspec.DecodeError, UnicodeError):
            return refusal(400, "the body is not the JSON that this address takes")
        except _Bad as error:
            return refusal(400, str(error))
        if self._running.total() >= AT_ONCE or self._running[session.user] >= SESSION_AT_ONCE:
            return refusal(429, "too many actions at the same time: wait for the others", ("Retry-After", "5"))
        self._running[session.user] += 1
        try:
            return await self._do(request, session, name, order)
        finally:
            self._running[session.user] -= 1
            if not self._running[session.user]:
                del self._running[session.user]

    async def _do(self, request: HttpRequest, session: Session, name: str, order: Order) -> HttpResponse:
        action = nuid()
        try:
            await self._backend.audit(self._entry(request, session, name, order, "begun", action))
        except FleetError as error:
            return refusal(503, f"not done, because the audit stream cannot be written: {error}")
        # Once it is in the audit stream, an action ends as if nobody watched: also when the browser goes.
        with trio.CancelScope(shield=True):
            status, outcome, detail, found = await self._outcome(session, order)
            entry = self._entry(request, session, name, order, outcome, action, detail)
            try:
                await self._backend.audit(entry)
            except FleetError as error:
                log.warning("Page: what came of an action is not in the audit stream: %s", error)
        log.info("Page: %s from %s: %s %s: %s %s", quoted(session.user), self._access.address(request), name,
                 quoted(_device(order)), outcome, quoted(detail) if detail else "")  # fmt: skip
        return json_answer({"done": found}) if status == 200 else refusal(status, detail)

    async def _outcome(self, session: Session, order: Order) -> tuple[int, str, str, object]:
        """Do it; return the HTTP status, the audit's outcome, the reason, and what the order returns."""
        try:
            found = await self._done(session, order)
        except Conflict as error:
            return 409, "refused", f"{error}: look at it again", None
        except (Refused, DesiredError) as error:
            return 409, "refused", str(error), None
        except NoAnswer as error:
            return 504, "failed", str(error), None
        except FleetError as error:
            return 502, "failed", str(error), None
        return 200, "done", "", found

    async def _done(self, session: Session, order: Order) -> object:
        backend = self._backend
        if isinstance(order, AskOrder):
            return await ask(backend.connection(), order.device, order.report)
        if isinstance(order, ConnectOrder):
            links = await connect(backend.connection(), order.device, order.link)
            return f"{order.device} connects {', '.join(links)}."
        if isinstance(order, LabelOrder):
            labels = tuple(sorted(set(order.labels)))
            await backend.desire(order.device, order.revision, session.user, labels=labels)
            return "The labels are set."
        if isinstance(order, ConfigureOrder):
            await backend.desire(order.device, order.revision, session.user, settings=order.settings)
            return "Set. The device applies it when it asks next."
        if self._trust is None:
            raise FleetError("revocations and tokens are not configured: see [web.trust]")
        if isinstance(order, RevokeOrder):
            await self._trust.revoke(order.device)
            return f"{order.device} is revoked: its connection is cut, and a new device can have the name."
        if isinstance(order, WithdrawOrder):
            await self._trust.withdraw(order.token)
            return "The token is withdrawn."
        return await self._trust.tokens()

    def _check(self, order: Order) -> None:
        """Check what can be checked without asking anybody. Raises _Bad."""
        device = _device(order)
        if device and self._backend.index.get(device) is None:
            raise _Bad("there is no such device")
        if isinstance(order, AskOrder) and order.report not in REPORTS:
            raise _Bad(f"report: expected one of {', '.join(REPORTS)}")
        if isinstance(order, RevokeOrder) and order.sure != order.device:
            raise _Bad("type the device's name to revoke it")
        if isinstance(order, LabelOrder):
            _check_labels(order.labels)
        if isinstance(order, ConfigureOrder) and len(msgspec.json.encode(order.settings)) > DOCUMENT_BYTES_MAX:
            raise _Bad(f"the settings are larger than {DOCUMENT_BYTES_MAX >> 10} KiB")

    def _entry(
        self,
        request: HttpRequest,
        session: Session,
        name: str,
        order: Order | None,
        outcome: str,
        action: str = "",
        reason: str = "",
    ) -> AuditEntry:
        detail = "" if order is None else _detail(order)
        return AuditEntry(
            at=self._backend.now(),
            actor=session.user,
            method=session.method,
            role=session.role,
            address=self._access.address(request),
            action=name,
            device="" if order is None else _device(order),
            detail=": ".join(each for each in (detail, reason) if each)[:DETAIL_CHARS_MAX],
            outcome=outcome,
            id=action,
        )

    async def _note(
        self, request: HttpRequest, session: Session, name: str, device: str, outcome: str, reason: str
    ) -> None:
        """Note a refusal, if that is possible."""
        log.warning("Page: %s may not %s", quoted(session.user), name)
        try:
            await self._backend.audit(self._entry(request, session, name, None, outcome, reason=reason))
        except FleetError as error:
            log.warning("Page: the audit stream cannot be written: %s", error)


def _check_labels(labels: list[str]) -> None:
    if len(labels) > LABELS_MAX:
        raise _Bad(f"a device has at most {LABELS_MAX} labels")
    for label in labels:
        if not 1 <= len(label) <= LABEL_CHARS_MAX or not label.isprintable() or any(map(str.isspace, label)):
            raise _Bad(f"a label has 1 to {LABEL_CHARS_MAX} characters, without spaces")
        if label != label.lower():
            raise _Bad("labels are in lower case")


def _device(order: Order) -> str:
    return getattr(order, "device", "")


def _detail(order: Order) -> str:
    """Return what the audit stream says of an order besides the device."""
    if isinstance(order, AskOrder):
        return order.report
    if isinstance(order, ConnectOrder):
        return order.link
    if isinstance(order, LabelOrder):
        return " ".join(order.labels)
    if isinstance(order, ConfigureOrder):
        return msgspec.json.encode(order.settings).decode()
    if isinstance(order, WithdrawOrder):
        return order.token
    return ""
