"""Selects a message's lane on a link (`leaf/outbox.py`) by subject and reply.

A delivery has its stream in the acknowledgement subject, a flow-control request in the subject of its answer. Urgent
messages are answers to flow control, and requests to JetStream's API with their answers: few and small, and whole
streams wait for them. Messages stored through the API (`$JS.<domain>.API.$KV.>`, `$OBJ`) are ordinary data.
"""

from __future__ import annotations

from eyot_wire.jetstream.ack import PREFIX

_FLOW_CONTROL = b"$JS.FC."
_REPLIES = b"$JSC.R."
_API_WORDS = (b"CONSUMER", b"STREAM", b"DIRECT", b"INFO", b"ACCOUNT", b"META", b"SERVER")


def delivered_stream(reply: bytes) -> bytes:
    """Return the stream of a delivery or flow-control request with this reply; b"" for any other message."""
    if reply.startswith(PREFIX):
        tokens = reply.split(b".", 8)
        if len(tokens) < 9:
            return b""
        # In the short form the ninth token is the last, a number; the long form has the domain and the account in front.
        return tokens[2] if bytes.isdigit(tokens[8].partition(b"@")[0]) else tokens[4]
    if reply.startswith(_FLOW_CONTROL):
        tokens = reply.split(b".")
        return tokens[2] if len(tokens) == 5 else tokens[4] if len(tokens) == 7 else b""
    return b""


def is_urgent(subject: bytes) -> bool:
    """Return whether a message on this subject precedes others."""
    if not subject.startswith(b"$JS"):
        return False
    if subject.startswith((_FLOW_CONTROL, _REPLIES)):
        return True
    api = subject.find(b"API.", 0, 128)
    return api > 0 and subject.startswith(_API_WORDS, api + 4)
