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

The answer to a request goes with its entry, of the run that gave it: nobody waits for one for more than half of `DAY_MS`
(`LONGEST_S` in `spark_ckpt/api/requests.py`). What an earlier run has answered is left to `gc` (`garbage.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction, Level
from spark_ckpt.protocol.machine import Questions, Then
from spark_ckpt.protocol.retention.planned_files import PlannedFiles

DAY_MS = 24 * 60 * 60 * 1000
EVERY = 1000
"""Entries that a run appends between two passes over the old ones: what one LIST shows."""
A_PART = 24
"""Of the time that entries stay: so often there is a pass at least, however rarely epochs come."""
AHEAD = 30
"""Times as long as entries stay: a date that is further ahead is wrong."""
AT_A_TIME = 100
"""Entries of which it is looked up in one step what they name."""


def is_sure(before_ms: int | None, stored_ms: int | None, kept_ms: int) -> bool:
    """Whether an append cannot have landed in a hole: when it and the run's previous one were stored, by the storage's clock."""
    return before_ms is not None and stored_ms is not None and abs(stored_ms - before_ms) <= kept_ms // 2


class LogTrim:
    """A run's passes over the old entries, one at a time, in the background: list, read what plans name, delete; and on, while there are
    more. In small steps, so that a run which ends soon has done some.

    What an entry names is known before it is deleted; and before one is that names a large file of the driver, what all others name that
    stay (`planned_files.py`). A run that is cut short meanwhile has deleted nothing that its successor would need to know.
    """

    def __init__(
        self, run: int, planned: PlannedFiles, kept_ms: int, every: int, questions: Questions, changed: Callable[[], list[Instruction]]
    ) -> None:
        self._run = run
        self._planned = planned
        self._questions = questions
        self._changed = changed
        self._kept_ms = kept_ms
        self._every = every
        self._due = 0
        self._due_ms = 0
        self._floor = 0
        self._before_ms = 0
        self._ticket: int | None = None
        self._read_to = 0
        """Entries that stay are known up to here."""
        self._unreadable = False
        """One that stays is."""
        self._undated: list[int] = []
        """What this pass has found last, dated in the future."""
        self._waiting: list[int] = []
        """Found old, and to be deleted."""
        self._going: tuple[int, ...] = ()
        self._after = 0
        """Entries up to here were looked at."""
        self._more = False
        self._is_young = False
        """The pass has come to one that is too young to go."""
        self._last = False

    @property
    def deletion(self) -> int | None:
        """The open question, if it is a deletion."""
        return self._ticket if self._going else None

    def end(self) -> None:
        """The run is over: what entries that are being deleted have let go of goes too, else only `gc` would find it; and no more does."""
        self._last = True

    def begin(self, number: int, floor: int, stored_ms: int | None) -> list[Instruction]:
        """Entry `number`, which says this floor, is stored."""
        if self._last or self._ticket is not None or floor <= 1 or stored_ms is None or (number < self._due and stored_ms < self._due_ms):
            return []
        self._due, self._due_ms = number + self._every, stored_ms + self._kept_ms // A_PART
        self._floor, self._before_ms, self._after = floor, stored_ms - self._kept_ms, 0
        self._read_to, self._unreadable, self._undated, self._is_young = 0, False, [], False
        return self._list()

    def _listed(self, event: ev.OldEntriesListed) -> list[Instruction]:
        self._ticket = None
        if event.in_force is None:
            return []  # the log is damaged: nothing of it goes
        old = self.old(event.found)
        self._waiting = list(self.superfluous(old, event.in_force))
        self._more = event.more and not self._is_young
        self._after = max((number for number, _ in event.found), default=self._after)
        return self._on()

    def _plans_read(self, event: ev.PlansRead) -> list[Instruction]:
        """What cannot be read stays. If it is needed, or may still be, all stays that it may name.

        The same where an entry is missing that should stay: (1) this run has begun to read, and sleeps; (2) a successor goes back, and runs
        again what that entry plans; (3) it has deleted the entry when this run wakes up: its own entries name the same files.
        """
        self._ticket = None
        for number, objects in event.objects.items():
            if objects is not None:
                self._planned.add(number, objects)
        unknown = {number for number, objects in event.objects.items() if objects is None}
        if not unknown.issubset(self._waiting):
            self._unreadable, self._more = True, False
            self._waiting = [number for number in self._waiting if not self._planned.names(number)]
        self._waiting = [number for number in self._waiting if number not in unknown]
        return self._on()

    def _deleted(self, _event: ev.EntriesDeleted) -> list[Instruction]:
        self._ticket = None
        self._planned.gone(self._going)
        self._waiting = self._waiting[len(self._going) :]
        self._going = ()
        return self._on()

    def _failed(self, event: ev.TrimFailed) -> list[Instruction]:
        """Given up until the next pass is due."""
        self._ticket, self._going = None, ()
        return [do.Log(Level.WARN, f"old entries of the log could not be deleted, which is tried again: {event.message}")]

    def old(self, found: tuple[tuple[int, int], ...]) -> list[int]:
        """Rule: up to the first that is too young. What stands behind that is younger, unless somebody wrote into a hole.

        One with a date that is far ahead was stored while the storage's clock was wrong. It is older than what stands behind it. Not what
        is ahead by less: (1) a run stores n - 1 with such a date, and sleeps; (2) n - 1 and n, of others, go; (3) it wakes up at about
        that date and takes its own n for sure.
        """
        numbers = []
        for number, stored_ms in found:
            if stored_ms > self._before_ms + AHEAD * self._kept_ms:
                self._undated.append(number)
            elif stored_ms >= self._before_ms:
                self._is_young = True
                break
            else:
                numbers += [*self._undated, number]
                self._undated = []
        return numbers

    def superfluous(self, old: list[int], in_force: int) -> tuple[int, ...]:
        return tuple(number for number in old if number < self._floor and number != in_force)

    def staying(self, number: int) -> tuple[int, ...]:
        """Rule: what stays is every entry behind `number`, the last that goes now; not only those from the floor on. Of which of them it is
        not known what they name, a part at a time."""
        following = range(max(number, self._read_to) + 1, self._planned.since)
        unknown = tuple(n for n, _ in zip(self._planned.unknown(following), range(AT_A_TIME), strict=False))
        self._read_to = unknown[-1] if unknown else self._planned.since
        return unknown

    def _on(self) -> list[Instruction]:
        """The next step, and what entries that are gone have let go of."""
        steps = [] if self._last else self._read() if self._waiting else self._list() if self._more else []
        return [*steps, *self._changed()]

    def _read(self) -> list[Instruction]:
        """First of what goes, then of what stays, as far as it is not known."""
        if self._unreadable:
            self._waiting = [n for n in self._waiting if not self._planned.names(n)]
            if not self._waiting:
                return self._list() if self._more else []
        part = self._waiting[:AT_A_TIME] if any(self._planned.unknown(self._waiting)) else self._waiting
        unknown = tuple(self._planned.unknown(part))
        if not unknown and not self._planned.all_known and not self._unreadable and self._planned.is_loosened(part):
            unknown = self.staying(part[-1])
            self._planned.all_known = not unknown
        if unknown:
            return self._ask(lambda ticket: do.ReadPlans(ticket, unknown), self._plans_read)
        going = self._going = tuple(part)
        return self._ask(lambda ticket: do.DeleteEntries(ticket, going, self._run), self._deleted)

    def _list(self) -> list[Instruction]:
        return self._ask(lambda ticket: do.ListOldEntries(ticket, self._floor, self._after), self._listed)

    def _ask(self, make: Callable[[int], do.Trimming], then: Then) -> list[Instruction]:
        asked = self._questions.ask(make, then, self._failed)
        self._ticket = asked.ticket
        return [asked]
