"""Rules for the exports of one account together: one subject exported twice, and where latency may be measured."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eyot_daemon.config.accounts import ExportOptions
from eyot_wire import subject


def merged_exports(exports: Iterable[ExportOptions]) -> tuple[ExportOptions, ...]:
    """Return one export for each kind and subject, as nats-server does: a later one adds to an earlier one of the same subject.

    What one of them keeps for some accounts stays theirs, even if another one would be for everybody.
    """
    found: dict[tuple[str, bytes], ExportOptions] = {}
    for export in exports:
        earlier = found.get((export.kind, export.subject))
        found[export.kind, export.subject] = export if earlier is None else _merged(earlier, export)
    return tuple(found.values())


def _merged(earlier: ExportOptions, later: ExportOptions) -> ExportOptions:
    names = (earlier.accounts, later.accounts)
    says_who = later.accounts is not None or later.token_required or later.account_token_position > 0
    return replace(
        later,
        accounts=None if names == (None, None) else tuple(dict.fromkeys(name for some in names for name in some or ())),
        token_required=earlier.token_required or later.token_required,
        revocations=tuple(sorted({**dict(earlier.revocations), **dict(later.revocations)}.items())),
        response_type=earlier.response_type if later.response_type == "singleton" else later.response_type,
        latency=later.latency or earlier.latency,
        account_token_position=(later if says_who else earlier).account_token_position,
        allow_trace=earlier.allow_trace or later.allow_trace,
    )


def latency_mistake(export: ExportOptions, exports: Iterable[ExportOptions]) -> str:
    """Return why the latency of an export among `exports` cannot be measured, in nats-server's words; "" if it can."""
    latency = export.latency
    if latency is None:
        return ""
    results = latency.subject
    wrong = ""
    if not subject.is_valid_literal(results) or any(
        other.kind == "service" and subject.is_subset(results, other.subject) for other in exports
    ):
        wrong = "invalid publish subject"
    elif export.response_type != "singleton":
        wrong = "bad service response type"
    if not wrong:
        return ""
    return f'Error adding service latency sampling for "{export.subject.decode()}" on subject "{results.decode()}": {wrong}'
