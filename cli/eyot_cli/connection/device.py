"""A device's own reports, asked for over NATS: from the hub over the leaf link, in place of the control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from eyot_cli.terminal.failure import Failure
from eyot_wire.device_requests import (
    BUNDLE_NAME,
    DIGEST,
    PAGES,
    PART,
    REFUSED,
    SUPPORT_BUNDLE,
    PartRequest,
    digest_of,
    is_token,
    place_of,
    subject_of,
)
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

#: How long a part may take, seconds: the device may be behind a slow radio.
WITHIN_S: Final = 15
#: How often a part of a support bundle is asked for, and how often a bundle is begun again.
TRIES: Final = 3
_NO_RESPONDERS: Final = "503"


class DeviceSilent(Failure):
    """A device that did not answer in time."""


async def page(client: Client, name: str, path: str) -> bytes:
    """Return the body of a page of the control socket of device `name`. Raises Failure."""
    found = next((each for each, page in PAGES.items() if page == path), None)
    if found is None:
        raise Failure(f"a device cannot be asked for {path}")
    return await report(client, name, found)


async def report(client: Client, name: str, kind: str, request: bytes = b"") -> bytes:
    """Return a report of device `name` as JSON. Raises Failure."""
    sub, inbox = await _inbox(client, name)
    try:
        await client.publish(subject_of(name, kind), request, reply=inbox)
        return await _joined(sub, name)
    finally:
        await sub.unsubscribe()


async def support_bundle(client: Client, name: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a device's support bundle, fetched part by part. Raises Failure."""
    sub, inbox = await _inbox(client, name)
    try:
        for _ in range(TRIES):
            found = await _bundle(client, sub, inbox, name)
            if found is not None:
                return found
        raise Failure(f"{name} made another support bundle while one was fetched, {TRIES} times: run the command again")
    finally:
        await sub.unsubscribe()


async def _bundle(client: Client, sub: Subscription, inbox: str, name: str) -> tuple[str, bytes] | None:
    """Fetch one bundle; None: the device has no longer kept it. Raises Failure."""
    pieces: list[bytes] = []
    bundle = digest = ""
    count = 1
    while len(pieces) < count:
        wanted = PartRequest(of=bundle, part=len(pieces) + 1)
        message, number, count = await _part(client, sub, inbox, name, wanted)
        headers = message.headers or {}
        if not pieces:
            bundle, digest = headers.get(BUNDLE_NAME, ""), headers.get(DIGEST, "")
            if not bundle or number != 1:
                raise Failure(f"{name} does not answer as an Eyot daemon: its part names no support bundle")
        elif headers.get(BUNDLE_NAME) != bundle:
            return None
        pieces.append(message.data)
    content = b"".join(pieces)
    if digest_of(content) != digest:
        raise Failure(f"the support bundle of {name} did not arrive whole: run the command again")
    return bundle, content


async def _part(client: Client, sub: Subscription, inbox: str, name: str, wanted: PartRequest) -> tuple[Msg, int, int]:
    """Ask for a part, again if it does not come; return its message, number and count. Raises Failure."""
    for tries_left in reversed(range(TRIES)):
        await client.publish(subject_of(name, SUPPORT_BUNDLE), msgspec.json.encode(wanted), reply=inbox)
        while True:
            try:
                message = await _next(sub, name)
            except DeviceSilent:
                if not tries_left:
                    raise
                break
            number, count = _place(message, name)
            if number == wanted.part or (number == 1 and (message.headers or {}).get(BUNDLE_NAME) != wanted.of):
                return message, number, count
            # else the answer to an earlier request for another part, which came late
    raise AssertionError("the last try returns or raises")


async def _inbox(client: Client, name: str) -> tuple[Subscription, str]:
    if not is_token(name):
        raise Failure(f"{name!r} is no name of a device")
    inbox = client.new_inbox()
    return await client.subscribe(inbox), inbox


async def _joined(sub: Subscription, name: str) -> bytes:
    """Return the parts of an answer as one. Raises Failure."""
    pieces: dict[int, bytes] = {}
    count = 1
    while len(pieces) < count:
        message = await _next(sub, name)
        number, count = _place(message, name)
        pieces[number] = message.data
    return b"".join(pieces[number] for number in sorted(pieces))


async def _next(sub: Subscription, name: str) -> Msg:
    """Return the next message of an answer. Raises Failure."""
    try:
        message = await sub.next_msg(timeout=WITHIN_S)
    except TimeoutError:
        raise DeviceSilent(f"{name} did not answer within {WITHIN_S} s: the link to it is slow, or was cut") from None
    headers = message.headers or {}
    if headers.get("Status") == _NO_RESPONDERS:
        raise Failure(
            f"{name} does not answer",
            "it is not linked now, or its configuration has no eyot { device { answers } } with this report for the "
            "account of this user",
        )
    if headers.get(REFUSED):
        raise Failure(f"{name} refuses: {printable(headers[REFUSED])}")
    return message


def _place(message: Msg, name: str) -> tuple[int, int]:
    try:
        return place_of((message.headers or {}).get(PART, ""))
    except ValueError as error:
        raise Failure(f"{name} does not answer as an Eyot daemon: {printable(str(error))}") from error
