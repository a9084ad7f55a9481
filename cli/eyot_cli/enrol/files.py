"""What an enrolled device keeps: its key, its credentials, and what it enrolled with."""

from __future__ import annotations

import os
import pwd
import secrets
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from eyot_cli.enrol.sealing import seal, unseal, unseal_file
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import make_folder, write_private
from eyot_wire.trust import nkey
from eyot_wire.trust.creds import format_creds, format_sealed_creds, parse_creds

if TYPE_CHECKING:
    from pathlib import Path

    from eyot_wire.trust.creds import Credentials

#: The user that the daemon runs as, who reads the credentials.
DAEMON_USER: Final = "eyot"


class Enrolment(Struct, kw_only=True, omit_defaults=True):
    """What the device enrolled with, for renewals. Times: seconds since the epoch; 0: never."""

    hub: str
    name: str
    #: public keys
    key: str
    account: str
    operator: str
    issued: int
    expires: int
    #: file with the authority of the hub's certificate
    tls_ca: str = ""


class DeviceFiles:
    """The folder with these files. All methods raise Failure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / "enrolment.json"
        #: the seed while the hub has not answered: the same key asks again, and gets the same place
        self._pending = folder / "device.seed"
        self.creds = folder / "device.creds"
        #: the seed, sealed; without this file the seed is in `creds`
        self.sealed = folder / "device.seed.cred"
        #: with what a new key is sealed, one of `sealing.WITH_KEYS`; "": it is not
        self.seal_with = ""

    def enrolment(self) -> Enrolment | None:
        """Return what the device enrolled with, None before."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=Enrolment)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Failure(f"{self._state}: {error.strerror}: run the command as root") from error
        except msgspec.DecodeError as error:
            raise Failure(f"{self._state}: {error}: remove the file and enrol anew") from error

    def pending_seed(self) -> str:
        """Return the seed of a key that waits for enrolment; made and kept if there is none."""
        if self.seal_with or self.sealed.exists():
            return self._pending_sealed()
        try:
            seed = self._pending.read_text().strip()
            nkey.Signer(seed)
        except FileNotFoundError:
            pass
        except nkey.NkeyError as error:
            raise Failure(f"{self._pending}: {error}: remove the file, and run the command again") from error
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{self._pending}: {getattr(error, 'strerror', error)}: run the command as root") from error
        else:
            return seed
        seed = nkey.encode_seed("U", secrets.token_bytes(32))
        self._write(self._pending, seed.encode())
        return seed

    def _pending_sealed(self) -> str:
        """Return the seed of a sealed key that waits for enrolment; made and sealed if there is none."""
        waiting = self._pending.with_suffix(".cred")
        if waiting.exists():
            return unseal_file(waiting)
        seed = nkey.encode_seed("U", secrets.token_bytes(32))
        self._write(waiting, seal(seed, self.seal_with or "auto"))
        return seed

    def kept(self) -> Credentials:
        """Return the credentials, wherever the seed is."""
        try:
            return parse_creds(self.creds.read_text(errors="replace"), lambda: unseal(self.sealed))
        except OSError as error:
            raise Failure(f"{self.creds}: {error.strerror}: run the command as root") from error
        except nkey.NkeyError as error:
            raise Failure(f"{self.creds}: {error}: enrol anew with --new-key") from error

    def keep(self, jwt: str, seed: str, enrolment: Enrolment) -> None:
        """Keep new credentials. The state goes last: without it the device is not enrolled, and asks again."""
        if self.sealed.exists():
            self._write(self.creds, format_sealed_creds(jwt).encode())
        else:
            self._write(self.creds, format_creds(jwt, seed).encode())
        self._write(self._state, msgspec.json.format(msgspec.json.encode(enrolment)))
        self._pending.unlink(missing_ok=True)
        self._pending.with_suffix(".cred").unlink(missing_ok=True)

    def seal_key(self, seed: str) -> None:
        """Seal the seed with what `seal_with` says, and check that it comes back."""
        sealed = seal(seed, self.seal_with)
        part = self.sealed.with_suffix(".part")
        self._write(part, sealed)
        if unseal_file(part) != seed:
            part.unlink()
            raise Failure("systemd-creds does not give back what it sealed: the key stays as it was")
        part.replace(self.sealed)

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file that the daemon's user may read and replace: renewals run as that user."""
        owner = _daemon()
        make_folder(self.folder)
        if owner is not None:
            os.chown(self.folder, *owner)
        write_private(path, data, owner=owner)


def _daemon() -> tuple[int, int] | None:
    """Return user and group of the daemon, None where files cannot be given to it."""
    if os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(DAEMON_USER)
    except KeyError:
        return None
    return found.pw_uid, found.pw_gid
