"""One account in detail, as `/accountz?acc=` shows it: exports, imports, mappings, and in operator mode its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.config.accounts import AccountOptions, ExportOptions, ImportOptions, LatencyOptions
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import Json
from eyot_wire.go.time import ns_to_rfc3339

if TYPE_CHECKING:
    from eyot_wire.trust.jwt_account import AccountClaims

_NS = 1_000_000_000
_RESPONSE_TYPES = {"singleton": "Singleton", "stream": "Streamed", "chunked": "Chunked"}
#: The imports from the system account that every account has: subject, name, shared.
_OF_THE_SYSTEM = (
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", False),
)
_USER_INFO = ("$SYS.REQ.USER.{}.INFO", "$SYS.REQ.USER.INFO", True)
_JETSTREAM = ("$JS.API.>", "$JS.API.>", True)
_SYSTEM_EXPORTS = (
    ("$SYS.DEBUG.SUBSCRIBERS", "Singleton"),
    ("$SYS.REQ.USER.*.INFO", "Singleton"),
    ("$SYS.REQ.ACCOUNT.*.CONNZ", "Streamed"),
    ("$SYS.REQ.ACCOUNT.*.STATZ", "Streamed"),
)
#: Why a domain's prefix is mapped to the plain API.
_API_TOKENS = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>")


def shared_members(broker: Broker, account: Account, configured: AccountOptions | None) -> Json:
    """Return `mappings`, `exports` and `imports`, implicit ones included; each only if not empty."""
    shown: Json = {"mappings": _mappings(broker, account, configured), "exports": [], "imports": []}
    if configured is not None:
        latencies = _latencies(broker)
        shown["exports"] = [_export(one) for one in configured.exports]
        shown["imports"] = [_import(one, latencies.get((one.account, one.subject))) for one in configured.imports]
    system = broker.system_account
    if system is not None:
        if account.is_system:
            shown["exports"] += [_service(subject, answer) for subject, answer in _SYSTEM_EXPORTS]
            if broker.options.jetstream is not None:
                shown["exports"].append(_service("$JS.API.>", "Singleton"))
        else:
            shown["imports"] += [_of_system(system.name, account.name, *one) for one in _OF_THE_SYSTEM]
            if broker.options.jetstream is not None:
                shown["imports"].append(_of_system(system.name, account.name, *_JETSTREAM))
        shown["imports"].append(_of_system(system.name, account.name, *_USER_INFO))
    return {name: member for name, member in shown.items() if member}


def token_members(claims: AccountClaims | None) -> Json:
    """Return the content of the account's token, in operator mode."""
    if claims is None:
        return {}
    from eyot_wire.trust.jwt import open_token
    from eyot_wire.trust.jwt_account_check import mistakes

    shown: Json = {
        "jwt": claims.token,
        "issuer_key": claims.claims.iss,
        "tags": list(claims.claims.all_tags),
        "decoded_jwt": msgspec.json.decode(open_token(claims.token)[1]),
        "validation_result_jwt": [
            {"description": one, "blocking": True, "time_check": False} for one in mistakes(claims)
        ],
        "revoked_user": {user: ns_to_rfc3339(second * _NS) for user, second in (claims.body.revocations or {}).items()},
    }
    return {name: member for name, member in shown.items() if member}


def _mappings(broker: Broker, account: Account, configured: AccountOptions | None) -> Json:
    jetstream = broker.options.jetstream
    shown: Json = {}
    if jetstream is not None and jetstream.domain and not account.is_system:
        for tokens in _API_TOKENS:
            plain = tokens if tokens.startswith("$") else f"$JS.API.{tokens}"
            shown[f"$JS.{jetstream.domain}.API.{tokens}"] = [{"subject": plain, "weight": 100}]
    for mapping in () if configured is None else configured.mappings:
        shown[mapping.source] = [{"subject": one.subject, "weight": one.weight} for one in mapping.destinations]
    return shown


def _latencies(broker: Broker) -> dict[tuple[str, bytes], LatencyOptions]:
    return {
        (account.name, export.subject): export.latency
        for account in broker.options.accounts
        for export in account.exports
        if export.latency is not None
    }


def _latency(latency: LatencyOptions) -> Json:
    return {"sampling": latency.sampling or "headers", "results": latency.subject.decode()}


def _export(export: ExportOptions) -> Json:
    shown: Json = {"subject": export.subject.decode(), "type": export.kind}
    if export.kind == "service":
        shown["response_type"] = _RESPONSE_TYPES[export.response_type]
    if export.latency is not None:
        shown["service_latency"] = _latency(export.latency)
    if export.token_required:
        shown["token_req"] = True
    if export.accounts:
        shown["approved_accounts"] = list(export.accounts)
    if export.revocations:
        shown["revoked_activations"] = {name: ns_to_rfc3339(second * _NS) for name, second in export.revocations}
    return shown


def _import(one: ImportOptions, latency: LatencyOptions | None) -> Json:
    subject = one.subject.decode()
    shown: Json = {"subject": subject, "account": one.account}
    if one.kind == "service":
        local = one.to.decode() or subject
        shown["to"] = local
    else:
        local = f"{one.prefix.decode()}.{subject}" if one.prefix else one.to.decode() or subject
    shown |= {"local_subject": local, "type": one.kind, "invalid": False, "share": one.share, "tracking": False}
    if latency is not None and one.kind == "service":
        shown["latency"] = _latency(latency)
    return shown


def _service(subject: str, response_type: str) -> Json:
    return {"subject": subject, "type": "service", "response_type": response_type}


def _of_system(system: str, account: str, subject: str, local: str, share: bool) -> Json:
    return {
        "subject": subject.format(account),
        "account": system,
        "to": local,
        "local_subject": local,
        "type": "service",
        "invalid": False,
        "share": share,
        "tracking": False,
    }
