"""A checkpoint that completes while later epochs run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from spark_ckpt.model import Checkpoint, CheckpointId, Content, Snapshot
from spark_ckpt.protocol.commit import Slot
from spark_ckpt.protocol.pending import PendingCheckpoint, PendingState


class Final(Enum):
    """How far its `_metadata` is."""

    NOT_YET = "NOT_YET"
    STORING = "STORING"
    READING_BACK = "READING_BACK"
    """It is unknown whether it was put: read, compare, delete nothing."""


@dataclass(frozen=True)
class SealedEpoch:
    """What a checkpoint of a finished epoch needs. `required` is None where `commits/N` cannot be read, for the reason in `problem`.

    `files`: all driver files as they were when it ended.
    """

    epoch: int
    required: Mapping[str, Slot] | None
    time_ms: int
    files: Mapping[str, Content]
    problem: str = ""


class BackgroundCheckpoint(PendingCheckpoint):
    """`log` is 0 until its plan is stored. `base`: the checkpoint that the tasks of its epoch loaded from."""

    def __init__(self, checkpoint: CheckpointId, log: int, triggered_ms: int, base: CheckpointId | None, losses: int) -> None:
        super().__init__(checkpoint, log, triggered_ms)
        self.base = base
        self.losses_seen = losses
        self.savepoint = False
        self.late = False
        """Executors are told to upload what they have of its epoch: its barrier did not say so."""
        self.bridges = False
        """It was begun because a later epoch runs for long, and only until that one ends. It is more than was asked for: it counts neither
        against `maxConcurrent` nor when it fails."""
        self.plan_ms = 0
        self.files: Mapping[str, Content] = {}
        self.final = Final.NOT_YET
        self.checkpoint: Checkpoint | None = None
        self.attempt = 0
        self.cause = ""
        self.unknown = False
        """A put of `_metadata` was not answered: it may still land."""
        self.finalise_from = 0
        self.expiry: int | None = None
        self.left: int | None = None

    @property
    def epoch(self) -> int:
        return self.id.epoch

    @property
    def waits_for_acks(self) -> bool:
        return self.state is PendingState.SEALED and self.final is Final.NOT_YET

    @property
    def named(self) -> frozenset[str]:
        snapshots = [*(ack.snapshot for ack in self.acks.values()), *self.carried.values()]
        return frozenset(h.object for s in snapshots for h in s.handles)

    def carry(self, snapshot: Snapshot) -> bool:
        """A snapshot that was acknowledged for another epoch counts where its id is needed: ids are never used twice."""
        slot = self.required.get(snapshot.uid)
        if slot is None or not self.waits_for_acks or snapshot.uid not in self.missing:
            return False
        if (slot.operator, slot.partition) != (snapshot.store.operator, snapshot.store.partition):
            return False
        self.carried[snapshot.uid] = snapshot
        self._missing.discard(snapshot.uid)
        return True
