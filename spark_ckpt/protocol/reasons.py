"""Results and reasons, as enums."""

from __future__ import annotations

from enum import Enum


class AckResult(Enum):
    """What became of an acknowledgement (Flink: `PendingCheckpoint.TaskAcknowledgeResult`)."""

    SUCCESS = "SUCCESS"
    DUPLICATE = "DUPLICATE"
    UNKNOWN = "UNKNOWN"
    """Not required: a losing attempt."""
    DISCARDED = "DISCARDED"
    """Its checkpoint is gone, or it is another run's."""


class AbortReason(Enum):
    """Why a checkpoint was aborted (Flink: `CheckpointFailureReason`)."""

    PLAN_FAILURE = "PLAN_FAILURE"
    """The plan could not be stored (Flink: TRIGGER_CHECKPOINT_FAILURE)."""
    EXPIRED = "EXPIRED"
    """Not complete within `spark.ckpt.timeout` (Flink: CHECKPOINT_EXPIRED)."""
    DECLINED = "DECLINED"
    """An executor could not store a snapshot (Flink: CHECKPOINT_DECLINED)."""
    LOST = "LOST"
    """Snapshots died with their executor (Flink: TASK_FAILURE)."""
    SUBSUMED = "SUBSUMED"
    """A newer checkpoint completed first (Flink: CHECKPOINT_SUBSUMED)."""
    BAD_COMMIT = "BAD_COMMIT"
    """`commits/N` cannot be read."""
    FINALISE_FAILURE = "FINALISE_FAILURE"
    """`_metadata` could not be stored (Flink: FINALIZE_CHECKPOINT_FAILURE)."""
    STOPPED = "STOPPED"
    """The query stopped (Flink: CHECKPOINT_COORDINATOR_SHUTDOWN)."""


TOLERATED = frozenset([AbortReason.EXPIRED, AbortReason.DECLINED, AbortReason.FINALISE_FAILURE, AbortReason.BAD_COMMIT])
"""What counts against `spark.ckpt.tolerableFailures` (Flink: `CheckpointFailureManager`)."""


class HandoverFailure(Enum):
    """Why a task does not get the state that another executor has committed."""

    LOST = "LOST"
    """Nobody has it: the query goes back to its last checkpoint."""
    DECLINED = "DECLINED"
    """Who has it cannot store it now."""


class Outcome(Enum):
    """What is known of a put."""

    STORED = "STORED"
    EXISTS = "EXISTS"
    """Something is there already; possibly one's own."""
    UNKNOWN = "UNKNOWN"
    """Sent, and the answer was lost: it may land, now or later."""
    FAILED = "FAILED"
    """Not stored; trying again may help."""
    HOPELESS = "HOPELESS"
    """Not stored; trying again cannot help (wrong credentials, no such bucket)."""
