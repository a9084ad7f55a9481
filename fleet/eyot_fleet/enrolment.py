"""The records of enrolment, read from the folder that `eyot fleet enrol` keeps beside the operator's keys. Read only."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from eyot_fleet.errors import FleetError
from eyot_wire.trust.enrolment import is_device_name
from eyot_wire.trust.enrolment_record import EnrolledDevice

log = logging.getLogger("eyot.fleet")

#: Between two looks at the folder, seconds.
EVERY_S: Final = 15.0
RECORD_BYTES_MAX: Final = 64 * 1024


class EnrolmentFolder:
    """`<store>/<operator>/enrolment/<account>`. A record that has not changed is not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "devices"
        self._known: dict[str, tuple[tuple[int, int], EnrolledDevice]] = {}
        self._told: set[str] = set()

    def read(self) -> dict[str, EnrolledDevice]:
        """Return all records by name. A damaged one is told once and stays as it was. Raises FleetError."""
        found: dict[str, tuple[tuple[int, int], EnrolledDevice]] = {}
        try:
            paths = list(self._folder.glob("*.json"))
            if not paths and not self._folder.parent.is_dir():
                raise FleetError(f"{self._folder.parent}: no such folder: no device is taken for revoked")
        except OSError as error:
            raise FleetError(f"{self._folder}: {error.strerror}") from None
        for path in paths:
            name = path.stem
            before = self._known.get(name)
            try:
                stat = path.stat()
                at = (stat.st_mtime_ns, stat.st_ino)
                if before is not None and before[0] == at:
                    found[name] = before
                elif is_device_name(name) and stat.st_size <= RECORD_BYTES_MAX:
                    found[name] = (at, msgspec.json.decode(path.read_bytes(), type=EnrolledDevice))
            except FileNotFoundError:
                continue
            except (OSError, msgspec.DecodeError) as error:
                if before is not None:
                    found[name] = before
                if name not in self._told:
                    self._told.add(name)
                    log.warning("%s cannot be read: %s", path, error)
        self._known = found
        return {name: device for name, (_, device) in found.items() if device.name == name}
