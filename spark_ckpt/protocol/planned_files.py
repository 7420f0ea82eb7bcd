"""Large files of the driver that plans name: which of them may go.

It takes all that a plan names to run its epoch again, and a plan is there for as long as somebody may want that: as the epoch after a
checkpoint, or after a savepoint that is much older. So such an object stays while a plan in the log names it, whatever becomes of the
checkpoints that do. What plans of earlier runs name is read before the first of them is deleted (`log_trim.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_ckpt.paths import parse_driver_file_key
from spark_ckpt.protocol.entries import Entry, Plan


def objects_by_entry(entries: Mapping[int, Entry]) -> dict[int, frozenset[str]]:
    """What entries of the log name that is an object of its own: plans do."""
    return {number: entry.objects if isinstance(entry, Plan) else frozenset() for number, entry in entries.items()}


class PlannedFiles:
    """What a run knows of the plans in the log: its own, from entry `since` on; those that it began with; and what it has read."""

    def __init__(self) -> None:
        self.since = 0
        self._named: dict[int, frozenset[str]] = {}
        self._read: set[int] = set()
        self._free: set[str] = set()

    def add(self, number: int, objects: frozenset[str]) -> None:
        """Entry `number` of the log names these."""
        if number < self.since:
            self._read.add(number)
        if objects:
            self._named[number] = objects
            self._free -= objects

    def unknown(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(n for n in numbers if n < self.since and n not in self._read)

    def gone(self, numbers: Iterable[int]) -> frozenset[str]:
        """These entries are deleted. Returns what no plan that is left names: it may go, unless a checkpoint names it."""
        gone: set[str] = set()
        for number in numbers:
            gone |= self._named.pop(number, frozenset())
            self._read.discard(number)
        free = gone - self.named()
        self._free |= free
        return frozenset(free)

    def named(self) -> frozenset[str]:
        """Every object that a plan in the log names, as far as is known."""
        return frozenset().union(*self._named.values())

    def keeps(self, name: str) -> bool:
        """Whether an object must stay, although no checkpoint names it."""
        return parse_driver_file_key(name) is not None and name not in self._free

    def deleted(self, name: str) -> None:
        self._free.discard(name)
