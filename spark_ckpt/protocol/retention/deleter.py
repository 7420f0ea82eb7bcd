"""Deletions that are under way, and those that failed and wait for another try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Instruction, Level
from spark_ckpt.protocol.machine import Questions
from spark_ckpt.protocol.retention.deletion import Batch, gathered

REMEMBERED = 10_000
"""How many objects that are gone are remembered, to refuse acks that name one; those whose deletion is still to come are in any case."""
MOST_PASSED = 64
"""How many calls at most pass without a deletion, when deletions fail."""


@dataclass
class _Line:
    """Deletions of one kind, one under way at a time; what failed is the first that waits."""

    waiting: list[Batch] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    failures: int = 0
    pause: int = 0
    """So many calls are still to pass."""


class Deleter:
    """What comes while a deletion is under way goes with the next: so a storage that is slow to delete is asked less often for more,
    instead of falling behind. `gone`: called when a batch is gone.

    The savepoint that the stream took over goes with the checkpoint that was copied from it (CLAIM). It lies where the stream may have no
    right to delete: where it cannot go then, it has a line of its own, so that nothing else waits for it.
    """

    def __init__(self, claim: Claim, questions: Questions, gone: Callable[[Batch], list[Instruction]]) -> None:
        self._owned = claim.restored if claim.restored and claim.restored.owned else None
        self._questions = questions
        self._gone = gone
        self._going: set[str] = set()
        self._deleted: dict[str, None] = {}
        self._old = _Line()
        self._taken_over = _Line()
        self._keeps = False

    def has_deleted(self, name: str) -> bool:
        """The object is to be deleted, or is gone."""
        return name in self._going or name in self._deleted

    @property
    def open(self) -> frozenset[int]:
        """The tickets of deletions that are under way."""
        return frozenset(self._old.open | self._taken_over.open)

    def delete(self, batch: Batch | None, at_last: bool = False) -> list[Instruction]:
        """What is new, and what failed before, unless one is under way (`at_last`: beside it). After failures more and more calls pass
        without a request (`at_last`: this one does not): a storage that refuses deletions would be asked for more with every epoch."""
        if batch:
            self._going.update(batch.objects)
            self._old.waiting.append(batch)
        return [i for line in (self._old, self._taken_over) for i in self._ask(line, at_last)]

    def keep_rest(self) -> None:
        """Rule: what has not been asked for stays where damage was found. It may be all that is intact; whoever starts takes it over."""
        self._keeps = True

    def _ask(self, line: _Line, at_last: bool = False) -> list[Instruction]:
        if not line.waiting or self._keeps or (line.open and not at_last):
            return []
        if line.pause and not at_last:
            line.pause -= 1
            return []
        batch, line.waiting = gathered(line.waiting), []
        return [self._delete(line, batch)]

    def _delete(self, line: _Line, batch: Batch) -> Instruction:
        by_itself = line is self._taken_over
        owned = self._owned
        savepoint = owned if owned is not None and (by_itself or owned.imported in batch.checkpoints) else None

        def deleted(event: ev.Deleted) -> list[Instruction]:
            line.open.discard(event.ticket)
            if event.failure is not None:
                return self._failed(line, batch, f"{self._left_over if by_itself else self._backlog(batch)}: {event.failure}")
            left: list[Instruction] = []
            if event.savepoint_failure is not None:
                left = self._failed(self._taken_over, Batch((), ()), f"{self._left_over}: {event.savepoint_failure}")
            if event.savepoint_kept is not None:
                left = [do.Log(Level.WARN, f"{self._named} stays, and is yours to delete: {event.savepoint_kept}")]
            if by_itself:
                return left
            line.failures = line.pause = 0
            self._remember(batch.objects)
            return [*left, *self._gone(batch), *self._ask(line)]

        asked = self._questions.ask(lambda ticket: do.Delete(ticket, batch.checkpoints, batch.objects, savepoint), deleted)
        line.open.add(asked.ticket)
        return asked

    def _failed(self, line: _Line, batch: Batch, message: str) -> list[Instruction]:
        line.waiting.insert(0, batch)
        line.failures += 1
        line.pause = min(2**line.failures, MOST_PASSED) - 2
        return [do.Log(Level.WARN, message)]

    def _remember(self, gone: tuple[str, ...]) -> None:
        self._going.difference_update(gone)
        self._deleted.update(dict.fromkeys(gone))
        while len(self._deleted) > REMEMBERED:
            del self._deleted[next(iter(self._deleted))]

    def _backlog(self, failed: Batch) -> str:
        """All of it is in the registry, and has to be: a successor may go on from one of these checkpoints."""
        waiting = gathered([failed, *self._old.waiting])
        return (
            f"old checkpoints could not be deleted, which is tried again; until then they cost storage, and memory of the coordinator "
            f"({len(waiting.checkpoints)} checkpoints, {len(waiting.objects)} objects)"
        )

    @property
    def _named(self) -> str:
        return f"the savepoint {self._owned.path if self._owned else ''}, which this stream has taken over,"

    @property
    def _left_over(self) -> str:
        again = "that is tried again until the query or its coordinator starts again, and then it is yours to delete"
        return f"{self._named} could not be deleted; {again}"
