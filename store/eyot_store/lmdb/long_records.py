"""Heads of long records, of which only the first page is read: py-lmdb touches all pages of what it returns."""

from __future__ import annotations

from typing import Any

from eyot_store.environment import Environment
from eyot_store.pages.layout import Tree
from eyot_store.records.record import LARGE_RECORD, LongHead, head_of_long
from eyot_store.subjects.batch_index import BatchIndex


def long_head(environment: Environment, tree: Tree, key: bytes) -> LongHead | None:
    """Return the head of the long record at `key`; None where all of it is needed, as of an encrypted one, or there is none.

    Raises PageError.
    """
    if environment.store_cipher is not None:
        return None
    beginning, size = environment.pages.beginning(tree, key)
    return head_of_long(beginning, size) if size > LARGE_RECORD else None


def remove_long(
    environment: Environment, txn: Any, db: Any, tree: Tree, key: bytes, subjects: BatchIndex | None
) -> int:
    """Remove a record of a stream of long ones without reading its payload, and count that in `subjects`.

    Returns roughly its bytes; 0: it is not there. Raises PageError.
    """
    size = 1
    if subjects is not None and subjects.counts(key):
        head = long_head(environment, tree, key)
        if head is None:
            value = txn.get(key, db=db)
            if value is None:
                return 0
            size = len(value)
            subjects.went(key, value)
        else:
            size = head.header + head.payload + 1
            subjects.went_from(key, head.subject)
    return size if txn.delete(key, db=db) else 0
