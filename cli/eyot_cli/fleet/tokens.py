"""`eyot fleet enrol`: tokens with which devices enrol themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from eyot_cli.fleet.records import Records, TokenRecord
from eyot_cli.fleet.registrar import check_role
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.terminal.show import print_line
from eyot_cli.trust.claims import new_user
from eyot_cli.trust.command import FOLDER, TrustCommand, account_option, in_changing_session
from eyot_cli.trust.keystore import new_pair
from eyot_cli.trust.session import scoped_keys
from eyot_cli.trust.store import body
from eyot_cli.trust.values import parse_time, show_time, split_list
from eyot_wire.quoting import printable
from eyot_wire.trust.enrolment import ENROL, INBOX, MAX_REQUEST, OPERATOR_TAG, format_token, is_device_name, is_label

if TYPE_CHECKING:
    from pathlib import Path

    from eyot_cli.trust.keystore import KeyPair
    from eyot_cli.trust.session import Session

#: Most devices of one token.
MOST: Final = 100_000
#: What the user of a token needs: an inbox, and a request with its header fields, bytes.
_SUBSCRIPTIONS: Final = 4
_HEADERS: Final = 1024


@click.command("enrol", cls=TrustCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--count", type=click.IntRange(1, MOST), help="devices that a token for a pattern (pump-*) enrols")
@click.option("--role", default="", metavar="ROLE", help="scoped signing key for devices (the account's only one)")
@click.option("--valid", default="1d", metavar="TIME", help="how long the token can be used: 30m, 12h, 7d, or a date")
@click.option("--expiry", default="90d", metavar="TIME", help="how long a device's own token is valid; 0 for always")
@click.option("--tag", multiple=True, metavar="TAG", help="a tag of the devices, which templates may use")
@click.option("--out", type=FOLDER, metavar="DIR", help="write each token to DIR/NAME.token instead")
@account_option
@in_changing_session
def enrol(
    session: Session,
    names: tuple[str, ...],
    account: str | None,
    count: int | None,
    role: str,
    valid: str,
    expiry: str,
    tag: tuple[str, ...],
    out: Path | None,
) -> None:
    """Make a one-time token for each device, or for a batch.

    The device takes it with `eyot enrol`; `eyot fleet serve` must run meanwhile. A NAME that ends with * is a pattern:
    one token for so many devices as --count says, each with a name of its own. The token is printed once and kept
    nowhere.
    """
    of = session.account_name(account)
    _check_names(names, count)
    now = time.time()
    valid_until, lifetime_s = parse_time(valid, now), max(parse_time(expiry, now) - int(now), 0)
    if valid_until <= now:
        raise Failure("--valid must lie ahead: a token that is valid for ever would be a standing key to the fleet")
    if lifetime_s == 0 and expiry.strip() != "0":
        raise Failure("--expiry must lie ahead; 0 for always")
    tags = tuple(each.lower() for each in split_list(tag))
    for each in tags:
        if not is_label(each):
            raise Failure(f"{each!r} cannot be a tag: it becomes a label, without spaces, commas, quotes, < and >")
    role = role or _only_role(session, of)
    signer = _token_signer(session, of)
    check_role(session, of, role)
    records, result = Records(session.store, of), []
    for name in dict.fromkeys(names):
        token, key = _make_token(session, of, name, signer, valid_until)
        record = TokenRecord(
            id=key,
            names=name,
            role=role,
            left=count or 1,
            made_at=int(now),
            valid_until=valid_until,
            device_lifetime_s=lifetime_s,
            tags=tags,
        )
        records.note("token", name=name, token=key)
        records.write_token(record)
        result.append({"names": name, "id": key, "valid_until": valid_until, "token": token})
        if out is not None:
            path = out / f"{name.replace('*', '_')}.token"
            write_private(path, f"{token}\n".encode())
            result[-1] |= {"file": str(path)}
            session.report.ok(f"token for {name}, valid until {show_time(valid_until)}: {path}")
        elif not session.report.as_json:
            print_line(token if len(names) == 1 else f"{name} {token}")
    session.report.result["tokens"] = result


def _check_names(names: tuple[str, ...], count: int | None) -> None:
    for name in names:
        plain = name.removesuffix("*")
        if (plain or not name) and not is_device_name(plain):
            raise Failure(
                f"{name!r} cannot be a device's name, which is its domain, too: letters, digits, - and _; "
                "a pattern has one * at its end"
            )
        if (count is not None) != name.endswith("*"):
            raise Failure("--count goes with a pattern (pump-*), and a pattern with --count")


def _only_role(session: Session, account: str) -> str:
    """Return the role of the account's only scoped signing key. Raises Failure."""
    members = session.store.account(account)
    roles = [str(scope["role"]) for scope in scoped_keys(members) if scope.get("role")]
    if len(roles) == 1:
        return roles[0]
    if roles:
        raise Failure(f"which role? Name one with --role: {', '.join(map(printable, sorted(roles)))}")
    raise Failure(
        f"account {printable(account)} has no scoped signing key, which sets what its devices may do: make one with",
        f"  eyot trust edit signing-key -a {printable(account)} --sk generate --role device",
    )


def _token_signer(session: Session, account: str) -> KeyPair:
    """Return a key without a scope: the token's own permissions would be refused with one. Raises Failure."""
    members = session.store.account(account)
    scoped = {scope.get("key") for scope in scoped_keys(members)}
    signer = session.account_signer(members)
    if signer.public in scoped:
        raise Failure(
            f"account {printable(account)} needs a signing key without a scope, which signs the enrolment tokens:",
            f"  eyot trust edit account {printable(account)} --sk generate, then `eyot trust push -a {printable(account)}`",
        )
    return signer


def _make_token(session: Session, account: str, name: str, signer: KeyPair, valid_until: int) -> tuple[str, str]:
    """Return a token and its id: credentials of a user that may ask for enrolment and hear the answer."""
    members = session.store.account(account)
    pair = new_pair("U")
    user = new_user(pair.public, f"enrolment of {name}", scoped=False) | {"exp": valid_until}
    nats = body(user)
    nats["pub"] = {"allow": [f"{ENROL}.{pair.public}"]}
    nats["sub"] = {"allow": [f"{INBOX}.{pair.public}.>"]}
    nats |= {
        "subs": _SUBSCRIPTIONS,
        "payload": MAX_REQUEST + _HEADERS,
        "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
    }
    nats["tags"] = [f"{OPERATOR_TAG}{session.store.operator()['sub']}".lower()]
    nats["issuer_account"] = members["sub"]
    if signer.public == members["sub"]:
        del nats["issuer_account"]
    return format_token(session.sign(user, signer), pair.seed), pair.public
