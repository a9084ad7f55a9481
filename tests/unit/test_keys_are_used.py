"""Every key of the configuration and every claim of a token has an effect: some module reads the field that holds it.

A field that only its parser knows is a rule without enforcement. Fields are distinguished by name, and by the places that only
pass them on. Fields that deliberately have no effect are listed with the reason.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
#: Modules that define what is configured or claimed.
MODULES = (
    "eyot_daemon.config.accounts", "eyot_daemon.config.jetstream", "eyot_daemon.config.leaf", "eyot_daemon.config.mqtt", "eyot_daemon.config.operator",
    "eyot_daemon.config.options", "eyot_daemon.config.permissions", "eyot_daemon.config.tls", "eyot_daemon.config.websocket",
    "eyot_sync.policy.policy", "eyot_wire.trust.jwt", "eyot_wire.trust.jwt_account",
)  # fmt: skip
#: Files that read, check or hand on fields without doing what they say.
CARRIERS = (
    "daemon/eyot_daemon/auth/claims_accounts.py",
    "daemon/eyot_daemon/monitor/account_detail.py",
    "daemon/eyot_daemon/reload/changes.py",
    "wire/eyot_wire/trust/jwt_account_check.py",
)
#: Of the files that read the configuration, those that act on it.
ACTS = ("daemon/eyot_daemon/config/imports_check.py", "daemon/eyot_daemon/config/import_templates.py")
#: Claims become options in these, which are asked for as such.
TAKES_CLAIMS = ("daemon/eyot_daemon/auth/claims_accounts.py",)
#: Rules that are kept where a configuration or token is taken in, or that mean nothing here, and why.
ELSEWHERE = {
    "Claims.jti": "an id of the token, for whoever keeps tokens",
    "Export.info_url": "for people",
    "AccountBody.info_url": "for people",
    "AccountBody.cluster_traffic": "of clusters, which are the hub's job",
    "JetStreamOptions.extension_hint": "of clusters",
    "JetStreamOptions.unique_tag": "of clusters",
    "MqttOptions.consumer_inactive_threshold_s": "sessions have no consumers, and an expiry of their own",
    "MqttOptions.consumer_memory_storage": "sessions have no consumers",
    "MqttOptions.consumer_replicas": "ignored by nats-server too",
    "MqttOptions.stream_replicas": "of clusters",
    "OperatorLimits.wildcards": "kept when the token is taken in",
    "OperatorBody.account_server_url": "for nsc",
    "OperatorBody.operator_service_urls": "for nsc",
    "OperatorBody.assert_server_version": "kept when the configuration is read",
    "Options.disable_sublist_cache": "changes no answer, only how fast it is",
    "Options.proxy_protocol": "refused if it is on",
    "Options.reconnect_error_reports": "of routes",
    "Options.write_timeout": "a slow reader is closed in any case",
    "RemoteOptions.ws_no_masking": "frames are masked in any case, which every server takes",
    "TlsOptions.check_known_urls": "refused if it is on",
}


def structs() -> Iterator[tuple[type[msgspec.Struct], str]]:
    """Struct and field."""
    for name in MODULES:
        module = importlib.import_module(name)
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == name:
                own = [field for field in each.__struct_fields__ if field in each.__annotations__]
                yield from ((each, field) for field in own)


@functools.cache
def reads() -> tuple[tuple[str, str, bool], ...]:
    """Every attribute that is read: file, name, and whether it is `self`'s."""
    found = []
    for folder in ("wire", "sync", "daemon", "store"):
        for path in (ROOT / folder).rglob("*.py"):
            place = str(path.relative_to(ROOT))
            found += [
                (place, node.attr, isinstance(node.value, ast.Name) and node.value.id == "self")
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            ]
    return tuple(found)


def names_asked(carriers: tuple[str, ...]) -> set[str]:
    """Names of attributes that are read in files that act on them, and by a Struct's own methods for whoever calls those."""

    def carries(place: str) -> bool:
        return place in carriers or (place.startswith("daemon/eyot_daemon/config/") and place not in ACTS)

    return {name for place, name, own in reads() if own or not carries(place)}


def test_every_field_is_asked_for() -> None:
    options = names_asked(CARRIERS)
    claims = names_asked(tuple(set(CARRIERS) - set(TAKES_CLAIMS)))
    unused = {
        f"{struct.__name__}.{field}"
        for struct, field in structs()
        if field not in (claims if struct.__module__.startswith("eyot_wire.trust") else options)
    }
    assert unused == set(ELSEWHERE)


def test_a_rule_that_nobody_keeps_would_be_found() -> None:
    """`allow_trace` was read and checked, and nothing else."""
    assert "allow_trace" in names_asked(CARRIERS)
    assert "allow_trace" not in names_asked(
        (*CARRIERS, "daemon/eyot_daemon/router/imports.py", "daemon/eyot_daemon/router/message_trace.py")
    )
