"""Names of the hosts that connections come from, as the DNS has them: `eyot top --lookup`."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eyot_cli.top.figures import Reading

#: Addresses that are looked up for one reading; the others follow with the next ones.
_AT_ONCE: Final = 32
#: How long a reading waits for them, seconds. What comes later stays an address.
_WAIT_S: Final = 2.0


class HostNames:
    """Looks each address up once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    async def put_in(self, reading: Reading) -> None:
        """Put names in the place of the addresses that have one."""
        found = [each.connection for each in reading.connections]
        missing = sorted({each.ip for each in found if each.ip} - self._known.keys())[:_AT_ONCE]
        if missing:
            asked = [asyncio.ensure_future(asyncio.to_thread(_name_of, each)) for each in missing]
            await asyncio.wait(asked, timeout=_WAIT_S)
            # An address whose answer takes longer is not asked for again.
            self._known |= {ip: one.result() if one.done() else ip for ip, one in zip(missing, asked, strict=True)}
        for each in found:
            each.ip = self._known.get(each.ip, each.ip)


def _name_of(ip: str) -> str:
    try:
        return socket.gethostbyaddr(ip)[0]
    except OSError:
        return ip
