"""Which enrolled devices are meant: by name, by a pattern of names, by tags."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from eyot_cli.fleet.records import Records
from eyot_cli.terminal.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eyot_cli.trust.session import Session


def select_devices(session: Session, account: str, names: Iterable[str], tags: set[str]) -> list[str]:
    """Return the enrolled devices with one of these names (all without any) and all of these tags, in order.

    A name may hold * and ?; one without them is taken as it is, enrolled or not. Raises Failure if there is none.
    """
    names = list(names)
    known = [each.name for each in Records(session.store, account).devices()]
    if names:
        plain = [name for name in names if not set("*?") & set(name)]
        known = [*plain, *(each for each in known if any(fnmatchcase(each, name) for name in names))]
    if tags:
        known = [each for each in known if tags <= _tags_of(session, account, each)]
    if not known and not names and not tags:
        raise Failure("no device is enrolled: `eyot fleet enrol` makes a token for one")
    if not known:
        raise Failure("no enrolled device has such a name or tag: `eyot fleet ls` lists those that are enrolled")
    return sorted(set(known))


def select_group(session: Session, account: str, group: str) -> list[str]:
    """Return the enrolled devices of a group: names or patterns of names, and tags, with commas between.

    What has a colon is a tag, and all tags must fit. Raises Failure.
    """
    parts = [each.strip() for each in group.split(",") if each.strip()]
    if not parts:
        raise Failure("which devices? --group takes names (pump-*), tags (site:north), or both with commas between")
    tags = {each.lower() for each in parts if ":" in each}
    return select_devices(session, account, [each for each in parts if ":" not in each], tags)


def _tags_of(session: Session, account: str, name: str) -> set[str]:
    if name not in session.store.users(account):
        return set()
    return set(session.store.user(account, name).get("nats", {}).get("tags") or ())
