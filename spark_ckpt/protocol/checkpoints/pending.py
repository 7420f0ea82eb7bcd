"""A checkpoint between its barrier and its `_metadata` (Flink: `PendingCheckpoint`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, Content, objects_of
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements, Gathering
from spark_ckpt.protocol.checkpoints.required_ids import Slot, required_ids
from spark_ckpt.protocol.checkpoints.stats import Summary, summary_of
from spark_ckpt.protocol.durable_put import DurablePut


@dataclass(frozen=True)
class FinishedEpoch:
    """What a checkpoint of a finished epoch needs. `required` is None where `commits/N` cannot be read, for the reason in `problem`.

    `files`: all driver files as they were when it ended. `losses`: by id, how many executors had been lost before it was committed, at
    least: when the first of the epochs was triggered that need it. `hooks`: the states of the query's hooks; `declined`: why one of them
    gave none, and the epoch can be no checkpoint.
    """

    epoch: int
    required: Mapping[str, Slot] | None
    time_ms: int
    files: Mapping[str, Content]
    losses: Mapping[str, int]
    problem: str = ""
    hooks: Mapping[str, bytes] = field(default_factory=dict)
    declined: str = ""

    @property
    def unfit(self) -> str:
        """Why it can be no checkpoint; empty: it can."""
        return self.problem or self.declined

    @staticmethod
    def of(
        epoch: int, commit: Content | None, time_ms: int, files: Mapping[str, Content], losses: int, before: FinishedEpoch | None
    ) -> FinishedEpoch:
        """`commit`: what `commits/N` holds, None if it is not there. `losses`: of executors, before it was triggered. `before`: the epoch
        that had ended last."""
        earlier = before.losses if before else {}
        try:
            required = required_ids(epoch, commit if isinstance(commit, bytes) else b"")
        except FormatError as error:
            return FinishedEpoch(epoch, None, time_ms, files, earlier, str(error))
        return FinishedEpoch(epoch, required, time_ms, files, {uid: earlier.get(uid, losses) for uid in required})


class PendingCheckpoint:
    """`log`: the entry that plans its epoch, 0 until that is stored."""

    def __init__(self, checkpoint: CheckpointId, log: int, triggered_ms: int, plan_ms: int) -> None:
        self.id = checkpoint
        self.log = log
        self.triggered_ms = triggered_ms
        self.plan_ms = plan_ms
        self.acks = Acknowledgements(checkpoint)
        self.savepoint = False
        self.on_demand = False
        """Only a person has asked for it."""
        self.late = False
        """Executors are told to upload what they have of its epoch: its barrier did not say so."""
        self.bridges = False
        """It was begun because a later epoch runs for long, and only until that one ends. It is more than was asked for: it counts neither
        against `maxConcurrent` nor when it fails."""
        self.files: Mapping[str, Content] = {}
        self.hooks: Mapping[str, bytes] = {}
        self.losses: Mapping[str, int] = {}
        """`FinishedEpoch.losses` of its epoch, once that has ended."""
        self.checkpoint: Checkpoint | None = None
        """As it is to be stored, once all is there."""
        self.put: DurablePut | None = None
        """Of its `_metadata`."""
        self.finalise_from = 0
        self.left: int | None = None
        """The ticket of a look for acks that a lost executor has left."""

    @property
    def epoch(self) -> int:
        return self.id.epoch

    @property
    def waits_for_acks(self) -> bool:
        """Its epoch has ended, and its `_metadata` is not under way."""
        return self.acks.state is Gathering.SEALED and self.put is None

    @property
    def counts(self) -> bool:
        """Against `maxConcurrent`, and when it fails."""
        return not self.savepoint and not self.bridges

    @property
    def driver_objects(self) -> frozenset[str]:
        return objects_of(self.files.values())

    def summary(self, now_ms: int, **numbers: Any) -> Summary:
        return summary_of(self.id, self.triggered_ms, self.acks, now_ms, self.plan_ms, **numbers)
