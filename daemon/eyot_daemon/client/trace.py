"""The protocol trace (`-V`): every operation that a client sends and receives, in nats-server's form.

    127.0.0.1:50782 - cid:5 - "v1:go:n" - "$G/user:u" - <<- [PUB foo 5]
    127.0.0.1:50782 - cid:5 - "v1:go:n" - "$G/user:u" - <<- MSG_PAYLOAD: ["hello"]

Payloads are shortened to `max_traced_msg_len`, and CONNECT's secrets are replaced. While tracing is on, deliveries take
the general path (`Subscription.slow`), so that all output passes `sent`.
"""

from __future__ import annotations

import json
import logging
import re

from eyot_daemon.config.options import Options
from eyot_daemon.process.logs import TRACE
from eyot_daemon.router.known_client import KnownClient
from eyot_wire.frames import Connect, Err, Msg, Ok, Op, Ping, Pong, ProtocolError, Sub, Unsub
from eyot_wire.native import Publishes
from eyot_wire.scanner import Scanner

log = logging.getLogger("eyot.trace")

_SECRETS = re.compile(rb'("(?:pass|auth_token|jwt|sig|proxy_sig)"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE)
_HIDDEN = rb'\1"[REDACTED]"'


def redacted(connect: bytes) -> bytes:
    """Return a CONNECT's JSON without its secrets."""
    return _SECRETS.sub(_HIDDEN, connect)


class ClientTrace:
    """Traces all clients; those of the system account only if the trace is verbose."""

    def __init__(self, options: Options) -> None:
        self._verbose = options.trace_verbose
        self._headers = options.trace_headers
        self._payload_bytes_max = options.max_traced_msg_len

    def received(self, client: KnownClient, op: Op) -> None:
        """Trace an operation (or consecutive publishes) before it is processed."""
        if self._passes_over(client):
            return
        if type(op) is not Publishes:
            text = _spoken(op)
            if text:
                self._line(client, "<<-", text)
            return
        for index in range(len(op)):
            line = op.line(index)
            words = [b"HPUB" if line.header_size else b"PUB", line.subject, line.reply]
            words += [b"%d" % line.header_size] if line.header_size else []
            self._line(client, "<<-", b" ".join(word for word in [*words, b"%d" % line.total] if word))
            self._payload(client, "<<-", *op.content(index))

    def sent(self, client: KnownClient, data: bytes) -> None:
        """Whole operations that were put into a client's buffer."""
        if self._passes_over(client):
            return
        try:
            ops = Scanner("client").feed(data)
        except ProtocolError as error:
            ops = error.ops
        for op in ops:
            if type(op) is Msg:
                sizes = b"%d" % (len(op.header) + len(op.payload))
                if op.header:
                    sizes = b"%d %b" % (len(op.header), sizes)
                words = [b"HMSG" if op.header else b"MSG", op.subject, op.sid, op.reply, sizes]
                self._line(client, "->>", b" ".join(word for word in words if word))
                self._payload(client, "->>", op.header, op.payload)
            else:
                text = _spoken(op)
                if text:
                    self._line(client, "->>", text)

    def _passes_over(self, client: KnownClient) -> bool:
        return not self._verbose and client.account is not None and client.account.is_system

    def _line(self, client: KnownClient, direction: str, text: bytes) -> None:
        log.log(TRACE, "%r - %s [%s]", client, direction, text.decode("utf-8", "backslashreplace"))

    def _payload(self, client: KnownClient, direction: str, header: bytes, payload: bytes) -> None:
        shown = header if self._headers and header else bytes(header) + bytes(payload)
        most = self._payload_bytes_max
        if most and len(shown) > most:
            shown = shown[:most] + b"..."
        quoted = json.dumps(shown.decode("utf-8", "backslashreplace"), ensure_ascii=False)
        log.log(TRACE, "%r - %s MSG_PAYLOAD: [%s]", client, direction, quoted)


def _spoken(op: Op) -> bytes:
    """Return an operation without payload as text; b"" for operations that are not traced."""
    if type(op) is Connect:
        return b"CONNECT " + redacted(op.json)
    if type(op) is Sub:
        return b" ".join(word for word in (b"SUB", op.subject, op.queue, op.sid) if word)
    if type(op) is Unsub:
        return b"UNSUB %b %d" % (op.sid, op.max_msgs) if op.max_msgs else b"UNSUB " + op.sid
    if type(op) is Ping:
        return b"PING"
    if type(op) is Pong:
        return b"PONG"
    if type(op) is Ok:
        return b"OK"
    if type(op) is Err:
        return b"-ERR " + op.text.encode()
    return b""
