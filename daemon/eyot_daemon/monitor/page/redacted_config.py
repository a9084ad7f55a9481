"""The configuration without its secrets, for the support bundle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from eyot_wire.conf import ConfError, parse_file
from eyot_wire.conf.values import ConfMap, Plain

REDACTED = "[REDACTED]"
#: Parts of keys whose values are secret. Rather too many than one too few: only paths of files are excepted.
_SECRET_KEY = re.compile(r"pass|token|secret|seed|jwt|cred|bearer|cookie|^headers$|(^|_)(key|ek)$", re.IGNORECASE)
_PATH_KEY = re.compile(r"(_|^)(file|dir|path)$", re.IGNORECASE)
#: Secrets by their form: seeds of nkeys, JWTs, bcrypt.
_SECRET_FORMS = (
    re.compile(r"S[ACNOUX][A-Z2-7]{50,}"),
    re.compile(r"eyJ[\w-]{8,}(?:\.[\w-]*)*"),
    re.compile(r"\$2[abxy]\$[^\s\"]+"),
)
#: Further ones in a value: whatever is before the last @ of an address, whose password may hold any character, and PEM.
_VALUE_FORMS = (
    *_SECRET_FORMS,
    re.compile(r"^[^/@\s]*:(?!//).*(?=@)", re.DOTALL),
    re.compile(r"(?<=://).*(?=@)", re.DOTALL),
    re.compile(r"-----BEGIN.*", re.DOTALL),
)
#: Further ones in a text, of which the rest stays.
_TEXT_FORMS = (
    re.compile(r"(?<=://)[^\s\"'/@]*:[^\s\"']*(?=@)"),
    re.compile(r"(?<=://)[^\s\"'/@]+(?=@)"),
    *_SECRET_FORMS,
)
#: A secret of at least this length is removed wherever it is part of another value (a variable, an address).
_PART_CHARS_MIN = 4


def redacted_config(path: str) -> str:
    """Return the configuration file, includes and variables resolved, as JSON without secrets; else why it cannot be read."""
    if not path:
        return "eyotd was started without a configuration file\n"
    try:
        conf = parse_file(Path(path))
    except (ConfError, OSError) as error:
        place = str(error.position) if isinstance(error, ConfError) else str(error.strerror)
        return f"{path} cannot be read at present: {place}\n"  # the text of a ConfError may quote a value
    # A variable may serve an entry alone that a later one replaces: its value is a secret all the same.
    also: set[str] = set()
    for key, plain in _replaced(conf):
        _collect(plain, key, also, inside=False)
    return msgspec.json.format(msgspec.json.encode(without_secrets(conf.plain(), also)), indent=2).decode()


def _replaced(conf: ConfMap) -> Iterator[tuple[str, Plain]]:
    """Yield the entries of a map, and of the maps in it, that later ones replace."""
    for entry in (*conf, *conf.replaced):
        for each in entry.value.value if isinstance(entry.value.value, tuple) else (entry.value,):
            if isinstance(each.value, ConfMap):
                yield from _replaced(each.value)
    for entry in conf.replaced:
        yield entry.key, entry.value.plain()


def redacted_text(text: str) -> str:
    """Return lines of a log, or JSON, without what has the form of a secret."""
    for form in _TEXT_FORMS:
        text = form.sub(REDACTED, text)
    return text


def without_secrets(plain: Plain, also: Iterable[str] = ()) -> Plain:
    """Return a copy in which every secret is `[REDACTED]`. `also`: secrets that have no key in it."""
    secrets = set(also)
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
        return {_without(name, secrets): _copy(each, name, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [_copy(each, key, secrets) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    text = str(value)
    if _is_secret(key) or text in secrets:
        return REDACTED
    if not isinstance(value, str):
        return value
    return _without(text, secrets)


def _without(text: str, secrets: set[str]) -> str:
    """Return a string without the secrets that are part of it."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _PART_CHARS_MIN:
            text = text.replace(secret, REDACTED)
    for form in _VALUE_FORMS:
        text = form.sub(REDACTED, text)
    return text
