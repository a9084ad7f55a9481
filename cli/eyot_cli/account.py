"""`eyot account info` and `eyot rtt`, as in the `nats` tool: who this login is, what it may use, and how far away the server is."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import click
import msgspec
from msgspec import Struct, field
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from eyot_cli.connection.command_client import PermissionViolation
from eyot_cli.connection.refusals import NoJetStream, Refusal
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.server.reports import account_report
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.show import console, count, print_json, print_line, print_table, size
from eyot_wire.info import SubjectPermission
from eyot_wire.jetstream.error_codes import JSNotEnabledForAccountErr
from eyot_wire.user_info import USER_INFO, UserInfo, UserPermissions, user_info

_USER_INFO_S = 2.0
#: Of JetStream's answer: what is used, the limit beside it, and how both are shown.
_USAGE = (
    ("Memory", "memory", "max_memory", size),
    ("Storage", "storage", "max_storage", size),
    ("Streams", "streams", "max_streams", count),
    ("Consumers", "consumers", "max_consumers", count),
)


class _Usage(Struct, frozen=True):
    memory: int = 0
    storage: int = 0
    streams: int = 0
    consumers: int = 0
    domain: str = ""
    limits: dict[str, int | bool] = field(default_factory=dict)


@click.group(cls=AliasGroup)
def account() -> None:
    """Show who this login is, and what its account uses."""


account.add_command(account_report)


@account.command("info")
@click.pass_obj
def info(target: Target) -> None:
    """Show user, permissions, and the use of JetStream."""
    server, user, usage = target.with_client(lambda client: _asked(target, client))
    if target.as_json:
        print_json({"server": server, "user": user, "jetstream": usage})
        return
    pairs = [
        ("Server", f"{server['name']} {server['version']}"), ("Connected to", server["url"]),
        ("Client", f"{server['client_id']} from {server['client_ip']}"), ("Maximum payload", size(server["max_payload"])),
    ]  # fmt: skip
    if user is None:
        pairs.append(("User", f"not known: the login may not publish to {USER_INFO}, or the server does not tell"))
    else:
        pairs += [("User", user.user or "none"), ("Account", user.account)]
        pairs.append(("Expires", f"in {user.expires // 10**9:,} s" if user.expires else "never"))
        may = user.permissions or UserPermissions()
        pairs += [("May publish", _rules(may.publish)), ("May subscribe", _rules(may.subscribe))]
    print_table("", ("", ""), pairs, "")
    if usage is None:
        console.print("JetStream is not enabled for this account")
        return
    rows = [
        (name, show(getattr(usage, used)), _limit(usage.limits.get(limit), show)) for name, used, limit, show in _USAGE
    ]
    title = "JetStream" + (f", domain {usage.domain}" if usage.domain else "")
    print_table(title, ("", ">Used", ">Limit"), rows, "")


async def _asked(target: Target, client: Client) -> tuple[dict[str, Any], UserInfo | None, _Usage | None]:
    said = client._server_info
    server = {
        "name": said.get("server_name", ""), "version": said.get("version", ""),
        "url": _url(client),
        "client_id": said.get("client_id", 0), "client_ip": said.get("client_ip", ""),
        "max_payload": said.get("max_payload", 0),
    }  # fmt: skip
    return server, await _user(client), await _usage(target, client)


async def _user(client: Client) -> UserInfo | None:
    try:
        answer = await client.request(USER_INFO, b"", timeout=_USER_INFO_S)
        return user_info(answer.data)
    except (NoRespondersError, NatsTimeoutError, PermissionViolation, msgspec.MsgspecError):
        return None


async def _usage(target: Target, client: Client) -> _Usage | None:
    """Return what JetStream says of the account; None where it is not enabled. Raises Failure."""
    try:
        found = await ask(target, client, "INFO", {})
    except NoJetStream:
        if target.is_elsewhere:  # which was asked for by name
            raise
        return None
    except Refusal as refused:
        if refused.err_code != JSNotEnabledForAccountErr:
            raise
        return None
    try:
        return msgspec.convert(found, _Usage)
    except msgspec.ValidationError as error:
        raise Failure(f"malformed answer of the server: {error}") from error


def _limit(limit: int | None, show: Any) -> str:
    return "unlimited" if limit is None or limit < 0 else str(show(limit))


def _rules(rules: SubjectPermission) -> str:
    allowed = "everything" if rules.allow is None else ", ".join(rules.allow) or "nothing"
    return f"{allowed}, but not {', '.join(rules.deny)}" if rules.deny else allowed


def _url(client: Client) -> str:
    """Return the address of the server, without a login."""
    where = client.connected_url
    return "" if where is None else f"{where.scheme}://{where.netloc.rpartition('@')[2]}"


@click.command("rtt")
@click.argument("iterations", type=click.IntRange(1, 10_000), default=5)
@click.pass_obj
def rtt(target: Target, iterations: int) -> None:
    """Measure round trips to the server.

    ITERATIONS times PING and PONG, one after the other.
    """

    async def measure(client: Client) -> tuple[str, list[float]]:
        taken = []
        for _ in range(iterations):
            began = perf_counter()
            await client.flush()
            taken.append(perf_counter() - began)
        return _url(client), taken

    url, taken = target.with_client(measure)
    found = {"min": min(taken), "median": median(taken), "max": max(taken)}
    if target.as_json:
        print_json({"url": url, "round_trips": iterations, "seconds": found})
        return
    least, middle, most = (f"{each * 1e3:,.2f} ms" for each in found.values())
    print_line(f"{url}: {middle} ({iterations} round trips, {least} to {most})")
