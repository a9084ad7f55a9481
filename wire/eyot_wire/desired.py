"""Desired configuration of a device, and what the device reports of it: one request over NATS.

A device asks on `<prefix>.<name>.config` with a `ConfigReport` and gets a `DesiredDocument`. The hub may set the blocks of
`eyot { }` that are named in SETTINGS and nothing else: neither links, listeners, users nor streams.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

#: Blocks of `eyot { }` that the hub may set: policies of streams and links, the budget of the flash.
SETTINGS: Final = ("sync", "flash")
APPLIED: Final = "applied"
REFUSED: Final = "refused"
ROLLED_BACK: Final = "rolled back"
OUTCOMES: Final = ("", APPLIED, REFUSED, ROLLED_BACK)
#: Bytes of a request.
REPORT_BYTES_MAX: Final = 16 * 1024


class UpgradeReport(Struct, kw_only=True, omit_defaults=True):
    """How the device's last upgrade ended, as `eyot upgrade status` shows it. `at`: RFC 3339."""

    to: str = ""
    #: `upgraded`, `returned` or `superseded`; "": there was none
    outcome: str = ""
    reason: str = ""
    at: str = ""


class ConfigReport(Struct, kw_only=True, omit_defaults=True):
    """What a device did with the last document. `revision`: of that document; "": it has had none."""

    device: str
    revision: str = ""
    #: one of OUTCOMES
    outcome: str = ""
    error: str = ""
    upgrade: UpgradeReport = msgspec.field(default_factory=UpgradeReport)


class DesiredDocument(Struct, kw_only=True, omit_defaults=True):
    """What a device should run with. Without a revision nothing is desired: what was applied before goes."""

    device: str
    revision: str = ""
    #: by name of SETTINGS, each the content of that block of `eyot { }`
    settings: dict[str, Any] = {}
    #: the version that the device may install, without what Debian's release adds to it; "": none. The signed manifest
    #: and the device's own ring decide besides
    release: str = ""
