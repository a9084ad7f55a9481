"""A broker whose turns a test takes one by one, with clients that have logged in."""

from __future__ import annotations

from eyot_daemon.auth.login import Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.connection import ClientConnection
from support.clients.plain_transport import Wire
from support.clients.turns import Turns
from support.servers.open_door import OpenDoor


class ClientTurns(Turns):
    """Base of fixtures: see the module."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = Clients(self.broker, OpenDoor())

    def client(self) -> tuple[ClientConnection, Wire]:
        """A client that has heard the answers to its CONNECT and PING."""
        wire = Wire()
        wire.session = client = self.clients.accept(wire, Peer(host="memory", port=1))
        self.send(client, b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n')
        wire.sent.clear()
        return client, wire
