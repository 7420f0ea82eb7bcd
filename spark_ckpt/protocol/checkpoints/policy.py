"""When a checkpoint begins (Flink: `CheckpointCoordinator`'s scheduling, `CheckpointRequestDecider`)."""

from __future__ import annotations

from collections.abc import Callable

from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.events import Timer, TimerFired
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.timers import Timers

_SPREAD = 0x9E3779B97F4A7C15
_BITS = 64
_ALL = (1 << _BITS) - 1


def first_delay_ms(nonce: str, interval_ms: int, pause_ms: int) -> int:
    """Evenly between pause and interval, so that the streams of a cluster do not all begin at once; the claim's nonce is the dice."""
    dice = (int.from_bytes(nonce.encode(), "big") * _SPREAD) & _ALL
    return pause_ms + (dice * (interval_ms - pause_ms + 1) >> _BITS)


class CheckpointPolicy:
    """`changed`: called when one that was not due may be due now."""

    def __init__(self, context: Context, timers: Timers, changed: Callable[[], list[Instruction]]) -> None:
        settings = context.settings
        self.interval_ms = max(settings.interval_ms, settings.min_pause_ms)
        self.interval_over = False
        """The interval has passed since the last one was triggered."""
        self._pausing = False
        """`minPause` has not passed yet since the last one ended."""
        self._context = context
        self._timers = timers
        self._changed = changed

    def begin(self) -> list[Instruction]:
        """The run begins."""
        delay_ms = first_delay_ms(self._context.claim.nonce, self.interval_ms, self._context.settings.min_pause_ms)
        return self._timers.set(Timer.INTERVAL, delay_ms, self._on_interval_over)

    def is_due(self, pending: int, pressure: bool) -> bool:
        """Whether a checkpoint is to begin now. `pending`: how many are in the making that count; `pressure`: spools fill up, which waits
        for neither interval nor pause."""
        if self._context.every_epoch:
            return True
        return pending < self._context.settings.max_concurrent and (pressure or (self.interval_over and not self._pausing))

    def triggered(self) -> list[Instruction]:
        """One has begun because it was due."""
        self.interval_over = False
        return [] if self._context.every_epoch else self._timers.set(Timer.INTERVAL, self.interval_ms, self._on_interval_over)

    def ended(self) -> list[Instruction]:
        """One that counts has completed, or was aborted."""
        if not self._context.settings.min_pause_ms or self._context.every_epoch:
            return []
        self._pausing = True
        return self._timers.set(Timer.PAUSE, self._context.settings.min_pause_ms, self._on_pause_over)

    def _on_interval_over(self, _event: TimerFired) -> list[Instruction]:
        self.interval_over = True
        return self._changed()

    def _on_pause_over(self, _event: TimerFired) -> list[Instruction]:
        self._pausing = False
        return self._changed()
