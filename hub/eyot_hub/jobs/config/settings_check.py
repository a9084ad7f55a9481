"""[nats] and [spark], whose keys are the options of a source and Spark's settings: their checks, and options by their keys."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from eyot_hub.options import CONNECT, folded_name

Problems = Iterator[tuple[str, str]]

_KNOWN: Final = {folded_name(name): name for name in (*CONNECT, "account")}
#: Options of a source that the configuration has other keys for.
_ELSEWHERE: Final = {
    "stream": "bronze.streams",
    "subscribepattern": "bronze.streams",
    "subjects": "bronze.subjects",
    "startingoffsets": "bronze.start",
    "maxoffsetspertrigger": "bronze.max_messages_per_commit",
    "maxmsgspertrigger": "bronze.max_messages_per_commit",
    "minpartitions": "bronze.partitions",
    "failondataloss": "bronze.fail_on_data_loss",
    "fetchbytes": "bronze.fetch_bytes",
    "packedreads": "bronze.packed_reads",
}
_OPTION: Final = re.compile(r"option '(\w+)'")
_FLAGS: Final = frozenset({"tls", "tlsfirst"})
_DURATIONS: Final = frozenset({"timeout", "retryfor"})
_FILES: Final = frozenset({"creds", "nkey", "tlsca", "tlscert", "tlskey"})
_SPARKS: Final = "spark."


def nats_problems(nats: Mapping[str, Any]) -> Problems:
    """Yield the mistakes in [nats], which takes the options for connecting: keys, and what is wrong with them."""
    for key, value in nats.items():
        name = folded_name(key)
        if name in _ELSEWHERE:
            yield f"nats.{key}", f"does not belong here: the key is {_ELSEWHERE[name]}"
        elif name not in _KNOWN:
            like = get_close_matches(name, _KNOWN, n=1)
            yield f"nats.{key}", f"there is no such key{f', did you mean {_KNOWN[like[0]]}?' if like else ''}"
        elif problem := _misfit(name, value):
            yield f"nats.{key}", problem


def key_of(option: str) -> str:
    """Return the key that gives an option of a source."""
    return _ELSEWHERE.get(folded_name(option), f"nats.{option}")


def by_keys(text: str) -> str:
    """Return an error of a reader with keys of the configuration in place of the source's options."""
    text = text.replace("the option failOnDataLoss=false", "bronze.fail_on_data_loss = false")
    return _OPTION.sub(lambda found: key_of(found[1]), text)


def _misfit(name: str, value: object) -> str:
    """Return why a value cannot be that of an option; empty: it may be."""
    if name == "servers":
        listed = value if isinstance(value, list) else [value]
        fits = bool(listed) and all(isinstance(one, str) and one.strip() for one in listed)
        return "" if fits else 'must be an address, or a list of addresses ("nats://host:4222")'
    if name in _FLAGS:
        return "" if isinstance(value, bool) or value in ("true", "false") else "must be true or false"
    if name in _DURATIONS:
        return "" if isinstance(value, str) or _is_number(value) else "must be a duration (500ms, 10s)"
    if not isinstance(value, str):
        return "must be a text"
    return has_control(value) if name in _FILES else ""


def has_control(path: str) -> str:
    """Return what is wrong with a path that no file system or no storage takes; empty: nothing."""
    return "" if path.isprintable() else "must not hold control characters"


def spark_problems(spark: Mapping[str, Any]) -> Problems:
    """Yield the mistakes in [spark], after `dotted`."""
    for key, value in spark.items():
        if not key.startswith(_SPARKS):
            yield f"spark.{key}", f"is no setting of Spark: their names begin with {_SPARKS}"
        elif not isinstance(value, str | bool) and not _is_number(value):
            yield f"spark.{key}", "must be a text, a number, true or false"


def dotted(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return settings by their whole names: TOML takes `spark.master = ...` without quotes for a table in a table."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= dotted(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
