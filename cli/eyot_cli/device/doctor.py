"""`eyot doctor`: checks the installation, its links, and the connection of mirrors and sources to their origins.

All information comes over the daemon's network interfaces. Exit status 0: all checks passed; 3: warnings; 4: failures;
1: the daemon does not answer.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Any

import click
import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from eyot_cli.connection.target import Target
from eyot_cli.device.doctor_origin import Origin, probe
from eyot_cli.device.doctor_sync import never_arrived
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, lines, print_json, print_table
from eyot_wire.doctor.certificates import certificates
from eyot_wire.doctor.check import Check, failure, ok, skipped, warning
from eyot_wire.doctor.installation import installation
from eyot_wire.doctor.links import links
from eyot_wire.doctor.replication import replication
from eyot_wire.status import SourcingStatus, StatusReport, SyncReport

EXIT_WARNINGS, EXIT_FAILURES = 3, 4
_CLOCK_S_MAX = 2.0
_USED_SHARE_MAX = 0.9
_ANSWER_S = 3.0
_COLOURS = {"ok": "green", "warning": "yellow", "failure": "red", "skipped": "dim"}


@click.command()
@click.option("--origin", "stream", help="also check this origin stream, before a mirror or source of it is configured")
@click.option("--api-prefix", help="API prefix of the origin, as in external.api")
@click.option("--deliver-prefix", default="", help="delivery prefix, as in external.deliver")
@click.option("--consumer", default="", help="an existing pull consumer of the origin, for clients here")
@click.option("--origin-account", default="ORIGIN", help="the origin's account, for suggested configuration lines")
@click.option("--origin-domain", default="", help="the origin's domain, for suggested configuration lines")
@click.pass_obj
def doctor(
    target: Target,
    stream: str | None,
    api_prefix: str | None,
    deliver_prefix: str,
    consumer: str,
    origin_account: str,
    origin_domain: str,
) -> None:
    """Check the installation, links and sourcing."""
    if (stream is None) != (api_prefix is None):
        raise click.UsageError("--origin and --api-prefix go together")
    if target.group:
        from eyot_cli.device import group_reports

        group_reports.doctor(target)
    report = _report(target)
    checks = installation(report) + certificates(report) + links(report)
    checks += never_arrived(target)
    checks += replication(report, _sync_report(target))
    asked = []
    if stream is not None and api_prefix is not None:
        api = f"$JS.{origin_domain}.API" if origin_domain else "$JS.API"
        asked.append(Origin(stream, api_prefix, deliver_prefix, consumer, origin_account, api))
    if target.device:
        remedy = "run eyot doctor on the device for the rest"
        checks.append(skipped("client", "limits, clocks and origins are looked at from the device only", remedy))
    else:
        checks += _over_nats(target, report, asked)
    if target.as_json:
        print_json(checks)
    else:
        _show(checks)
    states = {each.state for each in checks}
    code = EXIT_FAILURES if "failure" in states else EXIT_WARNINGS if "warning" in states else 0
    if code:
        sys.exit(code)


def _report(target: Target) -> StatusReport:
    try:
        return msgspec.json.decode(target.get("/eyot/status"), type=StatusReport)
    except msgspec.MsgspecError as error:
        raise Failure(f"{target.control} does not answer as an Eyot daemon: {error}") from error


def _sync_report(target: Target) -> SyncReport:
    try:
        return msgspec.json.decode(target.get("/eyot/syncz"), type=SyncReport)
    except msgspec.MsgspecError as error:
        raise Failure(f"{target.control} does not answer as an Eyot daemon: {error}") from error


# -- checks over a client connection -----------------------------------------------------------------------------------


def _over_nats(target: Target, report: StatusReport, asked: list[Origin]) -> list[Check]:
    async def look(client: Client) -> list[Check]:
        account = await _account(client)
        checks = [ok("client", f"connected to {target.shown_server}, account {account}")]
        checks += await _limits(client)
        checks += await _clocks(client, report, account)
        for origin in asked + _origins(report.copies, account):
            checks += await probe(client, origin, account)
        for account_name in sorted({copy.account for copy in report.copies} - {account}):
            remedy = "run again with --user, --creds or --nkey of that account"
            checks.append(skipped(f"mirrors and sources of account {account_name}", "not checked", remedy))
        return checks

    try:
        return target.with_client(look)
    except Failure as wrong:
        remedy = "name the listener with --server, and credentials with --user, --password, --creds or --nkey"
        return [failure("client", str(wrong), remedy)]


def _origins(copies: list[SourcingStatus], account: str) -> list[Origin]:
    found = {
        (copy.api_prefix, copy.origin, copy.deliver_prefix, copy.kind): Origin(
            copy.origin, copy.api_prefix, copy.deliver_prefix, kinds=(copy.kind,)
        )
        for copy in copies
        if copy.account == account and copy.api_prefix not in ("", "$JS.API")
    }
    return list(found.values())


async def _account(client: Client) -> str:
    try:
        reply = await client.request("$SYS.REQ.USER.INFO", b"", timeout=_ANSWER_S)
        return str(msgspec.json.decode(reply.data)["data"]["account"])
    except (NatsError, KeyError, msgspec.MsgspecError):
        return "$G"


async def _limits(client: Client) -> list[Check]:
    """Check JetStream's limits of the account."""
    try:
        reply = await client.request("$JS.API.INFO", b"", timeout=_ANSWER_S)
    except NatsError:
        return [skipped("JetStream", "not enabled for this account")]
    info: dict[str, Any] = msgspec.json.decode(reply.data)
    if "error" in info:
        error = info["error"]
        return [warning("JetStream", f"{error.get('description')} ({error.get('err_code')})")]
    limits, checks = info.get("limits", {}), []
    for what, used, most in (
        ("file storage", info.get("storage", 0), limits.get("max_storage", -1)),
        ("memory", info.get("memory", 0), limits.get("max_memory", -1)),
        ("streams", info.get("streams", 0), limits.get("max_streams", -1)),
        ("consumers", info.get("consumers", 0), limits.get("max_consumers", -1)),
    ):
        if most > 0 and used >= _USED_SHARE_MAX * most:
            checks.append(warning(f"JetStream {what}", f"{used} of {most}", "raise the account's limit or remove some"))
    return checks or [ok("JetStream", "within the account's limits")]


async def _clocks(client: Client, report: StatusReport, account: str) -> list[Check]:
    """Compare the daemon's clock, and that of each linked domain, with this machine's."""
    checks = []
    here = time.time() - datetime.fromisoformat(report.now).timestamp()
    if abs(here) > _CLOCK_S_MAX + 5:
        checks.append(warning("clock", f"the daemon's clock is {here:+.0f} s off this machine's", "is NTP running?"))
    domains = {link.peer_domain for link in report.links if link.state == "up" and link.account == account}
    for domain in sorted(each for each in domains if each):
        off_s = await _clock_of(client, f"$JS.{domain}.API")
        if off_s is None:
            checks.append(skipped(f"clock of domain {domain}", "it has no stream to read the time from"))
        elif abs(off_s) > _CLOCK_S_MAX:
            remedy = "set the clocks: message ages, schedules and certificates depend on them"
            checks.append(warning(f"clock of domain {domain}", f"{off_s:+.1f} s off this machine's", remedy))
        else:
            checks.append(ok(f"clock of domain {domain}", f"{off_s:+.2f} s off this machine's"))
    return checks


async def _clock_of(client: Client, prefix: str) -> float | None:
    """Return by how many seconds the clock behind `prefix` is ahead; None: unknown."""
    try:
        names = msgspec.json.decode((await client.request(f"{prefix}.STREAM.NAMES", b"{}", timeout=_ANSWER_S)).data)
        streams = names.get("streams") or []
        if not streams:
            return None
        before = time.time()
        reply = await client.request(f"{prefix}.STREAM.INFO.{streams[0]}", b"", timeout=_ANSWER_S)
        middle = (before + time.time()) / 2
        told = msgspec.json.decode(reply.data).get("ts")
        return None if told is None else datetime.fromisoformat(told[:26].rstrip("Z") + "+00:00").timestamp() - middle
    except (NatsError, msgspec.MsgspecError, ValueError):
        return None


# -- output ------------------------------------------------------------------------------------------------------------


def _show(checks: list[Check]) -> None:
    rows = [
        (
            (each.state, _COLOURS[each.state]),
            each.name,
            lines(each.detail, *((each.remedy,) if each.remedy else ())),
        )
        for each in checks
    ]
    print_table("Doctor", ("", "What", "Found"), rows, "nothing")
    for each in checks:
        if each.lines:
            console.print((each.name, "bold"), ": add")
            for text in each.lines:
                console.print(f"    {text}")
