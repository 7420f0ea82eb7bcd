"""Acknowledgements and declines of one checkpoint, and what still lacks one (Flink: `PendingCheckpoint.acknowledgeTask`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from enum import Enum

from spark_ckpt.model import Ack, CheckpointId, Decline, Snapshot
from spark_ckpt.protocol.checkpoints.required_ids import Slot
from spark_ckpt.protocol.checkpoints.subtasks import Subtasks
from spark_ckpt.protocol.reasons import AckResult


class Gathering(Enum):
    OPEN = "OPEN"
    """Tasks run; which acks are needed is not known yet."""
    SEALED = "SEALED"
    """`commits/N` named the acks that are needed."""
    DISCARDED = "DISCARDED"


class Acknowledgements:
    """The first ack of a unique id counts: an id belongs to one attempt of one task."""

    def __init__(self, checkpoint: CheckpointId) -> None:
        self.state = Gathering.OPEN
        self.subtasks = Subtasks()
        self.required: dict[str, Slot] = {}
        self.carried: dict[str, Snapshot] = {}
        """By id, snapshots that were acknowledged for another epoch."""
        self._checkpoint = checkpoint
        self._acks: dict[str, Ack] = {}
        self._names: Counter[str] = Counter()
        """Objects of all that counts, and how many times, but for those of the `_unnamed`."""
        self._unnamed: list[Snapshot] = []
        """Counted, and nobody has asked since which objects are named."""
        self._declines: dict[str, Decline] = {}
        self._missing: set[str] = set()

    def acknowledge(self, ack: Ack) -> AckResult:
        uid = ack.snapshot.uid
        if self.state is Gathering.DISCARDED or (ack.run, ack.epoch) != (self._checkpoint.run, self._checkpoint.epoch):
            return AckResult.DISCARDED
        if uid in self._acks:
            return AckResult.DUPLICATE
        if self.state is Gathering.SEALED and not self._needs(ack.snapshot):
            return AckResult.UNKNOWN
        self._acks[uid] = ack
        self._unnamed.append(ack.snapshot)
        self.subtasks.add(ack)
        self._missing.discard(uid)
        return AckResult.SUCCESS

    def decline(self, decline: Decline) -> AckResult:
        if self.state is Gathering.DISCARDED or (decline.run, decline.epoch) != (self._checkpoint.run, self._checkpoint.epoch):
            return AckResult.DISCARDED
        if self.state is Gathering.SEALED and decline.uid not in self.required:
            return AckResult.UNKNOWN
        if decline.uid in self._acks or decline.uid in self._declines:
            return AckResult.DUPLICATE
        self._declines[decline.uid] = decline
        return AckResult.SUCCESS

    def seal(self, required: Mapping[str, Slot]) -> list[Snapshot]:
        """Learn which ids are needed; returns the snapshots of losing attempts, which count no more."""
        self.state = Gathering.SEALED
        self.required = dict(required)
        losing = [ack for ack in self._acks.values() if not self._needs(ack.snapshot)]
        for ack in losing:
            del self._acks[ack.snapshot.uid]
            self._counted_names.subtract(h.object for h in ack.snapshot.handles)
        if losing:
            self._names = +self._names
            self.subtasks = Subtasks(self._acks.values())
        self._missing = set(self.required.keys() - self._acks.keys())
        return [ack.snapshot for ack in losing]

    def carry(self, snapshot: Snapshot) -> bool:
        """A snapshot that was acknowledged for another epoch counts where its id is needed: ids are never used twice. Its store took
        no part in this epoch, or its ack came before it was asked for."""
        if snapshot.uid not in self._missing or not self._needs(snapshot):
            return False
        self.carried[snapshot.uid] = snapshot
        self._unnamed.append(snapshot)
        self._missing.discard(snapshot.uid)
        return True

    def discard(self) -> list[Snapshot]:
        """Aborted; returns the snapshots whose uploads are to be discarded. Those carried may be in no checkpoint yet either."""
        self.state = Gathering.DISCARDED
        return [*self.acknowledged, *self.carried.values()]

    @property
    def acknowledged(self) -> list[Snapshot]:
        return [ack.snapshot for ack in self._acks.values()]

    def find(self, uid: str) -> Snapshot | None:
        ack = self._acks.get(uid)
        return ack.snapshot if ack else self.carried.get(uid)

    @property
    def counted(self) -> int:
        """Needed snapshots that are durable."""
        return len(self._acks) + len(self.carried)

    @property
    def named(self) -> frozenset[str]:
        """Objects of all that counts."""
        return frozenset(self._counted_names)

    def names(self, name: str) -> bool:
        """Whether that object is among them. Asked with every ack that nobody has asked for."""
        return name in self._counted_names

    @property
    def _counted_names(self) -> Counter[str]:
        if self._unnamed:
            self._names.update(h.object for snapshot in self._unnamed for h in snapshot.handles)
            self._unnamed.clear()
        return self._names

    @property
    def missing(self) -> Set[str]:
        """Needed ids that nothing satisfies yet. Looked at with every ack of maybe tens of thousands."""
        return self._missing

    @property
    def refused(self) -> Decline | None:
        """The first decline of a needed snapshot; none as long as it is not known what is needed."""
        return next((d for uid, d in self._declines.items() if uid in self._missing), None)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """What `_metadata` will hold, ordered by store."""
        found = [self._acks[uid].snapshot if uid in self._acks else self.carried[uid] for uid in self.required]
        return tuple(sorted(found, key=lambda s: (s.store.operator, s.store.partition, s.store.store, s.uid)))

    def _needs(self, snapshot: Snapshot) -> bool:
        slot, store = self.required.get(snapshot.uid), snapshot.store
        return slot is not None and (slot.operator, slot.partition) == (store.operator, store.partition)
