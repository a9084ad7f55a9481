"""The leaf protocol's scanner: LS+, LS-, LMSG, HMSG, CONNECT, INFO, PING, PONG, -ERR, for both sides of a link.

A message is `LMSG <subject> [reply] <size>`, or with queue groups `LMSG <subject> + <reply> <queue>… <size>` and `LMSG
<subject> | <queue>… <size>`. HMSG has the header's size before the total. As in nats-server, unreadable arguments end
the link without a word.
"""

from typing import Final

from eyot_wire.frames import FrameLine, LeafMsg, LsAdd, LsDel, ProtocolError
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
from eyot_wire.scanner import COMMON_VERBS, DEFAULT_MAX_CONTROL_LINE, DEFAULT_MAX_PAYLOAD, connect_op

__all__ = ["LeafScanner", "ProtocolError"]

# nats-server allows a leaf connection control lines sixteen times as long as a client's.
DEFAULT_LEAF_CONTROL_LINE: Final = 16 * DEFAULT_MAX_CONTROL_LINE


class LeafScanner(FrameScanner):
    """Scanner of one leaf link, for either side."""

    def __init__(
        self, *, max_control_line: int = DEFAULT_LEAF_CONTROL_LINE, max_payload: int = DEFAULT_MAX_PAYLOAD
    ) -> None:
        super().__init__(FROM_LEAF, max_control_line=max_control_line, max_payload=max_payload)


def _ls_add(argument: bytes, text: bytes) -> LsAdd:
    parts = split_interest(argument)
    if len(parts) == 1:
        return LsAdd(parts[0])
    if len(parts) == 3:
        return LsAdd(parts[0], parts[1], max(1, parse_size(parts[2])))
    raise bad_arguments("LS+", argument)


def _ls_del(argument: bytes, text: bytes) -> LsDel:
    parts = split_interest(argument)
    if len(parts) == 1:
        return LsDel(parts[0])
    if len(parts) == 2:
        return LsDel(parts[0], parts[1])
    raise bad_arguments("LS-", argument)


def _lmsg(argument: bytes, text: bytes) -> FrameLine:
    parts = split_arguments(argument)
    if len(parts) < 2:
        raise bad_arguments("LMSG", argument)
    reply, queues = _routing("LMSG", argument, parts[1:-1]) if len(parts) > 2 else (b"", ())
    total = parse_size(parts[-1])
    check_sizes("LMSG", argument, 0, total)
    return FrameLine(parts[0], reply, 0, total, len(text), len(text), queues=queues)


def _hmsg(argument: bytes, text: bytes) -> FrameLine:
    parts = split_arguments(argument)
    if len(parts) < 3:
        raise bad_arguments("HMSG", argument)
    reply, queues = _routing("HMSG", argument, parts[1:-2]) if len(parts) > 3 else (b"", ())
    header_size, total = parse_size(parts[-2]), parse_size(parts[-1])
    check_sizes("HMSG", argument, header_size, total)
    return FrameLine(parts[0], reply, header_size, total, len(text), len(text), queues=queues)


def _quick(text: bytes) -> FrameLine | None:
    """Parse messages without queue groups in the spelling of servers."""
    parts = text.split(b" ")
    if 9 in text or b"" in parts:
        return None
    header_size, count, verb = 0, len(parts), parts[0]
    if count < 3:
        return None
    total = last_size(parts[-1])
    if verb == b"HMSG":
        count -= 1
        header_size = parse_size(parts[-2])
        if not 0 <= header_size <= total:
            return None
    elif verb != b"LMSG":
        return None
    if total < 0 or not 3 <= count <= 4:
        return None
    return FrameLine(parts[1], parts[2] if count == 4 else b"", header_size, total, len(text), len(text))


def _routing(operation: str, argument: bytes, middle: list[bytes]) -> tuple[bytes, tuple[bytes, ...]]:
    """Return reply and queue groups from the arguments between subject and sizes."""
    if len(middle) == 1:
        return middle[0], ()
    if middle[0] == b"+":
        return middle[1], tuple(middle[2:])
    if middle[0] == b"|":
        return b"", tuple(middle[1:])
    raise bad_arguments(operation, argument)


def _make_leaf_msg(line: FrameLine, kept: bytes) -> LeafMsg:
    size = line.header_size
    if size:
        return LeafMsg(line.subject, line.reply, kept[:size], kept[size:], line.queues)
    return LeafMsg(line.subject, line.reply, b"", kept, line.queues)


_VERBS: Final = [
    Verb(b"LMSG", "space", _lmsg),
    Verb(b"HMSG", "space", _hmsg),
    Verb(b"LS+", "space", _ls_add),
    Verb(b"LS-", "space", _ls_del),
    Verb(b"CONNECT", "open", connect_op),
    *COMMON_VERBS,
]

FROM_LEAF: Final = Grammar(_VERBS, _make_leaf_msg, _quick, message="LMSG", keep_end=False)
