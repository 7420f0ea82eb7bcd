"""The stream's log in the simulated storage, and what readers find of it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Set

from simulation.clock import Clock
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.stored_damage import DamageKind
from spark_ckpt.errors import FormatError
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, End, Entry, Plan, decode
from spark_ckpt.protocol.retention.log_trim import DAY_MS

LISTED = 4
"""Log entries that one LIST of the old ones shows."""


class SimulatedLog:
    """`damage`: what became of entries that were damaged, or vanished. Times in milliseconds."""

    def __init__(self, clock: Clock, damage: Mapping[int, DamageKind], observed: Counter[Observed]) -> None:
        self.entries: dict[int, bytes] = {}
        self.times: dict[int, int] = {}
        """When each was stored."""
        self.claims: list[Claim] = []
        self.floor = 0
        """What the last entry says."""
        self.kept_ms = DAY_MS
        """How long entries stay, for young savepoints rest on those below the floor too."""
        self.ended = False
        """Whether the stream was deleted on purpose."""
        self.freed: dict[str, int] = {}
        """What plans have named -> when the last of these was deleted."""
        self._clock = clock
        self._damage = damage
        self._observed = observed
        self._plans: dict[tuple[int, int], int] = {}
        self._highest: dict[int, int] = {}
        self._last_end = 0
        """Entry by which the stream was deleted, and with it the files that entries before it name."""
        self._in_holes: set[int] = set()
        """Entries that a sleeper has stored where others had deleted theirs."""

    # --- what is there

    @property
    def last_end(self) -> int:
        """Entry by which the stream was deleted last, 0 for none."""
        return self._last_end

    @property
    def tail(self) -> int:
        return max(self.entries, default=0)

    def there(self, number: int) -> bool:
        return number in self.entries and self._damage.get(number) is not DamageKind.GONE

    def entry(self, number: int) -> Entry:
        """Undamaged."""
        return decode(number, self.entries[number])

    def read(self, number: int) -> bytes | None:
        found, damage = self.entries.get(number), self._damage.get(number)
        return None if found is None or damage is DamageKind.GONE else found if damage is None else found[:-1]

    def past(self, number: int) -> tuple[int | None, bytes | None]:
        """The first entry past that one, and its content."""
        found = min((n for n in self.entries if n > number and self.there(n)), default=None)
        return found, None if found is None else self.read(found)

    def old_entries(self, i: do.ListOldEntries) -> ev.OldEntriesListed:
        """Raises `FormatError` where the entry at the floor is damaged."""
        at_floor = self.read(i.floor)
        found = [(n, self.times[n]) for n in sorted(self.entries) if i.after < n < i.floor and self.there(n)]
        in_force = None if at_floor is None else decode(i.floor, at_floor).claim
        return ev.OldEntriesListed(i.ticket, in_force, tuple(found[:LISTED]), len(found) > LISTED)

    def plans_of(self, i: do.ReadPlans) -> ev.PlansRead:
        return ev.PlansRead(i.ticket, {n: self._read_plan(n) for n in i.numbers})

    def _read_plan(self, number: int) -> frozenset[str] | None:
        data = self.read(number)
        try:
            return None if data is None else objects_of(number, data)
        except FormatError:
            return None

    def planned_objects(self, numbers: Iterable[int] | None = None) -> frozenset[str]:
        """What the plans in the log name."""
        return frozenset[str]().union(*(objects_of(n, self.entries[n]) for n in (self.entries if numbers is None else numbers)))

    def needed(self, numbers: Set[int] | None = None) -> list[int]:
        """Those of the entries, or of all, that a start may still read."""
        young = self.times[self.tail] - self.kept_ms if self.entries else 0
        there = (self.entries.keys() if numbers is None else numbers) - self._in_holes
        return [n for n in there if n >= self.floor or (self.times[n] > young and n > self._last_end)]

    # --- what claims and plans say

    @property
    def last_claim(self) -> Claim | None:
        return self.claims[-1] if self.claims else None

    def claim(self, number: int) -> Claim:
        return next(c for c in self.claims if c.claim == number)

    def claim_before(self, number: int) -> Claim | None:
        return next((c for c in reversed(self.claims) if c.claim < number), None)

    def superseded(self, claim: int) -> bool:
        """Whether a newer claim than this one is in the log."""
        return bool(self.claims) and self.claims[-1].claim > claim

    def over(self, run: int) -> bool:
        """Whether a newer run has claimed the stream."""
        return bool(self.claims) and self.claims[-1].run > run

    @property
    def renumbered(self) -> bool:
        """Whether any run began under new numbers."""
        return any(claim.first is not None for claim in self.claims)

    def has_run(self, claim: int) -> bool:
        """Whether a plan was stored under that claim."""
        return any(of == claim and number > of for (of, _), number in self._plans.items())

    def highest_planned(self, claim: int) -> int | None:
        """The newest epoch whose plan is in the log under that claim."""
        return self._highest.get(claim)

    def planned(self, claim: int, epoch: int) -> bool:
        """Whether the plan of an epoch is in the log under that claim."""
        return (claim, epoch) in self._plans

    # --- changes

    def fill_hole(self, number: int, data: bytes) -> None:
        """Below the floor nobody reads it. Who wrote it has to find that out before it does anything on the strength of it."""
        self._observed[Observed.HOLE] += 1
        self._in_holes.add(number)
        self._store(number, data)

    def append(self, number: int, data: bytes) -> Entry:
        if number != self.tail + 1:
            raise ViolationError(Invariant.LOG_WHOLE, f"entry {number} was stored when the tail was {self.tail}")
        self._store(number, data)
        entry = decode(number, data)
        if entry.floor < self.floor and not (isinstance(entry, Claim) and entry.restored):
            raise ViolationError(Invariant.LOG_WHOLE, f"entry {number} lowers the floor from {self.floor} to {entry.floor}")
        self.floor = entry.floor
        self.ended = isinstance(entry, End)
        self._last_end = number if self.ended else self._last_end
        if isinstance(entry, Plan):
            self._plan(entry.claim, entry.epoch, number)
        return entry

    def adopt(self, claim: Claim) -> None:
        """The plans that it names count as its own."""
        for adopted, epoch in claim.adopted_past(-1).items():
            plan = self.entry(adopted) if adopted in self.entries else None
            if not isinstance(plan, Plan) or plan.epoch != epoch:
                raise ViolationError(Invariant.LOG_WHOLE, f"claim {claim.claim} adopts entry {adopted} for epoch {epoch}, which is {plan}")
            self._plan(claim.claim, epoch, claim.claim)

    def overwrite(self, number: int, data: bytes) -> None:
        """What put-if-absent prevents."""
        self.entries[number] = data
        entry = decode(number, data)
        if isinstance(entry, Claim):
            self.claims = [*[c for c in self.claims if c.claim != number], entry]
        elif isinstance(entry, Plan):
            self._plans[(entry.claim, entry.epoch)] = number

    def delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            data = self.entries.pop(number, None)
            if data is not None:
                self._observed[Observed.TRIMMED] += 1
                self.freed.update(dict.fromkeys(objects_of(number, data), self._clock.now))

    def _store(self, number: int, data: bytes) -> None:
        self.entries[number] = data
        self.times[number] = self._clock.now

    def _plan(self, claim: int, epoch: int, number: int) -> None:
        self._plans[(claim, epoch)] = number
        self._highest[claim] = max(epoch, self._highest.get(claim, -1))


@functools.lru_cache(maxsize=10_000)
def objects_of(number: int, data: bytes) -> frozenset[str]:
    """The large files of the driver that an entry names."""
    entry = decode(number, data)
    return entry.objects if isinstance(entry, Plan) else frozenset()
