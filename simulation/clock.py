"""A manual clock that knows what is due; milliseconds."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """Calls come in order of time, those of one moment in the order they were made."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def after(self, delay: int, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._due, (self.now + max(0, delay), self._made, call))

    def step(self, until: int) -> bool:
        """Make the next call that is due at `until` or before; false when there is none."""
        if not self._due or self._due[0][0] > until:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True
