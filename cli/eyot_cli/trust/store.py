"""nsc's store of one operator: `.nsc`, `OPERATOR.jwt`, `accounts/A/A.jwt`, `accounts/A/users/U.jwt`."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import check_name, make_folder, read_text, remove, write_private
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_sign import ClaimMembers, decode_members

NSC_FILE: Final = ".nsc"


class StoreInfo(Struct):
    """The content of `.nsc`. `managed`: the operator's key is elsewhere, and accounts sign themselves."""

    managed: bool = False
    name: str = ""
    kind: str = "operator"
    version: str = "1"


class OperatorStore:
    """The tokens of one operator, its accounts and their users. All methods raise Failure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locked: int | None = None
        try:
            self.info = msgspec.json.decode((folder / NSC_FILE).read_bytes(), type=StoreInfo)
        except OSError as error:
            raise Failure(f"{folder / NSC_FILE}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise Failure(f"{folder / NSC_FILE}: {error}: restore the file from a backup") from error
        self.name = check_name(self.info.name, "an operator")

    @classmethod
    def create(cls, root: Path, name: str, *, managed: bool) -> OperatorStore:
        """Make the folder of an operator."""
        folder = root / check_name(name, "an operator")
        if folder.exists() and any(folder.iterdir()):
            raise Failure(
                f"operator {printable(name)} exists already: choose another name, or use `eyot trust edit operator`"
            )
        make_folder(folder / "accounts")
        write_private(folder / NSC_FILE, msgspec.json.encode(StoreInfo(managed=managed, name=name.strip())))
        return cls(folder)

    def lock(self) -> None:
        """Wait until no other `eyot trust` changes this operator; the lock ends with the process. nsc takes none."""
        try:
            self._locked = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._locked, fcntl.LOCK_EX)
        except OSError as error:
            raise Failure(f"{self.folder}: {error.strerror}") from error

    def unlock(self) -> None:
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    # -- paths -----------------------------------------------------------------------------------------------------

    @property
    def operator_path(self) -> Path:
        return self.folder / f"{self.name}.jwt"

    def account_path(self, account: str) -> Path:
        name = check_name(account, "an account")
        return self.folder / "accounts" / name / f"{name}.jwt"

    def user_path(self, account: str, user: str) -> Path:
        name = check_name(user, "a user")
        return self.account_path(account).parent / "users" / f"{name}.jwt"

    # -- reading ---------------------------------------------------------------------------------------------------

    def accounts(self) -> list[str]:
        folder = self.folder / "accounts"
        return sorted(each.name for each in _folders(folder) if (each / f"{each.name}.jwt").is_file())

    def users(self, account: str) -> list[str]:
        folder = self.account_path(account).parent / "users"
        return sorted(each.stem for each in folder.glob("*.jwt")) if folder.is_dir() else []

    def operator(self) -> ClaimMembers:
        return self._decode(self.operator_path, "operator")

    def account(self, account: str) -> ClaimMembers:
        self._must_exist(self.account_path(account), f"account {printable(account)}", "list accounts")
        return self._decode(self.account_path(account), "account")

    def user(self, account: str, user: str) -> ClaimMembers:
        what = f"user {printable(user)} of account {printable(account)}"
        self._must_exist(self.user_path(account, user), what, f"list users -a {printable(account)}")
        return self._decode(self.user_path(account, user), "user")

    def account_of(self, public: str) -> str | None:
        """Return the name of the account with this key, None if there is none."""
        return next((name for name in self.accounts() if self.account(name)["sub"] == public), None)

    def _must_exist(self, path: Path, what: str, command: str) -> None:
        if not path.is_file():
            raise Failure(f"{what} does not exist in operator {self.name}: `eyot trust {command}` shows those that do")

    def _decode(self, path: Path, kind: str) -> ClaimMembers:
        try:
            members = decode_members(read_text(path))
        except JwtError as error:
            raise Failure(f"{path}: {printable(str(error))}") from error
        if body(members).get("type") != kind:
            raise Failure(f"{path} holds no token of an {kind}: restore the file from a backup")
        return members

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_operator(self, token: str) -> None:
        write_private(self.operator_path, token.encode())

    def write_account(self, account: str, token: str) -> None:
        write_private(self.account_path(account), token.encode())

    def write_user(self, account: str, user: str, token: str) -> None:
        write_private(self.user_path(account, user), token.encode())

    def remove_user(self, account: str, user: str) -> None:
        remove(self.user_path(account, user))

    def remove_account(self, account: str) -> None:
        remove(self.account_path(account))


def body(members: ClaimMembers) -> dict[str, Any]:
    """Return the `nats` object of a token's members, for reading and for changes."""
    found: dict[str, Any] = members.setdefault("nats", {})
    return found


def _folders(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
