"""`eyot request --replies` when the time is over before enough answers have come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError

from eyot_cli.messages.request import Wanted, _print_answer, _print_answers
from eyot_cli.terminal.failure import Failure


class OneAnswer:
    """A client, and its subscription, that gets one answer before the time is over."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, str]] = []
        self._answers = [b"first"]

    def new_inbox(self) -> str:
        return "_INBOX.1"

    async def subscribe(self, inbox: str) -> OneAnswer:
        assert inbox == "_INBOX.1"
        return self

    async def publish(self, subject: str, body: bytes, reply: str, headers: dict[str, str] | None) -> None:
        self.published.append((subject, body, reply))

    async def next_msg(self, timeout: float) -> Msg:
        if not self._answers:
            raise NatsTimeoutError
        client: Any = self
        return Msg(client, data=self._answers.pop())

    async def confirm(self, subject: str) -> None: ...

    async def unsubscribe(self) -> None: ...


def ask(client: OneAnswer, replies: int) -> None:
    connected: Any = client

    async def show(answer: Msg) -> None:
        _print_answer(answer.data)

    asyncio.run(_print_answers(connected, "who", b"?", None, Wanted(replies, 60, None, False), show))


def test_all_that_answer_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    client = OneAnswer()
    ask(client, 0)
    assert client.published == [("who", b"?", "_INBOX.1")]
    assert capsys.readouterr().out == "first\n"


def test_fewer_answers_than_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failure, match=r"^1 of 2 answers on who in 60 s: --timeout waits longer$"):
        ask(OneAnswer(), 2)
    assert capsys.readouterr().out == "first\n", "what has come is printed"


def test_no_answer_at_all() -> None:
    client = OneAnswer()
    ask(client, 1)
    with pytest.raises(Failure, match=r"^0 of any answers on who in 60 s"):
        ask(client, 0)
