"""`eyot enrol`: from a one-time token to a link that is up, and later to new tokens before the old ones expire."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eyot_cli.enrol.asking import Asker
from eyot_cli.enrol.facts import hardware_facts
from eyot_cli.enrol.files import DeviceFiles, Enrolment
from eyot_cli.enrol.fragment import lines_to_add, write_fragment
from eyot_cli.enrol.sealing import WITH_KEYS, unseal, write_drop_ins
from eyot_cli.enrol.start import check_configuration, renew_daily, restart, until_linked
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_line
from eyot_cli.values.paths import FilePath
from eyot_wire.trust.enrolment import EnrolmentError, is_device_name, parse_token

if TYPE_CHECKING:
    from eyot_cli.connection.target import Target
    from eyot_wire.trust.enrolment import Token
    from eyot_wire.trust.jwt import Claims

FOLDER: Final = Path("/etc/eyot/enrolled")
CONFIG: Final = Path("/etc/eyot/eyotd.conf")
FRAGMENT: Final = Path("/etc/eyot/conf.d/50-enrolled.conf")
PATH: Final = FilePath(dir_okay=False)
#: A token is due for renewal when less than this part of its life is left.
_DUE: Final = 1 / 3
#: A clock that differs this much from the hub's is told, seconds.
_CLOCK_S: Final = 300


@dataclasses.dataclass(frozen=True)
class _Places:
    config: Path
    fragment: Path
    start: bool
    new_key: bool


@click.command("enrol")
@click.option("--hub", metavar="URL", help="NATS listener of the hub: tls://hub.example.com:4222")
@click.option("--token", envvar="EYOT_ENROL_TOKEN", show_envvar=True, metavar="TOKEN", help="from `eyot fleet enrol`")
@click.option("--token-file", type=PATH, metavar="FILE", help="file with the token; - for standard input")
@click.option("--name", default="", metavar="NAME", help="this device, where the token is for a batch")
@click.option("--new-key", is_flag=True, help="make a new key, after the present one was revoked")
@click.option("--renew", is_flag=True, help="get a new token for an enrolled device")
@click.option("--if-due", is_flag=True, help="with --renew: only in the last third of the present token's life")
@click.option(
    "--seal",
    type=click.Choice(WITH_KEYS),
    help="seal the key with systemd-creds, by a key of this machine or its TPM; with --renew the present key",
)
@click.option(
    "--folder", type=FilePath(file_okay=False), default=FOLDER, metavar="DIR", help="where key and credentials are kept"
)
@click.option("--config", type=PATH, default=CONFIG, metavar="FILE", help="the daemon's configuration")
@click.option("--fragment", type=PATH, default=FRAGMENT, metavar="FILE", help="the part of it that is written")
@click.option("--no-start", is_flag=True, help="do not restart the daemon, nor wait for the link")
@click.pass_obj
def enrol(
    target: Target,
    hub: str | None,
    token: str | None,
    token_file: Path | None,
    name: str,
    new_key: bool,
    renew: bool,
    if_due: bool,
    seal: str | None,
    folder: Path,
    config: Path,
    fragment: Path,
    no_start: bool,
) -> None:
    """Enrol this device at a hub.

    The device makes its key, which never leaves it, and sends the public key. The hub's answer must lead to the operator
    and account that the token names. Then credentials and a part of the configuration are written, the daemon restarts,
    and the link is up. A command that was interrupted can be run again.
    """
    files, places = DeviceFiles(folder), _Places(config, fragment, not no_start, new_key)
    files.seal_with = seal or ""
    if renew:
        if token or token_file or name:
            raise click.UsageError("--renew takes no --token and no --name: the device has its own credentials")
        result = _renew(target, files, hub, if_due=if_due and not seal, start=not no_start)
    elif if_due:
        raise click.UsageError("--if-due goes with --renew")
    else:
        if hub is None:
            raise click.UsageError("where to? Name the hub with --hub tls://HOST:PORT")
        result = _enrol(target, files, places, hub, _read_token(token, token_file), name)
    if target.as_json:
        print_json(result)


def _read_token(text: str | None, file: Path | None) -> Token:
    if (text is None) == (file is None):
        raise click.UsageError("a token is needed, as --token, as --token-file, or in EYOT_ENROL_TOKEN")
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(errors="replace")
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from error
    try:
        return parse_token(str(text))
    except EnrolmentError as error:
        raise Failure(str(error)) from None


def _enrol(target: Target, files: DeviceFiles, places: _Places, hub: str, token: Token, name: str) -> dict[str, object]:
    if name and not is_device_name(name):
        raise Failure(f"{name!r} cannot be a device's name: letters, digits, - and _ only")
    seed = _seed_for(files, token, new_key=places.new_key)
    if files.sealed.exists() and not files.seal_with and unseal(files.sealed) != seed:
        files.seal_with = WITH_KEYS[0]  # a new key is kept as the one before
    asker = Asker(_at(target, hub, ""), seed, hardware_facts())
    answer, claims = asker.enrol(token, name)
    called = answer.name
    if not is_device_name(called) or not answer.leaf_urls:
        raise Failure("the hub's answer lacks a usable name, or the address to link to: nothing is changed")
    _tell_clock(claims)
    state = _state(asker, hub, called, token.account, token.operator, claims)
    _keep(target, files, answer.jwt, seed, state)
    _print(target, f"enrolled as {called}; credentials in {files.creds}")
    lines = write_fragment(places.config, places.fragment, called, files.creds, answer.leaf_urls)
    try:
        check_configuration(places.config)
    except Failure:
        places.fragment.rename(places.fragment.with_suffix(".refused"))
        raise
    _print(target, *(f"{places.fragment}: {each}" for each in lines))
    lacking = lines_to_add(places.config, places.fragment, called, files.creds)
    if lacking:
        _print(
            target, "the configuration has an eyot block of its own: for the hub to see and ask this device, add to it"
        )
        _print(target, *(f"  {each}" for each in lacking))
    result: dict[str, object] = {"name": called, "key": state.key, "expires": state.expires, "configured": lines}
    result["to_add"] = lacking
    if places.start and state.expires:
        renew_daily()
    if places.start and restart():
        result["linked"] = until_linked(target, answer.leaf_urls)
        _print(target, f"linked to {result['linked']}")
    elif places.start:
        _print(target, "restart eyotd now: systemd does not run it here")
    return result


def _seed_for(files: DeviceFiles, token: Token, *, new_key: bool) -> str:
    """Return the present key of a device that enrols again at the same account, else one that waits for enrolment."""
    present = files.enrolment()
    if present is None or new_key or (present.account, present.operator) != (token.account, token.operator):
        return files.pending_seed()
    return files.kept().seed


def _renew(target: Target, files: DeviceFiles, hub: str | None, *, if_due: bool, start: bool) -> dict[str, object]:
    present = files.enrolment()
    if present is None:
        raise Failure(f"this device is not enrolled ({files.folder}): `eyot enrol --hub URL --token TOKEN`")
    if if_due and not _is_due(present, time.time()):
        _print(target, "not due yet" if present.expires else "never due: the token does not expire")
        return {"name": present.name, "renewed": False, "expires": present.expires}
    kept, hub = files.kept(), hub or present.hub
    asker = Asker(_at(target, hub, present.tls_ca), kept.seed, hardware_facts())
    answer, claims = asker.renew(kept, present.name, present.account, present.operator)
    _tell_clock(claims)
    state = _state(asker, hub, present.name, present.account, present.operator, claims)
    _keep(target, files, answer.jwt, kept.seed, state)
    if files.seal_with and start:
        restart()  # the daemon that runs does not have the sealed key
    _print(target, f"renewed {present.name}; the link takes the new credentials when it is dialled next")
    return {"name": present.name, "renewed": True, "expires": state.expires}


def _is_due(present: Enrolment, now: float) -> bool:
    """Is a new token due? By a clock before the token was issued nobody can tell: then it is, for this may go on until it expires."""
    if not present.expires:
        return False
    return now < present.issued - _CLOCK_S or present.expires - now <= _DUE * (present.expires - present.issued)


def _keep(target: Target, files: DeviceFiles, jwt: str, seed: str, state: Enrolment) -> None:
    """Keep new credentials. The units get a key that was just sealed, before the credentials lose its seed."""
    if files.seal_with:
        files.seal_key(seed)
        made = write_drop_ins(files.sealed)
        _print(target, f"the key is sealed in {files.sealed}", *(f"{each} gives it to the unit" for each in made))
    files.keep(jwt, seed, state)


def _state(asker: Asker, hub: str, name: str, account: str, operator: str, claims: Claims) -> Enrolment:
    ca = asker.target.tls.ca
    return Enrolment(
        hub=hub,
        name=name,
        key=asker.key,
        account=account,
        operator=operator,
        issued=claims.iat,
        expires=claims.exp,
        tls_ca=str(ca.absolute()) if ca else "",
    )


def _at(target: Target, hub: str, tls_ca: str) -> Target:
    """Return the hub's address, with nothing of a context's or an environment's login."""
    tls = target.tls
    if tls_ca and tls.ca is None:
        tls = dataclasses.replace(tls, ca=Path(tls_ca))
    return dataclasses.replace(
        target, given_server=hub, user=None, password=None, creds=None, nkey=None, context="", tls=tls
    )


def _tell_clock(claims: Claims) -> None:
    """Warn of a clock that the hub's token contradicts: certificates and tokens would seem not to be valid here."""
    now = time.time()
    if abs(claims.iat - now) > _CLOCK_S:
        there, here = (time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(each)) for each in (claims.iat, now))
        print_line(f"eyot: the clock here says {here}, the hub's {there}: set it, or start a time service", error=True)


def _print(target: Target, *lines: str) -> None:
    if not target.as_json:
        for each in lines:
            print_line(each)
