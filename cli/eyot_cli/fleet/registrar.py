"""Decides on requests for enrolment and renewal, and signs the tokens of devices. Knows nothing of connections."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from eyot_cli.fleet.pace import Pace
from eyot_cli.fleet.records import Records, TokenRecord
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text
from eyot_cli.trust.claims import new_user
from eyot_cli.trust.session import Report, scoped_keys
from eyot_cli.trust.store import body
from eyot_wire.quoting import printable
from eyot_wire.trust import nkey
from eyot_wire.trust.enrolment import (
    ENROL,
    SIGNED_BY_KEY,
    SIGNED_BY_TOKEN,
    EnrolmentAnswer,
    EnrolmentError,
    EnrolmentRequest,
    is_device_name,
    parse_request,
    signed_text,
)
from eyot_wire.trust.enrolment_record import EnrolledDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eyot_cli.trust.session import Session

#: A renewal that comes again within this time gets the token that was just made, seconds: a request says nothing of its
#: time, and who heard one can send it again.
REPEATED_S: Final = 60
#: So much the clock may go back, seconds: NTP sets it, and another machine may have written the record.
CLOCK_S: Final = 300
#: Characters of a key that the log shows.
SHORT: Final = 12


class Refused(Exception):
    """A request that is refused; `name`, `key` and `token` as far as signatures vouch for them."""

    def __init__(self, reason: str, *, name: str = "", key: str = "", token: str = "") -> None:
        super().__init__(reason)
        self.name = name
        self.key = key
        self.token = token


class Registrar:
    """Answers requests of one account's devices.

    Invariant: a token enrols at most as many devices as its record said when it was made, and each name belongs to one
    key until it is revoked. What is written is written in an order in which a request that is repeated after a crash,
    with the same key, gets the answer that was lost.
    """

    def __init__(self, session: Session, account: str, leaf_urls: tuple[str, ...]) -> None:
        self._session = session
        self._account = account
        self._leaf_urls = leaf_urls
        self._records = Records(session.store, account)
        self._pace = Pace(time.monotonic)

    def answer(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> tuple[EnrolmentAnswer, str]:
        """Return the answer to one request, and a line for the log. Raises Failure where the store cannot be used."""
        session, store = self._session, self._session.store
        session.report = Report(as_json=True)  # what the store's own functions report is not for this output
        store.lock()
        try:
            kind, _, last = subject.rpartition(".")
            signed = signed_text(subject, payload)
            if kind == ENROL:
                return self._enrol(last, _request(payload, signed, headers), signed, headers)
            return self._renew(last, _request(payload, signed, headers))
        except Refused as refused:
            reason = str(refused)
            if refused.token or refused.name:  # what nobody signed would only fill the log
                self._note("refused", name=refused.name, key=refused.key, token=refused.token, reason=reason)
            return EnrolmentAnswer(error=reason), f"refused {_whose(refused)}: {reason}"
        finally:
            store.unlock()

    def _note(self, event: str, *, name: str, key: str, token: str = "", reason: str = "") -> None:
        """Append to the audit log. Only what can be repeated keeps to the asker's pace; the next line counts what is left out."""
        left_out = 0 if event == "enrolled" else self._pace.take(token or name)
        if left_out is not None:
            self._records.note(event, name=name, key=key, token=token, reason=reason, left_out=left_out)

    # -- enrolment -------------------------------------------------------------------------------------------------

    def _enrol(
        self, token: str, request: EnrolmentRequest, signed: bytes, headers: Mapping[str, str]
    ) -> tuple[EnrolmentAnswer, str]:
        if not nkey.verify(token, signed, _signature(headers, SIGNED_BY_TOKEN)):
            raise Refused("the enrolment token did not sign the request")
        record = self._records.token(token)
        if record is None:
            raise Refused("the enrolment token is unknown or was withdrawn", key=request.key, token=token)
        name = self._name_for(record, request)
        device, held = self._records.device(name), self._holder(name)
        again = (
            device is not None and device.token == token and device.key == request.key and held == request.key
        ) or (held in (None, request.key) and record.last == (name, request.key))
        try:
            self._check(record, name, request.key, held, again=again)
        except Refused as refused:
            refused.name, refused.key, refused.token = name, request.key, token
            raise
        if not again:
            record.left -= 1
            record.last = (name, request.key)
        self._note("again" if again else "enrolled", name=name, key=request.key, token=token)
        self._records.write_token(record)
        answer = self._sign(name, request, record.role, record.device_lifetime_s, record.tags, token=token)
        return answer, f"enrolled {name} with key {request.key[:SHORT]}{', once more' if again else ''}"

    def _name_for(self, record: TokenRecord, request: EnrolmentRequest) -> str:
        """Return the name that the device gets: the token's, or the one it asks for, within the token's pattern."""
        name = request.name or record.names
        refused = None
        if "*" in name:
            refused = f"the token is for devices called {record.names}: name this one with --name"
        elif not is_device_name(name):
            refused = f"{name!r} cannot be a device's name: letters, digits, - and _ only"
        elif not record.takes(name):
            refused = f"the token is for {record.names}, not for {name}"
        if refused:
            raise Refused(refused, key=request.key, token=record.id)
        return name

    def _check(self, record: TokenRecord, name: str, key: str, held: str | None, *, again: bool) -> None:
        _check_clock(record.made_at)
        if key in self._revoked():
            raise Refused("this key was revoked: enrol with a new one (`eyot enrol --new-key`)")
        if time.time() >= record.valid_until:
            raise Refused(f"the token expired on {_day(record.valid_until)}: ask for a new one")
        if held is not None and held != key:
            raise Refused(f"{name} is another device already: revoke it first (`eyot fleet revoke {name}`)")
        if record.left <= 0 and not again:
            last = f", last by {record.last[0]}" if record.last else ""
            raise Refused(f"the token is used up{last}: ask for a new one")

    def _holder(self, name: str) -> str | None:
        """Return the key of the user with this name, None if the name is free."""
        store = self._session.store
        return str(store.user(self._account, name)["sub"]) if name in store.users(self._account) else None

    # -- renewal ---------------------------------------------------------------------------------------------------

    def _renew(self, name: str, request: EnrolmentRequest) -> tuple[EnrolmentAnswer, str]:
        device = self._records.device(name) if is_device_name(name) else None
        if device is None or self._holder(name) != device.key:
            raise Refused(f"no device {printable(name)} is enrolled: enrol it anew with a token")
        if request.key != device.key:
            raise Refused(f"{name} is enrolled with another key")
        if request.key in self._revoked():
            raise Refused("this key was revoked", name=name, key=request.key)
        try:
            _check_clock(device.renewed_at)
        except Refused as refused:
            refused.name, refused.key = name, request.key
            raise
        if _is_fresh(device):
            return self._present(name), f"renewed {name} before, and just now"
        self._note("renewed", name=name, key=device.key)
        tags = tuple(body(self._session.store.user(self._account, name)).get("tags") or ())
        answer = self._sign(name, request, device.role, device.device_lifetime_s, tags, device=device)
        return answer, f"renewed {name}"

    # -- signing ---------------------------------------------------------------------------------------------------

    def _sign(
        self,
        name: str,
        request: EnrolmentRequest,
        role: str,
        lifetime_s: int,
        tags: tuple[str, ...],
        *,
        token: str = "",
        device: EnrolledDevice | None = None,
    ) -> EnrolmentAnswer:
        session, store = self._session, self._session.store
        account = store.account(self._account)
        session.key = role
        signer = session.account_signer(account)
        scoped = any(scope.get("key") == signer.public for scope in scoped_keys(account))
        user = new_user(request.key, name, scoped=scoped)
        if tags:
            body(user)["tags"] = list(tags)
        now = int(time.time())
        expires = now + lifetime_s if lifetime_s else 0
        if expires:
            user["exp"] = expires
        session.save_user(account, user, signer)
        self._records.write_device(
            EnrolledDevice(
                name=name,
                key=request.key,
                token=device.token if device else token,
                role=role,
                device_lifetime_s=lifetime_s,
                enrolled_at=device.enrolled_at if device else now,
                renewed_at=now,
                expires=expires,
                tags=tags,
                facts=request.facts,
            )
        )
        return self._present(name)

    def _present(self, name: str) -> EnrolmentAnswer:
        """Return the answer with the token that the store has for a device."""
        store = self._session.store
        return EnrolmentAnswer(
            name=name,
            jwt=read_text(store.user_path(self._account, name)),
            account_jwt=read_text(store.account_path(self._account)),
            operator_jwt=read_text(store.operator_path),
            leaf_urls=self._leaf_urls,
        )

    def _revoked(self) -> dict[str, int]:
        return dict(body(self._session.store.account(self._account)).get("revocations") or {})


def _request(payload: bytes, signed: bytes, headers: Mapping[str, str]) -> EnrolmentRequest:
    """Return a request that the key which it names has signed. Raises Refused."""
    try:
        request = parse_request(payload)
    except EnrolmentError as error:
        raise Refused(str(error)) from None
    if not nkey.verify(request.key, signed, _signature(headers, SIGNED_BY_KEY)):
        raise Refused("the device's key did not sign the request")
    return request


def _signature(headers: Mapping[str, str], name: str) -> bytes:
    try:
        return nkey.decode_signature(headers.get(name, ""))
    except nkey.NkeyError:
        return b""


def _check_clock(written_at: int) -> None:
    """Check that the clock is not before a time that was noted here: tokens would be signed that are expired. Raises Refused."""
    now = int(time.time())
    if now < written_at - CLOCK_S:
        raise Refused(
            f"the hub's clock is wrong: it says {_day(now)}, and the record of it was written on {_day(written_at)}"
        )


def _is_fresh(device: EnrolledDevice) -> bool:
    """Was the device's token renewed just now, and is most of its time left?"""
    now = time.time()
    renewed = device.enrolled_at < device.renewed_at and device.renewed_at > now - REPEATED_S
    return renewed and (not device.expires or device.expires - now > device.device_lifetime_s / 2)


def _whose(refused: Refused) -> str:
    return refused.name or (f"key {refused.key[:SHORT]}" if refused.key else "a request")


def _day(at_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))


def check_role(session: Session, account: str, role: str) -> None:
    """Check that devices of this role can be signed for. Raises Failure."""
    members = session.store.account(account)
    roles = sorted(str(scope["role"]) for scope in scoped_keys(members) if scope.get("role"))
    if role and role not in roles:
        raise Failure(
            f"account {printable(account)} has no scoped signing key with the role {printable(role)}: "
            + (f"its roles are {', '.join(map(printable, roles))}" if roles else "make one with"),
            *(
                []
                if roles
                else [f"  eyot trust edit signing-key -a {printable(account)} --sk generate --role {printable(role)}"]
            ),
        )
    session.key = role
    session.account_signer(members)
