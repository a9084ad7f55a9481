"""mosquitto's `password_file` and `acl_file`: users with bcrypt hashes and permissions on subjects.

mosquitto keeps SHA-512 (`$6$`) and PBKDF2-SHA-512 (`$7$`) hashes, Eyot bcrypt: a hash cannot be turned into another one.
Where the operator has the passwords, they are checked against mosquitto's hashes and hashed again. All other users are
written with a hash that no password has.

mosquitto checks a message's topic when it is delivered, and accepts any filter; here a filter needs the right to all of
it. A rule with a wildcard at its beginning does not mean topics that begin with `$`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final, NamedTuple

import bcrypt

from eyot_cli.mqtt.mosquitto_conf import Line, lines_of
from eyot_cli.passwd import BYTES_MAX, COST
from eyot_cli.terminal.failure import Failure
from eyot_wire.mqtt import topics

ACCESSES: Final = ("read", "write", "readwrite", "deny")
#: Subjects of the servers: a rule on `#` or `+` does not mean them.
RESERVED: Final = ("$JS.>", "$JSC.>", "$NRG.>", "$SYS.>")
#: Rounds of the hash of a password that nobody knows.
_LOCKED_COST: Final = 4


class Rule(NamedTuple):
    """One `topic` or `pattern` line."""

    access: str
    topic: str
    line: Line


class Acl:
    """The rules of an acl_file: of anonymous clients, of users, and patterns for all."""

    def __init__(self) -> None:
        self.anonymous: list[Rule] = []
        self.users: dict[str, list[Rule]] = {}
        self.patterns: list[Rule] = []
        self.unknown: list[Line] = []

    @classmethod
    def read(cls, path: Path) -> Acl:
        """Read a file. Raises Failure."""
        acl = cls()
        rules = acl.anonymous
        for line in lines_of(path):
            if line.key == "user" and line.value:
                rules = acl.users.setdefault(line.value, [])
            elif line.key in ("topic", "pattern") and line.value:
                first, _, rest = line.value.partition(" ")
                access, topic = (
                    (first, rest.strip()) if first in ACCESSES and rest.strip() else ("readwrite", line.value)
                )
                (rules if line.key == "topic" else acl.patterns).append(Rule(access, topic, line))
            else:
                acl.unknown.append(line)
        return acl


class Permissions(NamedTuple):
    """Subjects that a user may publish and subscribe to, and may not."""

    publish: list[str]
    publish_deny: list[str]
    subscribe: list[str]
    subscribe_deny: list[str]


class Problem(NamedTuple):
    """A rule that has no equivalent."""

    line: Line
    text: str


def permissions_of(acl: Acl, user: str | None) -> tuple[Permissions, list[Problem]]:
    """Return the permissions of a user (None: of anonymous clients), and the rules that cannot be converted."""
    found = Permissions([], [], [], [])
    problems: list[Problem] = []
    own = acl.anonymous if user is None else acl.users.get(user, [])
    for rule in [*own, *acl.patterns]:
        topic = rule.topic
        if rule.line.key == "pattern":
            if "%c" in topic:
                problems.append(Problem(rule.line, "permissions of configured users cannot contain a client id (%c)"))
                continue
            if "%u" in topic and (user is None or any(character in user for character in "+#/")):
                continue  # mosquitto does not apply it either
            topic = topic.replace("%u", user or "")
        subjects = topics.filter_subjects(topic)
        if subjects is None:
            problems.append(
                Problem(
                    rule.line,
                    "this is no topic filter, or too long for a subject: see docs/mqtt.md, topics and subjects",
                )
            )
            continue
        names = [each.decode() for each in subjects]
        if rule.access in ("write", "readwrite"):
            found.publish.extend(names)
        if rule.access in ("read", "readwrite"):
            found.subscribe.extend(names)
        if rule.access == "deny":
            found.publish_deny.extend(names)
            found.subscribe_deny.extend(names)
    for allow, deny in ((found.publish, found.publish_deny), (found.subscribe, found.subscribe_deny)):
        if any(each.startswith(("*", ">")) for each in allow):
            deny.extend(each for each in RESERVED if not any(subject.startswith(each[:-1]) for subject in allow))
        allow[:] = dict.fromkeys(allow)
        deny[:] = dict.fromkeys(deny if allow else [">"])
    return found, problems


class Password(NamedTuple):
    """A line of a password_file."""

    user: str
    hash: str
    where: str


def read_passwords(path: Path) -> list[Password]:
    """Read a password_file. Raises Failure."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        user, colon, hashed = raw.strip().partition(":")
        if colon and user and not raw.startswith("#"):
            found.append(Password(user, hashed, f"{path}:{number}"))
    return found


def matches(hashed: str, password: str) -> bool:
    """Return whether `password` has this hash of mosquitto_passwd: `$6$salt$hash`, `$7$iterations$salt$hash`."""
    parts = hashed.split("$")
    try:
        if hashed.startswith("$6$") and len(parts) == 4:
            salt, wanted = (base64.b64decode(each, validate=True) for each in parts[2:])
            made = hashlib.sha512(password.encode() + salt).digest()
        elif hashed.startswith("$7$") and len(parts) == 5:
            salt, wanted = (base64.b64decode(each, validate=True) for each in parts[3:])
            made = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, int(parts[2]))
        else:
            return False
    except (ValueError, binascii.Error, OverflowError):
        return False
    return hmac.compare_digest(made, wanted)


def is_hashed(text: str) -> bool:
    """Return whether a password_file's entry is a hash; old files have passwords in clear text."""
    return text.startswith(("$6$", "$7$"))


def bcrypt_of(password: str) -> str:
    """Return the hash of a password. Raises Failure for one that bcrypt would cut."""
    if len(password.encode()) > BYTES_MAX:
        raise Failure(f"a password is longer than {BYTES_MAX} bytes, bcrypt's limit")
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST, prefix=b"2a")).decode()


def locked() -> str:
    """Return the hash of a password that nobody knows."""
    return bcrypt.hashpw(secrets.token_bytes(32).hex().encode(), bcrypt.gensalt(_LOCKED_COST, prefix=b"2a")).decode()
