"""Converts accounts' tokens to the configuration's account options.

`account_options` processes all known accounts together, because imports are checked against exporters. An import that
is not authorized, forms a cycle, or names an unknown account is left out and reported; the account works without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from eyot_daemon.auth.claims_permissions import permissions_of
from eyot_daemon.config.accounts import (
    AccountJetStreamOptions,
    AccountLimits,
    AccountOptions,
    ExportOptions,
    ImportOptions,
    LatencyOptions,
    MappingDestination,
    MappingOptions,
    ResponseType,
)
from eyot_daemon.config.exports import latency_mistake, merged_exports
from eyot_daemon.config.import_templates import without_last_dot
from eyot_daemon.config.imports_check import ImportCheck
from eyot_wire import subject
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_account import (
    AccountClaims,
    Export,
    Import,
    JetStreamLimits,
    decode_activation,
)
from eyot_wire.trust.jwt_account_check import activation_mistakes

#: The tier of streams with one replica: all that one server has.
OUR_TIER = "R1"
_RESPONSES: dict[str, ResponseType] = {"stream": "stream", "chunked": "chunked"}


class Built(NamedTuple):
    """The accounts, and descriptions of what in their tokens was left out."""

    accounts: tuple[AccountOptions, ...]
    problems: tuple[str, ...]


def account_options(known: Iterable[AccountClaims], now_s: float) -> Built:
    """Return all accounts. `now_s`: seconds since the epoch, for activations that have expired."""
    claims = {one.name: one for one in known}
    problems: list[str] = []
    accounts = {}
    for name, one in claims.items():
        accounts[name] = _account(one)
    for name, account in accounts.items():
        wanted = []
        for imported in claims[name].body.imports or ():
            wrong = _wrong_subject(imported)
            if wrong is None:
                wanted.append(_imported(imported, _activated_at(name, imported, claims, now_s)))
            else:
                adding = f'Error adding {imported.type} import "{imported.subject}"'
                problems.append(f'Account {name}: {adding}: invalid subject "{wrong}"')
        accounts[name] = msgspec.structs.replace(account, imports=tuple(wanted))
    check = ImportCheck(accounts)
    for name, account in accounts.items():
        accounts[name] = _with_possible_imports(account, check, problems)
    return Built(tuple(accounts.values()), tuple(problems))


def _with_possible_imports(account: AccountOptions, check: ImportCheck, problems: list[str]) -> AccountOptions:
    kept: list[ImportOptions] = []
    for imported in account.imports:
        wrong = check.add(account.name, imported)
        if wrong:
            problems.append(f"Account {account.name}: {wrong}")
        else:
            kept.append(imported)
    return msgspec.structs.replace(account, imports=tuple(kept))


def _wrong_subject(imported: Import) -> str | None:
    """Return a subject of an import that is none; None: all are."""
    to = without_last_dot(imported.to) if imported.type == "stream" else imported.to
    texts = (imported.subject, to or imported.subject, imported.local_subject or imported.subject)
    return next((text for text in texts if not subject.is_valid(text.encode())), None)


def _activated_at(importer: str, imported: Import, claims: Mapping[str, AccountClaims], now_s: float) -> int | None:
    """Return when the activation of an import was issued, if it is valid for exactly this import.

    The exporter must have signed it, for this account, kind and subject, and it must be in time. Revocations are
    checked with the export.
    """
    exporter = claims.get(imported.account)
    if exporter is None or not imported.token:
        return None
    try:
        activation, body = decode_activation(imported.token)
    except JwtError:
        return None
    if activation_mistakes(importer, imported, activation, body) or not activation.valid_at(now_s):
        return None
    signed_for = activation.signed_for
    if signed_for and (signed_for != exporter.name or activation.iss not in (exporter.name, *exporter.signing_keys())):
        return None
    return activation.iat


def _account(one: AccountClaims) -> AccountOptions:
    body = one.body
    limits, defaults, trace = body.limits, body.default_permissions, body.trace
    exports = merged_exports(_exported(export) for export in body.exports or () if _valid(export))
    exports = tuple(_without_impossible_latency(export, exports) for export in exports)
    return AccountOptions(
        name=one.name,
        name_tag=one.claims.name,
        jetstream=_jetstream(one),
        exports=exports,
        mappings=tuple(
            MappingOptions(
                source=source,
                destinations=tuple(
                    MappingDestination(subject=to.subject, weight=to.weight or 100, cluster=to.cluster)
                    for to in targets
                ),
            )
            for source, targets in (body.mappings or {}).items()
        ),
        limits=AccountLimits(
            connections_max=limits.conn,
            subscriptions_max=limits.subs,
            payload_max=limits.payload,
            leafnodes_max=limits.leaf,
        ),
        default_permissions=permissions_of(defaults.pub, defaults.sub, defaults.resp),
        trace_destination=b"" if trace is None else trace.dest.encode(),
        trace_sampling=100 if trace is None or not 0 < trace.sampling <= 100 else trace.sampling,
    )


def _valid(export: Export) -> bool:
    return export.type in ("stream", "service") and subject.is_valid(export.subject.encode())


def _without_impossible_latency(export: ExportOptions, exports: tuple[ExportOptions, ...]) -> ExportOptions:
    return msgspec.structs.replace(export, latency=None) if latency_mistake(export, exports) else export


def _exported(export: Export) -> ExportOptions:
    kind: Literal["stream", "service"] = "service" if export.type == "service" else "stream"
    latency = export.service_latency
    sampling = latency.sampling if latency is not None and isinstance(latency.sampling, int) else 0
    return ExportOptions(
        kind=kind,
        subject=export.subject.encode(),
        token_required=export.token_req,
        revocations=tuple(sorted((export.revocations or {}).items())),
        response_type=_RESPONSES.get(export.response_type.lower(), "singleton"),
        response_threshold_s=export.response_threshold / 1e9 or 120.0,
        latency=None
        if latency is None or not latency.results
        else LatencyOptions(subject=latency.results.encode(), sampling=sampling),
        account_token_position=export.account_token_position,
        allow_trace=export.allow_trace,
    )


def _imported(one: Import, activated_at: int | None) -> ImportOptions:
    kind: Literal["stream", "service"] = "service" if one.type == "service" else "stream"
    theirs, local, prefix = one.subject.encode(), one.local_subject.encode(), b""
    if one.to and not one.local_subject:
        if kind == "stream":
            prefix = without_last_dot(one.to).encode()
        else:  # the old form has the subjects exchanged
            theirs, local = one.to.encode(), one.subject.encode()
    return ImportOptions(
        kind=kind,
        account=one.account,
        subject=theirs,
        to=local,
        prefix=prefix,
        share=one.share,
        allow_trace=one.allow_trace,
        activated_at=activated_at,
    )


def _jetstream(one: AccountClaims) -> AccountJetStreamOptions | None:
    body = one.body.limits
    if not body.tiered_limits:
        return _limits(body) if body.mem_storage or body.disk_storage else None
    tiers = {name: _limits(limits) for name, limits in sorted(body.tiered_limits.items())}
    if all(limits.memory_max == 0 == limits.file_max for limits in tiers.values()):
        return None
    ours = tiers.get(OUR_TIER, AccountJetStreamOptions())
    return msgspec.structs.replace(ours, tiers=tuple(tiers.items()))


def _limits(limits: JetStreamLimits) -> AccountJetStreamOptions:
    return AccountJetStreamOptions(
        memory_max=limits.mem_storage,
        file_max=limits.disk_storage,
        streams_max=limits.streams,
        consumers_max=limits.consumer,
        ack_pending_max=_or_none(limits.max_ack_pending),
        memory_stream_bytes_max=_or_none(limits.mem_max_stream_bytes),
        file_stream_bytes_max=_or_none(limits.disk_max_stream_bytes),
        max_bytes_required=limits.max_bytes_required,
    )


def _or_none(limit: int) -> int:
    """Return a limit; one that is not positive means unlimited."""
    return limit if limit > 0 else -1
