"""Asks a device over its link: its reports, and to connect a link. The answer comes from the device's own daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import trio

from eyot_fleet.errors import NoAnswer, Refused
from eyot_wire import headers
from eyot_wire.device_requests import (
    CONNECT,
    PART,
    REFUSED,
    ConnectAnswer,
    ConnectRequest,
    is_token,
    place_of,
    subject_of,
)
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.report import checks_of
from eyot_wire.quantities import counted
from eyot_wire.quoting import printable
from eyot_wire.status import StatusReport, SyncReport
from eyot_wire.sync_headline import sync_headline
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from eyot_fleet.connection import Connection, Subscription

#: What may be asked for; `doctor` is computed from the other two.
REPORTS: Final = ("status", "sync", "doctor")
#: How long a part may take: the device may be behind a slow radio.
WITHIN_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 4 << 20
_SYNC_STATES: Final = {"synced": "ok", "failing": "failure", "incomplete": "failure"}
_SEVERITIES: Final = {"failure": 0, "warning": 1, "ok": 2}


async def ask(connection: Connection, name: str, report: str) -> StatusReport | SyncReport | list[Check]:
    """Return a report of a device. Raises NoAnswer and Refused."""
    if report == "doctor":
        status, sync = await ask(connection, name, "status"), await ask(connection, name, "sync")
        assert isinstance(status, StatusReport)
        assert isinstance(sync, SyncReport)
        return checks_of(status, sync)
    body = await _answered(connection, name, report, b"")
    kind: type[StatusReport] | type[SyncReport] = StatusReport if report == "status" else SyncReport
    try:
        return decode_json(body, kind)
    except msgspec.DecodeError as error:
        raise NoAnswer(f"{name} does not answer as an Eyot daemon: {printable(str(error))}") from None


async def connect(connection: Connection, name: str, link: str) -> list[str]:
    """Have a device connect a link that is down, "" for all; return which it dials. Raises NoAnswer, and Refused with its reason."""
    body = await _answered(connection, name, CONNECT, msgspec.json.encode(ConnectRequest(link=link)))
    try:
        outcome = decode_json(body, ConnectAnswer)
    except msgspec.DecodeError:
        raise NoAnswer(f"{name} does not answer as an Eyot daemon") from None
    if outcome.error:
        raise Refused(f"{name} refuses: {printable(outcome.error)}")
    return outcome.links


def summary_of(found: object) -> tuple[str, str]:
    """Return what a device's answer says in one line: `ok`, `warning`, `failure` or "", and words."""
    if isinstance(found, SyncReport):
        headline = sync_headline(found, None)
        return _SYNC_STATES.get(headline.state, "warning"), headline.text
    if isinstance(found, StatusReport):
        spokes = [link for link in found.links if link.role != "hub"]
        up = sum(link.state == "up" for link in spokes)
        trouble = "" if found.store is None else found.store.error or ""
        words = (
            f"Eyot {found.version}, {up} of {counted(len(spokes), 'link')} up, {counted(len(found.streams), 'stream')}"
        )
        if trouble:
            return "failure", f"{words}; messages cannot be stored: {trouble}"
        return "ok" if up == len(spokes) else "warning", words
    if isinstance(found, list):
        worst = min(found, key=lambda each: _SEVERITIES.get(each.state, len(_SEVERITIES)), default=None)
        if worst is None or worst.state == "ok":
            return "ok", f"nothing wrong in {counted(len(found), 'check')}"
        others = sum(each.state in ("failure", "warning") for each in found) - 1
        return worst.state, f"{worst.name}: {worst.detail}" + (f" (and {others} more)" if others else "")
    return "", str(found)


async def _answered(connection: Connection, name: str, request: str, payload: bytes) -> bytes:
    if not is_token(name):
        raise Refused(f"{printable(name)} cannot be asked: its name is no token of a subject")
    inbox = connection.new_inbox()
    subscription = connection.subscribe(inbox)
    try:
        await connection.publish(subject_of(name, request), payload, inbox)
        return await _joined(subscription, name, request)
    finally:
        connection.unsubscribe(subscription)


async def _joined(subscription: Subscription, name: str, request: str) -> bytes:
    """Return the parts of an answer as one."""
    pieces: dict[int, bytes] = {}
    count, size = 1, 0
    while len(pieces) < count:
        messages = None
        with trio.move_on_after(WITHIN_S):
            messages = await subscription.take()
        if messages is None:
            raise NoAnswer(f"{name} did not answer within {WITHIN_S:g} s: the link to it is slow, or was cut")
        for message in messages:
            if headers.status(message.header) == (503, ""):
                raise NoAnswer(
                    f"{name} does not answer: it is not linked now, or its configuration lacks "
                    f"eyot {{ device {{ answers: [{request}] }} }} for the account of this service"
                )
            refused = headers.get(message.header, REFUSED.encode())
            if refused is not None:
                raise Refused(f"{name} refuses: {printable(refused.decode('utf-8', 'replace'))}")
            try:
                number, count = place_of((headers.get(message.header, PART.encode()) or b"").decode("latin-1"))
            except ValueError as error:
                raise NoAnswer(f"{name} does not answer as an Eyot daemon: {printable(str(error))}") from None
            pieces[number] = message.payload
            size += len(message.payload)
            if size > ANSWER_BYTES_MAX:
                raise NoAnswer(f"the answer of {name} is larger than {ANSWER_BYTES_MAX >> 20} MiB")
    return b"".join(pieces[number] for number in sorted(pieces))
