"""The rule of deletion: when, and what.

The race it prevents: (1) a successor reads the log's tail, lists the checkpoints and takes K as its origin; (2) this run completes K+1
and drops K; (3) the successor restores from K and finds it gone. Therefore

* when: a run deletes nothing on the strength of a completion until an append of its own, *issued after* that completion was known, has
  succeeded. A successor that listed before the completion has not claimed before that append, so its claim is refused, and it looks again;
* what: only what the run itself remembers, never what a listing shows; and it spares every object that any checkpoint not itself on the
  list names, not only the retained ones: a successor may have listed one that was dropped since. Large files of the driver, which plans
  name too, never go with a checkpoint: they are let go when it is gone (`planned_files.py`).

Each of the two is a method of its own, so that the simulation can leave it out and must then find lost checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol.retention.planned_files import PlannedFiles, is_driver_file
from spark_ckpt.protocol.retention.shared_state import SharedStateRegistry


@dataclass(frozen=True)
class Batch:
    """What may be deleted now: the checkpoints' `_metadata` first, and only when those are gone their objects."""

    checkpoints: tuple[CheckpointId, ...]
    objects: tuple[str, ...]


def gathered(batches: Iterable[Batch]) -> Batch:
    """All in one, the oldest first: that is the first to be forgotten when it is gone (`Deleter`)."""
    checkpoints: dict[CheckpointId, None] = {}
    objects: dict[str, None] = {}
    for batch in batches:
        checkpoints.update(dict.fromkeys(batch.checkpoints))
        objects.update(dict.fromkeys(batch.objects))
    return Batch(tuple(checkpoints), tuple(objects))


class Deletions:
    """What waits for deletion, and for which append."""

    def __init__(self, registry: SharedStateRegistry) -> None:
        self._registry = registry
        self.planned = PlannedFiles()
        self._waiting: list[CheckpointId] = []
        self._discarded: dict[str, None] = {}
        self._issued: dict[int, tuple[list[CheckpointId], dict[str, None]]] = {}

    @property
    def queued(self) -> Batch:
        """Checkpoints that wait for deletion, and objects that do and that no checkpoint claims; `keep` takes those off again."""
        issued = self._issued.values()
        discarded = frozenset(self._discarded).union(*(objects for _, objects in issued))
        return Batch((*self._waiting, *(c for checkpoints, _ in issued for c in checkpoints)), tuple(sorted(discarded)))

    def drop(self, checkpoints: Iterable[CheckpointId], discarded: Iterable[str] = ()) -> None:
        """A completion made these superfluous; called when that completion is known."""
        self._waiting.extend(checkpoints)
        self._discarded.update(dict.fromkeys(discarded))

    def keep(self, objects: Iterable[str]) -> None:
        """An ack names these: not superfluous after all. There may be as many acks as things that wait."""
        for name in objects:
            self._discarded.pop(name, None)
            for _, discarded in self._issued.values():
                discarded.pop(name, None)

    def append_issued(self, number: int) -> None:
        """The put of log entry `number` is about to be sent for the first time: what waits now may go when it succeeds."""
        self._issued[number] = (self._waiting, self._discarded)
        self._waiting, self._discarded = [], {}

    def append_failed(self, number: int) -> None:
        """The entry is not ours: everything waits for another append."""
        checkpoints, discarded = self._issued.pop(number, ([], {}))
        self._waiting[:0] = checkpoints
        self._discarded.update(discarded)

    def append_stored(self, number: int, pending: Iterable[str] = ()) -> Batch | None:
        """An append of one's own succeeded; returns what may be deleted on its strength, None if nothing. `pending`: objects acks name."""
        checkpoints, discarded = self.freed_by(number)
        if not checkpoints and not discarded:
            return None
        objects = frozenset(discarded).union(*(self._registry.objects(c) for c in checkpoints)).difference(pending)
        objects -= self.spared(objects, checkpoints)
        going = tuple(sorted(name for name in objects if not is_driver_file(name)))
        return Batch(tuple(checkpoints), going) if checkpoints or going else None

    def deleted(self, batch: Batch) -> None:
        """It is gone: only now it spares nothing any more.

        A deletion can be overtaken by the next one, and until its `_metadata` is gone its objects must stay; those that the next one left
        because of that wait for another append.
        """
        named_by_it = frozenset[str]().union(*(self._registry.objects(c) for c in batch.checkpoints))
        for c in batch.checkpoints:
            self._registry.unregister(c)
        left = {name for name in named_by_it.difference(batch.objects) if name not in self._registry}
        self.planned.let_go(left)
        self._discarded.update(dict.fromkeys(sorted(name for name in left if not is_driver_file(name))))

    def freed_by(self, number: int) -> tuple[list[CheckpointId], list[str]]:
        """Rule *when*: only what waited before entry `number` was issued."""
        checkpoints, discarded = self._issued.pop(number, ([], {}))
        return checkpoints, list(discarded)

    def spared(self, objects: frozenset[str], checkpoints: list[CheckpointId]) -> frozenset[str]:
        """Rule *what*: of these objects every one that a checkpoint not on the list names, be it retained or itself waiting."""
        return self._registry.named_of(objects, but=checkpoints)
