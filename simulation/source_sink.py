"""Source and sink of the simulated query, and what its state must be."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed

PARTITIONS = 3


@dataclass(frozen=True)
class Span:
    """An epoch's input: the integers from `first` up to but not including `end`."""

    first: int
    end: int

    def encode(self) -> bytes:
        """As `OffsetSeqLog` writes it."""
        return b"v1\n" + json.dumps({"batchWatermarkMs": 0}).encode() + b"\n" + json.dumps({"first": self.first, "end": self.end}).encode()

    @staticmethod
    def decode(data: bytes) -> Span:
        doc = json.loads(data.splitlines()[2])
        return Span(doc["first"], doc["end"])


def sum_of(partition: int, span: Span) -> int:
    """The sum of a partition's input. Input i counts 4^i, so that one that is missing or counted twice cannot be made up for by another."""
    return sum(1 << 2 * i for i in range(span.first, span.end) if i % PARTITIONS == partition)


def state_at(partition: int, begins: int, end: int) -> int:
    """What one pass over the input gives since the stream began: the running sum."""
    return sum_of(partition, Span(begins, end))


class Source:
    """Has more input as time goes on, but gives only what a plan says. `forgetful`: its name, if it may not give the same data twice.
    `lists`: whether it writes a file for each epoch below `sources/`, as one of files does; else one that says where it began, as Kafka's.
    """

    def __init__(self, available: int, forgetful: tuple[str, ...] = (), lists: bool = True) -> None:
        self.available = available
        self.forgetful = forgetful
        self.lists = lists


Row = tuple[Span, tuple[int, ...]]


class Sink:
    """Idempotent by batch id like Spark's file sink: it skips every id up to its latest, whatever that carries.

    `again`: input may be run again under new numbers, and is then there more than once; but no number ever carries two things. `tells`:
    whether it can be asked what it has seen.
    """

    def __init__(self, observed: Counter[Observed], again: bool, tells: bool = False) -> None:
        self.batches: dict[int, Row] = {}
        self.latest = -1
        self._begins = self._first = 0
        self._observed = observed
        self._again = again
        self._tells = tells
        self._anew = False
        self._carried: dict[int, Row] = {}
        self._opened: dict[int, str] = {}

    @property
    def tells(self) -> bool:
        return self._tells

    def anew(self, begins: int, first: int) -> None:
        """The stream begins with input `first`, and a state that holds what came before it from `begins` on: another stream's savepoint.

        Its numbers begin anywhere. Where it was deleted before, what was planned and not run leaves a hole in them.
        """
        self.batches.clear()
        self._begins, self._first = begins, first
        self._anew = True

    def open(self, batch: int, who: str) -> None:
        """A batch in real time begins: its rows come one by one from now on, and whatever becomes of it, the number is its own."""
        if self._opened.setdefault(batch, who) != who or batch in self._carried:
            raise ViolationError(Invariant.SAME_DATA, f"{who} begins batch {batch}, which was somebody else's")

    def add_batch(self, batch: int, row: Row, who: str) -> None:
        opened = self._opened.get(batch)
        if opened is not None and not opened.startswith(f"{who} "):
            raise ViolationError(Invariant.SAME_DATA, f"{who} ran batch {batch}, which {opened} had begun in real time")
        known = self._carried.setdefault(batch, row)
        if known != row:
            raise ViolationError(Invariant.SAME_DATA, f"{who} ran batch {batch} as {row}, the sink was given {known}")
        if batch <= self.latest:
            self._observed[Observed.SKIPPED] += 1
            return
        if batch > self.latest + 1 and not self._again and not self._anew:
            raise ViolationError(Invariant.WHOLE_INPUT, f"{who} wrote batch {batch}, the sink's latest is {self.latest}")
        self.batches[batch] = row
        self.latest = batch
        self._anew = False

    def make_good(self, batch: int, end: int) -> bool:
        """A person has written by hand what it lacks of the input up to `end`, where batch `batch` ends. False: it lacks nothing."""
        until = max((span.end for number, (span, _) in self.batches.items() if number <= batch), default=self._first)
        # Where input may be run again as something else, a lower number may have been dropped, and higher ones published.
        lacks = until < end and batch not in self.batches if self._again else batch > self.latest
        if self._anew or not lacks:
            return False
        self.batches[batch] = Span(until, end), tuple(state_at(p, self._begins, end) for p in range(PARTITIONS))
        self.latest = max(self.latest, batch)
        return True

    @property
    def seen(self) -> int | None:
        return self.latest if self._tells and self.latest >= 0 else None

    @property
    def end(self) -> int:
        """How far the input was ever run."""
        return max((span.end for span, _ in self.batches.values()), default=self._first)

    def check(self, end: int) -> None:
        """The batches hold one pass over the input up to `end`; where it may be run again, at least one."""
        at = self._first
        broken = Invariant.NOTHING_LOST if self._again else Invariant.WHOLE_INPUT
        for number, (span, states) in sorted(self.batches.items()):
            if span.first > at or (span.first < at and not self._again):
                raise ViolationError(broken, f"batch {number} begins at {span.first}, those before end at {at}")
            self._observed[Observed.DUPLICATED] += min(at, span.end) - span.first
            at = max(at, span.end)
            right = tuple(state_at(p, self._begins, span.end) for p in range(PARTITIONS))
            if states != right:
                raise ViolationError(broken, f"batch {number} holds {states}, right is {right}")
        if at != end:
            raise ViolationError(broken, f"the sink holds the input up to {at} of {end}")
