"""`eyot bench` counts messages in bytes that are split anywhere."""

from __future__ import annotations

import pytest

from eyot_cli.bench.commands import _shares
from eyot_cli.bench.counting import MessageCounter

BODY = b"x\r\nMSG a 1 3\r\nPING\r\n"
SENT = (
    b'INFO {"a":1}\r\n'
    b"MSG a.b 900 %d\r\n%b\r\n"
    b"MSG a.b 900 _INBOX.1 0\r\n\r\n"
    b"PING\r\n"
    b"HMSG a.b 900 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n"
    b"-ERR 'no'\r\n"
) % (len(BODY), BODY)  # fmt: skip
LINES = [b'INFO {"a":1}', b"PING", b"-ERR 'no'"]
PAYLOADS = [BODY, b"", b"NATS/1.0\r\nA: b\r\n\r\nxy"]


@pytest.mark.parametrize("step", [1, 2, 3, 7, len(SENT)])
def test_frames_split_anywhere(step: int) -> None:
    lines: list[bytes] = []
    payloads: list[bytes] = []
    counter = MessageCounter(lines.append, payloads.append)
    for at in range(0, len(SENT), step):
        counter.feed(SENT[at : at + step])
    assert lines == LINES
    assert payloads == PAYLOADS
    assert (counter.messages, counter.payload_bytes) == (3, len(BODY) + 20)


def test_a_message_without_a_size() -> None:
    with pytest.raises(ValueError, match="many"):
        MessageCounter(lambda _line: None).feed(b"MSG a 1 many\r\n")


def test_clients_share_the_messages() -> None:
    assert _shares(10, 3) == [4, 3, 3]
    assert _shares(2, 5) == [1, 1]
