"""Large files of the driver: which of them may go.

One rule: such an object goes when nothing names it any more, be it a plan, in the log or in line, a checkpoint, complete or in the making,
or the driver's folder as it is now. A plan takes all that it names to run its epoch again, and it is there for as long as somebody may
want that: as the epoch after a checkpoint, or after a savepoint that is much older. What has lost a name is *loose*, until it is named
again or goes; it is looked at whenever something may have let go of it. And none goes before it is known what every entry of the log
names, those included that are below the floor and too young to go, on which young savepoints rest (`log_trim.py` reads them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spark_ckpt.paths import parse_driver_file_key
from spark_ckpt.protocol.entries import Entry, Plan


def objects_by_entry(entries: Mapping[int, Entry]) -> dict[int, frozenset[str]]:
    """What entries of the log name that is an object of its own: plans do."""
    return {number: entry.objects if isinstance(entry, Plan) else frozenset() for number, entry in entries.items()}


class PlannedFiles:
    """What a run knows of the plans in the log: its own, from entry `since` on; those that it began with; and what it has read."""

    def __init__(self) -> None:
        self.since = 0
        self.all_known = False
        """What every entry below `since` names that is still in the log."""
        self._named: dict[int, frozenset[str]] = {}
        self._read: set[int] = set()
        self._loose: set[str] = set()

    def add(self, number: int, objects: frozenset[str]) -> None:
        """Entry `number` of the log names these."""
        if number < self.since:
            self._read.add(number)
        if objects:
            self._named[number] = objects
            self._loose -= objects

    def unknown(self, numbers: Iterable[int]) -> Iterator[int]:
        return (n for n in numbers if n < self.since and n not in self._read)

    def names(self, number: int) -> bool:
        """Whether that entry, which is known, names any."""
        return number in self._named

    @property
    def is_loose(self) -> bool:
        """Whether any may be free."""
        return self.all_known and bool(self._loose)

    def is_loosened(self, numbers: Iterable[int]) -> bool:
        """Whether any is loose, or would be without these entries."""
        return bool(self._loose) or any(number in self._named for number in numbers)

    def gone(self, numbers: Iterable[int]) -> None:
        """These entries are deleted."""
        for number in numbers:
            self._loose |= self._named.pop(number, frozenset())
            self._read.discard(number)
        self._loose -= self.named()

    def keep(self, names: Iterable[str]) -> None:
        """The driver's folder has these, and a plan to come names them."""
        self._loose.difference_update(names)

    def let_go(self, names: Iterable[str]) -> None:
        """A checkpoint that named these is deleted, or the driver's folder has them no more."""
        self._loose.update(name for name in names if is_driver_file(name))
        self._loose -= self.named()

    @property
    def objects(self) -> frozenset[str]:
        """All that the run knows of and has not given up."""
        return self.named() | self._loose

    def named(self) -> frozenset[str]:
        """Every object that a plan in the log names, as far as is known."""
        return frozenset().union(*self._named.values())

    def take_free(self, held: frozenset[str]) -> frozenset[str]:
        """What is loose and not `held` by anything else; whoever takes it deletes it."""
        free = self._loose - held if self.all_known else set[str]()
        self._loose -= free
        return frozenset(free)


def is_driver_file(name: str) -> bool:
    return parse_driver_file_key(name) is not None
