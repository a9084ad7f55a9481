"""Decision records are never rewritten: a changed decision is a new record, which names the one that it supersedes."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
#: The beginning of each record's SHA-256. A record joins the list when it is accepted; a line never changes.
ACCEPTED = {
    "0001-one-turn-one-flush": "ebbe41d5983d8c2b",
    "0002-one-committing-writer": "11a6b13bf92c24ac",
    "0003-copiers-keep-position-with-messages": "7dc8ea8f7b11f4c5",
    "0004-purges-move-a-floor": "e3fb2da86a5536a3",
    "0005-a-journal-in-front-of-lmdb": "0aeb81899ba9ecfb",
    "0006-a-compiled-hot-room": "1ae0e8783dc6e557",
    "0007-an-origin-has-an-identity": "ed3714a78fa090dd",
    "0008-one-epoll-for-all-plain-sockets": "1667ab090f25f30b",
    "0009-packed-range-reads": "c03042ced72b3c13",
    "0010-encrypted-behind-the-journal": "fde24d4b43c72322",
    "0011-backups-in-nats-servers-formats": "b4fc33c8cdba829e",
    "0012-deliveries-in-runs": "8dd8df138d3ead19",
    "0013-links-speak-s2": "3e5132d20365ff3e",
    "0014-a-mirror-knows-its-origins-origins": "d9d9586bd0f18c5c",
    "0015-monitoring-pages-on-h11": "8044dc567c094e87",
    "0016-losses-are-counted-where-they-happen": "4869139ae34949fd",
    "0017-schedules-and-checksums-stay-our-own": "b695cbd7461be8e0",
    "0018-packed-reads-stay-an-option": "847f3b25f317ce17",
    "0019-sends-of-a-turn-by-two-threads": "6c1b6eb5021c0597",
    "0020-small-groups-are-written-beside-the-loop": "06e744ed009d55a9",
    "0021-the-collector-looks-at-each-object-once": "48b4690141bce3fd",
    "0022-the-loop-polls-before-it-sleeps": "0b5b1d06f321b743",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_accepted_decision_is_as_it_was(name: str) -> None:
    found = sha256((DECISIONS / f"{name}.md").read_bytes()).hexdigest()[:16]
    assert found == ACCEPTED[name], f"{name} was changed: write a new record that supersedes it"


def test_every_record_is_held_to_its_text() -> None:
    assert sorted(ACCEPTED) == sorted(path.stem for path in DECISIONS.glob("[0-9]*.md"))


def test_the_index_lists_each_decision_once_in_order() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+)\.md\)", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    records = sorted(path.stem for path in DECISIONS.glob("[0-9]*.md"))
    assert [name for _, name in listed] == records
    assert all(name.startswith(f"{number}-") for number, name in listed)
