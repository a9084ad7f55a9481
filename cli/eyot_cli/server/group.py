"""The group `eyot server`: checks, and servers as the system account sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import click
import msgspec
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.server.asking import answers
from eyot_cli.server.checks import connection, credential, message, request
from eyot_cli.server.jetstream_checks import consumer, jetstream, kv, stream
from eyot_cli.server.reports import report
from eyot_cli.server.result import Result, form_options, run_check, take_form
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.show import count, print_json, print_line, print_table, size, span
from eyot_cli.values.ages import age_ns
from eyot_cli.values.numbers import FINITE, INTEGER, at_least
from eyot_wire.quantities import counted

#: What `eyot server request` asks for, and the subject's last word.
_PAGES = {
    "accounts": "ACCOUNTZ",
    "connections": "CONNZ",
    "health": "HEALTHZ",
    "jetstream": "JSZ",
    "leafnodes": "LEAFZ",
    "subscriptions": "SUBSZ",
    "variables": "VARZ",
}


def _figure(member: str) -> Callable[[dict[str, Any]], Any]:
    """Return an order of servers by one of their figures, the greatest first."""
    return lambda each: -((each.get("statsz") or {}).get(member) or 0)


#: Orders of `eyot server ls`, by the words of the nats tool.
_ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda each: str(each["server"].get("name")),
    "conns": _figure("connections"),
    "subs": _figure("subscriptions"),
    "mem": _figure("mem"),
    "cpu": _figure("cpu"),
    "slow": _figure("slow_consumers"),
    "uptime": lambda each: str((each.get("statsz") or {}).get("start", "")),
    "rtt": lambda each: each["rtt"],
}


@click.group("server", cls=AliasGroup)
def server() -> None:
    """Check servers, and list those of the system account."""


@server.group("check", cls=AliasGroup)
@form_options
@click.pass_context
def check(context: click.Context, /, **given: Any) -> None:
    """Check something for a monitoring system.

    Exit status 0: good, 1: warning, 2: critical; with --format prometheus always 0.
    """
    take_form(context, given)


@server.command("ls")
@click.argument("expect", type=at_least(1), required=False)
@click.option("--sort", type=click.Choice(list(_ORDERS)), default="name", help="by this")
@click.option("--reverse", "-R", is_flag=True, help="the other way round")
@click.pass_obj
def listing(target: Target, expect: int | None, sort: str, reverse: bool) -> None:
    """List the servers that answer.

    With EXPECT, until so many have answered; exit status 1 if fewer do.
    """
    found = target.with_client(lambda client: answers(target, client, "", {}, expect or 0))
    found.sort(key=lambda each: (_ORDERS[sort](each), str(each["server"].get("name"))), reverse=reverse)
    if target.as_json:
        print_json(found)
    else:
        columns = ("Name", "Host", "Version", ">Connections", ">Subscriptions", ">CPU", ">Memory", ">Round trip")
        rows = []
        for each in found:
            about, stats = each["server"], each.get("statsz") or {}
            rows.append(
                (about.get("name", ""), about.get("host", ""), about.get("ver", ""), count(stats.get("connections")),
                 count(stats.get("subscriptions")), f"{stats.get('cpu', 0):.1f} %", size(stats.get("mem", 0)),
                 f"{each['rtt'] * 1e3:,.2f} ms")
            )  # fmt: skip
        print_table("Servers", columns, rows, "none")
    if expect and len(found) < expect:
        raise Failure(f"{len(found)} of {counted(expect, 'server')} answer")


@server.command("ping")
@click.argument("expect", type=at_least(1), required=False)
@click.option("--count", "-n", "times", type=at_least(1), default=1, metavar="N", help="so many times")
@click.pass_obj
def ping(target: Target, expect: int | None, times: int) -> None:
    """Ask all servers for an answer, and show how long each takes."""

    async def ask(client: Client) -> list[dict[str, Any]]:
        found = []
        for number in range(times):
            if number:
                await asyncio.sleep(1)
            found += await answers(target, client, "", {}, expect or 0)
        return found

    found = target.with_client(ask)
    if target.as_json:
        print_json([{"name": each["server"].get("name"), "seconds": each["rtt"]} for each in found])
        return
    for each in found:
        print_line(f"{each['server'].get('name')}: {each['rtt'] * 1e3:,.2f} ms")


@server.command("info")
@click.argument("name")
@click.pass_obj
def info(target: Target, name: str) -> None:
    """Show what the server NAME tells of itself."""
    varz = target.with_client(lambda client: _varz(target, client, name))
    if target.as_json:
        print_json(varz)
        return
    limits = (varz.get("jetstream") or {}).get("config") or {}
    pairs = [
        ("Server", f"{varz.get('server_name')} {varz.get('version')}"), ("ID", varz.get("server_id", "")),
        ("Address", f"{varz.get('host')}:{varz.get('port')}"), ("Started", varz.get("start", "")),
        ("Uptime", varz.get("uptime", "")), ("Connections", count(varz.get("connections"))),
        ("Subscriptions", count(varz.get("subscriptions"))), ("Memory", size(varz.get("mem", 0))),
        ("CPU", f"{varz.get('cpu', 0):.1f} %"), ("Maximum payload", size(varz.get("max_payload", 0))),
        ("TLS required", "yes" if varz.get("tls_required") else "no"),
        ("Login required", "yes" if varz.get("auth_required") else "no"),
        ("JetStream", f"in {limits.get('store_dir')}" if limits else "no"),
        ("JetStream domain", limits.get("domain") or "none"),
        ("Messages", f"{count(varz.get('in_msgs'))} in, {count(varz.get('out_msgs'))} out"),
        ("Bytes", f"{size(varz.get('in_bytes', 0))} in, {size(varz.get('out_bytes', 0))} out"),
        ("Slow consumers", count(varz.get("slow_consumers"))),
    ]  # fmt: skip
    print_table("", ("", ""), [(name, str(value)) for name, value in pairs], "")


async def _varz(target: Target, client: Client, name: str) -> dict[str, Any]:
    try:
        (answer,) = await answers(target, client, "VARZ", {"server_name": name, "exact_match": True}, 1)
    except Failure:
        raise Failure(f"no server {name} answers: eyot server ls lists them, for users of the system account") from None
    return dict(answer.get("data") or {})


@server.command("request")
@click.argument("page", type=click.Choice(list(_PAGES)), metavar="PAGE")
@click.option("--name", "server_name", metavar="NAME", help="only this server")
@click.option("--body", default="{}", metavar="JSON", help="options of the page")
@click.pass_obj
def ask_servers(target: Target, page: str, server_name: str | None, body: str) -> None:
    """Print what all servers answer, as JSON lines.

    PAGE: accounts, connections, health, jetstream, leafnodes, subscriptions or variables.
    """
    try:
        options = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"{body!r}: {error}", param_hint="'--body'") from error
    if server_name:
        options |= {"server_name": server_name, "exact_match": True}
    found = target.with_client(lambda client: answers(target, client, _PAGES[page], options, 1 if server_name else 0))
    for each in found:
        each.pop("rtt")
        print_line(msgspec.json.encode(each).decode())


@check.command("server")
@click.option("--name", required=True, metavar="NAME", help="the server's name")
@click.option("--cpu-warn", type=FINITE, metavar="PERCENT", help="warn with so much CPU")
@click.option("--cpu-critical", type=FINITE, metavar="PERCENT", help="critical with so much CPU")
@click.option("--mem-warn", type=INTEGER, metavar="BYTES", help="warn with so much memory")
@click.option("--mem-critical", type=INTEGER, metavar="BYTES", help="critical with so much memory")
@click.option(
    "--conn-warn", type=INTEGER, metavar="N", help="warn with so many connections; with fewer, if above the other one"
)
@click.option("--conn-critical", type=INTEGER, metavar="N", help="critical with so many connections")
@click.option(
    "--subs-warn", type=INTEGER, metavar="N", help="warn with so many subscriptions; with fewer, if above the other one"
)
@click.option("--subs-critical", type=INTEGER, metavar="N", help="critical with so many subscriptions")
@click.option("--uptime-warn", callback=age_ns, metavar="TIME", help="warn when it runs for less")
@click.option("--uptime-critical", callback=age_ns, metavar="TIME", help="critical when it runs for less")
@click.option("--auth-required", is_flag=True, help="it must want a login")
@click.option("--tls-required", is_flag=True, help="it must want TLS")
@click.option("--js-required", is_flag=True, help="it must have JetStream")
@form_options
def check_server(name: str, **given: Any) -> None:
    """Check a server, as the system account sees it."""

    def action(target: Target, result: Result) -> None:
        varz = target.with_client(lambda client: _varz(target, client, name))
        for option, is_there, yes, no in (
            (
                "js_required",
                bool((varz.get("jetstream") or {}).get("config")),
                "JetStream enabled",
                "JetStream not enabled",
            ),
            ("tls_required", varz.get("tls_required"), "TLS required", "TLS not required"),
            ("auth_required", varz.get("auth_required"), "Authentication required", "Authentication not required"),
        ):
            if given[option]:
                result.note(yes if is_there else no, crit=not is_there)
        up_s = _seconds_between(varz.get("start", ""), varz.get("now", ""))
        warn, crit = ((given[each] or 0) / 1e9 for each in ("uptime_warn", "uptime_critical"))
        result.measure("uptime", up_s, warn, crit, "s", "Server uptime in seconds")
        if warn or crit:
            result.note(f"Up {span(up_s)}", crit=up_s <= crit, warn=up_s <= warn)
        for metric, member, option, text in (
            ("cpu", "cpu", "cpu", "CPU"), ("mem", "mem", "mem", "Memory"),
            ("connections", "connections", "conn", "Connections"), ("subscriptions", "subscriptions", "subs", "Subscriptions"),
        ):  # fmt: skip
            value, low, high = varz.get(member) or 0, given[f"{option}_warn"], given[f"{option}_critical"]
            result.measure(metric, value, low or 0, high or 0, "%" if metric == "cpu" else "")
            result.limit(value, f"{text} {value:.2f}", warn=low, crit=high)
        result.ok_if_good("answers")

    run_check("server", name, given, action)


def _seconds_between(start: str, now: str) -> float:
    from datetime import datetime

    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(start)).total_seconds()
    except ValueError:
        return 0.0


for each in (connection, stream, consumer, message, request, jetstream, kv, credential):
    check.add_command(each)
server.add_command(report)
