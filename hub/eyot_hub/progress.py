"""What a streaming query's progress says about the streams it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from eyot_hub import offsets


def lag(progress: StreamingQueryProgress | Mapping[str, Any]) -> dict[str, int]:
    """Messages that each stream held beyond the query's last batch, from `query.lastProgress` or a listener's event.

    Sequences are counted, so messages that were deleted meanwhile count as well.
    """
    behind: dict[str, int] = {}
    for source in progress["sources"] if isinstance(progress, Mapping) else progress.sources:
        end, latest = _field(source, "endOffset"), _field(source, "latestOffset")
        if not end or not latest:
            continue
        try:
            read, there = offsets.from_json(_parsed(end)), offsets.from_json(_parsed(latest))
        except ValueError:
            continue  # another kind of source
        for stream, at in there.items():
            done = read.get(stream)
            behind[stream] = at.sequence - (done.sequence if done is not None and done.created == at.created else 0)
    return behind


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name)


def _parsed(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset
