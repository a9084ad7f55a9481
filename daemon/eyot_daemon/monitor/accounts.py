"""Pages about accounts and interest: `/subsz`, `/accountz`, `/accstatz`, `/leafz`, `/jsz`."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from eyot_daemon.client.served import ServedClient
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AccountOptions
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.monitor.account_detail import shared_members, token_members
from eyot_daemon.monitor.connz import LOOKED_AT_MAX, subscription_row
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import Json, JszQuery, LeafzQuery
from eyot_daemon.router.subscription import Kind, Subscription
from eyot_daemon.turn.slices import Slices, in_slices
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.subject import is_literal, is_subset, is_valid, matches

SUBSZ_LIMIT = 1024


class SubszQuery(Struct, frozen=True, kw_only=True):
    """`/subsz?subs=&offset=&limit=&test=&acc=`."""

    subscriptions: bool = False
    offset: int = 0
    limit: int = SUBSZ_LIMIT
    account: str = ""
    test: str = ""


def sublist_stats(accounts: Iterable[Account]) -> Json:
    """Return figures about subject lists. Lookups are not counted per message: the message count stands for them."""
    accounts = list(accounts)
    lookups = sum(account.in_msgs for account in accounts)
    misses = sum(account.sublist.misses for account in accounts)
    out = sum(account.out_msgs for account in accounts)
    return {
        "num_subscriptions": sum(len(account.sublist) for account in accounts),
        "num_cache": sum(account.sublist.remembered for account in accounts),
        "num_inserts": sum(account.sublist.inserts for account in accounts),
        "num_removes": sum(account.sublist.removes for account in accounts),
        "num_matches": max(lookups, misses),
        "cache_hit_rate": max(0.0, 1.0 - misses / lookups) if lookups else 0.0,
        "max_fanout": max((account.sublist.max_fanout for account in accounts), default=0),
        "avg_fanout": out / lookups if lookups else 0.0,
    }


def subsz(broker: Broker, query: SubszQuery) -> Slices[Json]:
    """`/subsz`. ValueError if the test subject is invalid.

    The figures are of the first slice, and so are the subscriptions of an account; those that end meanwhile are on the page.
    """
    if query.test and not is_valid(query.test.encode()):
        raise ValueError(f"invalid test subject, must be valid publish subject: {query.test}")
    accounts = [account for account in broker.each_account() if not query.account or account.name == query.account]
    page: Json = {"server_id": broker.server_id, "now": ns_to_rfc3339(broker.clock.now_ns())}
    page |= sublist_stats(accounts)
    if not query.subscriptions:
        return page | {"total": page["num_subscriptions"], "offset": query.offset, "limit": query.limit}
    wanted: list[Subscription] = []
    test = query.test.encode()
    for account in accounts:
        for sub in in_slices(list(account.subscriptions()), LOOKED_AT_MAX):
            if sub is None:
                yield
            elif not test or matches(sub.subject, test):
                wanted.append(sub)
    rows: list[Json] = []
    for sub in in_slices(wanted[query.offset : query.offset + query.limit]):
        if sub is None:
            yield
        else:
            cid = sub.dest.cid if isinstance(sub.dest, ServedClient) else 0
            rows.append({"account": sub.account.name, "account_tag": sub.account.name_tag} | subscription_row(sub, cid))
    return page | {
        "total": len(wanted),
        "offset": query.offset,
        "limit": query.limit,
        "subscriptions_list": rows,
    }


def accountz(broker: Broker, account_name: str) -> Json:
    """Return `/accountz`: all names, or one account in detail. Raises KeyError for an unknown account."""
    page: Json = {"server_id": broker.server_id, "now": ns_to_rfc3339(broker.clock.now_ns())}
    if broker.system_account is not None:
        page["system_account"] = broker.system_account.name
    if not account_name:
        page["accounts"] = sorted(broker.accounts)
        return page
    account = broker.accounts[account_name]
    configured = next((one for one in broker.options.accounts if one.name == account_name), None)
    detail: Json = {
        "account_name": account.name,
        "name_tag": account.name_tag,
        "update_time": ns_to_rfc3339(broker.started_ns),
    }
    if account.is_system:
        detail["is_system"] = True
    claims = broker.providers.account_claims(account_name)
    detail |= {
        "expired": claims is not None and not claims.claims.valid_at(broker.clock.now_ns() / 1e9),
        "complete": True,
        "jetstream_enabled": _has_jetstream(broker, account, configured),
        "leafnode_connections": len(account.leafnodes),
        "client_connections": len(account.connections),
        "subscriptions": len(account.sublist),
    }
    detail |= shared_members(broker, account, configured) | token_members(claims)
    detail["sublist_stats"] = sublist_stats([account])
    page["account_detail"] = detail
    return page


def _has_jetstream(broker: Broker, account: Account, configured: AccountOptions | None) -> bool:
    """Return whether an account has JetStream. By default, the global account has it only when it is the only one."""
    if broker.options.jetstream is None or account.is_system:
        return False
    if configured is not None:
        return configured.jetstream is not None
    others = [one for one in broker.options.accounts if one.name != broker.options.system_account]
    return account.name == GLOBAL_ACCOUNT and not others


def _sum(msgs: int, size: int) -> Json:
    return {"msgs": msgs, "bytes": size}


def account_stat(broker: Broker, account: Account) -> Json:
    """One account's traffic, as in `/accstatz` and `$SYS.REQ.ACCOUNT.<acc>.STATZ`."""
    leaf_links = broker.links.traffic(account)
    none = {"gateways": _sum(0, 0), "routes": _sum(0, 0)}
    return {
        "acc": account.name,
        "name": account.name_tag,
        "conns": len(account.connections),
        "leafnodes": len(account.leafnodes),
        "total_conns": len(account.connections) + len(account.leafnodes),
        "num_subscriptions": len(account.sublist),
        "sent": _sum(account.out_msgs, account.out_bytes)
        | none
        | {"leafs": _sum(leaf_links.out_msgs, leaf_links.out_bytes)},
        "received": _sum(account.in_msgs, account.in_bytes)
        | none
        | {"leafs": _sum(leaf_links.in_msgs, leaf_links.in_bytes)},
        "slow_consumers": account.slow_consumers,
    }


def accstatz(broker: Broker, *, unused: bool, names: Iterable[str] = ()) -> Json:
    """`/accstatz`: accounts with connections, or all with `unused`; with `names` those among them."""
    wanted = frozenset(names)
    return {
        "server_id": broker.server_id,
        "now": ns_to_rfc3339(broker.clock.now_ns()),
        "account_statz": [
            account_stat(broker, account)
            for account in broker.each_account()
            if (not wanted or account.name in wanted) and (unused or account.connections or account.leafnodes)
        ],
    }


def count_subscribers(account: Account, wanted: bytes, queue: bytes = b"") -> int:
    """Subscriptions of clients and of leaf nodes below: those that `wanted` reaches or, if it is a pattern, those within it.

    With `queue` only the members of that group.
    """
    if not is_valid(wanted):
        return 0
    literal = is_literal(wanted)
    return sum(
        sub.dest.kind is Kind.CLIENT or (isinstance(sub.dest, LeafConnection) and not sub.dest.session.is_spoke)
        for sub in account.subscriptions()
        if (not queue or sub.queue == queue)
        and (matches(sub.subject, wanted) if literal else is_subset(sub.subject, wanted))
    )


def leafz(broker: Broker, query: LeafzQuery) -> Json:
    """`/leafz`."""
    leaf_links = broker.providers.leafz(query)
    return {
        "server_id": broker.server_id,
        "now": ns_to_rfc3339(broker.clock.now_ns()),
        "leafnodes": len(leaf_links),
        "leafs": leaf_links,
    }


def jsz(broker: Broker, query: JszQuery) -> Slices[Json]:
    """`/jsz`; `disabled` without JetStream."""
    page: Json = {"server_id": broker.server_id, "now": ns_to_rfc3339(broker.clock.now_ns())}
    found = yield from broker.providers.jsz(query)
    if found is not None:
        return page | found
    page |= {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}}
    page |= dict.fromkeys(("memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets"), 0)
    page |= {"api": {"level": 0, "total": 0, "errors": 0}}
    page |= dict.fromkeys(("streams", "consumers", "messages", "bytes", "total"), 0)
    return page


def jsz_account(broker: Broker, query: JszQuery) -> Slices[object]:
    """`$SYS.REQ.ACCOUNT.<acc>.JSZ`. ValueError where JetStream does not know the account."""
    page = yield from broker.providers.jsz(query)
    if page is None:
        raise ValueError("jetstream not enabled")
    if query.account not in broker.accounts:
        raise ValueError(f'account "{query.account}" not found')
    if not page.get("account_details"):
        raise ValueError(f'account "{query.account}" not jetstream enabled')
    return page["account_details"][0]
