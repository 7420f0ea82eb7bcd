"""How long a run may take: what a step took last time says whether it is begun again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Budget:
    """Seconds for everything together; none given: no limit."""

    def __init__(self, seconds: float = math.inf, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until = now() + seconds
        self._took: dict[str, float] = {}

    def left(self) -> float:
        return self._until - self._now()

    def allows(self, *steps: str) -> bool:
        """Is there time for all of them? One that was not done yet counts as nothing, so it must be bounded by `left`."""
        return sum(self._took.get(step, 0.0) for step in steps) < self.left()

    @contextmanager
    def spending(self, step: str) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._took[step] = self._now() - began
