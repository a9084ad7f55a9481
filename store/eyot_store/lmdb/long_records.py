"""Heads of long records, of which only the first page is read: py-lmdb touches all pages of what it returns."""

from __future__ import annotations

from eyot_store.environment import Environment
from eyot_store.pages.layout import Tree
from eyot_store.records.record import LARGE_RECORD, LongHead, head_of_long


def long_head(environment: Environment, tree: Tree, key: bytes) -> LongHead | None:
    """Return the head of the long record at `key`; None where all of it is needed, as of an encrypted one, or there is none.

    Raises PageError.
    """
    if environment.store_cipher is not None:
        return None
    beginning, size = environment.pages.beginning(tree, key)
    return head_of_long(beginning, size) if size > LARGE_RECORD else None
