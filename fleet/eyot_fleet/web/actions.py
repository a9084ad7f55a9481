"""What operators do. Nothing is done without a line in the audit stream first; a second line holds what came of it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec import Struct

from eyot_fleet.desired import DesiredError, Group
from eyot_fleet.errors import Conflict, FleetError, NoAnswer, Refused
from eyot_fleet.rollout import HALTED, ROLLED_BACK, RUNNING, Ring, Rollout
from eyot_fleet.web.answers import json_answer, refusal
from eyot_fleet.web.ask import ask, connect, summary_of
from eyot_fleet.web.backend import AuditEntry
from eyot_fleet.web.orders import (
    FORMS,
    PERMISSION,
    AskOrder,
    BadOrder,
    BulkOrder,
    ConfigureOrder,
    ConnectOrder,
    ForgetOrder,
    GroupOrder,
    LabelOrder,
    Order,
    RelabelOrder,
    RevokeOrder,
    RolloutOrder,
    WithdrawOrder,
    check_order,
    detail_of,
    target_of,
)
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
#: The action that gives several devices the same order.
BULK: Final = "bulk"
DETAIL_CHARS_MAX: Final = 1000


#: Bulk orders at the same time, one of each user.
BULK_AT_ONCE: Final = 4


class BulkOutcome(Struct, frozen=True, kw_only=True):
    """What came of a bulk order at one device. `outcome`: as in the audit stream."""

    device: str
    outcome: str
    #: `ok`, `warning` or `failure`, for a report; "": there is none
    state: str = ""
    detail: str = ""


class Actions:
    """Carries out orders of operators."""

    def __init__(self, backend: Backend, access: Access, trust: TrustCommands | None) -> None:
        self._backend = backend
        self._access = access
        self._trust = trust
        self._running: Counter[str] = Counter()
        self._bulk_users: Counter[str] = Counter()

    async def answer(self, name: str, request: HttpRequest) -> HttpResponse:
        """Answer a POST to the address of action `name`."""
        session = self._access.actor(request)
        if not isinstance(session, Session):
            return session
        if name == BULK:
            return await self._bulk(request, session)
        form = FORMS.get(name)
        if form is None:
            return refusal(404, "there is no such action")
        if PERMISSION.get(name, name) not in self._access.allowed(session):
            await self._note(request, session, name, "", "refused", "not allowed")
            return refusal(403, "your role does not allow this")
        try:
            order = msgspec.json.decode(request.body, type=form)
            check_order(order, self._backend.index)
        except (msgspec.DecodeError, UnicodeError):
            return refusal(400, "the body is not the JSON that this address takes")
        except BadOrder as error:
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
        status, _, detail, found = await self._audited(request, session, name, order)
        return json_answer({"done": found}) if status == 200 else refusal(status, detail)

    async def _audited(
        self, request: HttpRequest, session: Session, name: str, order: Order
    ) -> tuple[int, str, str, object]:
        """Do it between two lines of the audit stream; return what `_outcome` does."""
        action = nuid()
        try:
            await self._backend.audit(self._entry(request, session, name, order, "begun", action))
        except FleetError as error:
            return 503, "failed", f"not done, because the audit stream cannot be written: {error}", None
        # Once it is in the audit stream, an action ends as if nobody watched: also when the browser goes.
        with trio.CancelScope(shield=True):
            status, outcome, detail, found = await self._outcome(session, order)
            entry = self._entry(request, session, name, order, outcome, action, detail)
            try:
                await self._backend.audit(entry)
            except FleetError as error:
                log.warning("Page: what came of an action is not in the audit stream: %s", error)
        log.info("Page: %s from %s: %s %s: %s %s", quoted(session.user), self._access.address(request), name,
                 quoted(target_of(order)), outcome, quoted(detail) if detail else "")  # fmt: skip
        return status, outcome, detail, found

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
        if isinstance(order, RelabelOrder):
            return await self._relabelled(session, order)
        if isinstance(order, ConfigureOrder):
            await backend.desire(order.device, order.revision, session.user, settings=order.settings)
            return "Set. The device applies it when it asks next."
        if isinstance(order, GroupOrder):
            group = Group(labels=tuple(order.labels), priority=order.priority, settings=order.settings)
            await backend.set_group(order.group, None if order.remove else group, order.revision, session.user)
            return "The group is removed." if order.remove else "The group is set."
        if isinstance(order, RolloutOrder):
            return await self._rolled_out(session, order)
        if isinstance(order, ForgetOrder):
            await backend.forget(order.device, session.user, order.reason)
            return f"{order.device} is forgotten as soon as its sources are removed."
        if self._trust is None:
            raise FleetError("revocations and tokens are not configured: see [web.trust]")
        if isinstance(order, RevokeOrder):
            await self._trust.revoke(order.device)
            return f"{order.device} is revoked: its connection is cut, and a new device can have the name."
        if isinstance(order, WithdrawOrder):
            await self._trust.withdraw(order.token)
            return "The token is withdrawn."
        return await self._trust.tokens()

    async def _relabelled(self, session: Session, order: RelabelOrder) -> str:
        """Add and remove labels. Whoever changes the device's settings meanwhile is not overwritten: it is tried once more."""
        for attempt in (1, 2):
            desired = await self._backend.desired(order.device)
            labels = tuple(sorted({*desired.labels, *order.add} - set(order.remove)))
            if labels == desired.labels:
                return "It has these labels already."
            try:
                await self._backend.desire(order.device, desired.revision, session.user, labels=labels)
            except Conflict:
                if attempt == 2:
                    raise
            else:
                break
        return f"Its own labels: {' '.join(labels)}" if labels else "It has no labels of its own now."

    async def _rolled_out(self, session: Session, order: RolloutOrder) -> str:
        if order.do == "start":
            rings = tuple(Ring(group=ring.group, wait_s=ring.wait_s) for ring in order.rings)
            rollout = Rollout(version=order.version, rings=rings, reason=order.reason)
            await self._backend.start_rollout(order.rollout, rollout, session.user)
            return "Started. The first ring opens within seconds."
        to = {"halt": HALTED, "resume": RUNNING, "back": ROLLED_BACK}[order.do]
        back_to = order.version if order.do == "back" else ""
        await self._backend.steer_rollout(order.rollout, session.user, to, order.reason, back_to)
        return f"The rollout is {to}."

    # -- several devices -------------------------------------------------------------------------------------------

    async def _bulk(self, request: HttpRequest, session: Session) -> HttpResponse:
        """Give some devices the same order at the same time; each has its own lines in the audit stream."""
        try:
            bulk = msgspec.json.decode(request.body, type=BulkOrder)
            orders = bulk.orders()
            if PERMISSION.get(bulk.do, bulk.do) not in self._access.allowed(session):
                await self._note(request, session, bulk.do, "", "refused", "not allowed")
                return refusal(403, "your role does not allow this")
            known = [order for order in orders if self._backend.index.get(order.device) is not None]
            for order in known:
                check_order(order, self._backend.index)
        except (msgspec.DecodeError, UnicodeError):
            return refusal(400, "the body is not the JSON that this address takes")
        except BadOrder as error:
            return refusal(400, str(error))
        if self._bulk_users[session.user] or len(self._bulk_users) >= BULK_AT_ONCE:
            return refusal(429, "too many bulk actions at the same time: wait for the others", ("Retry-After", "5"))
        gone = {*bulk.devices} - {order.device for order in known}
        found = {name: BulkOutcome(device=name, outcome="refused", detail="there is no such device") for name in gone}
        self._bulk_users[session.user] += 1
        try:
            async with trio.open_nursery() as nursery:

                async def one(order: AskOrder | ConnectOrder | RelabelOrder) -> None:
                    found[order.device] = await self._bulk_one(request, session, bulk.do, order)

                for order in known:
                    nursery.start_soon(one, order)
        finally:
            del self._bulk_users[session.user]
        return json_answer({"done": [found[name] for name in bulk.devices]})

    async def _bulk_one(
        self, request: HttpRequest, session: Session, name: str, order: AskOrder | ConnectOrder | RelabelOrder
    ) -> BulkOutcome:
        status, outcome, detail, found = await self._audited(request, session, name, order)
        if status != 200:
            return BulkOutcome(device=order.device, outcome=outcome, detail=detail)
        state, text = summary_of(found)
        return BulkOutcome(device=order.device, outcome=outcome, state=state, detail=text)

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
        detail = "" if order is None else detail_of(order)
        return AuditEntry(
            at=self._backend.now(),
            actor=session.user,
            method=session.method,
            role=session.role,
            address=self._access.address(request),
            action=name,
            device="" if order is None else target_of(order),
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
