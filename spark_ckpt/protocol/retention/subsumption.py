"""What a run still needs of completed checkpoints, and what may go (Flink: `CheckpointSubsumeHelper`, `SharedStateRegistry`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Snapshot
from spark_ckpt.paths import run_prefix
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.completed import CompletedCheckpointStore
from spark_ckpt.protocol.retention.deleter import Deleter
from spark_ckpt.protocol.retention.deletion import Batch, Deletions
from spark_ckpt.protocol.retention.shared_state import SharedStateRegistry
from spark_ckpt.protocol.start.beginning import Beginning


class Subsumption:
    """`deletions`, `store`: the rules of deletion, and of which checkpoint is the newest. `gone`: something was deleted."""

    def __init__(
        self,
        context: Context,
        beginning: Beginning,
        deletions: Callable[[SharedStateRegistry], Deletions],
        store: type[CompletedCheckpointStore],
        gone: Callable[[], list[Instruction]],
    ) -> None:
        self.registry = SharedStateRegistry()
        for checkpoint in (*beginning.inherited, *beginning.not_inherited):
            self.registry.register(checkpoint)
        origin_last = sorted(beginning.inherited, key=lambda c: beginning.origin is not None and c.id == beginning.origin.id)
        self.store = store(context.settings.retained, origin_last, beginning.not_inherited)
        self.deletions = deletions(self.registry)
        self.deletions.planned.since = beginning.next_number
        for number, objects in beginning.planned.items():
            self.deletions.planned.add(number, objects)
        self.deleter = Deleter(context.claim, context.questions, self._deleted)
        self._context = context
        self._gone = gone
        self._superseded: list[CheckpointId] = []
        self._discarded: dict[str, int] = {}
        self._base_until: dict[CheckpointId, int] = {}

    @property
    def base(self) -> CheckpointId | None:
        """The newest completed checkpoint."""
        return self.store.newest.id if self.store.newest else None

    @property
    def completed_epoch(self) -> int:
        """Its epoch, under the run's own numbers."""
        newest, claim = self.store.newest, self._context.claim
        if claim.first is not None and (newest is None or newest.id == claim.origin):
            return claim.first - 1
        return newest.id.epoch if newest else -1

    @property
    def lowest_entry(self) -> int | None:
        """Of the log, that a start from any checkpoint of the run reads. None while no checkpoint is known to be complete: a start may need
        the whole log then, and one that is registered may be an aborted one, of whose `_metadata` it is not known whether it lands."""
        return self.registry.lowest_entry if self.store.newest is not None else None

    def loads_from_base(self, epoch: int) -> None:
        """The tasks of this epoch load what the newest checkpoint holds."""
        if self.base is not None:
            self._base_until[self.base] = epoch

    def take_over(self, epoch: int) -> None:
        """Rule: what tasks of epochs up to this one have loaded from was known to a coordinator that has died: any checkpoint, maybe."""
        self._base_until.update(dict.fromkeys(self.store.ids, epoch))

    # --- what was uploaded, and is in no checkpoint yet

    def discard(self, snapshots: Iterable[Snapshot], is_named: Callable[[str], bool], epoch: int) -> None:
        """Rule: what losing and aborted attempts uploaded goes when a later checkpoint than `epoch`'s completes, less all that anything
        names. `is_named`: by a checkpoint in the making; `epoch`: the newest that was triggered, or is about to be."""
        own = run_prefix(self._context.claim.run)
        objects = {h.object for snapshot in snapshots for h in snapshot.handles}
        theirs = {o for o in objects if o.startswith(own) and not self.deleter.has_deleted(o) and not is_named(o)}
        self._discarded.update(dict.fromkeys(sorted(theirs), epoch))

    def heard(self, keys: Iterable[str], epoch: int) -> None:
        """Nobody reads these acknowledgements again once a later checkpoint completes."""
        self._discarded.update((key, epoch) for key in keys if not self.deleter.has_deleted(key))

    def keep(self, snapshots: Iterable[Snapshot]) -> None:
        """Acknowledgements that count name their objects."""
        kept = {h.object for snapshot in snapshots for h in snapshot.handles}
        self.deletions.keep(kept)
        for name in kept:
            self._discarded.pop(name, None)

    def deleted_objects(self, acks: Iterable[Ack]) -> frozenset[str]:
        """Objects that any of the acks names, although their deletion was asked for."""
        named = {h.object for ack in acks for h in ack.snapshot.handles}
        return frozenset(name for name in named if self.deleter.has_deleted(name))

    def deleted_object(self, ack: Ack) -> str | None:
        """An object that the ack names, although its deletion was asked for."""
        return next((o for o in sorted({h.object for h in ack.snapshot.handles}) if self.deleter.has_deleted(o)), None)

    # --- completions

    def subsume(self, dropped: Iterable[CheckpointId], making: Collection[int], pinned: Callable[[CheckpointId], bool]) -> None:
        """Rule: a checkpoint that tasks may have loaded from stays until one that was triggered after them completes: what they loaded may
        be part of what they upload, and of no other checkpoint yet (a task moved, an agent was replaced). The same for what aborted ones
        uploaded.

        `making`: the epochs of checkpoints in the making. `pinned`: being copied.
        """
        self._superseded += dropped
        newest = self.completed_epoch
        if self.is_overtaken(making):
            return
        free = dict.fromkeys(c for c in self._superseded if not pinned(c) and self._base_until.get(c, -1) <= newest)
        self._superseded = [c for c in self._superseded if c not in free]
        for c in free:
            self._base_until.pop(c, None)
        ready = [name for name, epoch in self._discarded.items() if epoch < newest]
        for name in ready:
            del self._discarded[name]
        self.deletions.drop(free, [name for name in ready if name not in self.registry])

    def is_overtaken(self, making: Collection[int]) -> bool:
        """Rule: nothing goes while the newest has overtaken one in the making (a savepoint), which may share anything that was stored
        before it completes."""
        return min(making, default=self.completed_epoch) < self.completed_epoch

    def completed(self, checkpoint: Checkpoint) -> list[CheckpointId]:
        """Returns those that are too many now."""
        self.registry.register(checkpoint)
        return self.store.add(checkpoint)

    # --- deletion

    def appended(self, number: int, named: frozenset[str]) -> list[Instruction]:
        """An append of the run's own is stored: what waited for it goes. `named`: by checkpoints in the making."""
        return self.deleter.delete(self.deletions.append_stored(number, named))

    def let_go(self, held: frozenset[str]) -> list[Instruction]:
        """Large files of the driver go that nothing names any more: whoever starts from a checkpoint finds all that it takes named there,
        or by entries that are still in the log. `held`: by the driver's folder, by plans in line, and by checkpoints in
        the making."""
        planned = self.deletions.planned
        if not planned.is_loose:
            return []
        free = planned.take_free(held | self.registry.named())
        return self.deleter.delete(Batch((), tuple(sorted(free)))) if free else []

    def everything(self, finalising: Iterable[CheckpointId], named: frozenset[str]) -> Batch:
        """That the stream has in the storage, as far as this run remembers. `finalising`: checkpoints in the making whose `_metadata` may
        be there; `named`: what is in the making names."""
        queued = self.deletions.queued
        checkpoints = self.registry.checkpoints.union(finalising, queued.checkpoints)
        objects = self.registry.named().union(named, self._discarded, queued.objects, self.deletions.planned.objects)
        return Batch(tuple(sorted(checkpoints)), tuple(sorted(objects)))

    def _deleted(self, batch: Batch) -> list[Instruction]:
        self.deletions.deleted(batch)
        return self._gone()
