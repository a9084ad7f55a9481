"""MQTT topics as NATS subjects, and back: nats-server's conversion, with the specification's rules for filters.

A level separator becomes a token separator; an empty level becomes the token `/`; a dot within a level becomes `//`:

    foo/bar -> foo.bar      /foo -> /.foo      foo//bar -> foo./.bar      1.5/x -> 1//5.x

In filters `+` is `*`, and `#` is `>`; `foo/#` takes `foo` as well and becomes two subjects.

nats-server refuses topics with characters that no subject may contain (space, tab, line ends, form feed, DEL), and takes
levels that are `*` or `>` for wildcards. Such a character becomes `/` and its code in hex, which no other topic becomes:

    living room/lamp -> living/20room.lamp      a/*/b -> a./2a.b
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

#: The longest subject that a topic may become, bytes: what index keys and every peer's parser bear.
SUBJECT_BYTES_MAX: Final = 4096
#: Conversions that are remembered, each way, and the longest that is: together at most 3 MiB.
_REMEMBERED: Final = 1024
_REMEMBERED_MAX: Final = 256
#: The most levels.
LEVELS_MAX: Final = 255
#: What no subject may contain, and what stands for it. A slash begins each escape, also that of a dot (`//`).
_ESCAPES: Final = {each: f"/{ord(each):02x}" for each in " \t\r\n\f\x7f"}
#: Levels that would be wildcards of subjects.
_WILDCARDS: Final = {each: f"/{ord(each):02x}" for each in "*>"}
_LEVELS: Final = {"": "/"} | _WILDCARDS
_TABLE: Final = str.maketrans({".": "//"} | _ESCAPES)
#: A topic without any of these has no level but its slashes to convert.
_ODD: Final = re.compile(r"[. \t\r\n\f\x7f*>]|//|^/|/$")
#: A subject without any of these has no token but its dots to convert.
_ESCAPED: Final = re.compile(r"[/ \t\r\n\f\x7f]")
_ESCAPE: Final = re.compile("/(/|[0-9a-f]{2}|)")
_SHARE: Final = "$share/"


def to_subject(topic: str) -> bytes | None:
    """Return the subject of a topic name; None if it has none."""
    return _known_subject(topic) if len(topic) <= _REMEMBERED_MAX else _subject_of(topic)


def _subject_of(topic: str) -> bytes | None:
    if not topic or "#" in topic or "+" in topic:
        return None
    return _convert(topic)


def _convert(topic: str) -> bytes | None:
    if topic.count("/") >= LEVELS_MAX:
        return None
    text = ".".join(map(_token, topic.split("/"))) if _ODD.search(topic) else topic.replace("/", ".")
    subject = text.encode()
    return subject if len(subject) <= SUBJECT_BYTES_MAX else None


def _token(level: str) -> str:
    """Return the token of a level that is no wildcard."""
    return _LEVELS.get(level) or level.translate(_TABLE)


def _level(part: str) -> str:
    """Return the level of a token, if it has one: the caller converts it back."""
    return "" if part == "/" else _ESCAPE.sub(_unescaped, part)


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return "." if code == "/" else chr(int(code, 16)) if code else "/"


def to_topic(subject: bytes) -> str | None:
    """Return the topic of a subject, which converts to this subject again; None if there is none.

    A message on a subject without a topic (`a/b`, one that is not UTF-8) cannot be sent to a client of MQTT.
    """
    return _known_topic(subject) if len(subject) <= _REMEMBERED_MAX else _topic_of(subject)


def _topic_of(subject: bytes) -> str | None:
    try:
        text = subject.decode()
    except UnicodeDecodeError:
        return None
    if not _ESCAPED.search(text):
        topic = text.replace(".", "/")
    else:
        topic = "/".join(map(_level, text.split(".")))
        if to_subject(topic) != subject:
            return None
    if not topic or "\0" in topic or "#" in topic or "+" in topic:
        return None
    return topic


_known_subject = lru_cache(_REMEMBERED)(_subject_of)
_known_topic = lru_cache(_REMEMBERED)(_topic_of)


def is_valid_filter(topic_filter: str) -> bool:
    """Return whether a filter has the specification's form: `+` and `#` alone in their levels, `#` at the end (4.7.1)."""
    levels = topic_filter.split("/")
    if not topic_filter or any("+" in level and level != "+" for level in levels):
        return False
    return all(level != "#" and "#" not in level for level in levels[:-1]) and (
        "#" not in levels[-1] or levels[-1] == "#"
    )


def filter_subjects(topic_filter: str) -> tuple[bytes, ...] | None:
    """Return the subjects that a filter subscribes to, one or two; None for a filter that is not valid or has none."""
    if not is_valid_filter(topic_filter):
        return None
    if topic_filter == "#":
        return (b">",)
    above, rest = (topic_filter[:-2], True) if topic_filter.endswith("/#") else (topic_filter, False)
    levels = above.split("/")
    if len(levels) > LEVELS_MAX:
        return None
    subject = ".".join("*" if level == "+" else _token(level) for level in levels).encode()
    if len(subject) > SUBJECT_BYTES_MAX:
        return None
    return (subject, subject + b".>") if rest else (subject,)


def filter_matches(topic_filter: str, topic: str) -> bool:
    """Return whether a valid filter takes a topic (4.7)."""
    if topic.startswith("$") and filter_ignores_dollar(topic_filter):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels, enough = levels[: len(wanted)], len(levels) >= len(wanted)
    else:
        enough = len(levels) == len(wanted)
    return enough and all(name in ("+", level) for name, level in zip(wanted, levels, strict=True))


def filter_ignores_dollar(topic_filter: str) -> bool:
    """Return whether topics that begin with `$` are hidden from a filter, which begins with a wildcard [MQTT-4.7.2-1]."""
    return topic_filter.startswith(("+", "#"))


class SharedFilter(NamedTuple):
    """`$share/<group>/<filter>`."""

    group: str
    filter: str


def is_shared(topic_filter: str) -> bool:
    """Return whether a filter is that of a shared subscription, valid or not."""
    return topic_filter.startswith(_SHARE)


def shared(topic_filter: str) -> SharedFilter | None:
    """Return group and filter of a shared subscription; None if it is not valid (4.8.2)."""
    group, separator, inner = topic_filter[len(_SHARE) :].partition("/")
    if not is_shared(topic_filter) or not group or not separator or "+" in group or "#" in group:
        return None
    return SharedFilter(group, inner) if is_valid_filter(inner) else None
