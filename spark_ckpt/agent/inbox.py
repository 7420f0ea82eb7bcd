"""What a thread is told by others, in the order in which they say it."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

LINGER_S = 0.05
"""How long what is not urgent may wait for company, in seconds: tasks commit every few milliseconds, and a thread that is woken for each
commit costs more processor time than the commit itself."""

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """`put` is for any thread, `take` for one."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._changed = threading.Condition(threading.Lock())
        self._items: list[Item] = []
        self._urgent = False

    def put(self, item: Item, urgent: bool = True) -> None:
        with self._changed:
            self._items.append(item)
            self._urgent = self._urgent or urgent
            if urgent or len(self._items) == 1:
                self._changed.notify()

    def take(self, timeout: float | None) -> list[Item]:
        """All that has come: at once if some of it is urgent, else `linger_s` after the first of it; nothing after `timeout` seconds."""
        with self._changed:
            if self._changed.wait_for(lambda: self._items, timeout):
                self._changed.wait_for(lambda: self._urgent, self._linger_s)
            taken, self._items, self._urgent = self._items, [], False
            return taken
