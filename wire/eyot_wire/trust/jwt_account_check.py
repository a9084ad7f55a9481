"""Validation of account tokens: the rules of the JWT library that nats-server and nsc use (nats-io/jwt v2, `Account.Validate`).

The server refuses an invalid account token when it is pushed, and otherwise treats the account as unknown. Expiry times
of the token and its activations are not checked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from eyot_wire.digits import is_digits
from eyot_wire.pattern_set import TooManySteps
from eyot_wire.quoting import quoted
from eyot_wire.trust import nkey
from eyot_wire.trust.covering import covering_pairs, covers
from eyot_wire.trust.jwt import Claims, JwtError, SubjectRules
from eyot_wire.trust.jwt_account import (
    AccountBody,
    AccountClaims,
    ActivationBody,
    Export,
    ExternalAuthorization,
    Import,
    JetStreamLimits,
    OperatorLimits,
    ServiceLatency,
    Trace,
    WeightedSubject,
    decode_activation,
)

_KINDS: Final = ("stream", "service")
_RESPONSES: Final = ("", "Singleton", "Stream", "Chunked")
#: The most bytes of a description or address.
_INFO_MAX: Final = 8 * 1024
_ANY_ACCOUNT: Final = "*"
#: Overlaps that are listed of an account's imports, and of its exports of a kind. One makes the token invalid; of 100,000 subjects
#: there may be billions.
_OVERLAPS_MAX: Final = 1000


def mistakes(account: AccountClaims) -> list[str]:
    """Return what makes an account's token invalid, in the library's words and order; empty if it is valid."""
    body = account.body
    found = _imports(account.name, body.imports or ())
    found += _exports(body.exports or ())
    found += _tiers(body.limits)
    found += permission_mistakes(body.default_permissions.pub, body.default_permissions.sub)
    found += _mappings(body.mappings or {})
    found += _external(body.authorization)
    found += _trace(body.trace)
    found += _counts(body)
    found += [wrong for key in account.signing_keys() if (wrong := _key_mistake(key))]
    found += _info(body.description, body.info_url)
    if body.cluster_traffic not in ("", "system", "owner"):
        found.append(f"unknown cluster traffic option: {_quoted(body.cluster_traffic)}")
    return found


def exporters_subject(imported: Import) -> str:
    """Return the exporter's subject of an import; the old form of services has it in `to`."""
    return imported.to if imported.type == "service" and imported.to else imported.subject


def activation_mistakes(importer: str, imported: Import, claims: Claims, body: ActivationBody) -> list[str]:
    """Return why an activation does not allow this import of account `importer`, except signature, times and revocations."""
    found = []
    name = _quoted(imported.subject)
    if imported.account not in (claims.iss, claims.signed_for):
        found.append(f"activation token doesn't match account for import {name}")
    if claims.sub != importer:
        found.append(f"activation token doesn't match account it is being included in, {name}")
    if body.kind != imported.type:
        found.append(f"mismatch between token import type {body.kind or 'unknown'} and type of import {imported.type}")
    if body.kind not in _KINDS:
        found.append(f"invalid import type: {_quoted(body.kind)}")
    found += _subject(body.subject)
    if claims.signed_for and not nkey.is_public(claims.signed_for, "A"):
        found.append("account_id is not an account public key")
    if not covers(body.subject, exporters_subject(imported)):
        found.append(f"activation token import subject {_quoted(body.subject)} doesn't match import {name}")
    return found


# -- imports and exports -------------------------------------------------------------------------------------------


def _imports(importer: str, imports: Sequence[Import]) -> list[str]:
    found: list[str] = []
    services: dict[str, list[tuple[int, str]]] = {}
    for place, imported in enumerate(imports):
        if imported.type == "service":
            subject = imported.to or _pattern(imported.local_subject) or imported.subject
            services.setdefault(imported.account, []).append((place, subject))
    overlaps: dict[int, list[str]] = {}
    for account, places in services.items():
        overlaps |= _overlapping(account, places)
    for place, imported in enumerate(imports):
        found += overlaps.get(place, ())
        found += _import(importer, imported)
    return found


def _overlapping(account: str, places: list[tuple[int, str]]) -> dict[int, list[str]]:
    """Return for the place of an import what it overlaps with among the earlier ones."""
    subjects = [subject for _, subject in places]
    try:
        pairs = {(max(pair), min(pair)) for pair in islice(covering_pairs(subjects), _OVERLAPS_MAX)}
    except TooManySteps:
        return {places[0][0]: [f"subjects overlap in too many ways in same account {_quoted(account)}"]}
    found: dict[int, list[str]] = {}
    for later, earlier in sorted(pairs):
        found.setdefault(places[later][0], []).append(
            f"overlapping subject namespace for {_quoted(subjects[later])} and {_quoted(subjects[earlier])} "
            f"in same account {_quoted(account)}"
        )
    return found


def _import(importer: str, imported: Import) -> list[str]:
    found: list[str] = []
    name = _quoted(imported.subject)
    if imported.type not in _KINDS:
        found.append(f"invalid import type: {_quoted(imported.type)}")
    if imported.type == "service" and imported.allow_trace:
        found.append("AllowTrace only valid for stream import")
    if not imported.account:
        found.append("account to import from is not specified")
    found += _subject(imported.subject)
    if imported.local_subject:
        found += _renaming(imported.local_subject, imported.subject)
        if imported.to:
            found.append("Local Subject replaces To")
    if imported.share and imported.type != "service":
        found.append(f"sharing information (for latency tracking) is only valid for services: {name}")
    if imported.token:
        try:
            claims, body = decode_activation(imported.token)
        except JwtError:
            found.append(f"import {name} contains an invalid activation token")
        else:
            found += activation_mistakes(importer, imported, claims, body)
    return found


def _exports(exports: tuple[Export, ...]) -> list[str]:
    found = [wrong for export in exports for wrong in _export(export)]
    for kind in ("service", "stream"):
        subjects = [export.subject for export in exports if export.type == kind]
        try:
            pairs = list(islice(covering_pairs(subjects), _OVERLAPS_MAX))
        except TooManySteps:
            found.append(f"{kind} export subjects overlap in too many ways")
            continue
        inside = {subjects[outer]: subjects[inner] for inner, outer in pairs}
        found += [
            f"{kind} export subject {_quoted(outer)} already exports {_quoted(inner)}"
            for outer, inner in inside.items()
        ]
    return found


def _export(export: Export) -> list[str]:
    found: list[str] = []
    service = export.type == "service"
    if export.type not in _KINDS:
        found.append(f"invalid export type: {_quoted(export.type)}")
    if service and export.response_type not in _RESPONSES:
        found.append(f"invalid response type for service: {_quoted(export.response_type)}")
    if export.type == "stream":
        if export.response_type:
            found.append(f"invalid response type for stream: {_quoted(export.response_type)}")
        if export.allow_trace:
            found.append("AllowTrace only valid for service export")
    if export.service_latency is not None:
        if not service:
            found.append("latency tracking only permitted for services")
        found += _latency(export.service_latency)
    if export.response_threshold < 0:
        found.append("negative response threshold is invalid")
    if export.response_threshold > 0 and not service:
        found.append("response threshold only valid for services")
    found += _subject(export.subject)
    found += _token_position(export)
    return found + _info(export.description, export.info_url)


def _latency(latency: ServiceLatency) -> list[str]:
    found: list[str] = []
    if isinstance(latency.sampling, int) and latency.sampling and not 1 <= latency.sampling <= 100:
        found.append("sampling percentage needs to be between 1-100")
    found += _subject(latency.results)
    if _has_wildcards(latency.results):
        found.append("results subject can not contain wildcards")
    return found


def _token_position(export: Export) -> list[str]:
    position, text = export.account_token_position, export.subject
    if position <= 0:
        return []
    if not _has_wildcards(text):
        return [f"Account Token Position can only be used with wildcard subjects: {text}"]
    tokens = text.split(".")
    if position > len(tokens):
        return [f"Account Token Position {position} exceeds length of subject '{text}'"]
    if tokens[position - 1] != "*":
        return [f"Account Token Position {position} matches '{tokens[position - 1]}' but must match a * in: {text}"]
    return []


# -- the rest of the account ---------------------------------------------------------------------------------------


def _tiers(limits: OperatorLimits) -> list[str]:
    tiers = limits.tiered_limits
    if not tiers:
        return []
    found: list[str] = []
    if any(getattr(limits, name) for name in JetStreamLimits.__struct_fields__):
        found.append("JetStream Limits and tiered JetStream Limits are mutually exclusive")
    if "" in tiers:
        found.append('Tiered JetStream Limits can not contain a blank "" tier name')
    return found


def permission_mistakes(publish: SubjectRules, subscribe: SubjectRules) -> list[str]:
    """Return what is wrong with the subjects of permissions, of an account's users or of one user."""
    found: list[str] = []
    for rules, with_queue in ((subscribe, True), (publish, False)):
        for entry in (*rules.allow, *rules.deny):
            parts = entry.split(" ")
            if len(parts) > 2:
                found.append(f'Permission Subject "{entry}" contains too many spaces')
                continue
            found += [wrong for part in parts for wrong in _subject(part)]
            if len(parts) == 2 and not with_queue:
                found.append(f'Permission Subject "{entry}" is not allowed to contain queue')
    return found


def _mappings(mappings: Mapping[str, tuple[WeightedSubject, ...]]) -> list[str]:
    found: list[str] = []
    for source, targets in mappings.items():
        found += _subject(source)
        name = _quoted(source)
        totals: dict[str, int] = {}
        for target in targets:
            found += _subject(target.subject)
            weight = target.weight or 100
            if weight > 100:
                found.append(f"Mapping {name} has a weight {weight} that exceeds 100")
            total = totals[target.cluster] = totals.get(target.cluster, 0) + weight
            if target.cluster and total > 100:
                where = f"in cluster {_quoted(target.cluster)} "
                found.append(f"Mapping {name} {where}exceeds 100% among all of it's weighted to mappings")
        if totals.get("", 0) > 100:
            found.append(f"Mapping {name} exceeds 100% among all of it's weighted to mappings")
    return found


def _external(external: ExternalAuthorization) -> list[str]:
    found: list[str] = []
    users, accounts = external.auth_users or (), external.allowed_accounts or ()
    if accounts and not users:
        found.append("External authorization cannot have accounts without users specified")
    found += [f"AuthUser {_quoted(u)} is not a valid user public key" for u in users if not nkey.is_public(u, "U")]
    for name in accounts:
        if name == _ANY_ACCOUNT:
            if len(accounts) > 1:
                found.append(f"AllowedAccounts can only be a list of accounts or {_quoted(_ANY_ACCOUNT)}")
        elif not nkey.is_public(name, "A"):
            found.append(f"Account {_quoted(name)} is not a valid account public key")
    if external.xkey and not nkey.is_public(external.xkey, "X"):
        found.append(f"XKey {_quoted(external.xkey)} is not a valid public xkey")
    return found


def _trace(trace: Trace | None) -> list[str]:
    if trace is None:
        return []
    found = [f"the account Trace.Destination {wrong}" for wrong in _subject(trace.dest)[:1]]
    if _has_wildcards(trace.dest):
        found.append(f"the account Trace.Destination subject {_quoted(trace.dest)} is not a valid publish subject")
    if not 0 <= trace.sampling <= 100:
        found.append(
            f"the account Trace.Sampling value '{trace.sampling}' is not valid, should be in the range [1..100]"
        )
    return found


def _counts(body: AccountBody) -> list[str]:
    found: list[str] = []
    limits, exports = body.limits, body.exports or ()
    if limits.imports != -1 and len(body.imports or ()) > limits.imports:
        found.append("the account contains more imports than allowed by the operator")
    if limits.exports != -1:
        if len(exports) > limits.exports:
            found.append("the account contains more exports than allowed by the operator")
        if not limits.wildcards:
            wrong = "the account contains wildcard exports that are not allowed by the operator"
            found += [wrong for export in exports if _has_wildcards(export.subject)]
    return found


def _key_mistake(key: str) -> str:
    return "" if nkey.is_public(key, "A") else f"{key} is not an account public key"


def _info(description: str, info_url: str) -> list[str]:
    found = ["Description is too long"] if len(description.encode()) > _INFO_MAX else []
    if info_url:
        if len(info_url.encode()) > _INFO_MAX:
            found.append("Info URL is too long")
        try:
            parts = urlsplit(info_url)
            wrong = "" if parts.hostname and parts.scheme else "no hostname or scheme"
        except ValueError as error:
            wrong = str(error)
        if wrong:
            found.append(f"error parsing info url: {wrong}")
    return found


# -- subjects ------------------------------------------------------------------------------------------------------


def _subject(text: str) -> list[str]:
    if not text:
        return ["subject cannot be empty"]
    name = _quoted(text)
    found = [f"subject {name} cannot have spaces"] if " " in text else []
    if text[0] == "." or text[-1] == ".":
        found.append(f"subject {name} cannot start or end with a `.`")
    if ".." in text:
        found.append(f"subject {name} cannot contain consecutive `.`")
    return found


def _renaming(local: str, subject: str) -> list[str]:
    found = _subject(local)
    if not subject:
        found.append("subject cannot be empty")
    if " " in local:
        found.append(f"subject {_quoted(local)} cannot have spaces")
    if _ends_open(local) != _ends_open(subject):
        found.append("both, renaming subject and subject, need to end or not end in >")
    stars, references = subject.split(".").count("*"), 0
    for part in local.split("."):
        if part == "*":
            references += 1
        elif (number := _reference(part)) is not None:
            if number > stars:
                found.append(
                    f"Reference ${number} in {_quoted(local)} reference * in {_quoted(subject)} that do not exist"
                )
            else:
                references += 1
    if references != stars:
        found.append("subject does not contain enough * or reference wildcards $[0-9]")
    return found


def _ends_open(text: str) -> bool:
    return text == ">" or text.endswith(".>")


def _reference(token: str) -> int | None:
    """Return the number in `$3`; None for other tokens."""
    digits = token[2:] if token[1:2] in ("+", "-") else token[1:]
    if token[:1] != "$" or not is_digits(digits) or len(digits) > 9:
        return None
    return int(token[1:])


def _pattern(local: str) -> str:
    """Return a local subject with `*` in place of its references."""
    return ".".join("*" if _reference(token) is not None else token for token in local.split("."))


def _has_wildcards(text: str) -> bool:
    tokens = text.split(".")
    return "*" in tokens or tokens[-1] == ">"


def _quoted(text: str) -> str:
    return quoted(text.encode("utf-8", "surrogatepass"))
