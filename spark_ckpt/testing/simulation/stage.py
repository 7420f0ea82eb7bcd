"""Source and sink of the simulated query, and what its state must be."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from spark_ckpt.testing.simulation.happened import Happened
from spark_ckpt.testing.simulation.rules import Rule, ViolationError

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


def state_at(partition: int, end: int) -> int:
    """What one pass over the input gives: the running sum."""
    return sum_of(partition, Span(0, end))


class Source:
    """Has more input as time goes on, but gives only what a plan says. `forgetful`: its name, if it may not give the same data twice."""

    def __init__(self, available: int, forgetful: tuple[str, ...] = ()) -> None:
        self.available = available
        self.forgetful = forgetful


Row = tuple[Span, tuple[int, ...]]


class Sink:
    """Idempotent by batch id like Spark's file sink: it skips every id up to its latest, whatever that carries."""

    def __init__(self, happened: Counter[Happened]) -> None:
        self.batches: list[Row] = []
        self._happened = happened

    def add_batch(self, batch: int, row: Row, who: str) -> None:
        if batch < len(self.batches):
            self._happened[Happened.SKIPPED] += 1
            if self.batches[batch] != row:
                raise ViolationError(Rule.SAME_DATA, f"{who} ran batch {batch} as {row}, the sink holds {self.batches[batch]}")
            return
        if batch > len(self.batches):
            raise ViolationError(Rule.WHOLE_INPUT, f"{who} wrote batch {batch}, the sink's latest is {len(self.batches) - 1}")
        self.batches.append(row)

    @property
    def end(self) -> int:
        return self.batches[-1][0].end if self.batches else 0

    def check(self, end: int) -> None:
        """The batches hold one pass over the input up to `end`."""
        at = 0
        for number, (span, states) in enumerate(self.batches):
            if span.first != at:
                raise ViolationError(Rule.WHOLE_INPUT, f"batch {number} begins at {span.first}, the one before ends at {at}")
            at = span.end
            right = tuple(state_at(p, at) for p in range(PARTITIONS))
            if states != right:
                raise ViolationError(Rule.WHOLE_INPUT, f"batch {number} holds {states}, right is {right}")
        if at != end:
            raise ViolationError(Rule.WHOLE_INPUT, f"the sink holds the input up to {at} of {end}")
