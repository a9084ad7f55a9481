"""Where nsc keeps its files: configuration, stores and keys, and the operator and account in use (`nsc.json`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.trust.store import NSC_FILE, OperatorStore
from eyot_wire.quoting import printable

CONFIG_FILE: Final = "nsc.json"


@dataclass
class Directories:
    """The three folders; `--all-dirs` puts all of them into one."""

    config: Path
    #: the folder of `--data-dir`; None: what `nsc.json` says
    data: Path | None
    keys: Path

    @classmethod
    def of(cls, every: Path | None, config: Path | None, data: Path | None, keys: Path | None) -> Directories:
        """Choose the folders as nsc does: by option, by variable, by the old places, by the new ones."""
        config = every or config or _from_variable("NSC_HOME") or _config_home()
        keys = every or keys or _from_variable("NKEYS_PATH") or _data_home("keys", Path.home() / ".nkeys")
        data = every or data
        return cls(_whole(config), None if data is None else _whole(data), _whole(keys))


class Environment:
    """`nsc.json`, with the operator and account in use."""

    def __init__(self, directories: Directories) -> None:
        self.directories = directories
        self.path = directories.config / CONFIG_FILE
        self._saved: dict[str, Any] = {}
        if "NSC_CWD_ONLY" not in os.environ and self.path.exists():
            self._saved = self._read()
        root = directories.data or self._saved.get("store_root")
        self.stores = Path(str(root)) if root else default_stores()
        self.operator = str(self._saved.get("operator") or "")
        self.account = str(self._saved.get("account") or "")
        self._apply_working_folder()
        if directories.data is not None:
            self.stores = directories.data
        self.apply_defaults()

    def _read(self) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Any])
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise Failure(f"{self.path}: {error}: correct or remove the file") from error
        return found

    def _apply_working_folder(self) -> None:
        """Prefer the operator (and account) in whose folder the command runs, as nsc does."""
        try:
            here = Path.cwd()
        except OSError:
            return
        for folder in (here, *here.parents):
            if (folder / NSC_FILE).is_file():
                self.stores, self.operator = folder.parent, folder.name
                inside = here.relative_to(folder).parts
                if len(inside) >= 2 and inside[0] == "accounts":
                    self.account = inside[1]
                return
            if folder == here and any((each / NSC_FILE).is_file() for each in _folders(here)):
                self.stores = here
                return

    def operators(self) -> list[str]:
        return sorted(each.name for each in _folders(self.stores) if (each / NSC_FILE).is_file())

    def apply_defaults(self) -> None:
        """Choose the only operator and the only account; forget those that do not exist."""
        self.operator = _sane(self.operator, self.operators())
        accounts = OperatorStore(self.stores / self.operator).accounts() if self.operator else []
        self.account = _sane(self.account, accounts)

    def use(self, operator: str, account: str = "") -> None:
        """Set the operator and account in use, and save them. Raises Failure."""
        if operator not in self.operators():
            known = ", ".join(map(printable, self.operators())) or "none"
            raise Failure(f"operator {printable(operator)} is not in {self.stores}: there are {known}")
        self.operator, self.account = operator, account or self.account
        self.apply_defaults()
        if account and self.account != account:
            raise Failure(f"operator {operator} has no account {printable(account)}: see `eyot trust list accounts`")
        self.save()

    def save(self) -> None:
        if "NSC_CWD_ONLY" in os.environ:
            return
        saved = {"github_updates": "nats-io/nsc", "last_update": 0} | self._saved
        saved |= {"store_root": str(self.stores), "operator": self.operator, "account": self.account}
        if saved != self._saved:
            write_private(self.path, msgspec.json.encode(saved))
            self._saved = saved

    def store(self, operator: str = "") -> OperatorStore:
        """Return the store of an operator, of the one in use by default. Raises Failure."""
        name = operator or self.operator
        if not name:
            if self.operators():
                raise Failure("there are several operators: choose one with `eyot trust env -o NAME`")
            raise Failure(f"no operator in {self.stores}: make one with `eyot trust add operator -n NAME --sys`")
        if name not in self.operators():
            raise Failure(f"operator {printable(name)} is not in {self.stores}: see `eyot trust list operators`")
        return OperatorStore(self.stores / name)


def default_stores() -> Path:
    return _data_home("stores", Path.home() / ".nsc" / "nats")


def _config_home() -> Path:
    new = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats" / "nsc"
    old = Path.home() / ".nsc"
    return old if not (new / CONFIG_FILE).exists() and (old / CONFIG_FILE).exists() else new


def _data_home(name: str, old: Path) -> Path:
    new = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "nats" / "nsc" / name
    return old if not new.exists() and old.exists() else new


def _from_variable(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def _whole(path: Path) -> Path:
    return path.expanduser().absolute()


def _sane(current: str, choices: list[str]) -> str:
    if len(choices) == 1:
        return choices[0]
    return current if current in choices else ""


def _folders(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir()]
    except OSError:
        return []
