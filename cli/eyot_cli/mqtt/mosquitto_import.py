"""Converts mosquitto's configuration to Eyot's. What has no equivalent is a note with file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from eyot_cli.mqtt import mosquitto_keys
from eyot_cli.mqtt.conf_text import Block, Quoted
from eyot_cli.mqtt.mosquitto_bridges import convert_bridge
from eyot_cli.mqtt.mosquitto_conf import Line, MosquittoConf, Section
from eyot_cli.mqtt.mosquitto_users import (
    Acl,
    Password,
    Permissions,
    bcrypt_of,
    is_hashed,
    locked,
    matches,
    permissions_of,
    read_passwords,
)
from eyot_wire.digits import parse_uint

ANONYMOUS: Final = "anonymous"
NOBODY: Final = "nobody"
TLS_KEYS: Final = {"cafile": "ca_file", "certfile": "cert_file", "keyfile": "key_file"}


class Note(NamedTuple):
    """What became of a line that is not converted. `lost`: the server behaves otherwise than mosquitto did."""

    where: str
    line: str
    text: str
    lost: bool = True


class Importer:
    """One conversion. `passwords`: passwords in clear text that the operator has, by user; `result` is for `eyotd`."""

    def __init__(self, conf: MosquittoConf, passwords: dict[str, str], *, store_dir: str) -> None:
        self._conf = conf
        self._passwords = passwords
        self.notes: list[Note] = []
        self._top = Block()
        self._mqtt = Block()
        self._websocket = Block()
        self._bounds = Block()
        self._top.put("listen", Quoted("127.0.0.1:4222"), "clients of NATS: this machine only")
        self._jetstream = Block()
        self._jetstream.put("store_dir", Quoted(store_dir))

    def result(self) -> str:
        """Return the configuration's text."""
        self._listeners()
        self._security()
        for line in self._conf.settings:
            self._setting(line)
        eyot = Block()
        if self._bounds:
            eyot.put("mqtt", self._bounds)
        bridges = Block()
        for section in self._conf.bridges:
            bridge = convert_bridge(section, self._note)
            if bridge is not None:
                bridges.put(*bridge)
        if bridges:
            eyot.put("bridges", bridges)
        if eyot:
            self._top.put("eyot", eyot)
        return self._top.text()

    def _note(self, line: Line, text: str, *, lost: bool = True) -> None:
        value = "..." if line.key in mosquitto_keys.SECRETS else line.value
        self.notes.append(Note(line.where, f"{line.key} {value}".strip(), text, lost))

    # -- listeners ---------------------------------------------------------------------------------------------------------

    def _listeners(self) -> None:
        sections = list(self._conf.listeners)
        default = self._conf.default
        if default.get("port") is not None or not sections:
            sections.insert(0, default)
        else:
            for line in default.lines:
                self._note(line, "stands before the first listener, and belongs to none")
        plain = [each for each in sections if not _is_websocket(each)]
        sockets = [each for each in sections if _is_websocket(each)]
        for more in (*plain[1:], *sockets[1:]):
            line = more.head or more.lines[0]
            kind = "for MQTT and one for WebSockets"
            self._note(line, f"eyotd has one listener {kind}; this one, with its settings, is left out")
        self._top.put("jetstream", self._jetstream)
        if plain:
            self._listener(plain[0], self._mqtt, websocket=False)
        else:
            self._mqtt.put("listen", Quoted("127.0.0.1:1883"), "MQTT over WebSockets needs this block, too")
        self._top.put("mqtt", self._mqtt)
        if sockets:
            self._listener(sockets[0], self._websocket, websocket=True)
            self._top.put("websocket", self._websocket)

    def _listener(self, section: Section, block: Block, *, websocket: bool) -> None:
        block.put("listen", Quoted(self._address(section)))
        tls = Block()
        for line in section.lines:
            if line.key in TLS_KEYS:
                tls.put(TLS_KEYS[line.key], Quoted(str(line.file.parent / line.value)))
            elif line.key == "require_certificate" and line.is_on:
                tls.put("verify", True)
            elif line.key in ("use_identity_as_username", "use_subject_as_username") and line.is_on:
                tls.put("verify_and_map", True)
            else:
                self._listener_line(line, websocket=websocket)
        if section.get("certfile") is not None:
            block.put("tls", tls)
        elif websocket:
            block.put("no_tls", True)
        if section.get("certfile") is None:
            for line in section.lines:
                if line.key in TLS_KEYS or line.key == "require_certificate":
                    self._note(line, "without certfile there is no TLS here", lost=line.key == "require_certificate")

    def _address(self, section: Section) -> str:
        if section.head is None:
            port, bind = section.get("port"), section.get("bind_address")
            if port is None:
                # without any listener mosquitto serves this machine only
                return f"{bind.value if bind is not None else '127.0.0.1'}:1883"
            return _joined(bind.value if bind is not None else "0.0.0.0", port.value)
        port_text, _, address = section.head.value.partition(" ")
        if port_text == "0":
            self._note(section.head, "eyotd has no listeners on Unix sockets; it gets a port of this machine instead")
            return "127.0.0.1:1883"
        return _joined(address.strip() or "0.0.0.0", port_text)

    def _listener_line(self, line: Line, *, websocket: bool) -> None:
        key, value = line.key, line.value
        if key in ("port", "bind_address", "protocol", *_SECURITY):
            return  # read where they belong
        if key == "max_connections":
            if count := parse_uint(value):  # 0 is no limit, and at eyotd nobody
                self._top.put("max_connections", count, "of all clients, those of NATS too")
        elif key == "max_topic_alias":
            number = parse_uint(value)
            self._bounds.put("max_topic_alias", Quoted(value) if number is None else number)
        elif key == "max_qos" and value == "1":
            self._mqtt.put("reject_qos2_publish", True)
            self._mqtt.put("downgrade_qos2_subscribe", True)
        elif key == "websockets_origin" and websocket:
            self._websocket.put("allowed_origins", [Quoted(value)])
        elif key == "tls_version" and value in ("tlsv1.2", "tlsv1.3"):
            self._note(line, "eyotd offers TLS 1.2 and 1.3; tls { min_version } raises that", lost=value == "tlsv1.3")
        elif (key, value) in mosquitto_keys.DEFAULTS:
            pass
        else:
            self._note(
                line, mosquitto_keys.LISTENER.get(key, mosquitto_keys.NOT_OFFERED.get(key, mosquitto_keys.UNKNOWN))
            )

    # -- who may connect ------------------------------------------------------------------------------------------------

    def _security(self) -> None:
        conf = self._conf
        acl_line, password_line = conf.get("acl_file"), conf.get("password_file")
        acl = Acl.read(acl_line.file.parent / acl_line.value) if acl_line is not None and acl_line.value else None
        for line in acl.unknown if acl is not None else ():
            self._note(line, mosquitto_keys.UNKNOWN)
        entries = (
            read_passwords(password_line.file.parent / password_line.value)
            if password_line is not None and password_line.value
            else []
        )
        users = [self._user(acl, each.user, self._hash(each), each.user) for each in entries]
        known = {each.user for each in entries}
        if acl is not None:
            users += self._users_of_acl(acl, known)
        allowed = conf.get("allow_anonymous")
        anonymous = allowed.is_on if allowed is not None else not conf.listeners and conf.default.get("port") is None
        if anonymous and (users or acl is not None):
            name = ANONYMOUS if ANONYMOUS not in known else f"{ANONYMOUS}-mqtt"
            users.append(self._user(acl, None, locked(), name))
            self._mqtt.put("no_auth_user", Quoted(name))
        elif not anonymous and not users:
            users.append(self._user(None, None, locked(), NOBODY))
            self._top.comment("Nobody may connect, as in mosquitto without allow_anonymous and users.")
        if users:
            authorization = Block()
            authorization.put("users", users)
            self._top.put("authorization", authorization)

    def _users_of_acl(self, acl: Acl, known: set[str]) -> list[Block]:
        """Return the users that an acl_file alone names: with certificates, they are names of certificates."""
        by_certificate = any(
            line.key in ("use_identity_as_username", "use_subject_as_username") and line.is_on
            for section in (self._conf.default, *self._conf.listeners)
            for line in section.lines
        )
        users = []
        for name, rules in acl.users.items():
            if name in known:
                continue
            if by_certificate:
                users.append(self._user(acl, name, None, name if "=" in name else f"CN={name}"))
            elif rules:
                self._note(rules[0].line, f"user {name} has no password in mosquitto, and is left out")
        return users

    def _hash(self, entry: Password) -> str:
        known = self._passwords.get(entry.user)
        if not is_hashed(entry.hash):
            return bcrypt_of(entry.hash)
        if known is not None and matches(entry.hash, known):
            return bcrypt_of(known)
        why = "mosquitto's hash cannot be turned into bcrypt" if known is None else "the given password is another one"
        self.notes.append(
            Note(
                entry.where,
                f"user {entry.user}",
                f"{why}: the user cannot log in until `eyot passwd` makes a hash for `password`, "
                "or --passwords FILE names the password",
            )
        )
        return locked()

    def _user(self, acl: Acl | None, rules_of: str | None, hashed: str | None, name: str) -> Block:
        user = Block(inline=True)
        user.put("user", Quoted(name))
        if hashed is not None:
            user.put("password", Quoted(hashed))
        if acl is None:
            return user
        permissions, problems = permissions_of(acl, rules_of)
        for problem in problems:
            note = Note(problem.line.where, f"{problem.line.key} {problem.line.value}", problem.text)
            if note not in self.notes:
                self.notes.append(note)
        user.put("permissions", _permissions(permissions))
        return user

    # -- all other settings ------------------------------------------------------------------------------------------------

    def _setting(self, line: Line) -> None:
        key, value = line.key, line.value
        if key in _SECURITY:
            return
        convert = _SETTINGS.get(key)
        if key == "log_dest" and value.startswith("file "):
            self._note(line, "the journal has the log; log_file names a file that eyotd may write", lost=False)
        elif key == "log_dest" and value == "syslog":
            self._top.put("syslog", True)
        elif convert is not None:
            block = {"top": self._top, "mqtt": self._mqtt, "bounds": self._bounds}[convert.block]
            converted = convert.value(value)
            if converted is None:
                self._note(line, convert.otherwise)
            else:
                block.put(convert.key, converted, convert.comment)
        elif key in mosquitto_keys.NOT_NEEDED:
            self._note(line, mosquitto_keys.NOT_NEEDED[key], lost=False)
        elif (key, value) not in mosquitto_keys.DEFAULTS:
            self._note(line, mosquitto_keys.NOT_OFFERED.get(key, mosquitto_keys.UNKNOWN))


class _Setting(NamedTuple):
    """A setting with an equivalent. `value` converts it, None where it cannot; `otherwise`: what to say then."""

    block: str
    key: str
    value: Callable[[str], int | Quoted | bool | None]
    comment: str = ""
    otherwise: str = "this value has no equivalent"


def _count(text: str) -> int | None:
    return parse_uint(text) or None


def _window(text: str) -> int | None:
    number = parse_uint(text)
    return None if number is None else min(number or 65_535, 65_535)


def _expiry(text: str) -> int | None:
    """Return a duration of mosquitto (`2w`: hours, days, weeks, months, years) in seconds."""
    units = {"h": 3600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
    number, unit = parse_uint(text[:-1]), text[-1:].lower()
    return number * units[unit] if number and unit in units else None


_NO_BOUND: Final = "nothing is unlimited here: the default of the reference applies"
_SECURITY: Final = ("acl_file", "allow_anonymous", "password_file")
_SETTINGS: Final = {
    "max_keepalive": _Setting("bounds", "max_keepalive", _count),
    "max_queued_messages": _Setting("bounds", "session_queue_msgs", _count, otherwise=_NO_BOUND),
    "max_queued_bytes": _Setting("bounds", "session_queue_bytes", _count, otherwise=_NO_BOUND),
    "max_packet_size": _Setting(
        "bounds",
        "max_packet_size",
        lambda text: number if (number := parse_uint(text) or 0) >= 1024 else None,
        otherwise="must be at least 1024 bytes here",
    ),
    "max_inflight_messages": _Setting("mqtt", "max_ack_pending", _window),
    "message_size_limit": _Setting(
        "top",
        "max_payload",
        _count,
        "of all clients, those of NATS too",
        "nothing is unlimited here: max_payload is 1 MiB unless it is set",
    ),
    "sys_interval": _Setting("bounds", "sys_interval", parse_uint),
    "persistent_client_expiration": _Setting("bounds", "session_expiry_max", _expiry),
}


def _permissions(found: Permissions) -> Block:
    block = Block(inline=True)
    for name, allow, deny in (
        ("publish", found.publish, found.publish_deny),
        ("subscribe", found.subscribe, found.subscribe_deny),
    ):
        direction = Block(inline=True)
        if allow:
            direction.put("allow", [Quoted(each) for each in allow])
        if deny:
            direction.put("deny", [Quoted(each) for each in deny])
        block.put(name, direction)
    return block


def _is_websocket(section: Section) -> bool:
    protocol = section.get("protocol")
    return protocol is not None and protocol.value == "websockets"


def _joined(address: str, port: str) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def read(path: Path) -> MosquittoConf:
    """Read a configuration. Raises Failure."""
    conf = MosquittoConf()
    conf.read(path)
    return conf
