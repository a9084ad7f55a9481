"""Reload of the configuration: which options may change while the daemon runs, and the messages about changes.

A new configuration is applied as a whole or not at all. A change that nats-server refuses at runtime is refused, with
nats-server's name of the option. Values appear only where they cannot hold a secret. `reload/apply.py` applies the
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import fields

from eyot_daemon.config.jetstream import EyotOptions, JetStreamOptions
from eyot_daemon.config.leaf import LeafNodesOptions
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.config.options import Options
from eyot_daemon.process.log_service import LOGGING
from eyot_wire.go.duration import format_duration

if TYPE_CHECKING:
    from eyot_daemon.config.operator import OperatorOptions

#: Options whose new value takes effect by itself or by `reload/apply.py`.
RELOADABLE = frozenset(LOGGING) | {
    "connect_error_reports",
    "reconnect_error_reports",
    "max_connections",
    "max_control_line",
    "max_payload",
    "ping_interval_s",
    "ping_max",
    "write_deadline_s",
    "client_advertise",
    "server_tags",
    "server_metadata",
    "no_fast_producer_stall",
    "authorization",
    "accounts",
    "mappings",
    "tls",
    "allow_non_tls",
    "pid_file",
    "ports_file_dir",
    "jetstream",
    "leafnodes",
    "websocket",
    "mqtt",
    "https_tls",
    "operator",
    "eyot",
}
#: nats-server's names of options that cannot change.
NAMES = {
    "host": "Host",
    "port": "Port",
    "server_name": "ServerName",
    "cluster_name": "Cluster.Name",
    "http_host": "HTTPHost",
    "http_port": "HTTPPort",
    "https_port": "HTTPSPort",
    "http_base_path": "HTTPBasePath",
    "max_pending": "MaxPending",
    "max_subscriptions": "MaxSubs",
    "max_sub_tokens": "MaxSubTokens",
    "max_closed_clients": "MaxClosedClients",
    "no_header_support": "NoHeaderSupport",
    "disable_sublist_cache": "NoSublistCache",
    "lame_duck_duration_s": "LameDuckDuration",
    "lame_duck_grace_period_s": "LameDuckGracePeriod",
    "write_timeout": "WriteTimeout",
    "default_js_domain": "JsAccDefaultDomain",
    "system_account": "SystemAccount",
    "no_auth_user": "NoAuthUser",
    "proxy_protocol": "ProxyProtocol",
}
_LEAF_RELOADABLE = frozenset({"tls", "remotes", "compression", "min_version"})
_WEBSOCKET_RELOADABLE = frozenset({"tls"})
#: As nats-server's. What of these has no meaning here may change too.
_MQTT_RELOADABLE = frozenset(
    {
        "tls",
        "ack_wait_s",
        "max_ack_pending",
        "stream_replicas",
        "consumer_replicas",
        "consumer_memory_storage",
        "consumer_inactive_threshold_s",
    }
)
_LEAF_NAMES = {"host": "Host", "port": "Port", "advertise": "Advertise", "no_advertise": "NoAdvertise"}
_MQTT_NAMES = {
    "host": "Host",
    "port": "Port",
    "authorization": "Authorization",
    "no_auth_user": "NoAuthUser",
    "api_timeout_s": "JSAPITimeout",
    "js_domain": "JsDomain",
    "reject_qos2_publish": "RejectQoS2Pub",
    "downgrade_qos2_subscribe": "DowngradeQoS2Sub",
}
_SPOKEN = {
    "ping_interval_s": "ping_interval",
    "write_deadline_s": "write_deadline",
    "server_tags": "tags",
    "server_metadata": "metadata",
    "allow_non_tls": "allow_non_tls",
}

_EYOT_SPOKEN = {"sync": "sync policies", "mqtt": "mqtt limits"}


class ReloadError(Exception):
    """A configuration that cannot be applied at runtime; the text names the option."""


def changed_fields(old: Options, new: Options) -> list[str]:
    """Names of the options that differ. Raises ReloadError if one of them cannot change while running."""
    changed = [name for name in _names(Options) if name != "config_digest" and getattr(old, name) != getattr(new, name)]
    for name in changed:
        before, after = getattr(old, name), getattr(new, name)
        if name == "port" and after == -1:
            continue  # "any free port" is what it has
        if name == "no_auth_user" and not after and all(user.user != before for user in new.users):
            continue  # the user is gone, and nobody can be that one without a login any more
        if name not in RELOADABLE:
            raise _refusal(NAMES.get(name, name), name, before, after)
        if name == "jetstream":
            _check_jetstream(before, after)
        elif name == "operator":
            _check_operator(before, after)
        elif name == "leafnodes":
            _check_leafnodes(before, after)
        elif name == "websocket":
            _check_websocket(before, after)
        elif name == "mqtt":
            _check_mqtt(before, after)
        elif name == "eyot":
            _check_eyot(before, after)
    return [name for name in changed if name in RELOADABLE]


def _names(struct: type) -> list[str]:
    return [field.name for field in fields(struct)]


def _refusal(spoken: str, name: str, before: Any, after: Any) -> ReloadError:
    text = f"config reload not supported for {spoken}"
    shown = _shown(name, before), _shown(name, after)
    return ReloadError(text if None in shown else f"{text}: old={shown[0]}, new={shown[1]}")


def _shown(name: str, value: object) -> str | None:
    """Return a value as nats-server prints it; None: hidden."""
    if name.endswith("_s") and isinstance(value, (int, float)):
        return format_duration(int(value * 1e9))
    if isinstance(value, bool):
        return "true" if value else "false"
    if name == "default_js_domain" and isinstance(value, tuple):
        return f"map[{' '.join(f'{account}:{domain}' for account, domain in value)}]"
    return str(value) if isinstance(value, (int, str)) else None


def _check_jetstream(before: JetStreamOptions | None, after: JetStreamOptions | None) -> None:
    if before is None or after is None:
        return
    if before.store_dir != after.store_dir:
        raise ReloadError("config reload not supported for jetstream storage directory")
    if before.domain != after.domain:
        raise _refusal("JetStreamDomain", "domain", before.domain, after.domain)
    for old, new in ((before.memory_max, after.memory_max), (before.file_max, after.file_max)):
        if old != new and (old < 0 or 0 <= new < old):
            raise ReloadError("config reload not supported for decreasing jetstream max memory and store")
    if before.buffered_msgs_max != after.buffered_msgs_max:
        raise _refusal("StreamMaxBufferedMsgs", "", before.buffered_msgs_max, after.buffered_msgs_max)
    if before.buffered_bytes_max != after.buffered_bytes_max:
        raise _refusal("StreamMaxBufferedSize", "", before.buffered_bytes_max, after.buffered_bytes_max)


def _check_operator(before: OperatorOptions | None, after: OperatorOptions | None) -> None:
    """Check that only preloaded and pinned accounts changed; trusted keys and the resolver require a restart."""
    if before is None or after is None or before.trusted_keys != after.trusted_keys:
        raise ReloadError("config reload not supported for TrustedOperators")
    if before.resolver != after.resolver:
        raise ReloadError("config reload not supported for AccountResolver")


def _check_leafnodes(before: LeafNodesOptions, after: LeafNodesOptions) -> None:
    for name in _names(LeafNodesOptions):
        old, new = getattr(before, name), getattr(after, name)
        if old == new or name in _LEAF_RELOADABLE:
            if name == "tls" and (old is None) != (new is None):
                raise ReloadError('config reload not supported for LeafNode: field "TLSConfig"')
            continue
        shown = _shown(name, old), _shown(name, new)
        values = "" if None in shown else f": old={shown[0]}, new={shown[1]}"
        raise ReloadError(f'config reload not supported for LeafNode: field "{_LEAF_NAMES.get(name, name)}"{values}')


def _check_websocket(before: Any, after: Any) -> None:
    if before is None or after is None:
        raise ReloadError("config reload not supported for Websocket")
    for name in _names(type(before)):
        if getattr(before, name) != getattr(after, name) and name not in _WEBSOCKET_RELOADABLE:
            raise ReloadError(f'config reload not supported for Websocket: field "{name}"')


def _check_mqtt(before: MqttOptions | None, after: MqttOptions | None) -> None:
    if before is None or after is None:
        raise ReloadError("config reload not supported for MQTT")
    if (before.tls is None) != (after.tls is None):
        raise ReloadError('config reload not supported for MQTT: field "TLSConfig"')
    if before.tls is not None and after.tls is not None and before.tls.pinned_certs != after.tls.pinned_certs:
        raise ReloadError('config reload not supported for MQTT: field "TLSPinnedCerts"')
    for name in _names(MqttOptions):
        old, new = getattr(before, name), getattr(after, name)
        if old == new or name in _MQTT_RELOADABLE:
            continue
        shown = _shown(name, old), _shown(name, new)
        values = "" if None in shown else f": old={shown[0]}, new={shown[1]}"
        raise ReloadError(f'config reload not supported for MQTT: field "{_MQTT_NAMES.get(name, name)}"{values}')


def _check_eyot(before: EyotOptions, after: EyotOptions) -> None:
    """Policies of links may change; where the socket and the store are may not."""
    for name in ("profile", "control_socket", "store"):
        if getattr(before, name) != getattr(after, name):
            raise ReloadError(f"config reload not supported for eyot {name}")


def applied_lines(changed: list[str], old: Options, new: Options) -> list[str]:
    """Return the log lines of a reload, in nats-server's words."""
    lines = []
    for name in changed:
        if name in ("authorization", "accounts", "operator", "mappings", "leafnodes", "mqtt"):
            continue
        if name in ("server_tags", "server_metadata"):
            lines.append(f"Reloaded: {_SPOKEN[name]}")
        elif name == "no_fast_producer_stall":
            lines.append(f"Reloaded: fast producers will {'not ' if new.no_fast_producer_stall else ''}be stalled")
        elif name == "eyot":
            parts = [part for part in _names(EyotOptions) if getattr(old.eyot, part) != getattr(new.eyot, part)]
            lines += [f"Reloaded: eyot {_EYOT_SPOKEN.get(part, part)}" for part in parts]
        elif name == "jetstream":
            lines.append("Reloaded: JetStream")
        else:
            shown = _shown(name, getattr(new, name))
            lines.append(f"Reloaded: {_SPOKEN.get(name, name)}" + ("" if shown is None else f" = {shown}"))
    lines += ["Reloaded: authorization users", "Reloaded: accounts"]
    if "mqtt" in changed:
        lines += _mqtt_lines(old.mqtt, new.mqtt)
    return lines


def _mqtt_lines(old: MqttOptions | None, new: MqttOptions | None) -> list[str]:
    """Return the lines about the options of MQTT that changed; nats-server logs the others, too."""
    lines = []
    for name in sorted(_MQTT_RELOADABLE - {"tls"}):
        value = getattr(new, name)
        if value != getattr(old, name):
            lines.append(f"Reloaded: MQTT {name.removesuffix('_s')} = {_shown(name, value)}")
    return lines
