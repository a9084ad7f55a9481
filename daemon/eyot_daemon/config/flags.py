"""The command line's flags: nats-server's names with Go's flag syntax.

`-p 4222`, `--p=4222`, `-D`, `-D=false` are all accepted, with one dash or two. The module holds only this grammar, so
that a start can read the port long before the rest is loaded (`early_listen.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class UsageError(Exception):
    """An invalid command line; the text gives the reason. main prints it and exits with 64."""


class _Flag(NamedTuple):
    field: str
    kind: type


_FLAGS: dict[str, _Flag] = {
    name: _Flag(field, kind)
    for names, field, kind in (
        ("a addr net", "addr", str),
        ("p port", "port", int),
        ("n name server_name", "server_name", str),
        ("P pid", "pid_file", str),
        ("m http_port", "http_port", int),
        ("ms https_port", "https_port", int),
        ("c config", "config", str),
        ("t", "test_config", bool),
        ("sl signal", "signal", str),
        ("client_advertise", "client_advertise", str),
        ("ports_file_dir", "ports_file_dir", str),
        ("l log", "log_file", str),
        ("T logtime", "logtime", bool),
        ("logtime_utc", "logtime_utc", bool),
        ("s syslog", "syslog", bool),
        ("r remote_syslog", "remote_syslog", str),
        ("D debug", "debug", bool),
        ("V trace", "trace", bool),
        ("VV", "trace_verbose", bool),
        ("DV", "debug_trace", bool),
        ("DVV", "debug_trace_verbose", bool),
        ("log_size_limit", "log_size_limit", int),
        ("max_traced_msg_len", "max_traced_msg_len", int),
        ("js jetstream", "jetstream", bool),
        ("sd store_dir", "store_dir", str),
        ("user", "user", str),
        ("pass", "password", str),
        ("auth", "token", str),
        ("tls", "tls", bool),
        ("tlscert", "tls_cert", str),
        ("tlskey", "tls_key", str),
        ("tlsverify", "tls_verify", bool),
        ("tlscacert", "tls_ca", str),
        ("routes", "routes", str),
        ("cluster", "cluster", str),
        ("cluster_name", "cluster_name", str),
        ("no_advertise", "no_advertise", bool),
        ("cluster_advertise", "cluster_advertise", str),
        ("connect_retries", "connect_retries", int),
        ("cluster_listen", "cluster_listen", str),
        ("profile", "profile", int),
        ("h help", "help", bool),
        ("v version", "version", bool),
        ("help_tls", "help_tls", bool),
    )
    for name in names.split()
}

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def parse_flags(argv: Sequence[str]) -> dict[str, str | int | bool]:
    """Parse the arguments after the program's name, by field. Raises UsageError in the words of Go's flag package."""
    given: dict[str, str | int | bool] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if len(word) < 2 or not word.startswith("-") or word == "--":
            given |= _command(word if word != "--" else (rest[0] if rest else ""))
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"bad flag syntax: {word}")
        flag = _FLAGS.get(name)
        if flag is None:
            raise UsageError(f"flag provided but not defined: -{name}")
        if flag.kind is bool:
            given[flag.field] = _boolean(name, value) if equals else True
            continue
        if not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        given[flag.field] = _integer(name, value) if flag.kind is int else value
    return given


def _command(word: str) -> dict[str, bool]:
    """Interpret the word after the flags: `help` and `version` are commands."""
    if word.lower() in ("version", "help"):
        return {word.lower(): True}
    if word:
        raise UsageError(f'unrecognized command: "{word}"')
    return {}


def _boolean(name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise UsageError(f'invalid boolean value "{value}" for -{name}: parse error')


def _integer(name: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise UsageError(f'invalid value "{value}" for flag -{name}: parse error') from None
