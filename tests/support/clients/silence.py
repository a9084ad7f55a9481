"""Waiting for a message that may not come, on a machine that may be busy."""

from __future__ import annotations

import asyncio

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

#: One look, seconds.
LOOK_S = 0.05
#: The server's answer to a PING comes within this time, seconds, or it hangs.
HANGS_S = 60.0


async def next_unless_silent(client: Client, inbox: Subscription, quiet_s: float) -> Msg:
    """Return the next message of `inbox`; raise nats' TimeoutError if the server is silent for `quiet_s` seconds.

    The time is counted in answered PINGs, so that a server that lags is not taken for a silent one.
    """
    for _ in range(max(1, round(quiet_s / LOOK_S))):
        try:
            return await inbox.next_msg(timeout=LOOK_S)
        except nats.errors.TimeoutError:
            try:
                await client.flush(int(HANGS_S))
            except nats.errors.TimeoutError:
                raise AssertionError("the server hangs") from None
    await asyncio.sleep(0)
    return await inbox.next_msg(timeout=LOOK_S)
