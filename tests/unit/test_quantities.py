"""Numbers of things in what people read: no "1 messages"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eyot_wire.quantities import counted

TOP = Path(__file__).parents[2]
FOLDERS = ("wire", "serving", "store", "sync", "daemon", "cli", "fleet", "hub")
EXEMPT = {
    # These say what nats-server and the nats tool say, to the letter.
    "cli/eyot_cli/server/jetstream_checks.py",
    "daemon/eyot_daemon/auth/claims_services.py",
    "daemon/eyot_daemon/jetstream/backup/snapshot.py",
    # These run without Eyot's packages; their numbers are above a limit.
    "cli/eyot_cli/upgrade/install/health.py",
    "cli/eyot_cli/upgrade/install/machine.py",
}
_NOUNS = (
    "accounts|alerts|certificates|chars|checks|chunks|clients|commits|connections|consumers|days|devices|downstreams|duplicates|"
    "entries|errors|files|frames|gaps|groups|hours|keys|labels|leaf nodes|lines|links|messages|mirrors|minutes|objects|partitions|"
    "peers|problems|readings|records|requests|revisions|rings|rows|rules|seeds|sequences|servers|sources|streams|subjects|"
    "subscriptions|tables|tasks|times|tokens|users|values|windows|years"
)
_KINDS = "(?:(?:bad|leaf|more|new|old|other|slow) )?"
#: A value in an f-string, or one that JavaScript joins to a text, before a plural. Limits are constants: they are never 1.
_PYTHON = re.compile(
    rf"(?<!most )(?<!than )(?<!\d to )(?<!, ){{(?![A-Z_\d]+}}|name}})[^{{}}]*}} {_KINDS}(?:{_NOUNS})\b(?!/)"
)
_SCRIPT = re.compile(rf'\+ " {_KINDS}(?:{_NOUNS})\b')


def by_hand(text: str, *, script: bool = False) -> list[str]:
    """The places in a module's text where a number stands before a plural, whatever the number is."""
    return [found[0] for found in (_SCRIPT if script else _PYTHON).finditer(text)]


@pytest.mark.parametrize(("count", "text"), [(0, "0 rows"), (1, "1 row"), (1200, "1,200 rows"), (None, "? rows")])
def test_counted(count: int | None, text: str) -> None:
    assert counted(count, "row") == text


def test_numbers_of_things_are_counted_in_one_place() -> None:
    found = []
    for path in sorted(path for folder in FOLDERS for path in (TOP / folder).rglob("*.*")):
        name = str(path.relative_to(TOP))
        if path.suffix in {".py", ".pyx", ".pxi", ".js", ".html"} and name not in EXEMPT:
            found += [f"{name}: {each}" for each in by_hand(path.read_text(), script=path.suffix in {".js", ".html"})]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ['f"{len(a):,} messages, {b}"', 'f"in {count(rows)} new files"'])
def test_plurals_are_found(text: str) -> None:
    assert by_hand(text)
    assert not by_hand("f\"at most {LIMIT} rows, {counted(rows, 'row')}\"")
    assert by_hand('number(found) + " more streams"', script=True)
