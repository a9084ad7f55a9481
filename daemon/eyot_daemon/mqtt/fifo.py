"""A queue that takes no room while it is empty: nearly all queues of nearly all sessions are."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Fifo(Generic[T]):
    """First in, first out, in memory. Its holder sets the bound."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[T] | None = None

    def __len__(self) -> int:
        return 0 if self._items is None else len(self._items)

    @property
    def first(self) -> T:
        """The item that is taken next. Raises IndexError when there is none."""
        if self._items is None:
            raise IndexError("the queue is empty")
        return self._items[0]

    def holds_only(self, item: T) -> bool:
        """Return whether this very item is the only one."""
        items = self._items
        return items is not None and len(items) == 1 and items[0] is item

    def append(self, item: T) -> None:
        """Add an item behind all others."""
        if self._items is None:
            self._items = deque((item,))
        else:
            self._items.append(item)

    def popleft(self) -> T:
        """Remove and return the first item. Raises IndexError when there is none."""
        items = self._items
        if items is None:
            raise IndexError("the queue is empty")
        item = items.popleft()
        if not items:
            self._items = None
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._items = None
