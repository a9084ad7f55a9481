"""Log records for systemd's journal, with fields: its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

    PRIORITY                                 syslog's number of the level
    SYSLOG_IDENTIFIER, MESSAGE               `eyotd`, and the text without time and pid, which the journal has itself
    EYOT_ACCOUNT, EYOT_STREAM, EYOT_LINK     what the record is about, where it is about one
    MESSAGE_ID                               the kind of record; `journalctl -x` shows its entry in systemd/eyot.catalog: what to do

Fields are taken from a record's template and arguments: who logs writes for people, and nothing else.
"""

from __future__ import annotations

import errno
import logging
import socket
from pathlib import Path
from typing import NamedTuple

from eyot_wire.quoting import printable

#: Where systemd-journald takes records.
JOURNAL_SOCKET = "/run/systemd/journal/socket"
#: Bytes of a message that is cut because the kernel takes no datagram of its size.
_CUT = 16 * 1024
_STREAM_PREFIX = "Stream '%s > %s'"
_ACCOUNT, _STREAM, _LINK = "EYOT_ACCOUNT", "EYOT_STREAM", "EYOT_LINK"


class Kind(NamedTuple):
    """One kind of record: its id in the catalog, and the fields that its first arguments are; "" for none."""

    message_id: str
    fields: tuple[str, ...] = ()


#: By the template of the record. Ids never change: operators search for them.
KINDS = {
    "%s: connection to %s closed: %s": Kind("f555773ccde34fbf96f45586c5854286", (_LINK,)),
    "Leafnode connection of account %s to %s closed: %s": Kind("f555773ccde34fbf96f45586c5854286", (_ACCOUNT, _LINK)),
    "%s: no connection to %s (attempt %d): %s": Kind("f4acb930cd7a46189337ffb11c7a6ce8", (_LINK,)),
    "Error trying to connect as leafnode to remote server %s (attempt %d): %s": Kind(
        "f4acb930cd7a46189337ffb11c7a6ce8", (_LINK,)
    ),
    "Stream '%s > %s' cannot store: %s": Kind("3df5cbd91f6a474b9fe1b950cfd715b8", (_ACCOUNT, _STREAM)),
    "Stream '%s > %s': dropped unconfirmed by %s: %d, sequences %s, reason %s": Kind(
        "6fbda619e9684e1eb25e5720d0b76ebb", (_ACCOUNT, _STREAM)
    ),
    "Stream '%s > %s' is damaged, and offline: %s. `eyot-check --repair` keeps what can be read": Kind(
        "fa59c30d97d7454190671a7d967a9feb", (_ACCOUNT, _STREAM)
    ),
    "Stream '%s > %s': message %d is damaged": Kind("fa59c30d97d7454190671a7d967a9feb", (_ACCOUNT, _STREAM)),
    "The store is damaged: %s": Kind("fa59c30d97d7454190671a7d967a9feb"),
    "The token for link %s expires on %s, in less than %d days": Kind("7f982337217a45ebb5fbd4cf5811734c", (_LINK,)),
    "The token for link %s expired on %s: the hub refuses it, publishing here goes on": Kind(
        "7f982337217a45ebb5fbd4cf5811734c", (_LINK,)
    ),
    "TLS certificate %s %s": Kind("80d7e0f8865c48e09f7b3a33fcd344f5"),
    "%r - leafnodes %r and %r have the same JetStream domain %r: the second is refused": Kind(
        "f544d7ab7d4c4574b3101118601ead6b"
    ),
    "%r - another leafnode of %s has this server's JetStream domain %r": Kind("f544d7ab7d4c4574b3101118601ead6b"),
    "The clock says %s, the last run ended after %s: until it is known to be right, no message ages by the time between": Kind(
        "e6b8025d7c20411fbf6fa83302710a6c"
    ),
    "systemd's watchdog is not notified: %s": Kind("3764d658e5454a858a8c1e98d0026c7f"),
    "%s. A restart does not mend this": Kind("22c202501edc48b9b00aa90a78f01f32"),
    "Failed to reload server configuration: %s": Kind("0a786fb76feb48a6a02db541152b871d"),
}
_NO_KIND = Kind("")
_ABOUT_STREAM = Kind("", (_ACCOUNT, _STREAM))


class JournalHandler(logging.Handler):
    """Sends records to journald. A record that cannot be sent goes to `fallback`, which writes lines to stderr."""

    def __init__(self, fallback: logging.Handler, priorities: dict[int, int], path: str = JOURNAL_SOCKET) -> None:
        super().__init__()
        self._fallback = fallback
        self._priorities = priorities
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self._text(record)
            try:
                self._sock.sendto(encode(self._fields(record, text)), self._path)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                self._sock.sendto(encode(self._fields(record, f"{text[:_CUT]} ...")), self._path)
        except OSError:
            self._fallback.handle(record)

    def close(self) -> None:
        self._sock.close()
        self._fallback.close()
        super().close()

    def _text(self, record: logging.LogRecord) -> str:
        text = printable(record.getMessage())
        if not record.exc_info:
            return text
        trace = logging.Formatter().formatException(record.exc_info).split("\n")
        return "\n".join((text, *(f"    {printable(line)}" for line in trace)))

    def _fields(self, record: logging.LogRecord, text: str) -> list[tuple[str, str]]:
        fields = [
            ("PRIORITY", str(self._priorities.get(record.levelno, 6))),
            ("SYSLOG_IDENTIFIER", "eyotd"),
            ("MESSAGE", text),
        ]
        template, arguments = record.msg, record.args
        if not isinstance(template, str) or not isinstance(arguments, tuple):
            return fields
        kind = KINDS.get(template, _ABOUT_STREAM if template.startswith(_STREAM_PREFIX) else _NO_KIND)
        if kind.message_id:
            fields.append(("MESSAGE_ID", kind.message_id))
        fields += [(name, printable(str(value))) for name, value in zip(kind.fields, arguments, strict=False) if name]
        return fields


def encode(fields: list[tuple[str, str]]) -> bytes:
    """Return one datagram. A value with a line feed is preceded by its length, 64 bits little-endian."""
    parts = []
    for name, value in fields:
        content = value.encode("utf-8", "backslashreplace")
        if b"\n" in content:
            parts.append(b"%b\n%b%b\n" % (name.encode(), len(content).to_bytes(8, "little"), content))
        else:
            parts.append(b"%b=%b\n" % (name.encode(), content))
    return b"".join(parts)


def journal_listens(path: str = JOURNAL_SOCKET) -> bool:
    """Return whether journald's socket is there."""
    return Path(path).is_socket()
