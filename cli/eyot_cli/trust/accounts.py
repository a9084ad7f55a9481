"""`eyot trust add|edit|delete account`, `edit signing-key`, `edit authcallout`."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import check_name, remove
from eyot_cli.trust.claims import (
    GENERATE,
    add_signing_keys,
    edit_tags,
    edit_times,
    new_account,
    remove_signing_keys,
    sort_keys,
)
from eyot_cli.trust.command import (
    TrustCommand,
    account_option,
    in_changing_session,
    name_of,
    name_options,
    time_options,
)
from eyot_cli.trust.grants import (
    UNLIMITED,
    edit_limits,
    edit_permissions,
    limit_options,
    permission_options,
)
from eyot_cli.trust.session import Session, scoped_keys
from eyot_cli.trust.store import body
from eyot_cli.trust.values import parse_number, split_list
from eyot_wire.quoting import printable
from eyot_wire.trust.nkey import is_public

#: Members of `limits` by flag.
_LIMITS: Final = {
    "conns": "conn",
    "leaf_conns": "leaf",
    "data": "data",
    "exports": "exports",
    "imports": "imports",
    "payload": "payload",
    "subscriptions": "subs",
}
#: JetStream's members by flag, for all streams or for those of a number of replicas.
_JETSTREAM: Final = {
    "js_mem_storage": "mem_storage",
    "js_disk_storage": "disk_storage",
    "js_streams": "streams",
    "js_consumer": "consumer",
    "js_max_mem_stream": "mem_max_stream_bytes",
    "js_max_disk_stream": "disk_max_stream_bytes",
    "js_max_ack_pending": "max_ack_pending",
}


@click.command("account", cls=TrustCommand)
@name_options("account")
@click.option(
    "-k", "--public-key", "key", metavar="KEY", help="the account's key: public key, seed or file (a new key)"
)
@permission_options
@time_options
@in_changing_session
def add_account(session: Session, given: str | None, name: str | None, key: str | None, **flags: Any) -> None:
    """Make an account with its key, and use it.

    Permissions are the default of its users.
    """
    make_account(session, name_of(given, name, "account"), key, **flags)


def make_account(
    session: Session,
    name: str,
    key: str | None,
    *,
    start: str | None = None,
    expiry: str | None = None,
    **permissions: Any,
) -> None:
    """Make an account with a new key or with `key`, and use it. `permissions`: the default of its users. Raises Failure."""
    called = check_name(name, "an account")
    if called in session.store.accounts():
        raise Failure(f"account {printable(called)} exists already: change it with `eyot trust edit account`")
    made = None if key else session.keystore.make("A")
    public = made.public if made else session.public_key(str(key), "A")
    other = session.store.account_of(public)
    if other is not None:
        raise Failure(f"account {printable(other)} has this key already: leave -k out to make one")
    members = new_account(public, called)
    edit_times(members, start, expiry, session.report)
    if permissions:
        edit_permissions(body(members)["default_permissions"], permissions, session.report)
    if not session.store.info.managed:
        session.operator_signer()  # before the key is stored: a refusal leaves nothing behind
    if made:
        session.keystore.add(made)
        session.report.ok(f"generated and stored account key {public}")
    session.save_account(members)
    session.environment.use(session.store.name, called)
    session.report.result["account"] = {"name": called, "key": public}
    session.report.ok(f"added account {printable(called)}")


def _limit_options(function: Any) -> Any:
    for flag in _LIMITS:
        name = f"--{flag.replace('_', '-')}"
        function = click.option(name, metavar="N", help=f"most {flag.replace('_', ' ')}, -1: unlimited")(function)
    for flag in _JETSTREAM:
        name = f"--{flag.replace('_', '-')}"
        text = f"JetStream: {_JETSTREAM[flag].replace('_', ' ')}, -1: unlimited; units as in 10M, 2GiB"
        function = click.option(name, metavar="N", help=text)(function)
    return function


@click.command("account", cls=TrustCommand)
@name_options("account")
@click.option("--sk", multiple=True, metavar="KEY", help="add a signing key; `generate` makes one")
@click.option("--rm-sk", multiple=True, metavar="KEY", help="remove a signing key, by key or role")
@_limit_options
@click.option("--js-tier", type=click.IntRange(0, 5), default=0, help="JetStream: for streams with N replicas; 0: all")
@click.option(
    "--js-enable", type=click.IntRange(0, 5), help="JetStream: enable the tier without limits; 0: for all streams"
)
@click.option("--js-disable", is_flag=True, help="JetStream: remove all limits, which disables it")
@click.option(
    "--rm-js-tier", type=click.IntRange(0, 5), help="JetStream: remove the limits of a tier; 0: the global ones"
)
@click.option(
    "--js-max-bytes-required/--no-js-max-bytes-required", default=None, help="JetStream: streams need max_bytes"
)
@click.option("--wildcard-exports/--no-wildcard-exports", default=None, help="exports may contain wildcards")
@click.option("--disallow-bearer/--no-disallow-bearer", default=None, help="refuse users with bearer tokens")
@click.option("--trace-context-subject", "trace", metavar="SUBJECT", help="destination of message traces; empty: none")
@click.option(
    "--trace-context-sampling", "sampling", type=click.IntRange(0, 100), help="percent that is traced; 0: all"
)
@click.option("--description", metavar="TEXT", help="description")
@click.option("--info-url", metavar="URL", help="address with more about the account")
@click.option("--tag", multiple=True, metavar="TAG", help="add a tag")
@click.option("--rm-tag", multiple=True, metavar="TAG", help="remove a tag")
@permission_options
@time_options
@in_changing_session
def edit_account(session: Session, given: str | None, name: str | None, **flags: Any) -> None:
    """Change an account.

    Its limits, signing keys, and the default permissions of its users.

    With -K alone the account is signed again, with that key.
    """
    called = session.account_name(given or name)
    members, report = session.store.account(called), session.report
    nats = body(members)
    _edit_limits(nats.setdefault("limits", {}), flags, session)
    _edit_jetstream(nats["limits"], flags, session)
    _edit_texts(nats, flags, session)
    edit_permissions(nats.setdefault("default_permissions", {}), flags, report)
    edit_tags(members, flags["tag"], flags["rm_tag"], report)
    edit_times(members, flags["start"], flags["expiry"], report)
    remove_signing_keys(members, flags["rm_sk"], report)
    add_signing_keys(session, members, "A", flags["sk"])
    if not report.done and not session.key:
        raise Failure("nothing to change: see `eyot trust edit account --help`; -K KEY alone signs the account again")
    session.save_account(members)
    report.ok(f"edited account {printable(called)}")


def _edit_limits(limits: dict[str, Any], flags: dict[str, Any], session: Session) -> None:
    for flag, member in _LIMITS.items():
        if flags[flag] is not None:
            limits[member] = parse_number(flags[flag])
            session.report.ok(f"changed {flag.replace('_', ' ')} to {limits[member]}")
    for flag, member in (("wildcard_exports", "wildcards"), ("disallow_bearer", "disallow_bearer")):
        if flags[flag] is not None:
            limits[member] = flags[flag]
            session.report.ok(f"changed {member} to {str(flags[flag]).lower()}")


def _edit_jetstream(limits: dict[str, Any], flags: dict[str, Any], session: Session) -> None:
    """Change JetStream's limits: of one tier (`R1` ... `R5`), or the global ones, which no tier may accompany."""
    tiers: dict[str, Any] = limits.get("tiered_limits") or {}
    asked = {member: parse_number(flags[flag]) for flag, member in _JETSTREAM.items() if flags[flag] is not None}
    if flags["js_max_bytes_required"] is not None:
        asked["max_bytes_required"] = flags["js_max_bytes_required"]
    tier = flags["js_tier"]
    if flags["js_enable"] is not None:
        tier = flags["js_enable"]
        asked = dict.fromkeys(_JETSTREAM.values(), -1) | asked
    if flags["js_disable"] or flags["rm_js_tier"] == 0:
        for member in (*_JETSTREAM.values(), "max_bytes_required"):
            limits.pop(member, None)
        session.report.ok("removed global JetStream limits")
    if flags["js_disable"]:
        tiers = {}
    elif flags["rm_js_tier"]:
        tiers.pop(f"R{flags['rm_js_tier']}", None)
        session.report.ok(f"removed JetStream limits of tier R{flags['rm_js_tier']}")
    if asked and tier:
        if any(limits.get(member) for member in (*_JETSTREAM.values(), "max_bytes_required")):
            raise Failure("the account has JetStream limits for all streams: use --rm-js-tier 0 first")
        tiers[f"R{tier}"] = (tiers.get(f"R{tier}") or {}) | asked
    elif asked:
        if tiers:
            raise Failure(
                "the account has limits per number of replicas: name one with --js-tier, or use --js-disable first"
            )
        limits |= asked
    for member, value in asked.items():
        session.report.ok(
            f"changed JetStream {member.replace('_', ' ')} to {value}{f' (tier R{tier})' if tier else ''}"
        )
    limits.pop("tiered_limits", None)
    if tiers:
        limits["tiered_limits"] = tiers


def _edit_texts(nats: dict[str, Any], flags: dict[str, Any], session: Session) -> None:
    for member in ("description", "info_url"):
        if flags[member] is not None:
            nats[member] = flags[member]
            session.report.ok(f"changed {member.replace('_', ' ')}")
    if flags["trace"] == "":
        nats.pop("trace", None)
        session.report.ok("disabled message traces")
    elif flags["trace"] is not None or flags["sampling"] is not None:
        trace = {"dest": "trace.messages"} | (nats.get("trace") or {})
        trace |= {"dest": flags["trace"]} if flags["trace"] else {}
        trace |= {"sampling": flags["sampling"]} if flags["sampling"] is not None else {}
        nats["trace"] = trace
        session.report.ok(f"set message traces to {printable(str(trace['dest']))}")


@click.command("signing-key", cls=TrustCommand)
@click.argument("given", metavar="[KEY]", required=False)
@click.option("--sk", metavar="KEY", help="signing key: key, role of its scope, or `generate`")
@click.option("--role", metavar="NAME", help="role of the scope, for -K")
@click.option("--description", metavar="TEXT", help="description of the scope")
@account_option
@permission_options
@limit_options
@in_changing_session
def edit_signing_key(session: Session, given: str | None, sk: str | None, account: str | None, **flags: Any) -> None:
    """Give an account's signing key a scope.

    A scope is the template of permissions and limits for all users that the key signs.
    """
    called = session.account_name(account)
    members, report = session.store.account(called), session.report
    text = given or sk
    roles = {str(key.get("role")): str(key.get("key")) for key in scoped_keys(members) if key.get("role")}
    wanted = text or roles.get(flags["role"] or "")
    if not wanted:
        raise Failure("which signing key? Name one with --sk KEY, or make one with --sk generate")
    made = session.keystore.make("A") if wanted == GENERATE else None
    public = made.public if made else roles.get(wanted) or session.public_key(wanted, "A")
    if flags["role"] and roles.get(flags["role"], public) != public:
        raise Failure(f"role {printable(flags['role'])} is {roles[flags['role']]}'s already: choose another --role")
    scope: dict[str, Any] = {
        "kind": "user_scope",
        "key": public,
        "role": "",
        "template": {"pub": {}, "sub": {}} | UNLIMITED,
    }
    scope |= next((key for key in scoped_keys(members) if key.get("key") == public), {})
    for member in ("role", "description"):
        if flags[member] is not None:
            scope[member] = flags[member]
    edit_permissions(scope["template"], flags, report)
    edit_limits(scope["template"], flags, report)
    others = [key for key in body(members).get("signing_keys") or () if public not in (key, _key_of(key))]
    body(members)["signing_keys"] = sort_keys([*others, scope])
    if made:
        session.keystore.add(made)
    session.save_account(members)
    report.result["signing_key"] = {"key": public, "role": scope["role"]}
    report.ok(f"edited signing key {public}")


def _key_of(key: Any) -> Any:
    return key.get("key") if isinstance(key, dict) else key


@click.command("authcallout", cls=TrustCommand)
@account_option
@click.option(
    "--auth-user", multiple=True, metavar="KEY|NAME", help="add a user who bypasses the callout, and serves it"
)
@click.option("--rm-auth-user", multiple=True, metavar="KEY|NAME", help="remove such a user")
@click.option("--allowed-account", multiple=True, metavar="KEY|NAME", help="add an account for users, * for all")
@click.option("--rm-allowed-account", multiple=True, metavar="KEY|NAME", help="remove such an account")
@click.option("-x", "--curve", metavar="KEY", help="curve key that encrypts requests; `generate` makes one")
@click.option("--rm-curve", is_flag=True, help="remove the curve key")
@click.option("--disable", is_flag=True, help="remove the auth callout")
@in_changing_session
def edit_authcallout(session: Session, account: str | None, **flags: Any) -> None:
    """Let a service of the account decide who logs in.

    It also decides as what they log in.
    """
    called = session.account_name(account)
    members, report = session.store.account(called), session.report
    callout: dict[str, Any] = body(members).setdefault("authorization", {})

    def key_of(text: str, role: str) -> str:
        if text == "*" or is_public(text, role):
            return text
        return str((session.store.user(called, text) if role == "U" else session.store.account(text))["sub"])

    for flag, member, role in (("auth_user", "auth_users", "U"), ("allowed_account", "allowed_accounts", "A")):
        added = [key_of(each, role) for each in split_list(flags[flag])]
        gone = [key_of(each, role) for each in split_list(flags[f"rm_{flag}"])]
        kept = [each for each in callout.get(member) or () if each not in (*added, *gone)]
        callout[member] = sorted(kept + added)
        if not callout[member]:
            del callout[member]
        if added or gone:
            report.ok(f"set {member.replace('_', ' ')} to {', '.join(kept + added) or 'none'}")
    if flags["curve"]:
        made = flags["curve"] == GENERATE
        callout["xkey"] = session.keystore.generate("X").public if made else session.public_key(flags["curve"], "X")
        report.ok(f"set curve key to {callout['xkey']}")
    if flags["rm_curve"]:
        callout.pop("xkey", None)
        report.ok("removed curve key")
    if flags["disable"]:
        callout.clear()
        report.ok("disabled the auth callout")
    if not report.done:
        raise Failure("nothing to change: see `eyot trust edit authcallout --help`")
    session.save_account(members)
    report.ok(f"edited account {printable(called)}")


@click.command("account", cls=TrustCommand)
@name_options("account")
@click.option("-R", "--revoke/--no-revoke", default=True, help="revoke its users, in a last push of the account")
@click.option("-D", "--rm-nkey", is_flag=True, help="also delete the keys of the account and its users")
@click.option("-C", "--rm-creds", is_flag=True, help="also delete the users' credentials files")
@click.option(
    "-F", "--force", is_flag=True, help="needed with --rm-nkey: what the keys signed cannot be renewed afterwards"
)
@in_changing_session
def delete_account(session: Session, given: str | None, name: str | None, **flags: Any) -> None:
    """Delete an account and its users from the store.

    Servers that know it keep it until `push --prune`.
    """
    called = session.account_name(name_of(given, name, "account"))
    account, report = session.store.account(called), session.report
    if session.store.operator().get("nats", {}).get("system_account") == account["sub"]:
        raise Failure(
            f"{printable(called)} is the system account: name another with `eyot trust edit operator --system-account`"
        )
    if flags["rm_nkey"] and not flags["force"]:
        raise Failure(
            "deleting keys cannot be taken back: export them first (`eyot trust export keys`), then add --force"
        )
    users = {user: session.store.user(called, user) for user in session.store.users(called)}
    if flags["revoke"] and users:
        body(account)["revocations"] = (body(account).get("revocations") or {}) | {"*": int(time.time())}
        session.save_account(account)
        report.ok("revoked all users")
    for user, members in users.items():
        if flags["rm_creds"] and remove(session.keystore.creds_path(session.store.name, called, user)):
            report.ok(f"deleted credentials of {printable(user)}")
        if flags["rm_nkey"] and session.keystore.remove(str(members["sub"])):
            report.ok(f"deleted key {members['sub']}")
        session.store.remove_user(called, user)
        report.ok(f"deleted user {printable(user)}")
    if flags["rm_nkey"]:
        for key in (account["sub"], *map(_key_of, body(account).get("signing_keys") or ())):
            if session.keystore.remove(str(key)):
                report.ok(f"deleted key {key}")
    session.store.remove_account(called)
    session.environment.apply_defaults()
    session.environment.save()
    report.ok(f"deleted account {printable(called)}: `eyot trust push --prune` removes it from servers")
