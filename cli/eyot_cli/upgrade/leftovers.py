"""Chunks of a bucket that belong to no object: a put that was killed leaves them, and no listing names them."""

from __future__ import annotations

from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from eyot_cli.connection.refusals import Refusal
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import get_stored
from eyot_cli.jetstream.subject_counts import count_by_subject
from eyot_cli.upgrade.bucket import read_records
from eyot_wire.jetstream import error_codes as codes

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target

#: A put whose last chunk is older has ended.
ENDED_AFTER: Final = timedelta(hours=1)


async def remove_leftovers(target: Target, client: Client, bucket: str) -> int:
    """Remove the chunks of puts that have ended without an object; return how many. Raises Failure in the server's words.

    Chunks come before their record. Those that are listed first and have no record afterwards belong to no object, or to
    one that is still being put. Nothing is removed beside a record that cannot be read: it may name any of them.
    """
    stream, prefix = f"OBJ_{bucket}", f"$O.{bucket}.C."
    chunks = await count_by_subject(target, client, stream, f"{prefix}>")
    async with aclosing(read_records(target, client, bucket)) as records:
        async for record in records:
            if record is None:
                return 0
            if not record.deleted:
                chunks.pop(f"{prefix}{record.nuid}", None)
    removed = 0
    for subject in chunks:
        if await _has_ended(target, client, stream, subject):
            removed += (await ask(target, client, f"STREAM.PURGE.{stream}", {"filter": subject})).get("purged", 0)
    return removed


async def _has_ended(target: Target, client: Client, stream: str, subject: str) -> bool:
    """Return whether the last of these chunks is old by the server's clock; False where a server does not tell its time."""
    try:
        last = await get_stored(target, client, stream, {"last_by_subj": subject})
    except Refusal as error:
        if error.err_code == codes.JSNoMessageFoundErr:  # somebody else has removed them
            return False
        raise
    now = (await ask(target, client, f"STREAM.INFO.{stream}", {})).get("ts")
    return now is not None and datetime.fromisoformat(now) - datetime.fromisoformat(last.time) >= ENDED_AFTER
