"""One server's peer in a JetStream conversation: a raw connection that receives answers, deliveries and advisories.

Received messages are kept comparable: placeholders replace times, ids and the names that a server invents.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar

from support.clients.raw_client import RawClient
from support.servers.newer_nats_server import FOLLOWED, VERSION

#: Subjects of answers, deliveries and republished messages in conversations.
INBOX, DELIVERED, REPUBLISHED = "I", "dlv", "rp"
_TIMES = {"created", "time", "ts", "first_ts", "timestamp", "last_active", "pinned_ts", "ack_time", "start", "end"}
_SET_ASIDE = {"last_ts", "active", "pause_remaining", "id", "server", "client"}
_STAMPS = re.compile(rb"((?:Nats-Time-Stamp|Nats-Schedule-Next): )\d[^\r]*")
_PIN = re.compile(rb"(Nats-Pin-Id: )[^\r]*")
#: What mirrors and sources ask for themselves, as often as each server finds right, and the consumers that they get.
_SOURCING_SUBJECTS = (
    b"$JS.S.",
    b"$JS.M.",
    b'"_nats.src',
    b'"consumer":"JS_MIRROR_',
    b'"consumer":"JS_SOURCE_',
    b".JS_SRC_",
)
_OF_A_COPY = re.compile(
    rb'"type":"io.nats.jetstream.advisory.v1.consumer_action".*"consumer":"[A-Za-z0-9]{8}"|"client":{"acc":"[^"]*"}'
)
#: Requests that are made again until both answer the same: what was answered first is in their audits.
_ASKED = re.compile(r"\$JS\.API\.(?:\w+\.)?(?:INFO|LIST|NAMES)\b")
_OF_DELIVERY = re.compile(r"\$JS\.ACK\.\S+")
_CHANGED = {f"io.nats.jetstream.api.v1.stream_{action}_response" for action in ("create", "update")}
_CONSUMER_CREATED = "io.nats.jetstream.api.v1.consumer_create_response"
_UNSORTED = "change to limits violates consumers: "
_NUID = re.compile(r"[A-Za-z0-9]{22}")
_INVENTED = re.compile(r"^(?![a-z]*$)(?![A-Z]*$)[A-Za-z0-9]{8}$")


@dataclass
class Message:
    subject: str
    reply: str
    header: bytes
    payload: bytes

    @property
    def status(self) -> bytes:
        """The status of a message that carries one, as `404 No Messages`."""
        line = self.header.partition(b"\r\n")[0]
        return line.removeprefix(b"NATS/1.0").strip()


class Peer:
    """A connection to one server.

    `heard` maps each subject of answers to what came on it. `copies`: there was a mirror or source, whose questions are
    counted too. `restarted`: the servers were started again.
    """

    copies: ClassVar[bool] = False
    restarted: ClassVar[bool] = False

    def __init__(self, port: int, **connect: str) -> None:
        """`connect`: who it is, as fields of CONNECT."""
        self._connect = connect
        self.heard: defaultdict[str, list[Message]] = defaultdict(list)
        self.events: list[Message] = []
        self.invented: dict[str, str] = {}
        self.connect(port)

    def connect(self, port: int) -> None:
        """Connect, or connect again."""
        self.client = RawClient(
            port, b'{"verbose":false,"headers":true,"no_responders":true,"name":"talk"}', **self._connect
        )
        subjects = (f"{INBOX}.>", f"{DELIVERED}.x", f"{DELIVERED}.y", f"{REPUBLISHED}.>", "$JS.EVENT.>")
        self.client.send(
            b"".join(b"SUB %b %d\r\n" % (subject.encode(), sid) for sid, subject in enumerate(subjects, 1))
        )
        self.client.ask()

    def say(self, subject: str, payload: bytes = b"", header: bytes = b"", reply: str = "") -> None:
        words = b" ".join(word.encode() for word in (subject, reply) if word)
        if b'"mirror"' in payload or b'"sources"' in payload:
            Peer.copies = True
        if header:
            sizes = b"%d %d" % (len(header), len(header) + len(payload))
            self.client.send(b"HPUB %b %b\r\n%b%b\r\n" % (words, sizes, header, payload))
        else:
            self.client.send(b"PUB %b %d\r\n%b\r\n" % (words, len(payload), payload))

    def listen(self, timeout_s: float) -> bool:
        """Take in what has come, or what comes next within `timeout_s`. Says whether something came."""
        deadline = time.monotonic() + timeout_s
        while not self._take():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.client.sock.settimeout(left)
            try:
                data = self.client.sock.recv(1 << 18)
            except TimeoutError:
                return False
            assert data, "the server hung up"
            self.client.buffer += data
        return True

    def _take(self) -> bool:
        """Take messages from the buffer."""
        buffer, at, came = self.client.buffer, 0, False
        while (end := buffer.find(b"\r\n", at)) >= 0:
            words = buffer[at:end].split()
            if not words or words[0].upper() not in (b"MSG", b"HMSG"):
                if words and words[0] == b"-ERR":
                    self.heard["-ERR"] = [
                        Message("-ERR", "", b"", buffer[at:end])
                    ]  # twice if the publish came in two parts
                elif words and words[0] == b"PING":
                    self.client.send(b"PONG\r\n")
                at = end + 2
                continue
            total = int(words[-1])
            if len(buffer) < end + 2 + total + 2:
                break
            body = buffer[end + 2 : end + 2 + total]
            size = int(words[-2]) if words[0] == b"HMSG" else 0
            reply = words[3].decode() if len(words) == (6 if words[0] == b"HMSG" else 5) else ""
            self._file(Message(words[1].decode(), reply, body[:size], body[size:]))
            came = True
            at = end + 2 + total + 2
        self.client.buffer = buffer[at:]
        return came

    def _file(self, message: Message) -> None:
        if message.subject.startswith("$JS.EVENT."):
            of_sourcing = any(mark in message.payload for mark in _SOURCING_SUBJECTS)
            if not of_sourcing and not (self.copies and _OF_A_COPY.search(message.payload)):
                self.events.append(message)
        elif not message.status.startswith(b"100") or message.reply:
            self.heard[message.subject].append(message)

    # What can be compared

    def name(self, name: str) -> str:
        """What stands for a name the server invented."""
        if not _INVENTED.match(name):
            return name
        return self.invented.setdefault(name, f"invented-{len(self.invented)}")

    def called(self, text: str) -> str:
        """A text about invented names as this server calls them."""
        for own, common in self.invented.items():
            text = text.replace(common, own)
        return text

    def common(self, value: Any, key: str = "") -> Any:
        """A JSON value with what differs between servers replaced."""
        if isinstance(value, dict):
            if "error" in value:
                # Lists with an error: the schemas allow the one or the other.
                value = {name: each for name, each in value.items() if name not in ("streams", "consumers")}
                words = str(value["error"].get("description", "") if isinstance(value["error"], dict) else "")
                if value.get("type") == "err" and words.startswith("wrong last sequence"):
                    # After an atomic batch that was refused nats-server takes another sequence for the last one.
                    value = {**value, "error": "wrong last sequence"}
                elif words.startswith(_UNSORTED):  # in the order of Go's maps
                    value = {**value, "error": _UNSORTED + ", ".join(sorted(words.removeprefix(_UNSORTED).split(", ")))}
            if "response" in value and _ASKED.match(str(value.get("subject", ""))):
                value = {name: each for name, each in value.items() if name != "response"}
            if "api" in value and self.copies:
                value = {name: each for name, each in value.items() if name not in ("api", "consumers")}
            if self.restarted and value.get("type") == _CONSUMER_CREATED and "error" not in value:
                # nats-server answers the first creation after a start with what it knew at the start.
                value = {name: value[name] for name in ("type", "stream_name", "name")}
            if value.get("type") in _CHANGED:  # whether the origin has refused by now is a matter of the moment
                for copies in ("mirror", "sources"):
                    each = value.get(copies)
                    value = value | {copies: _without_error(each)} if each else value
                if "mirror" in value and "state" in value:  # how much of it is there already as well
                    value = {name: each for name, each in value.items() if name != "state"}
            if value.get("error") == "stream closed":  # of a backup: it depends on how far it has read
                value = {name: each for name, each in value.items() if name != "error"}
            if "num_pending" in value and value.get("config", {}).get("deliver_policy") == "last_per_subject":
                # nats-server counts one message of each subject once it has counted anew, and goes on to deliver all.
                value = {name: each for name, each in value.items() if name != "num_pending"}
            if value.get("messages") == 0 and value.get("last_seq") == 0:  # nothing was there yet, purged or not
                value = {**value, "first_seq": 0}
            if "reset_seq" in value and any(
                value.get("config", {}).get(each) for each in ("filter_subject", "filter_subjects")
            ):
                value = {name: each for name, each in value.items() if name != "reset_seq"}  # shows the same
            if value.get("deleted") == [0]:  # a message that no stream can have
                value = {name: each for name, each in value.items() if name not in ("deleted", "num_deleted")}
            if "consumer_seq" in value and "stream_seq" in value and "deliveries" not in value:
                # Which of the messages that are not for a consumer it has gone past is shown differently.
                value = {"consumer_seq": value["consumer_seq"]}
            return {self.name(name): self.common(each, name) for name, each in value.items() if name not in _SET_ASIDE}
        if isinstance(value, list):
            return [self.common(each, key) for each in value]
        if key == "level" and VERSION != FOLLOWED:  # of the API
            return "a level"
        if key in _TIMES:
            return "never" if str(value).startswith("0001-") else "a time"
        if isinstance(value, str) and key not in ("hdrs", "data"):
            if key == "_nats.ver":
                return "a version"
            if key == "_nats.level" and VERSION != FOLLOWED:
                return "a level"
            if key in ("request", "response") and value[:1] in "{[":
                return self.common(_parsed(value.encode()))
            value = ".".join(self.name(token) for token in value.split(".")) if key != "description" else value
            return _NUID.sub("<id>", value)
        return value

    def shown(self, message: Message) -> tuple[str, str, Any, Any]:
        """A message as it can be compared: subject, acknowledgement subject, header, payload."""
        header = _PIN.sub(rb"\1<id>", _STAMPS.sub(rb"\1<time>", message.header)).decode()
        header = _OF_DELIVERY.sub(lambda found: self.ack_words(found[0]), header)
        subject = "" if message.subject.startswith(f"{INBOX}.") else _NUID.sub("<id>", message.subject)
        subject = ".".join(self.name(token) for token in subject.split("."))
        return (subject, self.ack_words(message.reply), self.named(header), self.body(message.payload))

    def named(self, text: str) -> str:
        for own, common in self.invented.items():
            text = text.replace(own, common)
        return text

    def ack_words(self, reply: str) -> str:
        tokens = [self.name(token) for token in reply.split(".")]
        if tokens[:2] == ["$JS", "ACK"]:
            tokens[7] = "<time>"
        elif tokens[:2] == ["$JS", "FC"]:
            tokens[-1] = "<token>"
        return ".".join(tokens)

    def body(self, payload: bytes) -> Any:
        value = _parsed(payload)
        if isinstance(value, dict):
            value = self.common(value)
            stored = value.get("message")
            if isinstance(stored, dict):
                for part in ("hdrs", "data"):
                    if isinstance(stored.get(part), str):
                        raw = base64.b64decode(stored[part])
                        stored[part] = self.named(_STAMPS.sub(rb"\1<time>", raw).decode("utf-8", "replace"))
        return value


def _parsed(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload.decode("utf-8", "replace")


def _without_error(copies: Any) -> Any:
    if isinstance(copies, list):
        return [_without_error(each) for each in copies]
    return {name: each for name, each in copies.items() if name != "error"}
