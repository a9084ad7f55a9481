"""Letting clients go one after the other before the server stops (`lame_duck_duration`, `lame_duck_grace_period`)."""

from __future__ import annotations

import logging

import trio

from eyot_daemon.client.clients import Clients

log = logging.getLogger("eyot")

_POLL_S = 0.02


async def let_clients_go(clients: Clients) -> None:
    """Inform the clients, give them time to leave, then close them one by one. Returns when none is left."""
    options = clients.broker.options
    clients.lame_duck = True
    clients.info_changed()
    clients.broker.flush()
    if clients.connections:
        with trio.move_on_after(options.lame_duck_grace_period_s):
            await _until_no_client(clients)
        log.info("Closing existing clients")
    waiting = list(clients.connections.values())
    pause_s = (options.lame_duck_duration_s - options.lame_duck_grace_period_s) / max(1, len(waiting))
    for client in waiting:
        client.close("Server Shutdown", linger=True)
        clients.broker.flush()
        with trio.move_on_after(pause_s):
            await _until_no_client(clients)
        if not clients.connections:
            break


async def _until_no_client(clients: Clients) -> None:
    while clients.connections:
        await trio.sleep(_POLL_S)
