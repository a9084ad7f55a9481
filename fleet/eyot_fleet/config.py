"""`fleet.toml`: where the hub is, what is kept there, and from where on something needs somebody."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from eyot_fleet.alerts import AlertLimits
from eyot_fleet.errors import ConfigError
from eyot_fleet.login import Login
from eyot_fleet.web_options import WebOptions
from eyot_wire.digits import parse_uint

_TOKENS: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class SystemConfig(Login, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[system]`: a login of the system account, which hears who connects. Without `servers`, those of `[hub]`."""

    servers: tuple[str, ...] = ()
    #: the account whose leaf connections are devices, as the events name it; "": any account
    account: str = ""


class DevicesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[devices]`: how devices speak to the service.

    `prefix`: a device publishes its status on `<prefix>.<name>.status`, and asks for its configuration on `<prefix>.<name>.config`.
    """

    prefix: str = "fleet"
    #: streams of the hub that hold the status messages; "*": whichever streams store such a subject
    status_streams: tuple[str, ...] = ("*",)
    #: the folder of enrolment records that `eyot fleet enrol` keeps; "": none
    enrolment: str = ""
    #: devices that the service keeps; more are counted and left out
    devices_max: int = 50_000


class StateConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[state]`: the buckets and the audit stream at the hub."""

    #: begins the names of all buckets and streams
    name: str = "EYOT_FLEET"
    replicas: int = 1
    #: how often unimportant changes of a device are written, seconds; what matters is written at once
    save_every_s: float = 600.0
    #: how long the audit stream keeps a line, days; 0: for ever
    audit_days: float = 400.0
    audit_max_bytes: int = 1 << 30


class HttpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[http]`: the address of /metrics and /healthz. They have no password: keep them on localhost or behind a proxy."""

    listen: str = "127.0.0.1:8322"


class FleetConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    hub: Login = Login()
    system: SystemConfig | None = None
    devices: DevicesConfig = DevicesConfig()
    state: StateConfig = StateConfig()
    alerts: AlertLimits = AlertLimits()
    http: HttpConfig = HttpConfig()
    #: the page for operators; None: it is not served
    web: WebOptions | None = None

    def check(self) -> None:
        """Check values and the files that they name. Raises ConfigError."""
        self.hub.check()
        if self.system is not None:
            self.system_login().check()
        devices, state = self.devices, self.state
        if not _TOKENS.fullmatch(devices.prefix):
            raise ConfigError(f"devices.prefix: {devices.prefix!r}: expected tokens of a subject, as in fleet")
        if not 1 <= devices.devices_max <= 1_000_000:
            raise ConfigError("devices.devices_max: expected 1 to 1000000")
        if not _NAME.fullmatch(state.name):
            raise ConfigError(f"state.name: {state.name!r}: expected letters, digits, - and _")
        if state.replicas not in (1, 3, 5):
            raise ConfigError(f"state.replicas: {state.replicas}: expected 1, 3 or 5")
        if not 10 <= state.save_every_s <= 3600:
            raise ConfigError("state.save_every_s: expected 10 to 3600 seconds")
        for key in self.alerts.__struct_fields__:
            if getattr(self.alerts, key) < 0:
                raise ConfigError(f"alerts.{key}: must not be negative")
        address(self.http.listen, "http.listen")
        if self.web is not None:
            self.web.check()
        if devices.enrolment and not Path(devices.enrolment).is_dir():
            raise ConfigError(f"devices.enrolment: {devices.enrolment}: no such folder")

    def system_login(self) -> Login:
        """Return the login of the system account. There must be one."""
        assert self.system is not None
        found = {key: getattr(self.system, key) for key in Login.__struct_fields__}
        if not found["servers"]:
            found["servers"] = self.hub.servers
        return Login(**found)


def address(text: str, key: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    number = parse_uint(port)
    if not colon or number is None or number > 65_535:
        raise ConfigError(f"{key}: {text!r}: expected HOST:PORT, as in 127.0.0.1:8322")
    return host.strip("[]"), number


def read_config(path: Path) -> FleetConfig:
    """Return a file's configuration. Raises ConfigError, which names the file and the key."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        config = msgspec.convert(found, FleetConfig)
        config.check()
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: {error.strerror}: copy /usr/share/doc/eyot/examples/fleet.toml there, or name a file with --config"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {str(error).replace(' - at `$.', ': at `')}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config
