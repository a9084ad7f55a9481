"""The command line of eyotd: the meaning of nats-server's flags (`flags.py`).

`parse_args` returns `Arguments`. `apply_arguments` merges them over the options of the configuration file. Flags for
features that eyotd does not have (clusters) are parsed and refused with the reason; `--profile` is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.flags import UsageError, parse_flags
from eyot_daemon.config.jetstream_read import jetstream_defaults
from eyot_daemon.config.listen import split_host_port
from eyot_daemon.config.options import Options
from eyot_daemon.config.profile import PROFILES
from eyot_daemon.config.tls import TlsOptions


class Arguments(Struct, kw_only=True):
    """The given arguments; None: not given."""

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
    logtime_utc: bool | None = None
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


def parse_args(argv: Sequence[str]) -> Arguments:
    """Parse the arguments after the program's name. Raises UsageError in the words of Go's flag package."""
    return msgspec.convert(parse_flags(argv), Arguments)


def refuse_not_offered(arguments: Arguments) -> None:
    """Raise UsageError for flags of features that this server does not have."""
    for field in ("routes", "cluster", "cluster_name", "cluster_advertise", "cluster_listen"):
        if getattr(arguments, field):
            raise UsageError(
                f"--{field}: clusters are the hub's job: run a real nats-server cluster there; "
                "eyotd is one server with leaf links"
            )


def apply_arguments(options: Options, arguments: Arguments) -> Options:
    """Return the options with the command line merged over them. Raises UsageError."""
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
    _copy(arguments, changes, "log_file", "logtime", "logtime_utc", "syslog", "remote_syslog", "debug", "trace")
    _copy(arguments, changes, "log_size_limit", "max_traced_msg_len")
    if arguments.debug_trace or arguments.debug_trace_verbose:
        changes["debug"] = changes["trace"] = True
    if arguments.trace_verbose or arguments.debug_trace_verbose:
        changes["trace"] = changes["trace_verbose"] = True


def _authorization(arguments: Arguments, changes: dict[str, Any]) -> None:
    """Let `--user`, `--pass` or `--auth` replace all users of the file, as in nats-server."""
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
        jetstream = (jetstream or jetstream_defaults(PROFILES[options.eyot.profile])) if arguments.jetstream else None
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
