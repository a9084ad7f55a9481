"""Reads mosquitto's configuration, without judging it: which lines belong to which listener and bridge.

Rules (mosquitto.conf(5), `conf.c`): a line is a key, blanks and a value; `#` at its start makes it a comment. `listener`
begins a listener, and keys of listeners belong to the last one; before the first, to the default listener, which `port`
and `bind_address` describe. `connection` begins a bridge. `include_dir` reads all `*.conf` of a directory by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from eyot_cli.terminal.failure import Failure


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LISTENER_KEYS: Final = _words(
    "accept_protocol_versions bind_address bind_interface cafile capath certfile ciphers ciphers_tls1.3 "
    "crlfile dhparamfile enable_proxy_protocol http_dir keyfile max_connections max_qos max_topic_alias "
    "max_topic_alias_broker mount_point port protocol proxy_protocol_v2_require_tls psk_hint "
    "require_certificate socket_domain tls_engine tls_engine_kpass_sha1 tls_keyform tls_version "
    "use_identity_as_username use_subject_as_username use_username_as_clientid websockets_headers_size "
    "websockets_log_level websockets_origin"
)
BRIDGE_KEYS: Final = _words(
    "address addresses cleansession clientid idle_timeout keepalive_interval local_cleansession "
    "local_clientid local_password local_username notification_topic notifications "
    "notifications_local_only password remote_clientid remote_password remote_username restart_timeout "
    "round_robin start_type threshold topic try_private username"
)
#: Settings of security, which belong to a listener with `per_listener_settings`.
SECURITY_KEYS: Final = frozenset(("acl_file", "allow_anonymous", "password_file", "psk_file"))
#: The most levels of `include_dir` within each other.
INCLUDES_MAX: Final = 10


class Line(NamedTuple):
    """One setting, and where it stands."""

    file: Path
    number: int
    key: str
    value: str

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"

    @property
    def is_on(self) -> bool:
        return self.value.lower() in ("true", "1")


class Section:
    """A listener or a bridge: the line that begins it (None: the default listener), and its settings."""

    def __init__(self, head: Line | None) -> None:
        self.head = head
        self.lines: list[Line] = []

    def get(self, key: str) -> Line | None:
        """Return the last setting of this key."""
        return next((line for line in reversed(self.lines) if line.key == key), None)


class MosquittoConf:
    """A whole configuration. `settings`: those of no listener or bridge, the last line of a key counts."""

    def __init__(self) -> None:
        self.default = Section(None)
        self.listeners: list[Section] = []
        self.bridges: list[Section] = []
        self.settings: list[Line] = []
        self._listener = self.default
        self._bridge: Section | None = None
        self._per_listener = False

    def read(self, path: Path, depth: int = 0) -> None:
        """Read a file and those that it includes. Raises Failure."""
        if depth > INCLUDES_MAX:
            raise Failure(f"{path}: include_dir goes round in a circle")
        for line in lines_of(path):
            if line.key == "include_dir":
                self._include(line, depth)
            else:
                self._take(line)

    def _include(self, line: Line, depth: int) -> None:
        folder = line.file.parent / line.value
        if not folder.is_dir():
            raise Failure(f"{line.where}: include_dir {line.value}: no such directory")
        for path in sorted(folder.glob("*.conf"), key=lambda each: each.name):
            self.read(path, depth + 1)

    def _take(self, line: Line) -> None:
        if line.key == "listener":
            self._listener = Section(line)
            self.listeners.append(self._listener)
        elif line.key == "connection":
            self._bridge = Section(line)
            self.bridges.append(self._bridge)
        elif self._bridge is not None and (line.key in BRIDGE_KEYS or line.key.startswith("bridge_")):
            self._bridge.lines.append(line)
        elif line.key in LISTENER_KEYS or (self._per_listener and line.key in SECURITY_KEYS):
            self._listener.lines.append(line)
        else:
            self._per_listener = self._per_listener or (line.key == "per_listener_settings" and line.is_on)
            self.settings.append(line)

    def get(self, key: str) -> Line | None:
        """Return the setting of this key: of no listener, or the first one of a listener."""
        found = next((line for line in reversed(self.settings) if line.key == key), None)
        if found is not None:
            return found
        return next((line for each in (self.default, *self.listeners) if (line := each.get(key)) is not None), None)


def lines_of(path: Path) -> list[Line]:
    """Return the settings of one file. Raises Failure."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.startswith("#") or not raw.strip():
            continue
        key, _, value = raw.strip().partition(" ")
        found.append(Line(path, number, key, value.strip()))
    return found
