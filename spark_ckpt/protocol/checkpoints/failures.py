"""How many checkpoints may fail (Flink: `CheckpointFailureManager`)."""

from __future__ import annotations

from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.reasons import TOLERATED, AbortReason


class FailurePolicy:
    """Counts failures in a row. Where every epoch is a checkpoint the query waits for each: one that fails ends it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._in_a_row = 0

    def completed(self) -> None:
        self._in_a_row = 0

    def too_many(self, reason: AbortReason, counts: bool, message: str) -> str | None:
        """Why the query has to fail; None: it goes on. `counts`: the checkpoint is none that was made for somebody else's sake."""
        if self._context.waits_for_checkpoints:
            return message if reason is not AbortReason.LOST else None
        if reason not in TOLERATED or not counts:
            return None
        self._in_a_row += 1
        allowed = self._context.settings.tolerable_failures
        if self._in_a_row <= allowed:
            return None
        if self._in_a_row == 1:
            return message
        return f"{self._in_a_row} checkpoints in a row failed, spark.ckpt.tolerableFailures is {allowed}: {message}"
