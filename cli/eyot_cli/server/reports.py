"""`eyot server report`, as in the `nats` tool: servers, their connections, accounts and links, as the system account sees them.

The greatest figure stands last, beside the prompt; `--reverse` puts it first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.connection.watch import watch_option, watched
from eyot_cli.jetstream.stream_info import needed_level
from eyot_cli.server.asking import ACCOUNT, SERVER, answers
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.show import console, count, print_json, print_table, size
from eyot_cli.values.numbers import at_least
from eyot_wire.quantities import counted

F = TypeVar("F", bound=Callable[..., Any])
#: Connections that a server tells in one answer.
_PAGE = 1024
#: Streams that a server tells of one account.
_STREAMS = 10_000
#: Traffic of a connection, a link or an account, by the names of `--sort`.
_TRAFFIC = {"in-bytes": "in_bytes", "out-bytes": "out_bytes", "in-msgs": "in_msgs", "out-msgs": "out_msgs"}
_TRAFFIC_HEADS = (">In msgs", ">Out msgs", ">In bytes", ">Out bytes", ">Subs")


def _figure(member: str) -> Callable[[dict[str, Any]], Any]:
    """Return an order by one figure."""
    return lambda each: each.get(member) or 0


@click.group("report", cls=AliasGroup, path="server report")
@click.option("--reverse", "-R", is_flag=True, help="the greatest first")
def report(reverse: bool) -> None:
    """Compare servers, connections, accounts and links."""


def _report_options(command: F) -> F:
    """Add what every report has: LIMIT, `--host`, `--cluster`, `--tags`, `--watch`."""
    for add in (
        watch_option,
        click.option("--reverse", "-R", is_flag=True, help="the greatest first"),
        click.option("--tags", multiple=True, metavar="TAG", help="only servers with this tag"),
        click.option("--cluster", metavar="NAME", help="only servers of this cluster"),
        click.option("--host", metavar="NAME", help="only this server"),
        click.argument("limit", type=at_least(1), required=False),
    ):
        command = add(command)
    return command


def _sorted(rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    return sorted(rows, key=key, reverse=_is_reversed())


def _is_reversed() -> bool:
    """Return whether `--reverse` stands before or behind the report's name."""
    context = click.get_current_context()
    return any(each is not None and each.params.get("reverse") for each in (context, context.parent))


def _top(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the `most` greatest of sorted rows."""
    return rows[:most] if _is_reversed() else rows[-most:]


async def _asked(
    target: Target, client: Client, page: str, given: dict[str, Any], **options: Any
) -> list[dict[str, Any]]:
    """Return the answers of the servers that the options choose. Raises Failure, also with a server's own error."""
    chosen = {
        "server_name": given["host"],
        "cluster": given["cluster"],
        "tags": list(given["tags"]),
        "domain": target.given_domain,
    }
    body = options | {name: value for name, value in chosen.items() if value}
    if given["host"]:
        body["exact_match"] = True
    wanted = given["limit"] or (1 if given["host"] else 0)
    found = await answers(target, client, page, body, wanted, prefix=given.get("prefix", SERVER))
    for each in found:
        if error := each.get("error"):
            name = (each.get("server") or {}).get("name")
            raise Failure(f"{name}: {error.get('description') if isinstance(error, dict) else error}")
    return found


def _read(target: Target, page: str, given: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return target.with_client(lambda client: _asked(target, client, page, given, **options))


# -- connections and accounts ------------------------------------------------------------------------------------------


async def _every_connection(
    target: Target, client: Client, given: dict[str, Any], **options: Any
) -> list[dict[str, Any]]:
    """Return the connections of all pages, each with its `server`."""
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        pages = await _asked(
            target, client, "CONNZ", given, subscriptions=True, auth=True, limit=_PAGE, offset=offset, **options
        )
        for each in pages:
            found += [one | {"server": each["server"]} for one in (each.get("data") or {}).get("connections") or []]
        offset += _PAGE
        if all(offset >= ((each.get("data") or {}).get("total") or 0) for each in pages):
            return found


def _cell(each: dict[str, Any]) -> tuple[str, ...]:
    figures = (
        count(each.get("in_msgs")),
        count(each.get("out_msgs")),
        size(each.get("in_bytes") or 0),
        size(each.get("out_bytes") or 0),
    )
    return (*figures, count(each.get("subscriptions")))


_CONNECTION_ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{name: _figure(member) for name, member in _TRAFFIC.items()},
    "uptime": lambda each: _reverse_time(str(each.get("start") or "")),
    "cid": _figure("cid"),
    "subs": _figure("subscriptions"),
}


def _reverse_time(start: str) -> tuple[int, ...]:
    """Return a key by which what began later comes first."""
    return tuple(-ord(letter) for letter in start)


def _connection_options(command: F) -> F:
    """Add what reports of connections have."""
    for add in (
        click.option("--closed-reason", metavar="TEXT", help="only those that ended for such a reason"),
        click.option(
            "--state", type=click.Choice(("open", "closed", "all")), default="open", help="only such connections"
        ),
        click.option("--username", metavar="NAME", help="only those of this user"),
        click.option("--subject", metavar="SUBJECT", help="only those with interest in this subject"),
        click.option("--top", "most", type=at_least(1), default=1000, metavar="N", help="the N greatest"),
        click.option("--sort", type=click.Choice(list(_CONNECTION_ORDERS)), default="subs", help="by this figure"),
    ):
        command = add(command)
    return command


@report.command("connections")
@_report_options
@click.option("--account", metavar="ACCOUNT", help="only connections of this account")
@_connection_options
@click.pass_obj
def connections(target: Target, /, **given: Any) -> None:
    """Show connections, by subscriptions or by traffic.

    With LIMIT, until so many servers have answered.
    """
    _connections(target, **given)


def _connections(target: Target, *, watch_s: float | None, sort: str, most: int, **given: Any) -> None:
    def read() -> list[dict[str, Any]]:
        chosen = {"acc": given["account"], "user": given["username"], "filter_subject": given["subject"]}
        options: dict[str, Any] = {name: value for name, value in chosen.items() if value}
        # nats-server numbers the states: open, closed, all
        options["state"] = ("open", "closed", "all").index(given["state"])
        found = target.with_client(lambda client: _every_connection(target, client, given, **options))
        reason = (given["closed_reason"] or "").lower()
        return [each for each in found if reason in str(each.get("reason", "")).lower()]

    watched(target, watch_s, read, lambda found: _show_connections(target, found, sort, most, given["state"] != "open"))


def _show_connections(target: Target, found: list[dict[str, Any]], sort: str, most: int, with_reason: bool) -> None:
    rows = _top(_sorted(found, _CONNECTION_ORDERS[sort]), most)
    if target.as_json:
        print_json(rows)
        return
    reason = ("Reason",) if with_reason else ()
    columns = (">CID", "Name", "Server", "Address", "Account", "Uptime", *_TRAFFIC_HEADS, *reason)
    lines = [
        (str(each.get("cid")), each.get("name") or each.get("mqtt_client") or "", each["server"].get("name", ""),
         f"{each.get('ip')}:{each.get('port')}", each.get("account", ""), each.get("uptime", ""), *_cell(each),
         *((each.get("reason", ""),) if with_reason else ()))
        for each in rows
    ]  # fmt: skip
    print_table(f"Connections by {sort}", columns, lines, "none")
    servers = len({each["server"].get("id") for each in found})
    console.print(f"{count(len(rows))} of {counted(len(found), 'connection')}; servers: {count(servers)}")


@report.command("accounts")
@click.argument("account", required=False)
@_report_options
@click.option("--sort", type=click.Choice([*_TRAFFIC, "conns", "subs"]), default="subs", help="by this figure")
@click.option("--top", "most", type=at_least(1), default=1000, metavar="N", help="the N greatest")
@click.pass_obj
def accounts(target: Target, /, account: str | None, watch_s: float | None, sort: str, most: int, **given: Any) -> None:
    """Show the accounts with connections, or those of ACCOUNT.

    With LIMIT, until so many servers have answered.
    """

    def read() -> list[dict[str, Any]]:
        options = {"acc": account} if account else {}
        return _by_account(target.with_client(lambda client: _every_connection(target, client, given, **options)))

    def show(found: list[dict[str, Any]]) -> None:
        if account:
            _show_account(target, found, account, sort if sort in _CONNECTION_ORDERS else "subs", most)
            return
        member = {"conns": "connections", "subs": "subscriptions"}.get(sort) or _TRAFFIC[sort]
        rows = _top(_sorted(found, lambda each: (each[member], each["account"])), most)
        if target.as_json:
            print_json(rows)
            return
        lines = [(each["account"], count(each["connections"]), *_cell(each)) for each in rows]
        print_table(f"Accounts by {sort}", ("Account", ">Connections", *_TRAFFIC_HEADS), lines, "none")

    watched(target, watch_s, read, show)


def _by_account(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of connections by account, with the members of the `nats` tool."""
    sums: dict[str, dict[str, Any]] = {}
    for each in found:
        name = each.get("account") or ""
        figures = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
        one = sums.setdefault(
            name,
            {"account": name, "connections": 0, "connection_info": []} | dict.fromkeys(figures, 0) | {"server": []},
        )
        one["connections"] += 1
        one["connection_info"].append(each)
        for figure in figures:
            one[figure] += each.get(figure) or 0
        if each["server"] not in one["server"]:
            one["server"].append(each["server"])
    return list(sums.values())


def _show_account(target: Target, found: list[dict[str, Any]], account: str, sort: str, most: int) -> None:
    one = next((each for each in found if each["account"] == account), None)
    if one is None:
        raise Failure(f"no connection of an account {account}: eyot server report accounts lists those that have one")
    if target.as_json:
        print_json(one)
    else:
        _show_connections(target, one["connection_info"], sort, most, with_reason=False)


# -- servers -----------------------------------------------------------------------------------------------------------


@report.command("cpu")
@_report_options
@click.pass_obj
def cpu(target: Target, /, watch_s: float | None, **given: Any) -> None:
    """Show how much processor time each server takes."""
    _usage(target, watch_s, given, "cpu", "CPU", lambda value: f"{value:.1f} %")


@report.command("mem")
@_report_options
@click.pass_obj
def mem(target: Target, /, watch_s: float | None, **given: Any) -> None:
    """Show how much memory each server takes."""
    _usage(target, watch_s, given, "mem", "Memory", size)


def _usage(
    target: Target, watch_s: float | None, given: dict[str, Any], member: str, head: str, text: Callable[[Any], str]
) -> None:
    def show(found: list[dict[str, Any]]) -> None:
        rows = _sorted(found, lambda each: each["statsz"].get(member) or 0)
        used = {each["server"].get("name", ""): each["statsz"].get(member) or 0 for each in rows}
        if target.as_json:
            print_json(used)
            return
        print_table(
            f"{head} of servers", ("Server", f">{head}"), [(name, text(value)) for name, value in used.items()], "none"
        )

    watched(target, watch_s, lambda: _read(target, "", given), show)


@report.command("health")
@_report_options
@click.option("--js-enabled", "-J", is_flag=True, help="JetStream must be on")
@click.option("--server-only", "-S", is_flag=True, help="JetStream itself, not its streams and consumers")
@click.option("--account", metavar="ACCOUNT", help="check only this account")
@click.option("--stream", metavar="STREAM", help="check only this stream")
@click.option("--consumer", metavar="CONSUMER", help="check only this consumer")
@click.pass_obj
def health(target: Target, /, watch_s: float | None, **given: Any) -> None:
    """Show what each server says of its health.

    With LIMIT, until so many servers have answered.
    """
    chosen = {"js-enabled-only": given["js_enabled"], "js-server-only": given["server_only"]}
    chosen |= {name: given[name] for name in ("account", "stream", "consumer")}
    options: dict[str, Any] = {name: value for name, value in chosen.items() if value} | {"details": True}

    def show(found: list[dict[str, Any]]) -> None:
        found = _sorted(found, lambda each: each["server"].get("name", ""))
        if target.as_json:
            print_json(found)
            return
        rows = []
        for each in found:
            about, data = each["server"], each.get("data") or {}
            rows.append((about.get("name", ""), about.get("domain", ""), _status(data), "", data.get("error", "")))
            rows += [("", "", "", one.get("type", ""), one.get("error", "")) for one in data.get("errors") or []]
        print_table("Health", ("Server", "Domain", "Status", "Type", "Error"), rows, "none")

    watched(target, watch_s, lambda: _read(target, "HEALTHZ", given, **options), show)


def _status(data: dict[str, Any]) -> str:
    return f"{data.get('status', '?')} ({data.get('status_code', '?')})"


_JETSTREAM_MEMBERS = {
    "streams": "streams", "consumers": "consumers", "msgs": "messages", "mbytes": "bytes", "bytes": "bytes",
    "mem": "memory", "file": "storage", "store": "storage",
}  # fmt: skip


@report.command("jetstream")
@_report_options
@click.option("--account", metavar="ACCOUNT", help="only what this account has")
@click.option(
    "--sort",
    type=click.Choice(["name", "cluster", *_JETSTREAM_MEMBERS, "api", "err"]),
    default="cluster",
    help="by this",
)
@click.pass_obj
def jetstream(target: Target, /, watch_s: float | None, sort: str, **given: Any) -> None:
    """Show what JetStream holds at each server.

    With LIMIT, until so many servers have answered.
    """
    options = (
        {"account": given["account"], "streams": True, "consumer": True, "limit": _STREAMS} if given["account"] else {}
    )

    def show(found: list[dict[str, Any]]) -> None:
        if target.as_json:
            print_json(found)
            return
        rows = [_jetstream_row(each, bool(given["account"])) for each in found]
        if given["account"] and not any(each["here"] for each in rows):
            raise Failure(f"no server has an account {given['account']} with JetStream")
        rows = _sorted(rows, lambda each: (each[_JETSTREAM_MEMBERS.get(sort, sort)], each["name"]))
        _show_jetstream(rows, given["account"])

    watched(target, watch_s, lambda: _read(target, "JSZ", given, **options), show)


def _jetstream_row(each: dict[str, Any], of_account: bool) -> dict[str, Any]:
    """Return a server's figures, of the one account where that was asked for."""
    about, data = each["server"], each.get("data") or {}
    row = {
        "name": about.get("name", ""),
        "cluster": about.get("cluster", ""),
        "domain": (data.get("config") or {}).get("domain", ""),
    }
    used, here = data, True
    if of_account:
        details = data.get("account_details") or []
        used, here = (details[0], True) if len(details) == 1 else ({}, False)
        states = [one.get("state") or {} for one in used.get("stream_detail") or []]
        row |= {"streams": len(states), "consumers": sum(one.get("consumer_count") or 0 for one in states)}
        row |= {"messages": sum(one.get("messages") or 0 for one in states)}
        row |= {"bytes": (used.get("memory") or 0) + (used.get("storage") or 0)}
    else:
        row |= {member: data.get(member) or 0 for member in ("streams", "consumers", "messages", "bytes")}
    calls = used.get("api") or {}
    row |= {"memory": used.get("memory") or 0, "storage": used.get("storage") or 0}
    return row | {"api": calls.get("total") or 0, "err": calls.get("errors") or 0, "here": here}


def _show_jetstream(rows: list[dict[str, Any]], account: str | None) -> None:
    columns = (
        "Server",
        "Domain",
        ">Streams",
        ">Consumers",
        ">Messages",
        ">Bytes",
        ">Memory",
        ">File",
        ">API requests",
        ">Errors",
    )
    figures = (("streams", count), ("consumers", count), ("messages", count), ("bytes", size), ("memory", size),
               ("storage", size), ("api", count), ("err", count))  # fmt: skip
    lines = [(each["name"], each["domain"], *(text(each[name]) for name, text in figures)) for each in rows]
    if len(rows) > 1:
        lines.append(("all", "", *(text(sum(each[name] for each in rows)) for name, text in figures)))
    print_table("JetStream" + (f" of account {account}" if account else ""), columns, lines, "none")


# -- links -------------------------------------------------------------------------------------------------------------

_LINK_ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{name: _figure(member) for name, member in _TRAFFIC.items()},
    "server": lambda each: each["server"].get("name", ""),
    "name": lambda each: each.get("name", ""),
    "account": lambda each: each.get("account", ""),
    "subs": _figure("subscriptions"),
}


@report.command("leafnodes")
@_report_options
@click.option("--account", metavar="ACCOUNT", help="only links of this account")
@click.option("--sort", type=click.Choice(list(_LINK_ORDERS)), default="server", help="by this figure")
@click.pass_obj
def leafnodes(target: Target, /, watch_s: float | None, sort: str, **given: Any) -> None:
    """Show leaf links.

    With LIMIT, until so many servers have answered.
    """
    options = {"account": given["account"]} if given["account"] else {}

    def show(found: list[dict[str, Any]]) -> None:
        links = [
            one | {"server": each["server"]} for each in found for one in (each.get("data") or {}).get("leafs") or []
        ]
        links = _sorted(links, _LINK_ORDERS[sort])
        if target.as_json:
            print_json(links)
            return
        columns = ("Server", "Name", "Account", "Address", "Round trip", *_TRAFFIC_HEADS, "Compression", "Dialled here")
        rows = [
            (each["server"].get("name", ""), each.get("name", ""), each.get("account", ""), f"{each.get('ip')}:{each.get('port')}",
             each.get("rtt", ""), *_cell(each), each.get("compression", ""), "yes" if each.get("is_spoke") else "no")
            for each in links
        ]  # fmt: skip
        print_table("Leaf links", columns, rows, "none")

    watched(target, watch_s, lambda: _read(target, "LEAFZ", given, **options), show)


# -- downgrade ---------------------------------------------------------------------------------------------------------


@report.command("downgrade")
@click.argument("api", type=at_least(0))
@click.option("--all", "everything", is_flag=True, help="also the consumers of streams that need more")
@click.pass_obj
def downgrade(target: Target, api: int, everything: bool) -> None:
    """List what servers of JetStream API level API cannot load."""
    given = {"host": None, "cluster": None, "tags": (), "limit": None}
    options = {"accounts": True, "streams": True, "consumer": True, "config": True, "limit": _STREAMS}
    streams: list[dict[str, Any]] = []
    consumers: list[dict[str, Any]] = []
    for answer in _read(target, "JSZ", given, **options):
        for account in (answer.get("data") or {}).get("account_details") or []:
            for one in account.get("stream_detail") or []:
                level = _level(one)
                if level > api:
                    streams.append({"account": account.get("name"), "name": one.get("name"), "api_level": level})
                for each in one.get("consumer_detail") or []:
                    if (own := _level(each)) > api or (everything and level > api):
                        named = {"account": account.get("name"), "name": each.get("name"), "stream": one.get("name")}
                        consumers.append(named | {"api_level": own})
    if target.as_json:
        print_json({name: found for name, found in (("streams", streams), ("consumers", consumers)) if found})
        return
    rows = [("stream", each["account"], each["name"], "", str(each["api_level"])) for each in streams]
    rows += [("consumer", each["account"], each["stream"], each["name"], str(each["api_level"])) for each in consumers]
    columns = ("Kind", "Account", "Stream", "Consumer", ">API level")
    print_table(f"Needs more than API level {api}", columns, rows, "nothing")


def _level(of: dict[str, Any]) -> int:
    return needed_level((of.get("config") or {}).get("metadata"))


# -- what users of an account may ask ----------------------------------------------------------------------------------

#: Of an account a user sees all servers.
_OWN: dict[str, Any] = {"prefix": ACCOUNT, "host": None, "cluster": None, "tags": (), "limit": None}


@click.group("report", cls=AliasGroup, path="account report")
def account_report() -> None:
    """Compare the connections of this account, and servers."""


@account_report.command("connections")
@watch_option
@click.option("--reverse", "-R", is_flag=True, help="the greatest first")
@_connection_options
@click.pass_obj
def own_connections(target: Target, /, **given: Any) -> None:
    """Show the connections of the account."""
    _connections(target, account=None, **_OWN, **given)


@account_report.command("statistics")
@watch_option
@click.pass_obj
def statistics(target: Target, watch_s: float | None) -> None:
    """Show what each server has carried for the account."""

    def show(found: list[dict[str, Any]]) -> None:
        if target.as_json:
            print_json(found)
            return
        columns = (
            "Server",
            "Version",
            ">Connections",
            ">Subs",
            ">Leaf nodes",
            ">Sent",
            ">Bytes",
            ">Received",
            ">Bytes",
            ">Slow consumers",
        )
        rows = []
        for each in found:
            about, (one, *_) = each["server"], (each.get("data") or {}).get("account_statz") or [{}]
            sent, received = one.get("sent") or {}, one.get("received") or {}
            rows.append(
                (about.get("name", ""), about.get("ver", ""), count(one.get("conns")), count(one.get("num_subscriptions")),
                 count(one.get("leafnodes")), count(sent.get("msgs")), size(sent.get("bytes") or 0),
                 count(received.get("msgs")), size(received.get("bytes") or 0), count(one.get("slow_consumers")))
            )  # fmt: skip
        print_table("Servers of this account", columns, rows, "none")

    watched(target, watch_s, lambda: _read(target, "STATZ", _OWN), show)
