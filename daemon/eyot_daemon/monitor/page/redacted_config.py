"""The configuration without its secrets, for the support bundle."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from eyot_wire.conf import ConfError, parse_file
from eyot_wire.conf.values import Plain

REDACTED = "[REDACTED]"
#: Parts of keys whose values are secret. Rather too many than one too few: only paths of files are excepted.
_SECRET_KEY = re.compile(r"pass|token|secret|seed|jwt|cred|bearer|cookie|(^|_)key$", re.IGNORECASE)
_PATH_KEY = re.compile(r"(_|^)(file|dir|path)$", re.IGNORECASE)
#: Secrets by their form: user and password of an address, seeds of nkeys, JWTs, bcrypt, PEM.
_SECRET_FORMS = (
    re.compile(r"(?<=://)[^/@\s]+(?=@)"),
    re.compile(r"\bS[ACNOUX][A-Z2-7]{50,}"),
    re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*)*"),
    re.compile(r"\$2[abxy]\$\S+"),
    re.compile(r"-----BEGIN.*", re.DOTALL),
)
#: A secret of at least this length is removed wherever it is part of another value (a variable, an address).
_PART_CHARS_MIN = 4


def redacted_config(path: str) -> str:
    """Return the configuration file, includes and variables resolved, as JSON without secrets; else why it cannot be read."""
    if not path:
        return "eyotd was started without a configuration file\n"
    try:
        plain = parse_file(Path(path)).plain()
    except (ConfError, OSError) as error:
        place = str(error.position) if isinstance(error, ConfError) else str(error.strerror)
        return f"{path} cannot be read at present: {place}\n"  # the text of a ConfError may quote a value
    return msgspec.json.format(msgspec.json.encode(without_secrets(plain)), indent=2).decode()


def without_secrets(plain: Plain) -> Plain:
    """Return a copy in which every secret is `[REDACTED]`."""
    secrets: set[str] = set()
    _collect(plain, "", secrets, inside=False)
    return _copy(plain, "", secrets)


def _is_secret(key: str) -> bool:
    return bool(_SECRET_KEY.search(key)) and not _PATH_KEY.search(key)


def _collect(value: Plain, key: str, secrets: set[str], *, inside: bool) -> None:
    """Add each string and number below a secret key."""
    inside = inside or _is_secret(key)
    if isinstance(value, dict):
        for name, each in value.items():
            _collect(each, name, secrets, inside=inside)
    elif isinstance(value, list):
        for each in value:
            _collect(each, key, secrets, inside=inside)
    elif inside and not isinstance(value, bool):
        secrets.add(str(value))


def _copy(value: Plain, key: str, secrets: set[str]) -> Plain:
    if isinstance(value, dict):
        return {name: _copy(each, name, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [_copy(each, key, secrets) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    text = str(value)
    if _is_secret(key) or text in secrets:
        return REDACTED
    if not isinstance(value, str):
        return value
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _PART_CHARS_MIN:
            text = text.replace(secret, REDACTED)
    for form in _SECRET_FORMS:
        text = form.sub(REDACTED, text)
    return text
