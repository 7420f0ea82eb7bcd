"""Old entries of the log go: which, and in what order (docs/rfcs/0001).

Four rules, each of which the simulation leaves out once.

* *Floor first.* An entry goes only if its number is below the `floor` of an entry that is stored. Whoever starts reads the floor with the
  log's tail, and asks for nothing below it; so a deletion that lands late, from whatever run, takes nothing that anybody needs.
* *What is needed stays.* The floor is the lowest entry that a start from any checkpoint of the run would read. The claim under which the
  entry at the floor was written stays too: with it, all entries from the floor on have their claims.
* *A day.* An entry stays until it is `kept_ms` old, by the storage's own clock.
* *Nobody writes into a hole unnoticed.* (1) A run stores entry n - 1 and sleeps; (2) others store n and go on; (3) n is deleted; (4) the
  sleeper wakes up and stores n, as if nothing had happened. Between (1) and (4) lies more than `kept_ms` by the storage's clock, since n is
  younger than n - 1. So a run whose two last puts lie more than half of that apart, or of one of which the time is not known, looks past
  the second one before it does anything on the strength of it (`is_sure`): the log's tail is never deleted, so behind a hole there is
  always an entry of somebody else. A claim and an end look always.
"""

from __future__ import annotations

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Tickets
from spark_ckpt.protocol.planned_files import PlannedFiles

DAY_MS = 24 * 60 * 60 * 1000
EVERY = 1000
"""Entries that a run appends between two passes over the old ones: what one LIST shows."""
A_PART = 24
"""Of the time that entries stay: so often there is a pass at least, however rarely epochs come."""
AT_A_TIME = 100
"""Entries of which it is looked up in one step what they name."""


def is_sure(before_ms: int | None, stored_ms: int | None, kept_ms: int) -> bool:
    """Whether an append cannot have landed in a hole: when it and the run's previous one were stored, by the storage's clock."""
    return before_ms is not None and stored_ms is not None and abs(stored_ms - before_ms) <= kept_ms // 2


class LogTrim:
    """A run's passes over the old entries, one at a time, in the background: list, read what plans name, delete; and on, while there are
    more. In small steps, so that a run which ends soon has done some."""

    def __init__(self, planned: PlannedFiles, kept_ms: int, every: int) -> None:
        self._planned = planned
        self._kept_ms = kept_ms
        self._every = every
        self._due = 0
        self._due_ms = 0
        self._floor = 0
        self._before_ms = 0
        self._ticket: int | None = None
        self._staying: list[int] = []
        """Entries at the floor or above of which it is not known what they name."""
        self._waiting: list[int] = []
        """Found old, and to be deleted."""
        self._going: tuple[int, ...] = ()
        self._after = 0
        """Entries up to here were looked at."""
        self._more = False

    @property
    def ticket(self) -> int | None:
        """Of the question that is open."""
        return self._ticket

    def begin(self, number: int, floor: int, stored_ms: int | None, tickets: Tickets) -> list[Instruction]:
        """Entry `number`, which says this floor, is stored."""
        if self._ticket is not None or floor <= 1 or stored_ms is None or (number < self._due and stored_ms < self._due_ms):
            return []
        self._due, self._due_ms = number + self._every, stored_ms + self._kept_ms // A_PART
        self._floor, self._before_ms, self._after = floor, stored_ms - self._kept_ms, 0
        self._staying = list(self._planned.unknown(range(floor, self._planned.since)))
        return self._list(tickets)

    def listed(self, event: ev.OldEntriesListed, tickets: Tickets) -> list[Instruction]:
        self._ticket = None
        if event.in_force is None:
            return []  # the log is damaged: nothing of it goes
        old = self.old(event.found)
        self._waiting = list(self.superfluous(old, event.in_force))
        self._more = event.more and len(old) == len(event.found)
        self._after = max((number for number, _ in event.found), default=self._after)
        return self._read(tickets) if self._waiting else self._on(tickets)

    def read(self, event: ev.PlansRead, tickets: Tickets) -> list[Instruction]:
        """What cannot be read stays, and so does what it may name: nobody asks for it, and nobody knows."""
        self._ticket = None
        for number, objects in event.objects.items():
            if objects is not None:
                self._planned.add(number, objects)
        self._staying = [number for number in self._staying if number not in event.objects]
        unknown = {number for number, objects in event.objects.items() if objects is None}
        if any(number >= self._floor for number in unknown):
            self._waiting = []
            self._more = False
            return []
        self._waiting = [number for number in self._waiting if number not in unknown]
        return self._read(tickets) if self._waiting else self._on(tickets)

    def deleted(self, tickets: Tickets) -> tuple[frozenset[str], list[Instruction]]:
        """Large files of the driver that no plan in the log names any more; and how the pass goes on."""
        self._ticket = None
        free = self._planned.gone(self._going)
        self._waiting = self._waiting[len(self._going) :]
        self._going = ()
        return free, self._read(tickets) if self._waiting else self._on(tickets)

    def failed(self) -> None:
        """Given up until the next pass is due."""
        self._ticket = None

    def old(self, found: tuple[tuple[int, int], ...]) -> list[int]:
        """Rule: up to the first that is too young. What stands behind that is younger, unless somebody wrote into a hole."""
        numbers = []
        for number, stored_ms in found:
            if stored_ms >= self._before_ms:
                break
            numbers.append(number)
        return numbers

    def superfluous(self, old: list[int], in_force: int) -> tuple[int, ...]:
        return tuple(number for number in old if number < self._floor and number != in_force)

    def _read(self, tickets: Tickets) -> list[Instruction]:
        """First of what stays, then of what goes, as far as it is not known."""
        unknown = tuple(self._staying[:AT_A_TIME]) or self._planned.unknown(self._waiting[:AT_A_TIME])
        self._ticket = tickets.next()
        if unknown:
            return [do.ReadPlans(self._ticket, unknown)]
        self._going = tuple(self._waiting[:AT_A_TIME] if self._planned.unknown(self._waiting) else self._waiting)
        return [do.DeleteEntries(self._ticket, self._going)]

    def _on(self, tickets: Tickets) -> list[Instruction]:
        return self._list(tickets) if self._more else []

    def _list(self, tickets: Tickets) -> list[Instruction]:
        self._ticket = tickets.next()
        return [do.ListOldEntries(self._ticket, self._floor, self._after)]
