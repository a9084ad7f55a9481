"""The client protocol's scanner.

Role "server" reads what clients send (CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG), role "client" what a server sends
(INFO, MSG, HMSG, +OK, -ERR, PING, PONG). Limits and refusals equal nats-server's: the answer to an unknown operation is
`-ERR 'Unknown Protocol Operation'`; unreadable arguments close the connection without a word.
"""

from typing import Final, Literal

from eyot_wire.frames import (
    OK_OP,
    PING_OP,
    PONG_OP,
    Connect,
    Err,
    FrameLine,
    Info,
    Msg,
    Op,
    ProtocolError,
    Pub,
    Sub,
    Unsub,
)
from eyot_wire.grammar import (
    Grammar,
    Verb,
    bad_arguments,
    check_sizes,
    last_size,
    parse_size,
    split_arguments,
    split_interest,
)
from eyot_wire.native import FrameScanner

__all__ = ["ProtocolError", "Scanner"]

DEFAULT_MAX_CONTROL_LINE: Final = 4096
DEFAULT_MAX_PAYLOAD: Final = 1024 * 1024
# A client accepts what its server sends; the limit only bounds memory.
CLIENT_MAX_CONTROL_LINE: Final = 1024 * 1024
CLIENT_MAX_PAYLOAD: Final = 64 * 1024 * 1024


class Scanner(FrameScanner):
    """Scanner of one client connection.

    Limits of None: the role's default. With `batches`, a server gets consecutive publishes as one `Publishes`.
    """

    def __init__(
        self,
        role: Literal["server", "client"] = "server",
        *,
        max_control_line: int | None = None,
        max_payload: int | None = None,
        batches: bool = False,
    ) -> None:
        server = role == "server"
        if max_control_line is None:
            max_control_line = DEFAULT_MAX_CONTROL_LINE if server else CLIENT_MAX_CONTROL_LINE
        if max_payload is None:
            max_payload = DEFAULT_MAX_PAYLOAD if server else CLIENT_MAX_PAYLOAD
        super().__init__(
            FROM_CLIENT if server else FROM_SERVER,
            batches=batches and server,
            max_control_line=max_control_line,
            max_payload=max_payload,
        )


def _pub(argument: bytes, text: bytes) -> FrameLine:
    """Parse PUB <subject> [reply] <size>."""
    parts = split_arguments(argument)
    count = len(parts)
    if count == 2:
        (subject, size), reply = parts, b""
    elif count == 3:
        subject, reply, size = parts
    else:
        raise bad_arguments("PUB", argument)
    total = parse_size(size)
    if total < 0:
        raise bad_arguments("PUB", argument)
    return _publish_line(subject, reply, 0, total, text, size)


def _hpub(argument: bytes, text: bytes) -> FrameLine:
    """Parse HPUB <subject> [reply] <header size> <total size>."""
    parts = split_arguments(argument)
    count = len(parts)
    if count == 3:
        subject, reply = parts[0], b""
    elif count == 4:
        subject, reply = parts[0], parts[1]
    else:
        raise bad_arguments("HPUB", argument)
    header_size, total = parse_size(parts[-2]), parse_size(parts[-1])
    check_sizes("HPUB", argument, header_size, total)
    sizes = parts[-2] + b" " + parts[-1] if header_size else parts[-1]
    return _publish_line(subject, reply, header_size, total, text, sizes)


def _publish_line(subject: bytes, reply: bytes, header_size: int, total: int, text: bytes, sizes: bytes) -> FrameLine:
    """Return a publish in any spelling; the text after the subject is rewritten."""
    lead = (reply + b" " + sizes if reply else sizes) + b"\r\n"
    return FrameLine(subject, reply, header_size, total, len(text), len(text), lead)


def _quick(text: bytes) -> FrameLine | Op | None:
    """Parse PUB, HPUB, SUB and UNSUB in the spelling of clients: single spaces and CRLF."""
    parts = text.split(b" ")
    count = len(parts)
    if 9 in text or b"" in parts:
        return None
    verb = parts[0]
    if verb in _PUB:
        return _quick_publish(text, parts, count, 0)
    if verb in _HPUB and count > 3:
        header_size = parse_size(parts[-2])
        return _quick_publish(text, parts, count - 1, header_size) if header_size > 0 else None
    last = parts[-1]
    if last[-2:] != b"\r\n" or len(last) == 2 or text.count(13) != 1:
        return None
    if verb in _SUB and 3 <= count <= 4:
        return Sub(parts[1], parts[2] if count == 4 else b"", last[:-2])
    if verb in _UNSUB and count == 2:
        return Unsub(last[:-2], 0)
    return None


_PUB: Final = (b"PUB", b"pub")
_HPUB: Final = (b"HPUB", b"hpub")
_SUB: Final = (b"SUB", b"sub")
_UNSUB: Final = (b"UNSUB", b"unsub")


def _quick_publish(text: bytes, parts: list[bytes], count: int, header_size: int) -> FrameLine | None:
    """Parse a publish, keeping the text after the subject verbatim. `count`: parts without the header's size."""
    total = last_size(parts[-1])
    if total < header_size or not 3 <= count <= 4:
        return None
    subject = parts[1]
    skip = len(parts[0]) + len(subject) + 2
    return FrameLine(subject, parts[2] if count == 4 else b"", header_size, total, len(text), skip)


def _sub(argument: bytes, text: bytes) -> Sub:
    """Parse SUB <subject> [queue] <sid>."""
    parts = split_interest(argument)
    if len(parts) == 2:
        return Sub(parts[0], b"", parts[1])
    if len(parts) == 3:
        return Sub(parts[0], parts[1], parts[2])
    raise bad_arguments("SUB", argument)


def _unsub(argument: bytes, text: bytes) -> Unsub:
    """Parse UNSUB <sid> [max_msgs]; a malformed maximum unsubscribes at once."""
    parts = split_interest(argument)
    if len(parts) == 1:
        return Unsub(parts[0], 0)
    if len(parts) == 2:
        return Unsub(parts[0], max(0, parse_size(parts[1])))
    raise bad_arguments("UNSUB", argument)


def _msg(argument: bytes, text: bytes) -> FrameLine:
    """Parse MSG <subject> <sid> [reply] <size>."""
    parts = split_arguments(argument)
    if len(parts) not in (3, 4):
        raise bad_arguments("MSG", argument)
    total = parse_size(parts[-1])
    check_sizes("MSG", argument, 0, total)
    reply = parts[2] if len(parts) == 4 else b""
    return FrameLine(parts[0], reply, 0, total, len(text), len(text), sid=parts[1])


def _hmsg(argument: bytes, text: bytes) -> FrameLine:
    """Parse HMSG <subject> <sid> [reply] <header size> <total size>."""
    parts = split_arguments(argument)
    if len(parts) not in (4, 5):
        raise bad_arguments("HMSG", argument)
    header_size, total = parse_size(parts[-2]), parse_size(parts[-1])
    check_sizes("HMSG", argument, header_size, total)
    reply = parts[2] if len(parts) == 5 else b""
    return FrameLine(parts[0], reply, header_size, total, len(text), len(text), sid=parts[1])


def _quick_msg(text: bytes) -> FrameLine | None:
    """Parse MSG in the spelling of servers."""
    parts = text.split(b" ")
    count = len(parts)
    if parts[0] != b"MSG" or not 4 <= count <= 5 or 9 in text or b"" in parts:
        return None
    total = last_size(parts[-1])
    if total < 0:
        return None
    return FrameLine(parts[1], parts[3] if count == 5 else b"", 0, total, len(text), len(text), sid=parts[2])


def _make_msg(line: FrameLine, kept: bytes) -> Msg:
    size = line.header_size
    if size:
        return Msg(line.subject, line.sid, line.reply, kept[:size], kept[size:])
    return Msg(line.subject, line.sid, line.reply, b"", kept)


def connect_op(argument: bytes, text: bytes) -> Op:
    return Connect(argument)


def info_op(argument: bytes, text: bytes) -> Op:
    if not argument:
        raise bad_arguments("INFO", argument)
    return Info(argument)


def err_op(argument: bytes, text: bytes) -> Op:
    stripped = argument.strip()
    if len(stripped) >= 2 and stripped[:1] == stripped[-1:] == b"'":
        stripped = stripped[1:-1]
    return Err(stripped.decode("utf-8", "replace"))


def ping_op(argument: bytes, text: bytes) -> Op:
    return PING_OP


def pong_op(argument: bytes, text: bytes) -> Op:
    return PONG_OP


def ok_op(argument: bytes, text: bytes) -> Op:
    return OK_OP


# Operations of both sides in either protocol.
COMMON_VERBS: Final = [
    Verb(b"PING", "bare", ping_op),
    Verb(b"PONG", "bare", pong_op),
    Verb(b"INFO", "open", info_op),
    Verb(b"-ERR", "space", err_op),
    Verb(b"+OK", "bare", ok_op),
]

_CLIENT_VERBS: Final = [
    Verb(b"PUB", "space", _pub),
    Verb(b"HPUB", "space", _hpub),
    Verb(b"SUB", "space", _sub),
    Verb(b"UNSUB", "space", _unsub),
    Verb(b"CONNECT", "open", connect_op),
    *COMMON_VERBS,
]

_SERVER_VERBS: Final = [
    Verb(b"MSG", "space", _msg),
    Verb(b"HMSG", "space", _hmsg),
    *COMMON_VERBS,
]

FROM_CLIENT: Final = Grammar(_CLIENT_VERBS, Pub, _quick, message="PUB", keep_end=True)
FROM_SERVER: Final = Grammar(_SERVER_VERBS, _make_msg, _quick_msg, message="MSG", keep_end=False)
