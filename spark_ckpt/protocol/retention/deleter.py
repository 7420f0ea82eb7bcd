"""Deletions that are under way, and those that failed and wait for another try."""

from __future__ import annotations

from collections.abc import Callable

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


class Deleter:
    """One deletion is under way at a time, and what comes meanwhile goes with the next: so a storage that is slow to delete is asked less
    often for more, instead of falling behind. `gone`: called when a batch is gone."""

    def __init__(self, claim: Claim, questions: Questions, gone: Callable[[Batch], list[Instruction]]) -> None:
        self._claim = claim
        self._questions = questions
        self._gone = gone
        self._going: set[str] = set()
        self._deleted: dict[str, None] = {}
        self._waiting: list[Batch] = []
        self._open: set[int] = set()
        self._failures = self._pause = 0
        self._failed = False

    def has_deleted(self, name: str) -> bool:
        """The object is to be deleted, or is gone."""
        return name in self._going or name in self._deleted

    @property
    def open(self) -> frozenset[int]:
        """The tickets of deletions that are under way."""
        return frozenset(self._open)

    def delete(self, batch: Batch | None, at_last: bool = False) -> list[Instruction]:
        """What is new, and what failed before, unless one is under way (`at_last`: beside it). After failures more and more calls pass
        without a request (`at_last`: this one does not): a storage that refuses deletions would be asked for more with every epoch."""
        if batch:
            self._going.update(batch.objects)
            self._waiting.append(batch)
        if at_last or not self._open:
            if self._pause and not at_last:
                self._pause -= 1
                return []
            return self._ask()
        return []

    def _ask(self) -> list[Instruction]:
        waiting, self._waiting = self._waiting, []
        return [self._delete(b) for b in gathered(waiting, lambda b: self._savepoint_of(b) is not None)]

    def _delete(self, batch: Batch) -> Instruction:
        def deleted(event: ev.Deleted) -> list[Instruction]:
            self._open.discard(event.ticket)
            self._failed = self._failed or event.failure is not None
            failed, goes_on = self._failed, False
            if not self._open:
                self._failed, goes_on = False, not failed
                self._failures = self._failures + 1 if failed else 0
                self._pause = min(2**self._failures, MOST_PASSED) - 2 if failed else 0
            if event.failure is not None:
                self._waiting.insert(0, batch)
                return [do.Log(Level.WARN, f"{self._backlog}: {event.failure}")]
            self._remember(batch.objects)
            return [*self._gone(batch), *(self._ask() if goes_on else [])]

        asked = self._questions.ask(lambda ticket: do.Delete(ticket, batch.checkpoints, batch.objects, self._savepoint_of(batch)), deleted)
        self._open.add(asked.ticket)
        return asked

    def _remember(self, gone: tuple[str, ...]) -> None:
        self._going.difference_update(gone)
        self._deleted.update(dict.fromkeys(gone))
        while len(self._deleted) > REMEMBERED:
            del self._deleted[next(iter(self._deleted))]

    @property
    def _backlog(self) -> str:
        """All of it is in the registry, and has to be: a successor may go on from one of these checkpoints."""
        checkpoints, objects = sum(len(b.checkpoints) for b in self._waiting), sum(len(b.objects) for b in self._waiting)
        return (
            f"old checkpoints could not be deleted, which is tried again; until then they cost storage, and memory of the coordinator "
            f"({checkpoints} checkpoints, {objects} objects)"
        )

    def _savepoint_of(self, batch: Batch) -> str | None:
        """The savepoint that the stream took over goes when the checkpoint does that was copied from it (CLAIM)."""
        restored = self._claim.restored
        return restored.path if restored and restored.owned and restored.imported in batch.checkpoints else None
