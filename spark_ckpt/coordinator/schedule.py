"""What a thread is to do later, in the order in which it is due."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

Task = Callable[[], None]


class Schedule:
    """For one thread. A task with a ticket can be cancelled."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, int | None, Task]] = []
        self._order = itertools.count()
        self._closed = False

    def later(self, seconds: float, task: Task, ticket: int | None = None) -> None:
        if not self._closed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), ticket, task))

    def cancel(self, ticket: int) -> None:
        """Those that are left are few: the timers of a run, and what is tried again."""
        self._due = [entry for entry in self._due if entry[2] != ticket]
        heapq.heapify(self._due)

    @property
    def is_empty(self) -> bool:
        return not self._due

    @property
    def wait(self) -> float | None:
        """Seconds until the next is due; None: there is none."""
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def run_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            *_, task = heapq.heappop(self._due)
            task()

    def close(self) -> None:
        """Nothing of it is done any more, and nothing is taken any more."""
        self._closed = True
        self._due.clear()
