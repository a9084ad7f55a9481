"""Converts mosquitto's `connection` blocks to `eyot { bridges { } }`. What has no equivalent is told line by line.

mosquitto's bridge forwards what its clients publish; a bridge here forwards streams. The configuration therefore names a
stream for each bridge that sends, and the note says how it is made.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final

from eyot_cli.mqtt.conf_text import Block, Quoted
from eyot_cli.mqtt.mosquitto_conf import Line, Section
from eyot_wire.digits import is_digits, parse_uint
from eyot_wire.mqtt import topics

Tell = Callable[..., None]

_TLS: Final = {"bridge_cafile": "ca_file", "bridge_certfile": "cert_file", "bridge_keyfile": "key_file"}
_VERSIONS: Final = {"mqttv311": "3.1.1", "mqttv50": "5.0"}
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_DIRECTIONS: Final = ("out", "in", "both")
_KEEPALIVE_LEAST: Final = 5

#: Settings whose purpose is fulfilled in another way, whatever their value.
_NOT_NEEDED: Final = {
    "bridge_attempt_unsubscribe": "the bridge subscribes to what its rules name and to nothing else",
    "idle_timeout": "the bridge is always connected",
    "local_clientid": "the bridge is no client of its own server",
    "local_cleansession": "what waits for the broker is in the stream",
    "local_password": "the bridge is no client of its own server",
    "local_username": "the bridge is no client of its own server",
    "notification_topic": "eyot status and the metrics show the connection",
    "notifications": "eyot status and the metrics show the connection; no topic does",
    "notifications_local_only": "eyot status and the metrics show the connection",
    "round_robin": "the addresses are tried in turn",
    "threshold": "the bridge is always connected",
    "try_private": "with MQTT 5, no local keeps the broker from sending back what the bridge published",
}
_NOT_OFFERED: Final = {
    "bridge_capath": "join the authorities in one file: tls { ca_file }",
    "bridge_identity": "pre-shared keys are not offered: use certificates, or user and password over TLS",
    "bridge_insecure": "the broker's certificate must have the host's name",
    "bridge_psk": "pre-shared keys are not offered: use certificates, or user and password over TLS",
    "bridge_tls_version": "TLS 1.2 and 1.3 are offered",
    "start_type": "bridges are always connected: `disabled: true` keeps one from it",
}
_SAME: Final = {
    "clientid": "remote_clientid",
    "username": "remote_username",
    "password": "remote_password",
    "addresses": "address",
}


def convert_bridge(section: Section, tell: Tell) -> tuple[str, Block] | None:
    """Return name and block of a bridge; None if it cannot be one. `tell(line, text, lost=...)` notes what is not converted."""
    return _Conversion(section, tell).result()


class _Conversion:
    def __init__(self, section: Section, tell: Tell) -> None:
        assert section.head is not None
        self._head = section.head
        self._section = section
        self._tell = tell
        self._out: list[Block] = []
        self._in: list[Block] = []
        self._subjects: list[str] = []

    def result(self) -> tuple[str, Block] | None:
        """See `convert_bridge`."""
        name = "".join(each if each.isalnum() or each in "-_" else "-" for each in self._head.value)
        address = self._get("address")
        for line in self._section.lines:
            self._line(line)
        if not name or address is None or not (self._out or self._in):
            self._tell(self._head, "a bridge needs a name, an address and topics")
            return None
        secure = any(line.key in _TLS or line.key == "bridge_capath" for line in self._section.lines)
        block = Block()
        block.put("urls", [Quoted(_url(each, secure=secure)) for each in address.value.split()])
        self._login(block)
        self._put_tls(block, secure=secure)
        if self._out:
            stream = f"BRIDGE_{name}"
            block.put("streams", [Quoted(stream)], f"subjects: {' '.join(self._subjects)}")
            text = (
                f"the bridge forwards a stream that you create: {stream}, with the subjects {' '.join(self._subjects)}"
            )
            if ">" in self._subjects:
                text += "; instead of >, which no stream may have, name the first levels of your topics"
            self._tell(self._head, text)
            block.put("start", Quoted("new"))
        rules = Block()
        for direction, found in (("out", self._out), ("in", self._in)):
            if found:
                rules.put(direction, found)
        block.put("topics", rules)
        return name, block

    def _get(self, key: str) -> Line | None:
        return next((line for line in reversed(self._section.lines) if _SAME.get(line.key, line.key) == key), None)

    def _login(self, block: Block) -> None:
        client_id, user, password = map(self._get, ("remote_clientid", "remote_username", "remote_password"))
        block.put("client_id", Quoted(client_id.value if client_id is not None else self._head.value))
        if user is not None:
            credentials = Block()
            credentials.put("user", Quoted(user.value))
            if password is not None:
                credentials.put("password", Quoted(password.value), "password_file keeps it out of this file")
            block.put("credentials", credentials)
        version = self._get("bridge_protocol_version")
        block.put("protocol_version", Quoted(_VERSIONS.get("" if version is None else version.value, "3.1.1")))
        keepalive = self._get("keepalive_interval")
        seconds = None if keepalive is None else parse_uint(keepalive.value)
        if seconds is not None and seconds >= _KEEPALIVE_LEAST:
            block.put("keep_alive", seconds)

    def _put_tls(self, block: Block, *, secure: bool) -> None:
        tls = Block()
        for line in self._section.lines:
            if line.key in _TLS:
                tls.put(_TLS[line.key], Quoted(str(line.file.parent / line.value)))
        alpn = self._get("bridge_alpn")
        if secure and tls:
            block.put("tls", tls)
        if alpn is not None:
            block.put("alpn", Quoted(alpn.value))

    def _line(self, line: Line) -> None:
        key, value = _SAME.get(line.key, line.key), line.value
        if key == "topic":
            self._topic(line)
        elif key == "cleansession":
            if line.is_on:
                self._tell(line, "the bridge keeps its session: what the broker has for it waits there", lost=False)
        elif key == "restart_timeout":
            self._tell(line, "reconnect (1 s) is the usual interval", lost=False)
        elif key == "bridge_insecure":
            if line.is_on:
                self._tell(line, _NOT_OFFERED[key])
        elif key == "start_type" and value == "automatic":
            pass
        elif key == "bridge_protocol_version" and value not in _VERSIONS:
            self._tell(line, "3.1.1 takes its place", lost=False)
        elif key in _NOT_NEEDED:
            self._tell(line, _NOT_NEEDED[key], lost=False)
        elif key in _NOT_OFFERED:
            self._tell(line, _NOT_OFFERED[key])
        elif key not in _KNOWN:
            self._tell(line, "no equivalent is known")

    def _topic(self, line: Line) -> None:
        """Convert `topic pattern [direction [qos [local-prefix remote-prefix]]]`."""
        try:
            words = shlex.split(line.value)
        except ValueError:
            words = []
        pattern, direction, qos, local, remote = [*words, *("", "out", "0", "", "")[len(words) :]][:5]
        if not words or direction not in _DIRECTIONS or qos not in ("0", "1", "2"):
            self._tell(line, "is no topic of a bridge")
            return
        if not pattern or pattern == '""':
            # mosquitto: the prefixes alone are the topics
            if not local or not remote:
                self._tell(line, "an empty pattern needs both prefixes")
            else:
                self._tell(line, "one topic with different names here and there has no equivalent: use prefixes")
            return
        subjects = topics.filter_subjects(local + pattern)
        if subjects is None or topics.filter_subjects(remote + pattern) is None:
            self._tell(line, "has no subject here")
            return
        rule = Block(inline=True)
        rule.put("filter", Quoted(pattern))
        rule.put("local_prefix", Quoted(local))
        rule.put("remote_prefix", Quoted(remote))
        rule.put("qos", int(qos))
        if direction in ("out", "both"):
            self._out.append(rule)
            self._subjects += [text for each in subjects if (text := each.decode()) not in self._subjects]
        if direction in ("in", "both"):
            self._in.append(rule)


_KNOWN: Final = frozenset(
    (
        *_TLS,
        "address",
        "bridge_alpn",
        "bridge_protocol_version",
        "keepalive_interval",
        "remote_clientid",
        "remote_password",
        "remote_username",
    )
)


def _url(address: str, *, secure: bool) -> str:
    scheme = "mqtts" if secure else "mqtt"
    host, colon, port = address.rpartition(":")
    if not colon or not is_digits(port) or (":" in host and not host.endswith("]")):
        host, port = address, str(_PORTS["mqtt"])  # mosquitto's port, with TLS too
    return f"{scheme}://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}"
