"""The disk that the restores of all streams of an agent may fill with what is read and not taken yet."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RestoreRoom:
    """`limit` bytes, half of them for what is read ahead. Thread-safe; who calls `tell` or `make_way` holds no lock of a restore.

    Rules: nobody waits here for what a task needs. Where there is no room for it, the task reads for itself. Who wants to read ahead is
    told when there may be room, in the order in which they have asked, and nobody overtakes another one meanwhile. A start of which
    no task has asked for long gives way to the others: it may be that of a stream that has no rows for hours.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._taken = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._holders: dict[Callable[[], None], None] = {}

    @property
    def limit_ahead(self) -> int:
        """Bytes: no more than these are read ahead of all tasks."""
        return self.limit // 2

    @property
    def taken(self) -> int:
        """Bytes that are on their way, or lie there."""
        with self._lock:
            return self._taken

    def take(self, length: int) -> bool:
        """For what a task needs, and others may need too."""
        with self._lock:
            if self._taken + length > self.limit:
                return False
            self._taken += length
            return True

    def take_at_once(self, length: int) -> None:
        """For what a task needs and takes as soon as it is there. It would lie there anyway, so there is always room for it."""
        with self._lock:
            self._taken += length

    def take_ahead(self, length: int, go_on: Callable[[], None]) -> bool:
        """For what no task has asked for; `length` is `limit_ahead` at most. False: `go_on` waits now, and is called when there may be
        room; it asks again then, or leaves."""
        with self._lock:
            is_first = next(iter(self._waiting), go_on) == go_on
            if not is_first or self._taken + length > self.limit_ahead:
                self._waiting.setdefault(go_on)
                return False
            self._waiting.pop(go_on, None)
            self._taken += length
            return True

    def leave(self, go_on: Callable[[], None]) -> None:
        """It does not wait any more."""
        with self._lock:
            self._waiting.pop(go_on, None)

    def give_back(self, length: int) -> None:
        """`tell` is to follow."""
        with self._lock:
            self._taken -= length

    def hold(self, give_way: Callable[[], None]) -> None:
        """A start may take room from now on. `give_way` gives back what it has, if no task has asked for long."""
        with self._lock:
            self._holders.setdefault(give_way)

    def release(self, give_way: Callable[[], None]) -> None:
        """That start is over."""
        with self._lock:
            self._holders.pop(give_way, None)

    def make_way(self, length: int) -> None:
        """A task needs this, and others may need it too: who has what has not been asked for gives way, if there is no room."""
        with self._lock:
            holders = list(self._holders) if self._taken + length > self.limit else []
        for give_way in holders:
            give_way()

    def tell(self) -> None:
        """There may be room: who waits for it goes on. Of several each takes one range in turn, until the first has not enough."""
        asked_others = False
        while (first := self._first()) is not None:
            first()
            if self._first() == first:
                if asked_others:
                    return
                asked_others = True
                self.make_way(self.limit)

    def _first(self) -> Callable[[], None] | None:
        with self._lock:
            return next(iter(self._waiting), None)
