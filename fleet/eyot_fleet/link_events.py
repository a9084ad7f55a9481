"""Who is linked, from the hub's system account: events of connections, and the list of leaf nodes now and then.

A leaf node's name is its own word. Where the device is enrolled, its login must be the key of its enrolment, or the link does
not count as the device's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from eyot_fleet.status_reader import seconds_of
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eyot_wire import frames
    from eyot_wire.trust.enrolment_record import EnrolledDevice

EVENTS: Final = ("$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT")
LEAFZ: Final = "$SYS.REQ.SERVER.PING.LEAFZ"
#: Between two lists, and how long servers may take to answer, seconds.
LIST_EVERY_S: Final = 15.0
ANSWERS_S: Final = 2.0
_KIND: Final = "Leafnode"


class LinkTable:
    """The leaf connections at the hub's servers. Pure: `take_event` and `take_lists` return what changed."""

    def __init__(self, account: str = "") -> None:
        self._account = account
        #: by device: its connections, as server and number
        self._links: dict[str, set[tuple[str, int]]] = {}
        #: how many links came whose login is not the device's key
        self.foreign = 0
        #: those that are up; lists do not tell of logins
        self._foreign: set[tuple[str, int]] = set()

    def is_linked(self, name: str) -> bool:
        """Return whether a device has a link."""
        return bool(self._links.get(name))

    def take_event(
        self, message: frames.Msg, enrolled: Mapping[str, EnrolledDevice]
    ) -> tuple[str, bool, float | None] | None:
        """Return device, whether it is linked now and since when, if an event changes that."""
        event = _decoded(message.payload)
        client = event.get("client")
        server = event.get("server")
        if not isinstance(client, dict) or not isinstance(server, dict) or client.get("kind") != _KIND:
            return None
        name = str(client.get("name") or "")
        if not name or not self._is_ours(str(client.get("acc") or "")):
            return None
        ended = message.subject.endswith(b".DISCONNECT")
        link = (str(server.get("id") or ""), int(client.get("id") or 0))
        links = self._links.get(name, set())
        if link not in links and not self._is_own(name, str(client.get("user") or ""), enrolled):
            self._note_foreign(link, ended)
            return None
        was = bool(links)
        if ended:
            links.discard(link)
        else:
            links.add(link)
        if not links:  # also if no list and no event told of the link
            self._links.pop(name, None)
        elif was:
            return None
        else:
            self._links[name] = links
        return name, not ended, seconds_of(str(event.get("timestamp") or ""))

    def take_lists(self, lists: list[bytes]) -> dict[str, bool]:
        """Return devices whose state the servers' lists change. A server that did not answer is left as it is."""
        listed: dict[str, set[tuple[str, int]]] = {}
        servers, foreign = set(), set()
        for each in lists:
            data = _decoded(each).get("data")
            if not isinstance(data, dict):
                continue
            server = str(data.get("server_id") or "")
            servers.add(server)
            for leaf in data.get("leafs") or []:
                if (
                    not isinstance(leaf, dict)
                    or not leaf.get("name")
                    or not self._is_ours(str(leaf.get("account") or ""))
                ):
                    continue
                link = (server, int(leaf.get("id") or 0))
                if link in self._foreign:
                    foreign.add(link)
                else:
                    listed.setdefault(str(leaf["name"]), set()).add(link)
        self._foreign = {link for link in self._foreign if link[0] not in servers} | foreign
        changed = {}
        for name in {*listed, *self._links}:
            before = self._links.get(name, set())
            after = {link for link in before if link[0] not in servers} | listed.get(name, set())
            if bool(before) != bool(after):
                changed[name] = bool(after)
            if after:
                self._links[name] = after
            else:
                self._links.pop(name, None)
        return changed

    def _note_foreign(self, link: tuple[str, int], ended: bool) -> None:
        if ended:
            self._foreign.discard(link)
        else:
            self.foreign += 1
            self._foreign.add(link)

    def _is_ours(self, account: str) -> bool:
        return not self._account or account == self._account

    @staticmethod
    def _is_own(name: str, user: str, enrolled: Mapping[str, EnrolledDevice]) -> bool:
        device = enrolled.get(name)
        return device is None or not user.startswith("U") or user == device.key


def _decoded(payload: bytes) -> dict[str, Any]:
    try:
        found = decode_json(payload)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
