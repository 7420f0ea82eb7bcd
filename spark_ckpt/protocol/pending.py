"""A checkpoint between its barrier and its `_metadata` (Flink: `PendingCheckpoint`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from enum import Enum

from spark_ckpt.model import Ack, CheckpointId, Decline, Snapshot
from spark_ckpt.protocol.commit import Slot
from spark_ckpt.protocol.reasons import AckResult
from spark_ckpt.protocol.subtasks import Subtasks


class PendingState(Enum):
    GATHERING = "GATHERING"
    """Tasks run; which acks are needed is not known yet."""
    SEALED = "SEALED"
    """`commits/N` named the acks that are needed."""
    DISCARDED = "DISCARDED"


class PendingCheckpoint:
    """Acks and declines of one epoch. The first ack of a unique id counts: an id belongs to one attempt of one task."""

    def __init__(self, checkpoint: CheckpointId, log: int, triggered_ms: int) -> None:
        self.id = checkpoint
        self.log = log
        self.triggered_ms = triggered_ms
        self.state = PendingState.GATHERING
        self.acks: dict[str, Ack] = {}
        self.subtasks = Subtasks()
        self.declines: dict[str, Decline] = {}
        self.required: dict[str, Slot] = {}
        self.carried: dict[str, Snapshot] = {}
        self._missing: set[str] = set()

    def acknowledge(self, ack: Ack) -> AckResult:
        uid = ack.snapshot.uid
        if self.state is PendingState.DISCARDED or (ack.run, ack.epoch) != (self.id.run, self.id.epoch):
            return AckResult.DISCARDED
        if uid in self.acks:
            return AckResult.DUPLICATE
        if self.state is PendingState.SEALED and not self._needs(uid, ack):
            return AckResult.UNKNOWN
        self.acks[uid] = ack
        self.subtasks.add(ack)
        self._missing.discard(uid)
        return AckResult.SUCCESS

    def decline(self, decline: Decline) -> AckResult:
        if self.state is PendingState.DISCARDED or (decline.run, decline.epoch) != (self.id.run, self.id.epoch):
            return AckResult.DISCARDED
        if self.state is PendingState.SEALED and decline.uid not in self.required:
            return AckResult.UNKNOWN
        if decline.uid in self.acks or decline.uid in self.declines:
            return AckResult.DUPLICATE
        self.declines[decline.uid] = decline
        return AckResult.SUCCESS

    def seal(self, required: Mapping[str, Slot], known: Iterable[Snapshot]) -> list[Snapshot]:
        """Learn which ids are needed; returns the snapshots of losing attempts, which count no more.

        An id that the previous checkpoint already holds (`known`) is satisfied by its snapshot: that store took no part in the epoch.
        """
        self.state = PendingState.SEALED
        self.required = dict(required)
        losers = [ack for uid, ack in self.acks.items() if not self._needs(uid, ack)]
        for ack in losers:
            del self.acks[ack.snapshot.uid]
        if losers:
            self.subtasks = Subtasks(self.acks.values())
        lacking = self.required.keys() - self.acks.keys()
        self.carried = {s.uid: s for s in known if s.uid in lacking} if lacking else {}
        self._missing = lacking - self.carried.keys()
        return [ack.snapshot for ack in losers]

    def discard(self) -> list[Snapshot]:
        """Aborted; returns the snapshots whose uploads are to be released. Those carried may be in no checkpoint yet either."""
        self.state = PendingState.DISCARDED
        return [*(ack.snapshot for ack in self.acks.values()), *self.carried.values()]

    @property
    def missing(self) -> Set[str]:
        """Needed ids that nothing satisfies yet. Looked at with every ack of maybe tens of thousands."""
        return self._missing

    @property
    def refused(self) -> Decline | None:
        """The first decline of a needed snapshot; none as long as it is not known what is needed."""
        return next((d for uid, d in self.declines.items() if uid in self.missing), None)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """What `_metadata` will hold, ordered by store."""
        found = [self.acks[uid].snapshot if uid in self.acks else self.carried[uid] for uid in self.required]
        return tuple(sorted(found, key=lambda s: (s.store.operator, s.store.partition, s.store.store, s.uid)))

    def _needs(self, uid: str, ack: Ack) -> bool:
        slot, store = self.required.get(uid), ack.snapshot.store
        return slot is not None and slot.operator == store.operator and slot.partition == store.partition
