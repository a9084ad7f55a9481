"""The bounds of two pages are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eyot_daemon.jetstream.api.messages import BATCH_BYTES_MAX, MULTI_LAST_MAX
from eyot_daemon.jetstream.api.packed_reads import REQUEST_BYTES_MAX
from eyot_daemon.jetstream.api.request_queue import BYTES_MAX as REQUESTS_MAX
from eyot_daemon.jetstream.api.request_queue import HELD_FROM
from eyot_daemon.jetstream.backup.restore import WAITING_MAX
from eyot_daemon.jetstream.backup.restored_parts import CONSUMERS_BYTES_MAX
from eyot_daemon.jetstream.backup.snapshot import WINDOW_BYTES, WINDOW_BYTES_MAX
from eyot_daemon.jetstream.ingest.atomic_batches import ATOMIC_MAX, FAST_MAX, MESSAGES_MAX, OPEN_MAX
from eyot_daemon.jetstream.ingest.limiter import BYTES_MAX, MSGS_MAX
from eyot_daemon.jetstream.ingest.schedules import DUE_PER_TURN
from eyot_daemon.jetstream.retention.expiry import MESSAGES_PER_TURN
from eyot_daemon.jetstream.stream.info import DELETED_LISTED_MAX
from eyot_daemon.leaf.policies import STREAM_BACKLOG_MAX, STREAM_BACKLOG_MIN
from eyot_store.options import StoreOptions
from eyot_sync.leaf.codec import BEHIND_MAX, BLOCK_MAX, UNPACKED_PER_TURN
from eyot_sync.leaf.outbox import CONTROL_BYTES_MAX, URGENT_BYTES_MAX
from eyot_sync.leaf.replies import REMEMBERED_MAX
from eyot_sync.leaf.window import WINDOW_FIRST, WINDOW_MAX, WINDOW_MIN
from eyot_sync.policy.stream_lanes import SUBJECTS_MAX
from eyot_wire.archive.tarred import INDEX_MAX

STORE = StoreOptions()
DOCS = Path(__file__).parents[2] / "docs"
#: Beginnings of rows, and what the row names in this order.
JETSTREAM: dict[str, list[int]] = {
    "published to a stream and not on flash yet": [MSGS_MAX, BYTES_MAX],
    "staged, uncommitted bytes of all streams": [STORE.backlog_bytes_soft],
    "requests to an account's API that wait": [REQUESTS_MAX, HELD_FROM],
    "direct get, one batch": [BATCH_BYTES_MAX],
    "packed range reads | 16": [REQUEST_BYTES_MAX],
    "streams on disk at a time": [STORE.max_streams],
    "subjects of `multi_last`": [MULTI_LAST_MAX],
    "deleted sequences listed by STREAM.INFO": [DELETED_LISTED_MAX],
    "messages looked at by one turn of expiry": [MESSAGES_PER_TURN],
    "open atomic batches": [OPEN_MAX, ATOMIC_MAX, MESSAGES_MAX],
    "open fast batches": [FAST_MAX],
    "schedules made in one turn": [DUE_PER_TURN],
    "a backup's bytes on their way": [WINDOW_BYTES, WINDOW_BYTES_MAX],
    "a restore's chunks that wait": [WAITING_MAX],
    "consumers' configurations and states in one restore": [CONSUMERS_BYTES_MAX],
    "a tar archive's `index.db`": [INDEX_MAX],
}
LINKS: dict[str, list[int]] = {
    "urgent messages waiting for a link": [URGENT_BYTES_MAX],
    "PONGs, -ERR and other answers": [CONTROL_BYTES_MAX],
    "deliveries of one stream waiting for a link": [STREAM_BACKLOG_MIN, STREAM_BACKLOG_MAX],
    "unpacked size of a compressed block": [BLOCK_MAX],
    "bytes unpacked in one turn": [UNPACKED_PER_TURN, BEHIND_MAX],
    "bytes under way on a link": [WINDOW_FIRST, WINDOW_MIN, WINDOW_MAX],
    "deliver subjects remembered per link": [SUBJECTS_MAX],
    "replies that a leaf node may answer": [REMEMBERED_MAX],
}
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def figures(row: str) -> list[int]:
    """Whole numbers of a row; that of `4 KiB to 64 MiB` in bytes."""
    return [
        int(number.replace(",", "")) * _UNITS[unit]
        for number, unit in re.findall(r"(?<![\d.,])(\d[\d,]*)(?![\d.]*\d)(?: (KiB|MiB|GiB))?", row)
    ]


@pytest.mark.parametrize(
    ("page", "start", "bounds"),
    [(page, *each) for page, rows in (("jetstream", JETSTREAM), ("leaf-links", LINKS)) for each in rows.items()],
)
def test_a_bound_of_the_page_is_that_of_the_code(page: str, start: str, bounds: list[int]) -> None:
    rows = [line for line in (DOCS / f"{page}.md").read_text().splitlines() if line.startswith(f"| {start}")]
    assert len(rows) == 1, rows
    named = iter(figures(rows[0]))
    assert all(bound in named for bound in bounds), (bounds, rows[0])
