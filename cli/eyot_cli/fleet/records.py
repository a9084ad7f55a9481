"""What the hub knows of enrolment: tokens, devices and an audit log, in files beside the store whose keys sign.

`<operator>/enrolment/<account>/tokens/<id>.json`, `devices/<name>.json` and `audit.log`. Callers hold the store's lock
when they change any of them. All methods raise Failure.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import FILE_MODE, check_name, make_folder, remove, write_private
from eyot_wire.trust.enrolment_record import EnrolledDevice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eyot_cli.trust.store import OperatorStore

FOLDER: Final = "enrolment"
#: Bytes of the audit log after which it becomes `audit.log.1`, in place of an earlier one.
AUDIT_BYTES: Final = 16 * 1024 * 1024


class TokenRecord(Struct, kw_only=True, omit_defaults=True):
    """A token as the hub knows it; its seed is known to nobody here."""

    #: public key of the token's user
    id: str
    #: names that devices may take: one name, or a pattern with one `*` at its end
    names: str
    #: role of the scoped signing key that signs the devices' tokens; "": a key without a scope
    role: str
    #: devices that it can still enrol
    left: int
    #: seconds since the epoch
    made_at: int
    valid_until: int
    #: how long a device's token is valid, seconds; 0: always
    device_lifetime_s: int
    tags: tuple[str, ...] = ()
    #: name and key of the device that it enrolled last, written together with `left`
    last: tuple[str, str] | None = None

    def takes(self, name: str) -> bool:
        """Return whether a device may have this name by this token."""
        start, star, _ = self.names.partition("*")
        return name.startswith(start) if star else name == self.names


class AuditLine(Struct, kw_only=True, omit_defaults=True):
    """One line of the audit log. `time`: RFC 3339, UTC."""

    time: str
    #: token, withdrawn, enrolled, again, renewed, refused or revoked
    event: str
    account: str
    name: str = ""
    key: str = ""
    token: str = ""
    reason: str = ""
    #: lines of the same token or device that were left out before this one, because there were too many in a minute
    left_out: int = 0


Record = TypeVar("Record", TokenRecord, EnrolledDevice)


class Records:
    """The records of one account."""

    def __init__(self, store: OperatorStore, account: str) -> None:
        self.account = account
        self.folder = store.folder / FOLDER / check_name(account, "an account")

    # -- tokens ----------------------------------------------------------------------------------------------------

    def token(self, key: str) -> TokenRecord | None:
        """Return a token's record by its id."""
        return _read(self._token_path(key), TokenRecord)

    def tokens(self) -> Iterator[TokenRecord]:
        """Yield all tokens' records, the latest last."""
        yield from sorted(_all(self.folder / "tokens", TokenRecord), key=lambda record: record.made_at)

    def write_token(self, record: TokenRecord) -> None:
        write_private(self._token_path(record.id), msgspec.json.encode(record))

    def remove_token(self, key: str) -> bool:
        return remove(self._token_path(key))

    def _token_path(self, key: str) -> Path:
        return self.folder / "tokens" / f"{check_name(key, 'a token')}.json"

    # -- devices ---------------------------------------------------------------------------------------------------

    def device(self, name: str) -> EnrolledDevice | None:
        """Return a device's record by its name."""
        return _read(self._device_path(name), EnrolledDevice)

    def devices(self) -> Iterator[EnrolledDevice]:
        """Yield all devices' records, by name."""
        yield from sorted(_all(self.folder / "devices", EnrolledDevice), key=lambda record: record.name)

    def write_device(self, record: EnrolledDevice) -> None:
        write_private(self._device_path(record.name), msgspec.json.encode(record))

    def forget(self, name: str, key: str) -> None:
        """Remove a revoked device's record, and note it. A device that was made by hand has none."""
        found = self.device(name)
        if found is not None and found.key == key:
            remove(self._device_path(name))
        self.note("revoked", name=name, key=key)

    def _device_path(self, name: str) -> Path:
        return self.folder / "devices" / f"{check_name(name, 'a device')}.json"

    # -- audit -----------------------------------------------------------------------------------------------------

    def note(
        self, event: str, *, name: str = "", key: str = "", token: str = "", reason: str = "", left_out: int = 0
    ) -> AuditLine:
        """Append a line to the audit log, on disk before this returns; return the line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = AuditLine(
            time=at,
            event=event,
            account=self.account,
            name=name,
            key=key,
            token=token,
            reason=reason,
            left_out=left_out,
        )
        path = self.folder / "audit.log"
        make_folder(self.folder)
        try:
            if path.exists() and path.stat().st_size > AUDIT_BYTES:
                os.replace(path, path.with_suffix(".log.1"))
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, FILE_MODE)
            try:
                os.write(handle, msgspec.json.encode(line) + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}: nothing is done without a line in the audit log") from error
        return line


def _read(path: Path, form: type[Record]) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Failure(f"{path}: {error}: restore the file from a backup") from error


def _all(folder: Path, form: type[Record]) -> Iterator[Record]:
    for path in folder.glob("*.json"):
        record = _read(path, form)
        if record is not None:
            yield record
