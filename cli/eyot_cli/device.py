"""A device's own reports, asked for over NATS: from the hub over the leaf link, in place of the control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_cli.failure import Failure
from eyot_wire.device_requests import PAGES, PART, is_token, place_of, subject_of

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

#: How long a part may take, seconds: the device may be behind a slow radio.
WITHIN_S = 15
_NO_RESPONDERS = "503"


async def report(client: Client, name: str, path: str) -> bytes:
    """Return the body of a page of the control socket of device `name`. Raises Failure."""
    found = next((each for each, page in PAGES.items() if page == path), None)
    if found is None or not is_token(name):
        raise Failure(f"a device cannot be asked for {path}" if is_token(name) else f"{name!r} is no name of a device")
    inbox = client.new_inbox()
    sub = await client.subscribe(inbox)
    try:
        await client.publish(subject_of(name, found), b"", reply=inbox)
        return await _joined(sub, name)
    finally:
        await sub.unsubscribe()


async def _joined(sub: Subscription, name: str) -> bytes:
    """Return the parts of an answer as one. Raises Failure."""
    pieces: dict[int, bytes] = {}
    count = 1
    while len(pieces) < count:
        try:
            message = await sub.next_msg(timeout=WITHIN_S)
        except TimeoutError:
            raise Failure(f"{name} did not answer within {WITHIN_S} s: the link to it is slow, or was cut") from None
        headers = message.headers or {}
        if headers.get("Status") == _NO_RESPONDERS:
            raise Failure(
                f"{name} does not answer\n"
                "it is not linked now, or its configuration has no eyot { device { } } for the account of this user"
            )
        try:
            number, count = place_of(headers.get(PART, ""))
        except ValueError as error:
            raise Failure(f"{name} does not answer as an Eyot daemon: {error}") from error
        pieces[number] = message.data
    return b"".join(pieces[number] for number in sorted(pieces))
