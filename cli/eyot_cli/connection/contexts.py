"""Contexts of the `nats` tool: named connections, each a JSON file in ~/.config/nats/context.

`eyot` and `nats` read and write the same files (jsm.go's natscontext). Members that `eyot` does not know stay as they are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from eyot_cli.terminal.failure import Failure

#: Members that `eyot` cannot honour, and the remedy.
_REFUSED: Final = {
    "nsc": "write the user's credentials with eyot trust generate creds, and name them as creds",
    "user_jwt": "write the token and its seed into a credentials file, and name it as creds",
}


class NatsContext(msgspec.Struct):
    """The members of a context that `eyot` honours or refuses; "" and false are none. Lengths and forms are the server's affair."""

    description: str = ""
    #: one server, or several with commas between
    url: str = ""
    token: str = ""
    user: str = ""
    password: str = ""
    creds: str = ""
    nkey: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    tls_first: bool = False
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    jetstream_event_prefix: str = ""
    inbox_prefix: str = ""
    socks_proxy: str = ""
    nsc: str = ""
    user_jwt: str = ""


def folder() -> Path:
    """Return the folder of the files of `nats`: below XDG_CONFIG_HOME, or ~/.config; a user without a home has none there."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "nats"


def path_of(name: str) -> Path:
    """Return the file of a context. Raises Failure for a name that would be a path, as in jsm.go."""
    if not name or ".." in name or "/" in name or not name.isprintable():
        raise Failure(
            f"{name!r} cannot be the name of a context: it becomes a file's name, so no / and no dots in a row"
        )
    return folder() / "context" / f"{name}.json"


def selected_path() -> Path:
    """Return the file with the selected context's name."""
    return folder() / "context.txt"


def previous_path() -> Path:
    """Return the file with the name of the context that was selected before, for `nats context previous`."""
    return folder() / "previous-context.txt"


def selected() -> str | None:
    """Return the name of the selected context; None: none is, or this user may not read it, as in jsm.go. Raises Failure."""
    try:
        return selected_path().read_text().strip() or None
    except OSError:
        return None  # sudo may keep another user's HOME
    except UnicodeDecodeError as error:
        raise Failure(f"{selected_path()}: {error}: eyot context select NAME writes it") from error


def known() -> list[str]:
    """Return the names of all contexts, sorted; empty files are none, as in jsm.go. Raises Failure."""
    try:
        return sorted(
            each.stem for each in (folder() / "context").glob("*.json") if each.is_file() and each.stat().st_size
        )
    except OSError as error:
        raise Failure(f"{folder()}: {error.strerror}") from error


def members(name: str) -> dict[str, Any]:
    """Return all members of a context, also unknown ones. Raises Failure."""
    path = path_of(name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (FileNotFoundError, NotADirectoryError):
        raise Failure(f"no context {name}: eyot context ls lists those that there are") from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}: mend the file, or eyot context rm {name}") from error


def checked(name: str, of: dict[str, Any]) -> NatsContext:
    """Return the members that count, as values. Raises Failure."""
    try:
        return msgspec.convert({key: value for key, value in of.items() if value is not None}, NatsContext)
    except msgspec.ValidationError as error:
        raise Failure(f"{path_of(name)}: {error}: mend the file, or eyot context rm {name}") from error


def make_folder() -> None:
    """Make the folder of the files, for the user alone. Raises Failure."""
    if str(folder()).startswith("~"):
        raise Failure("this user has no home folder: XDG_CONFIG_HOME names a place for contexts")
    try:
        (folder() / "context").mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"{folder()}: {error.strerror}: XDG_CONFIG_HOME names another place") from error


def usable(name: str) -> NatsContext:
    """Return a context to connect with. Raises Failure, also for members that `eyot` cannot honour."""
    context = checked(name, members(name))
    for member, remedy in _REFUSED.items():
        if getattr(context, member):
            raise Failure(f"context {name}: eyot does not know {member}: {remedy}")
    return context
