"""Support bundles that are fetched part by part: lost parts, a device that restarts, answers that are damaged."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from eyot_cli.connection import device
from eyot_cli.terminal.failure import Failure
from eyot_wire.device_requests import (
    BUNDLE_NAME,
    DIGEST,
    PART,
    PART_BYTES,
    REFUSED,
    PartRequest,
    digest_of,
    pieces_of,
)

CONTENT = bytes(range(256)) * (5 * PART_BYTES // 512)


class Link:
    """A client whose device keeps one bundle. `lose` holds the numbers of requests that get no answer."""

    def __init__(self, lose: set[int] = frozenset(), changes: set[int] = frozenset(), **odd: str) -> None:  # type: ignore[assignment]
        self.requests: list[PartRequest] = []
        self._lose = lose
        self._changes = changes
        self._odd = odd
        self._bundle = 1
        self._answers: deque[Any] = deque()

    def new_inbox(self) -> str:
        return "_INBOX.x"

    async def subscribe(self, subject: str) -> Any:
        return self

    async def unsubscribe(self) -> None:
        self._answers.clear()

    async def next_msg(self, timeout: float) -> Any:
        if not self._answers:
            raise TimeoutError
        return self._answers.popleft()

    async def publish(self, subject: str, payload: bytes, reply: str) -> None:
        assert subject == "$EYOT.DEVICE.pump.support-bundle"
        asked = msgspec.json.decode(payload, type=PartRequest)
        self.requests.append(asked)
        at = len(self.requests)
        if at in self._changes:
            self._bundle += 1
        if at in self._lose:
            return
        name = f"bundle-{self._bundle}"
        number, count, piece = pieces_of(CONTENT)[asked.part - 1 if asked.of == name else 0]
        headers = {PART: f"{number}/{count}", BUNDLE_NAME: name, DIGEST: digest_of(CONTENT)} | self._odd
        self._answers.append(SimpleNamespace(headers=headers, data=piece))


def fetched(link: Link) -> tuple[str, bytes]:
    return asyncio.run(device.support_bundle(link, "pump"))  # type: ignore[arg-type]


def test_parts_are_asked_for_one_after_the_other() -> None:
    link = Link()
    assert fetched(link) == ("bundle-1", CONTENT)
    assert [(each.of, each.part) for each in link.requests] == [("", 1), ("bundle-1", 2), ("bundle-1", 3)]


def test_a_part_that_is_lost_is_asked_for_again() -> None:
    link = Link(lose={1, 3, 4})
    assert fetched(link) == ("bundle-1", CONTENT)
    assert [each.part for each in link.requests] == [1, 1, 2, 2, 2, 3]


def test_a_device_that_restarts_begins_again() -> None:
    link = Link(changes={3})
    assert fetched(link) == ("bundle-2", CONTENT)
    assert [each.part for each in link.requests] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (Link(lose=set(range(9))), "did not answer within"),
        (Link(changes=set(range(2, 99))), "made another support bundle"),
        (Link(**{DIGEST: "sha-256=0"}), "did not arrive whole"),
        (Link(**{BUNDLE_NAME: ""}), "names no support bundle"),
        (Link(**{PART: "2/1"}), "does not answer as an Eyot daemon"),
        (Link(**{PART: "1/99999"}), "does not answer as an Eyot daemon"),
        (Link(**{REFUSED: "too\x1b large"}), "refuses: too\\x1b large"),
        (Link(**{"Status": "503"}), "does not answer"),
    ],
)
def test_what_is_no_bundle(link: Link, said: str) -> None:
    with pytest.raises(Failure) as raised:
        fetched(link)
    assert said in "\n".join(raised.value.lines)
