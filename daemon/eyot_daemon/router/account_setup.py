"""Accounts from the configuration: limits, mappings, exports and imports.

Inconsistencies between options (unknown accounts, unauthorized imports, cycles) were refused when the options were
read.
"""

from __future__ import annotations

from collections.abc import Iterable

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AccountOptions, MappingOptions
from eyot_daemon.config.check import account_names
from eyot_daemon.config.options import Options
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.imports import add_import, remove_imports
from eyot_wire.mapping import WeightedDest
from eyot_wire.transform import domain_mapping


def set_up_accounts(broker: Broker, options: Options) -> None:
    """Make every configured account with its limits and mappings, then join exports and imports."""
    add_mappings(broker.global_account, options.mappings)
    for configured in options.accounts:
        account = broker.add_account(configured.name)
        _set_limits(account, configured)
        add_mappings(account, configured.mappings)
    _join(broker, options)


def update_accounts(broker: Broker, old: Options, new: Options) -> None:
    """Apply a reload: create new accounts, and update limits, mappings, exports and imports."""
    for configured in new.accounts:
        _set_limits(broker.add_account(configured.name), configured)
    before, after = _mappings(old), _mappings(new)
    is_moved = broker.cluster_in(old) != broker.cluster_in(new)
    for name, account in broker.accounts.items():
        if before.get(name, ()) == after.get(name, ()) and not is_moved:
            continue
        mapped = set(account.mappings.sources())
        for mapping in before.get(name, ()):
            account.mappings.remove(mapping.source.encode())
        add_mappings(account, after.get(name, ()))
        mapped_now = set(account.mappings.sources())
        broker.links.mappings_changed(account, sorted(mapped - mapped_now), sorted(mapped_now - mapped))
    if _joints(old) != _joints(new):
        for account in broker.each_account():
            remove_imports(account)
        _join(broker, new)


def remove_accounts(broker: Broker, options: Options) -> None:
    """Remove the accounts that `options` no longer contains. No connection uses them by now."""
    for name in tuple(broker.accounts):
        if name not in account_names(options):
            broker.remove_account(name)


def _mappings(options: Options) -> dict[str, tuple[MappingOptions, ...]]:
    return {GLOBAL_ACCOUNT: options.mappings} | {one.name: one.mappings for one in options.accounts}


def _joints(options: Options) -> list[object]:
    """Return the options that exports and imports are built from."""
    return [(one.name, one.exports, one.imports) for one in options.accounts]


def _join(broker: Broker, options: Options) -> None:
    by_name = {configured.name: configured for configured in options.accounts}
    for configured in options.accounts:
        for imported in configured.imports:
            exporter = by_name[imported.account]
            importer_account, exporter_account = broker.accounts[configured.name], broker.accounts[exporter.name]
            add_import(importer_account, exporter_account, imported, exporter.exports)


def add_mappings(account: Account, mappings: Iterable[MappingOptions]) -> None:
    """Add configured subject mappings, with the destinations of the broker's cluster. TransformError if one cannot be."""
    for mapping in mappings:
        destinations = [
            WeightedDest(dest=one.subject.encode(), weight=one.weight, cluster=one.cluster)
            for one in mapping.destinations
        ]
        account.mappings.add(mapping.source.encode(), destinations, cluster=account.broker.cluster)


def add_domain_mappings(account: Account, domain: str) -> None:
    """Let `$JS.<domain>.API.>` reach the account's JetStream; for accounts with JetStream or a leaf link."""
    for source, destination in domain_mapping(domain):
        account.mappings.add(source, [destination])


def _set_limits(account: Account, configured: AccountOptions) -> None:
    account.name_tag = configured.name_tag or configured.name
    limits = configured.limits
    account.connections_max = limits.connections_max
    account.subscriptions_max = limits.subscriptions_max
    account.payload_max = limits.payload_max
    account.leafnodes_max = limits.leafnodes_max
    account.trace_destination = configured.trace_destination
    account.trace_sampling = configured.trace_sampling
    account.fan_out.looks_at_headers = bool(configured.trace_destination)
