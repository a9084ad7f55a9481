"""Subjects of imports as patterns and templates.

An import's local subject may hold `*`, `$1` or `{{wildcard(1)}}`; the functions here turn one notation into the other.
"""

from __future__ import annotations

from eyot_daemon.config.accounts import ImportOptions
from eyot_wire.subject import STAR
from eyot_wire.transform import Transform, TransformError


def check_templates(imported: ImportOptions) -> None:
    """Raise TransformError if the local subject of an import and the exporter's cannot be translated."""
    if imported.kind == "stream":
        Transform(imported.subject, numbered(stream_template(imported))).reversed()
    else:
        local = pattern_of(imported.to or imported.subject)
        if local.split(b".").count(STAR) != imported.subject.split(b".").count(STAR):
            raise TransformError("invalid mapping destination: not using all of the token wildcard(s)")
        Transform(local, back_template(imported.subject, imported.to or imported.subject))


def without_last_dot(prefix: str) -> str:
    """Return a prefix as its tokens: `in.` is `in`. nats-server appends the dot only where there is none."""
    return prefix.removesuffix(".") if len(prefix) > 1 else prefix


def stream_template(imported: ImportOptions) -> bytes:
    """Return the local subject of an imported stream's messages, as a template."""
    if imported.prefix:
        return imported.prefix + b"." + imported.subject
    return imported.to or imported.subject


def is_reference(token: bytes) -> bool:
    """Return whether a destination token refers to a token of the source: `$1`, `{{wildcard(1)}}`."""
    return (token[:1] == b"$" and bytes.isdigit(token[1:])) or token[:2] == b"{{"


def pattern_of(template: bytes) -> bytes:
    """Return the pattern of the subjects that a template can give."""
    return b".".join(STAR if is_reference(token) else token for token in template.split(b"."))


def numbered(template: bytes) -> bytes:
    """Return a template with its `*` tokens replaced by `$1`, `$2`... in order."""
    tokens = template.split(b".")
    number = 0
    for index, token in enumerate(tokens):
        if token == STAR:
            number += 1
            tokens[index] = b"$%d" % number
    return b".".join(tokens)


def back_template(subject: bytes, local: bytes) -> bytes:
    """Return the exporter's `subject` as a template over the wildcards of `local`, which may number the exporter's."""
    places: list[int] = []  # for each wildcard of local, the wildcard of subject that it refers to
    for token in local.split(b"."):
        if token == STAR:
            places.append(len(places) + 1)
        elif is_reference(token):
            places.append(int(bytes(byte for byte in token if 48 <= byte <= 57)))
    tokens = subject.split(b".")
    number = 0
    for index, token in enumerate(tokens):
        if token == STAR:
            number += 1
            tokens[index] = b"$%d" % (places.index(number) + 1) if number in places else STAR
    return b".".join(tokens)
