"""`eyot trust add|edit|delete export`, `add|delete import`, `add|delete mapping`, `generate activation`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, write_private
from eyot_cli.terminal.show import print_line
from eyot_cli.trust.claims import edit_times
from eyot_cli.trust.command import TrustCommand, account_option, in_changing_session, in_session, time_options
from eyot_cli.trust.session import Session
from eyot_cli.trust.store import body
from eyot_cli.trust.tokens import find_token
from eyot_cli.trust.values import parse_duration
from eyot_cli.values.numbers import INTEGER
from eyot_wire.digits import parse_uint
from eyot_wire.quoting import printable
from eyot_wire.trust.covering import covers
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_account import decode_activation
from eyot_wire.trust.jwt_sign import ClaimMembers, activation_hash, decorate
from eyot_wire.trust.nkey import is_public

RESPONSES: Final = ("Singleton", "Stream", "Chunked")
STDOUT: Final = "--"


def account_key(session: Session, text: str) -> str:
    """Return an account's public key, given as such or as the name of an account of the store."""
    return text if is_public(text, "A") else str(session.store.account(text)["sub"])


def find_export(account: ClaimMembers, subject: str | None, *, service: bool | None = None) -> dict[str, Any]:
    """Return the export with this subject, or the only one. Raises Failure."""
    exports = [
        each
        for each in body(account).get("exports") or ()
        if subject in (None, each.get("subject")) and service in (None, each.get("type") == "service")
    ]
    if len(exports) == 1:
        found: dict[str, Any] = exports[0]
        return found
    known = ", ".join(printable(str(each.get("subject"))) for each in body(account).get("exports") or ()) or "none"
    named = "which export? Name it with -s" if subject is None else f"there is no such export of {printable(subject)}"
    raise Failure(f"{named}: account {printable(str(account['name']))} exports {known}")


def _export_options(function: Any) -> Any:
    for option in (
        click.option("-n", "--name", metavar="NAME", help="name of the export (its subject)"),
        click.option("-s", "--subject", metavar="SUBJECT", help="subject"),
        click.option("-r", "--service", is_flag=True, default=None, help="a service instead of a stream"),
        click.option("-p", "--private/--public", default=None, help="importers need an activation token"),
        click.option("--latency", metavar="SUBJECT", help="subject of latency reports (services only)"),
        click.option("--sampling", metavar="PERCENT", help="percent that is measured, or `header` (services only)"),
        click.option("--response-type", type=click.Choice(RESPONSES), help="responses to a request (services only)"),
        click.option("--response-threshold", metavar="TIME", help="time for a response (services only)"),
        click.option("--account-token-position", type=INTEGER, help="token of the subject that is the importer's key"),
        click.option("--advertise/--no-advertise", default=None, help="advertise the export"),
        click.option("--allow-trace/--no-allow-trace", default=None, help="allow traces across the export"),
        click.option("--description", metavar="TEXT", help="description"),
        click.option("--info-url", metavar="URL", help="address with more about the export"),
    ):
        function = option(function)
    return function


def _apply_export(export: dict[str, Any], flags: dict[str, Any]) -> None:
    for flag, member in (
        ("private", "token_req"),
        ("advertise", "advertise"),
        ("allow_trace", "allow_trace"),
        ("account_token_position", "account_token_position"),
        ("description", "description"),
        ("info_url", "info_url"),
        ("response_type", "response_type"),
    ):
        if flags[flag] is not None:
            export[member] = flags[flag]
            if not flags[flag]:
                del export[member]
    if flags["response_threshold"] is not None:
        export["response_threshold"] = parse_duration(flags["response_threshold"])
    if flags["latency"] is not None or flags["sampling"] is not None:
        latency = {"sampling": 100} | (export.get("service_latency") or {})
        latency |= {"results": flags["latency"]} if flags["latency"] else {}
        if flags["sampling"] is not None:
            latency["sampling"] = _sampling(flags["sampling"])
        if not latency.get("results"):
            raise Failure("--sampling needs the subject of the reports: add --latency SUBJECT")
        export["service_latency"] = latency
    services = ("response_type", "response_threshold", "service_latency")
    if export["type"] != "service" and any(export.get(member) for member in services):
        raise Failure("response type, response threshold and latency belong to services: add --service")
    if export.get("token_req") and export.get("account_token_position"):
        # Servers look at the subject alone then, and ask for no activation.
        raise Failure("--account-token-position is for public exports: servers would ask for no activation")


def _sampling(text: str) -> int | str:
    if text.lower() in ("header", "headers"):
        return "headers"
    percentage = parse_uint(text)
    if percentage is None or not 1 <= percentage <= 100:
        raise Failure(f"{printable(text)} is no sampling: write a percentage from 1 to 100, or header")
    return percentage


@click.command("export", cls=TrustCommand)
@_export_options
@account_option
@in_changing_session
def add_export(session: Session, account: str | None, name: str | None, subject: str | None, **flags: Any) -> None:
    """Offer a stream of messages, or a service, to other accounts."""
    if not subject:
        raise Failure("which subject? Name it with -s SUBJECT")
    called = session.account_name(account)
    members = session.store.account(called)
    export = {"name": name or subject, "subject": subject, "type": "service" if flags["service"] else "stream"}
    if flags["service"] and flags["response_type"] is None:
        flags["response_type"] = RESPONSES[0]
    _apply_export(export, flags)
    body(members)["exports"] = [*(body(members).get("exports") or ()), export]
    session.save_account(members)
    kind = "private" if flags["private"] else "public"
    session.report.ok(f"added {kind} {export['type']} export {printable(export['name'])}")


@click.command("export", cls=TrustCommand)
@_export_options
@click.option("--rm-latency-sampling", is_flag=True, help="remove the latency reports")
@account_option
@in_changing_session
def edit_export(session: Session, account: str | None, name: str | None, subject: str | None, **flags: Any) -> None:
    """Change an export.

    Imports and their activations stay valid while its kind and subject stay.
    """
    called = session.account_name(account)
    members = session.store.account(called)
    export = find_export(members, subject)
    if name is not None:
        export["name"] = name
    if flags["service"]:
        export["type"] = "service"
    if flags["rm_latency_sampling"]:
        export.pop("service_latency", None)
    _apply_export(export, flags)
    session.save_account(members)
    session.report.ok(f"edited {export['type']} export {printable(str(export.get('name')))}")


@click.command("export", cls=TrustCommand)
@click.option("-s", "--subject", metavar="SUBJECT", help="subject")
@account_option
@in_changing_session
def delete_export(session: Session, account: str | None, subject: str | None) -> None:
    """Withdraw an export."""
    called = session.account_name(account)
    members = session.store.account(called)
    export = find_export(members, subject)
    body(members)["exports"] = [each for each in body(members)["exports"] if each is not export]
    session.save_account(members)
    session.report.ok(f"deleted {export['type']} export {printable(str(export.get('name')))}")


@click.command("import", cls=TrustCommand)
@click.option("-u", "--token", metavar="FILE", help="file with the activation token of a private export")
@click.option("-n", "--name", metavar="NAME", help="name of the import (its subject)")
@click.option("-s", "--local-subject", metavar="SUBJECT", help="subject here")
@click.option("--src-account", metavar="KEY|NAME", help="exporting account (public exports)")
@click.option("--remote-subject", metavar="SUBJECT", help="subject there (public exports)")
@click.option("--service", is_flag=True, help="a service instead of a stream (public exports)")
@click.option("--share", is_flag=True, help="show the requester's details in latency reports (services)")
@click.option("--allow-trace", is_flag=True, help="allow traces across the import (streams)")
@account_option
@in_changing_session
def add_import(session: Session, account: str | None, token: str | None, name: str | None, **flags: Any) -> None:
    """Use what another account exports."""
    called = session.account_name(account)
    members = session.store.account(called)
    if token:
        made = _activated(token, str(members["sub"]))
    elif flags["src_account"] and flags["remote_subject"]:
        made = {"subject": flags["remote_subject"], "account": account_key(session, flags["src_account"])}
        made["type"] = "service" if flags["service"] else "stream"
        made["name"] = made["subject"]
    else:
        raise Failure(
            "name the export with --src-account and --remote-subject, or give the activation token with --token"
        )
    local = flags["local_subject"] or (made["subject"] if made["type"] == "service" else None)
    made["name"] = name or made["name"]
    made |= {"local_subject": local} if local else {}
    made |= {"share": True} if flags["share"] and made["type"] == "service" else {}
    made |= {"allow_trace": True} if flags["allow_trace"] and made["type"] == "stream" else {}
    if made["account"] == members["sub"]:
        raise Failure("an account cannot import from itself: name the exporting account with --src-account")
    body(members)["imports"] = [*(body(members).get("imports") or ()), made]
    session.save_account(members)
    session.report.ok(f"added {made['type']} import {printable(str(made['subject']))}")


def _activated(path: str, importer: str) -> dict[str, Any]:
    """Return the import that an activation token allows. Raises Failure."""
    token = find_token(read_text(Path(path).expanduser()))
    try:
        claims, granted = decode_activation(token)
    except JwtError as error:
        raise Failure(
            f"{printable(path)}: {printable(str(error))}: ask the exporter for an activation token"
        ) from error
    if claims.sub != importer:
        raise Failure(f"the activation is for account {claims.sub}: ask for one for {importer}")
    if not claims.valid_at(time.time()):
        raise Failure("the activation is not valid now: ask the exporter for a new one")
    name = claims.name or granted.subject
    return {
        "name": name,
        "subject": granted.subject,
        "account": claims.signed_for or claims.iss,
        "type": granted.kind,
        "token": token,
    }


@click.command("import", cls=TrustCommand)
@click.option("-s", "--subject", metavar="SUBJECT", help="subject there")
@click.option("--src-account", metavar="KEY|NAME", help="exporting account, if several export the subject")
@account_option
@in_changing_session
def delete_import(session: Session, account: str | None, subject: str | None, src_account: str | None) -> None:
    """Stop using what another account exports."""
    called = session.account_name(account)
    members = session.store.account(called)
    source = None if src_account is None else account_key(session, src_account)
    imports = list(body(members).get("imports") or ())
    found = [
        each for each in imports if subject in (None, each.get("subject")) and source in (None, each.get("account"))
    ]
    if len(found) != 1:
        known = (
            ", ".join(f"{printable(str(each.get('subject')))} of {each.get('account')}" for each in imports) or "none"
        )
        raise Failure(f"which import? Name one with -s SUBJECT (and --src-account): there are {known}")
    body(members)["imports"] = [each for each in imports if each is not found[0]]
    session.save_account(members)
    session.report.ok(f"deleted {found[0].get('type')} import {printable(str(found[0].get('subject')))}")


@click.command("mapping", cls=TrustCommand)
@click.option("-f", "--from", "source", metavar="SUBJECT", required=True, help="subject that is published to")
@click.option("-t", "--to", "target", metavar="SUBJECT", required=True, help="subject that it becomes")
@click.option("--weight", type=click.IntRange(0, 100), default=0, help="percent of the messages; 0: all that is left")
@click.option("--cluster", metavar="NAME", help="only in this cluster")
@account_option
@in_changing_session
def add_mapping(
    session: Session, account: str | None, source: str, target: str, weight: int, cluster: str | None
) -> None:
    """Rename subjects of an account.

    To one subject, or with weights to several.
    """
    called = session.account_name(account)
    members = session.store.account(called)
    mappings: dict[str, Any] = body(members).get("mappings") or {}
    entry = {"subject": target} | ({"weight": weight} if weight else {}) | ({"cluster": cluster} if cluster else {})
    kept = [each for each in mappings.get(source) or () if _mapped(each) != _mapped(entry)]
    body(members)["mappings"] = mappings | {source: [*kept, entry]}
    session.save_account(members)
    session.report.ok(f"added mapping {printable(source)} -> {printable(target)}")


def _mapped(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry.get("subject"), entry.get("cluster") or ""


@click.command("mapping", cls=TrustCommand)
@click.option("-f", "--from", "source", metavar="SUBJECT", required=True, help="subject that is published to")
@click.option("-t", "--to", "target", metavar="SUBJECT", help="only this destination")
@click.option("--cluster", metavar="NAME", help="only in this cluster")
@account_option
@in_changing_session
def delete_mapping(session: Session, account: str | None, source: str, target: str | None, cluster: str | None) -> None:
    """Remove a mapping."""
    called = session.account_name(account)
    members = session.store.account(called)
    mappings: dict[str, Any] = dict(body(members).get("mappings") or {})
    entries = mappings.pop(source, [])
    kept = [
        each
        for each in entries
        if target not in (None, each.get("subject")) or cluster not in (None, each.get("cluster") or "")
    ]
    if len(kept) == len(entries):
        known = ", ".join(map(printable, body(members).get("mappings") or ())) or "none"
        raise Failure(f"there is no such mapping of {printable(source)}: there are {known}")
    body(members)["mappings"] = mappings | ({source: kept} if kept else {})
    session.save_account(members)
    session.report.ok(f"deleted mapping {printable(source)}")


@click.command("activation", cls=TrustCommand)
@click.option("-s", "--subject", metavar="SUBJECT", help="subject of the export, or a part of it")
@click.option("-t", "--target-account", metavar="KEY|NAME", required=True, help="importing account")
@click.option(
    "-o", "--output-file", "output", metavar="FILE", default=STDOUT, help="file for the token; --: standard output"
)
@account_option
@time_options
@in_session
def generate_activation(session: Session, account: str | None, subject: str | None, **flags: Any) -> None:
    """Make the token that a private export asks for.

    Another account may import the export with it.
    """
    called = session.account_name(account)
    members, report = session.store.account(called), session.report
    private = [each for each in body(members).get("exports") or () if each.get("token_req")]
    export = next((each for each in private if subject is None or covers(str(each.get("subject")), subject)), None)
    if export is None or (subject is None and len(private) > 1):
        known = ", ".join(printable(str(each.get("subject"))) for each in private) or "none"
        raise Failure(f"which private export? Name its subject with -s: account {printable(called)} has {known}")
    granted = subject or str(export["subject"])
    signer = session.account_signer(members)
    importer = account_key(session, flags["target_account"])
    nats = {"subject": granted, "kind": export["type"], "type": "activation"}
    if signer.public != members["sub"]:
        nats["issuer_account"] = members["sub"]
    activation: ClaimMembers = {"sub": importer, "name": granted, "nats": nats}
    to_file = flags["output"] != STDOUT
    quiet = not to_file and not report.as_json
    edit_times(activation, flags["start"], flags["expiry"], type(report)(True) if quiet else report)
    token = session.sign(activation, signer)
    report.result |= {"token": token, "hash": activation_hash(signer.public, importer, granted)}
    if to_file:
        write_private(Path(flags["output"]).expanduser(), decorate(token, "activation").encode())
        report.ok(f"generated {printable(str(export.get('name')))} activation for account {importer}")
        report.ok(f"wrote activation token to {printable(flags['output'])}")
    elif quiet:
        for line in decorate(token, "activation").splitlines():
            print_line(line)
