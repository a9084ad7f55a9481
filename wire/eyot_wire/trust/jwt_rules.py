"""Rules of user tokens that need computation: scoped permissions from templates, source addresses, times of day."""

from __future__ import annotations

import ipaddress
import itertools
import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

import msgspec

from eyot_wire import subject
from eyot_wire.time_zone import time_zone
from eyot_wire.trust.jwt import Claims, JwtError, SubjectRules, TimeRange, UserGrant

_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}")
_TAG: Final = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE)
#: Stands for a tag that the user does not have: no subject with it is valid.
_UNKNOWN: Final = " "
#: The most subjects that the tags of one list may expand to.
EXPANSIONS_MAX: Final = 4096


class Templates:
    """Expands `{{name()}}` and similar templates for one user. A tag with several values gives several subjects."""

    def __init__(self, user: Claims, account_name: str, account_tags: tuple[str, ...]) -> None:
        self._words = {
            "name()": user.name,
            "subject()": user.sub,
            "account-name()": account_name,
            "account-subject()": user.account,
        }
        self._tags = {"tag": user.all_tags, "account-tag": account_tags}

    def grant(self, template: UserGrant) -> UserGrant:
        """Return the template's grant for this user. Raises JwtError for a denied subject that cannot be expanded."""
        return msgspec.structs.replace(template, pub=self._rules(template.pub), sub=self._rules(template.sub))

    def _rules(self, rules: SubjectRules) -> SubjectRules:
        allow, deny = self._subjects(rules.allow, must=False), self._subjects(rules.deny, must=True)
        if rules.allow and not allow:
            deny = (*deny, ">")  # nothing that was allowed is left: that means nothing, not everything
        return SubjectRules(allow=allow, deny=deny)

    def _subjects(self, entries: tuple[str, ...], *, must: bool) -> tuple[str, ...]:
        if not any(_TEMPLATE.search(entry) for entry in entries):
            return entries
        found: list[str] = []
        for entry in entries:
            spaces = _TEMPLATE.sub("", entry).count(" ")  # before a queue's name; a value brings none
            for filled in self._filled(entry):
                parts = filled.encode().split(b" ", 1)
                if filled.count(" ") == spaces and all(subject.is_valid(part) for part in parts):
                    found.append(filled)
                elif must:
                    raise JwtError(f'template "{entry}" gives no valid subject')
            if len(found) > EXPANSIONS_MAX:
                raise JwtError("templates of permissions give too many subjects")
        return tuple(found)

    def _filled(self, entry: str) -> list[str]:
        functions = _TEMPLATE.findall(entry)
        choices = [self._values(entry, function) for function in functions]
        count = 1
        for values in choices:
            count *= len(values)
        if count > EXPANSIONS_MAX:
            raise JwtError("templates of permissions give too many subjects")
        filled = []
        for values in itertools.product(*choices):
            text = entry
            for function, value in zip(functions, values, strict=True):
                text = text.replace(function, value)
            filled.append(text)
        return filled

    def _values(self, entry: str, function: str) -> tuple[str, ...]:
        name = function[2:-2].strip()
        word = self._words.get(name.lower())
        if word is not None:
            return (word,)
        tag = _TAG.fullmatch(name)
        if tag is None:
            raise JwtError(f'template operation in "{entry}": "{name}" is not defined')
        prefix = f"{tag[2].lower()}:"
        return tuple(one.removeprefix(prefix) for one in self._tags[tag[1].lower()] if one.startswith(prefix)) or (
            _UNKNOWN,
        )


def network_of(source: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return the network of a CIDR like `10.0.0.1/32`. Raises ValueError, for an address alone, too."""
    if "/" not in source:
        raise ValueError(f"{source!r} is not a network")
    return ipaddress.ip_network(source, strict=False)


def source_allowed(sources: tuple[str, ...], host: str) -> bool:
    """Return whether a peer's address is within one of the networks; without networks any address is.

    As in nats-server, a mistake allows nothing.
    """
    if not sources:
        return True
    try:
        address = ipaddress.ip_address(host)
        networks = [network_of(source) for source in sources]
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


def seconds_allowed(times: tuple[TimeRange, ...], location: str, now_s: float) -> float | None:
    """Return for how many seconds `now_s` (since the epoch) stays allowed: 0 without rules, None if it is not allowed."""
    if not times:
        return 0.0
    try:
        zone: tzinfo | None = time_zone(location) if location else None
        now = datetime.fromtimestamp(now_s, zone).astimezone(zone)
        left = [_left(one, now) for one in times]
    except (ValueError, KeyError, OSError):
        return None  # an unknown zone or hour allows nothing
    return max((seconds for seconds in left if seconds is not None), default=None)


def _left(one: TimeRange, now: datetime) -> float | None:
    start, end = (datetime.strptime(text, "%H:%M:%S").time() for text in (one.start, one.end))
    begins, ends = (now.replace(hour=at.hour, minute=at.minute, second=at.second, microsecond=0) for at in (start, end))
    if begins > ends:  # past midnight: the range began yesterday, or ends tomorrow
        if now < ends:
            begins -= timedelta(days=1)
        else:
            ends += timedelta(days=1)
    return (ends - now).total_seconds() if begins < now < ends else None
