"""Reads a whole configuration: the top level, and the refusal of options that this server does not have.

`load_options(path)` returns the options of a file and the `Reading` (warnings, positions) for the checks of
`config/check.py`, which run after the command line's flags were merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from eyot_daemon.config.accounts import SYSTEM_ACCOUNT_DEFAULT
from eyot_daemon.config.accounts_read import read_accounts
from eyot_daemon.config.digest import config_digest
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.jetstream_read import read_eyot, read_jetstream, read_profile
from eyot_daemon.config.leaf_read import read_leafnodes
from eyot_daemon.config.listen import read_host_port, read_listen
from eyot_daemon.config.mappings_read import read_mappings
from eyot_daemon.config.mqtt_read import read_mqtt
from eyot_daemon.config.options import Options
from eyot_daemon.config.passwords import is_bcrypt
from eyot_daemon.config.profile import PROFILES
from eyot_daemon.config.reader import Block, Reading
from eyot_daemon.config.tls_read import read_tls
from eyot_daemon.config.users_read import read_authorization
from eyot_daemon.config.websocket import read_websocket
from eyot_wire.conf import ConfMap, parse_file, parse_text

LAME_DUCK_DURATION_S_MIN = 30.0
#: A shorter interval would keep the loop busy with PINGs.
PING_INTERVAL_S_MIN = 0.001
#: Where the local page is served if no monitoring port is configured.
PAGE_HOST, PAGE_PORT = "127.0.0.1", 8222
_INT32_MAX = 2**31 - 1

_HUBS_JOB = "is the hub's job: run a real nats-server cluster there; eyotd is one server with leaf links"
_OPERATOR_MODE = (
    *("operator", "operators", "roots", "root", "root_operators", "root_operator", "trusted", "trusted_keys"),
    *("resolver", "account_resolver", "accounts_resolver", "resolver_preload", "resolver_pinned_accounts"),
    *("resolver_tls", "default_sentinel"),
)
_NOT_OFFERED = {
    "gateway": f"a gateway {_HUBS_JOB}",
    "proxies": "trusted proxies are not offered by eyotd",
}


class Loaded(NamedTuple):
    """Options of a configuration file, and the notes made while reading it."""

    options: Options
    reading: Reading


def load_options(path: str | Path, env: Mapping[str, str] | None = None) -> Loaded:
    """Options of a configuration file. Raises ConfError, which names file, line, column and key."""
    return read_options(parse_file(path, env), str(path))


def read_options(conf_map: ConfMap, config_file: str = "") -> Loaded:
    """Options of a parsed configuration."""
    reading = Reading()
    block = Block(conf_map, reading)
    _refuse_not_offered(block)
    eyot_block = block.block("eyot")
    reading.profile = PROFILES[read_profile(eyot_block)]  # before anything else is read: it gives the defaults
    digest = config_digest(conf_map.plain()) if config_file else ""
    values: dict[str, Any] = {"config_file": config_file, "config_digest": digest}
    for read in (_read_listener, _read_logging, _read_limits, _read_access, _read_monitoring, _read_identity):
        values |= read(block)
    eyot = read_eyot(eyot_block)
    if eyot.http.page and not values.get("http_port") and not values.get("https_port"):
        values |= {"http_host": PAGE_HOST, "http_port": PAGE_PORT}
    options = Options(
        **values,
        tls=read_tls(block, "tls"),
        leafnodes=read_leafnodes(block.block("leafnodes", "leaf")),
        websocket=read_websocket(block),
        mqtt=read_mqtt(block),
        jetstream=_with_top_store_dir(block),
        eyot=eyot,
    )
    _check_page_users(block, options)
    block.finish(_keys_of_eyot)
    _note_plaintext(options, reading)
    return Loaded(options, reading)


def _keys_of_eyot() -> set[str]:
    nothing = Block(parse_text(""), Reading())
    read_eyot(nothing)
    return nothing.asked


def _check_page_users(block: Block, options: Options) -> None:
    """Refuse users of the local page who could never log in: each needs a password in this configuration."""
    known = {user.user for user in options.users if user.user and user.password} | {options.authorization.user}
    for name in options.eyot.http.users:
        if not name or name not in known:
            eyot = block.block("eyot")
            http = None if eyot is None else eyot.block("http")
            assert http is not None, "the names were read from there"
            raise http.error(f"{name!r} is no user of this configuration with a password", "users")


def _refuse_not_offered(block: Block) -> None:
    for key, why in _NOT_OFFERED.items():
        entry = block.entry(key)
        # An empty value or `false` requests nothing.
        if entry is not None and entry.value.plain() not in (False, "", 0, [], {}) and not entry.used_as_variable:
            raise block.error(why, key)
    for key in ("ocsp", "proxy_protocol"):
        entry = block.entry(key)
        if entry is not None and entry.value.plain() is not False:
            raise block.error("is not offered by eyotd", key)
    block.ignore("ocsp_cache")  # caches answers about peers, which eyotd never requests
    profiler = block.entry("prof_port")
    if profiler is not None and profiler.value.plain():
        block.reading.note(profiler, "eyotd has no Go profiler, nothing listens there")
    block.ignore("prof_block_rate")  # of the profiler
    flags = block.block("feature_flags")
    for flag in flags.all() if flags is not None else ():
        if flag.value.value is not False and flags is not None:
            raise flags.error("this feature is not offered by this version of eyotd", flag.key.lower())


def _read_listener(block: Block) -> dict[str, Any]:
    host, port = read_listen(block)
    values: dict[str, Any] = {
        "client_advertise": block.string("client_advertise"),
        "allow_non_tls": block.boolean("allow_non_tls"),
    }
    block.remember("port", "port", "listen")
    if host is not None:
        values["host"] = host
    if port is not None:
        values["port"] = port
    return values


def _read_logging(block: Block) -> dict[str, Any]:
    return {
        "debug": block.boolean("debug"),
        "trace": block.boolean("trace") or block.boolean("trace_verbose"),
        "trace_verbose": block.boolean("trace_verbose"),
        "trace_headers": block.boolean("trace_headers"),
        "logtime": block.boolean("logtime", default=True),
        "logtime_utc": block.boolean("logtime_utc"),
        "log_file": block.string("log_file", "logfile"),
        "log_size_limit": block.integer("logfile_size_limit", "log_size_limit", default=0, minimum=0),
        "log_max_num": block.integer("logfile_max_num", "log_max_num", default=0, minimum=0),
        "syslog": block.boolean("syslog"),
        "remote_syslog": block.string("remote_syslog"),
        "max_traced_msg_len": block.integer("max_traced_msg_len", default=0, minimum=0),
        "connect_error_reports": block.integer_or_default("connect_error_reports", default=3600),
        "reconnect_error_reports": block.integer_or_default("reconnect_error_reports", default=1),
    }


def _read_limits(block: Block) -> dict[str, Any]:
    for place in ("max_payload", "max_pending", "lame_duck_duration", "lame_duck_grace_period"):
        block.remember(place, place)
    profile = block.reading.profile
    max_payload = block.integer_or_default("max_payload", default=1024 * 1024, maximum=_INT32_MAX)
    # nats-server accepts only duration strings for these two: the unquoted `2m` is two million.
    for key in ("lame_duck_duration", "lame_duck_grace_period"):
        block.string(key)
    return {
        "max_control_line": block.integer_or_default("max_control_line", default=4096, maximum=_INT32_MAX),
        "max_payload": max_payload,
        "max_pending": block.integer_or_default("max_pending", default=profile.max_pending),
        "max_connections": block.integer("max_connections", "max_conn", default=profile.max_connections),
        "max_subscriptions": block.integer("max_subscriptions", "max_subs", default=profile.max_subscriptions),
        "max_sub_tokens": block.integer("max_sub_tokens", "max_subscription_tokens", default=0, minimum=1, maximum=255),
        "max_closed_clients": block.integer("max_closed_clients", default=profile.max_closed_clients)
        or profile.max_closed_clients,
        "ping_interval_s": max(PING_INTERVAL_S_MIN, block.seconds_or_default("ping_interval", default=120.0)),
        "ping_max": block.integer_or_default("ping_max", default=2),
        "write_deadline_s": block.seconds_or_default("write_deadline", default=10.0),
        "write_timeout": block.choice("write_timeout", allowed=("default", "close", "retry"), default="default"),
        "lame_duck_duration_s": _read_lame_duck(block),
        "lame_duck_grace_period_s": block.seconds("lame_duck_grace_period", default=10.0) or 10.0,
        "no_header_support": block.boolean("no_header_support"),
        "no_fast_producer_stall": block.boolean("no_fast_producer_stall"),
        "disable_sublist_cache": block.boolean("disable_sublist_cache", "no_sublist_cache"),
    }


def _read_lame_duck(block: Block) -> float:
    duration_s = block.seconds("lame_duck_duration", default=120.0)
    if duration_s < LAME_DUCK_DURATION_S_MIN:
        text = block.string("lame_duck_duration")
        raise block.error(f"invalid lame_duck_duration of {text}, minimum is 30 seconds", "lame_duck_duration")
    return duration_s


def _read_access(block: Block) -> dict[str, Any]:
    system_keys = ("system_account", "system")
    block.remember("no_auth_user", "no_auth_user")
    block.remember("system_account", *system_keys)
    block.remember("authorization", "authorization")
    block.remember("accounts", "accounts")
    block.remember("default_js_domain", "default_js_domain")
    system_account = block.string(*system_keys, default=SYSTEM_ACCOUNT_DEFAULT)
    operator = None
    if any(key in block for key in _OPERATOR_MODE):
        # Loaded only where it is used.
        from eyot_daemon.config.operator_read import read_operator, system_account_of

        operator = read_operator(block)
        if operator is not None:
            configured = system_account if block.entry(*system_keys) is not None else None
            system_account = system_account_of(operator, block, configured) or SYSTEM_ACCOUNT_DEFAULT
    if block.boolean("no_system_account", "no_system", "no_sys_acc"):
        system_account = ""
    return {
        "authorization": read_authorization(block.block("authorization")),
        "accounts": read_accounts(block),
        "mappings": read_mappings(block, "mappings", "maps"),
        "no_auth_user": block.string("no_auth_user"),
        "system_account": system_account,
        "operator": operator,
        "default_js_domain": block.pairs("default_js_domain"),
    }


def _read_monitoring(block: Block) -> dict[str, Any]:
    values: dict[str, Any] = {}
    entry = block.entry("http")
    if entry is not None:
        host, values["http_port"] = read_host_port(entry)
        values["http_host"] = host or ""
    if block.entry("http_port", "monitor_port") is not None:
        values["http_port"] = block.port("http_port", "monitor_port", default=0)
    entry = block.entry("https")
    if entry is not None:
        host, values["https_port"] = read_host_port(entry)
        values["http_host"] = host or values.get("http_host", "")
    if block.entry("https_port") is not None:
        values["https_port"] = block.port("https_port", default=0)
    block.remember("https_port", "https_port", "https")
    base_path = block.string("http_base_path")
    if base_path:
        values["http_base_path"] = "/" + base_path.strip("/")
    block.remember("http_port", "http_port", "monitor_port", "http")
    return values


def _read_cluster_name(block: Block) -> str:
    """Return the name of `cluster { name }`. A server without routes may have one; other keys are refused."""
    cluster = block.block("cluster")
    if cluster is None:
        return ""
    name = cluster.string("name")
    if cluster.entry("name") is None or len(list(cluster.all())) != 1:
        raise block.error(f"a cluster {_HUBS_JOB}", "cluster")
    if " " in name:
        raise cluster.error("cluster name cannot contain spaces", "name")
    return name


def _read_identity(block: Block) -> dict[str, Any]:
    server_name = block.string("server_name")
    if " " in server_name:
        raise block.error("server name cannot contain spaces", "server_name")
    return {
        "server_name": server_name,
        "cluster_name": _read_cluster_name(block),
        "server_tags": block.strings("server_tags"),
        "server_metadata": block.pairs("server_metadata"),
        "pid_file": block.string("pidfile", "pid_file"),
        "ports_file_dir": block.string("ports_file_dir"),
    }


def _with_top_store_dir(block: Block) -> JetStreamOptions | None:
    """`jetstream`, its directory from the top-level `store_dir` if it names none itself."""
    store_dir = block.string("store_dir", "storedir")
    jetstream = read_jetstream(block)
    if jetstream is None or not store_dir:
        return jetstream
    if jetstream.store_dir:
        raise block.error("Duplicate 'store_dir' configuration", "store_dir", "storedir")
    return msgspec.structs.replace(jetstream, store_dir=store_dir)


def _note_plaintext(options: Options, reading: Reading) -> None:
    """Record nats-server's warning at start; it is not an error of the file."""
    secrets = [options.authorization.password, options.authorization.token]
    secrets += [user.password for user in options.users]
    if options.leafnodes.authorization is not None:
        secrets.append(options.leafnodes.authorization.password)
        secrets += [user.password for user in options.leafnodes.authorization.users]
    reading.plaintext_passwords = any(secret and not is_bcrypt(secret) for secret in secrets)
