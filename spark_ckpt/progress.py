"""How far work has come that takes long: told by who does it, to whoever shows it. Nobody has to listen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

T = TypeVar("T")


class Unit(Enum):
    """What is counted."""

    BYTES = "BYTES"
    THINGS = "THINGS"
    """Objects, stores, partitions: `Step.what` says which."""
    SECONDS = "SECONDS"
    """Of a wait. Nobody knows how long it will be, so it has no `Step.total`."""


@dataclass(frozen=True)
class Step:
    """`done` of `total` (None: not known yet) of one piece of work, which `what` names for people."""

    what: str
    done: int
    total: int | None
    unit: Unit


Tell = Callable[[Step], None]
"""Called from any thread, one call at a time for each piece of work; it must not block and not raise."""


def nobody(_: Step) -> None:
    """Does not listen."""


class Task:
    """One piece of work, told from its beginning on. Thread-safe."""

    def __init__(self, tell: Tell, what: str, total: int | None, unit: Unit = Unit.THINGS) -> None:
        self._tell = tell
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0
        self._lock = threading.Lock()
        self.add(0)

    def add(self, more: int = 1) -> None:
        with self._lock:
            self._set(self._done + more)

    def reach(self, done: int) -> None:
        with self._lock:
            self._set(done)

    def _set(self, done: int) -> None:
        self._done = done
        self._tell(Step(self._what, self._done, self._total, self._unit))

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """The same things, counted when the next one is asked for."""
        for thing in things:
            yield thing
            self.add()
