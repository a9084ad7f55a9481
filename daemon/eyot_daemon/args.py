"""The command line of eyotd: nats-server's flags, with Go's flag syntax.

`-p 4222`, `--p=4222`, `-D`, `-D=false` are all understood, one dash or two. `parse_args` gives an `Arguments`;
`apply_arguments` lays it over the options of the configuration file, which flags override. What an eyotd cannot do
(clusters, a Go profiler) is part of the grammar and refused with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from eyot_daemon.options import Options
from eyot_daemon.options_accounts import AuthorizationOptions
from eyot_daemon.options_jetstream import JetStreamOptions
from eyot_daemon.options_listen import split_host_port
from eyot_daemon.options_tls import TlsOptions


class UsageError(Exception):
    """A command line that cannot be: the text says why; main prints it and exits 1."""


class Arguments(Struct, kw_only=True):
    """What was given; None = not given."""

    addr: str | None = None
    port: int | None = None
    server_name: str | None = None
    pid_file: str | None = None
    http_port: int | None = None
    https_port: int | None = None
    config: str | None = None
    test_config: bool = False
    signal: str | None = None
    client_advertise: str | None = None
    ports_file_dir: str | None = None
    log_file: str | None = None
    logtime: bool | None = None
    syslog: bool | None = None
    remote_syslog: str | None = None
    debug: bool | None = None
    trace: bool | None = None
    trace_verbose: bool | None = None
    debug_trace: bool | None = None
    debug_trace_verbose: bool | None = None
    log_size_limit: int | None = None
    max_traced_msg_len: int | None = None
    jetstream: bool | None = None
    store_dir: str | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    tls: bool | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_verify: bool | None = None
    tls_ca: str | None = None
    routes: str | None = None
    cluster: str | None = None
    cluster_name: str | None = None
    no_advertise: bool | None = None
    cluster_advertise: str | None = None
    connect_retries: int | None = None
    cluster_listen: str | None = None
    profile: int | None = None
    help: bool = False
    version: bool = False
    help_tls: bool = False


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


def parse_args(argv: Sequence[str]) -> Arguments:
    """Parse the arguments after the program's name. Raises UsageError in the words of Go's flag package."""
    arguments = Arguments()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if len(word) < 2 or not word.startswith("-") or word == "--":
            _command(arguments, word if word != "--" else (rest[0] if rest else ""))
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"bad flag syntax: {word}")
        flag = _FLAGS.get(name)
        if flag is None:
            raise UsageError(f"flag provided but not defined: -{name}")
        if flag.kind is bool:
            setattr(arguments, flag.field, _boolean(name, value) if equals else True)
            continue
        if not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        setattr(arguments, flag.field, _integer(name, value) if flag.kind is int else value)
    return arguments


def _command(arguments: Arguments, word: str) -> None:
    """What is left after the flags: `help` and `version` are commands."""
    if word.lower() == "version":
        arguments.version = True
    elif word.lower() == "help":
        arguments.help = True
    elif word:
        raise UsageError(f'unrecognized command: "{word}"')


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


def refuse_not_offered(arguments: Arguments) -> None:
    """Raise UsageError for flags that ask for what this server leaves to others."""
    for field in ("routes", "cluster", "cluster_name", "cluster_advertise", "cluster_listen"):
        if getattr(arguments, field):
            raise UsageError(
                f"--{field}: clusters are the hub's job: run a real nats-server cluster there; "
                "eyotd is one server with leaf links"
            )
    if arguments.profile:
        raise UsageError("--profile: eyotd has no Go profiler")


def apply_arguments(options: Options, arguments: Arguments) -> Options:
    """The options with what the command line says laid over them. Raises UsageError."""
    refuse_not_offered(arguments)
    changes: dict[str, Any] = {}
    _network(arguments, changes)
    _logging(arguments, changes)
    _authorization(arguments, changes)
    _jetstream(options, arguments, changes)
    _tls(options, arguments, changes)
    return msgspec.structs.replace(options, **changes)


def _copy(arguments: Arguments, changes: dict[str, Any], *fields: str) -> None:
    for field in fields:
        value = getattr(arguments, field)
        if value is not None:
            changes[field] = value


def _network(arguments: Arguments, changes: dict[str, Any]) -> None:
    if arguments.addr is not None:
        changes["host"] = arguments.addr
    _copy(
        arguments,
        changes,
        "port",
        "server_name",
        "pid_file",
        "http_port",
        "https_port",
        "client_advertise",
        "ports_file_dir",
    )
    for field in ("port", "http_port", "https_port"):
        if not -1 <= changes.get(field, 0) <= 65_535:
            raise UsageError(f"--{field}: not a port: {changes[field]}")
    if arguments.client_advertise:
        try:
            split_host_port(arguments.client_advertise if ":" in arguments.client_advertise else "x:0")
        except ValueError as error:
            raise UsageError(f"--client_advertise: {error}") from None


def _logging(arguments: Arguments, changes: dict[str, Any]) -> None:
    _copy(arguments, changes, "log_file", "logtime", "syslog", "remote_syslog", "debug", "trace")
    _copy(arguments, changes, "log_size_limit", "max_traced_msg_len")
    if arguments.debug_trace or arguments.debug_trace_verbose:
        changes["debug"] = changes["trace"] = True
    if arguments.trace_verbose or arguments.debug_trace_verbose:
        changes["trace"] = changes["trace_verbose"] = True


def _authorization(arguments: Arguments, changes: dict[str, Any]) -> None:
    """`--user`, `--pass` or `--auth` replace whatever users the file has, as in nats-server."""
    if arguments.token is not None and (arguments.user is not None or arguments.password is not None):
        raise UsageError("Cannot have a user/pass and token")
    if arguments.token is not None:
        changes["authorization"] = AuthorizationOptions(token=arguments.token)
    elif arguments.user is not None:
        changes["authorization"] = AuthorizationOptions(user=arguments.user, password=arguments.password or "")
    elif arguments.password is not None:
        raise UsageError("--pass needs --user")


def _jetstream(options: Options, arguments: Arguments, changes: dict[str, Any]) -> None:
    jetstream = options.jetstream
    if arguments.jetstream is not None:
        jetstream = (jetstream or JetStreamOptions()) if arguments.jetstream else None
    if arguments.store_dir is not None and jetstream is not None:
        jetstream = msgspec.structs.replace(jetstream, store_dir=arguments.store_dir)
    changes["jetstream"] = jetstream


def _tls(options: Options, arguments: Arguments, changes: dict[str, Any]) -> None:
    if not (arguments.tls or arguments.tls_verify or arguments.tls_cert):
        return
    tls = options.tls or TlsOptions()
    tls = msgspec.structs.replace(
        tls,
        cert_file=arguments.tls_cert or tls.cert_file,
        key_file=arguments.tls_key or tls.key_file,
        ca_file=arguments.tls_ca or tls.ca_file,
        verify=tls.verify if arguments.tls_verify is None else arguments.tls_verify,
    )
    if not tls.cert_file or not tls.key_file:
        raise UsageError("TLS Server certificate must be present and valid: --tlscert and --tlskey are needed")
    changes["tls"] = tls
