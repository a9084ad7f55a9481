"""`eyotd` whose flash is slow, or with a planted bug: `odd_eyotd.py FLUSH_S PLANT ...`, then what `eyotd` is given; PLANT may be `-`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from eyot_daemon.launch import main
from eyot_store.journal.committer import JournalCommitter


def _slowly(flush_s: float) -> Any:
    whole = JournalCommitter.commit

    def commit(self: JournalCommitter, group: Sequence[Any]) -> Any:
        time.sleep(flush_s)
        return whole(self, group)

    return mock.patch.object(JournalCommitter, "commit", commit)


def _run() -> int:
    flush_s, plant = float(sys.argv.pop(1)), sys.argv.pop(1)
    with ExitStack() as stack:
        if flush_s:
            stack.enter_context(_slowly(flush_s))
        if plant != "-":
            from offline_sync.planted import planted

            stack.enter_context(planted(plant))
        return main()


if __name__ == "__main__":
    sys.exit(_run())
