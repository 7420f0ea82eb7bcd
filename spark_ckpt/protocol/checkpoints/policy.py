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
        self.interval_ms = None if settings.interval_ms is None else max(settings.interval_ms, settings.min_pause_ms)
        """None: never, no checkpoint is due by itself. 0: every epoch is to be one."""
        self.interval_over = False
        """The interval has passed since the last one was triggered."""
        self._pausing = False
        """`minPause` has not passed yet since the last one ended."""
        self._context = context
        self._timers = timers
        self._changed = changed

    def begin(self) -> list[Instruction]:
        """The run begins."""
        if not self.interval_ms:
            return []
        delay_ms = first_delay_ms(self._context.claim.nonce, self.interval_ms, self._context.settings.min_pause_ms)
        return self._timers.set(Timer.INTERVAL, delay_ms, self._on_interval_over)

    @property
    def long_ms(self) -> int:
        """After which an epoch that runs is a long one: what is asked for meanwhile is not to wait for its end. Rule: in real time, where
        epochs are as long as the trigger says, the log is looked at as often as while idle."""
        settings = self._context.settings
        return settings.idle_ms if self.interval_ms is None or settings.real_time else self.interval_ms

    def has_room(self, pending: int) -> bool:
        """Whether one more may be in the making. `pending`: how many are that count."""
        return pending < self._context.settings.max_concurrent

    def is_due(self, pending: int, pressure: bool) -> bool:
        """Whether a checkpoint is to begin now. `pending`: how many are in the making that count; `pressure`: what only a checkpoint
        frees grows, which waits for neither interval nor pause."""
        if self._context.waits_for_checkpoints:
            return True
        over = self.interval_over or self.interval_ms == 0
        return self.has_room(pending) and (pressure or (over and not self._pausing))

    def due_again(self, lacks: bool = True) -> None:
        """What was in the making is not any more, if it `lacks`; where an interval says so, the next one is due."""
        self.interval_over = self.interval_over or (lacks and self.interval_ms is not None)

    def triggered(self) -> list[Instruction]:
        """One has begun because it was due, or asked for."""
        self.interval_over = False
        if self._context.waits_for_checkpoints or not self.interval_ms:
            return []
        return self._timers.set(Timer.INTERVAL, self.interval_ms, self._on_interval_over)

    def ended(self) -> list[Instruction]:
        """One that counts has completed, or was aborted."""
        if not self._context.settings.min_pause_ms or self._context.waits_for_checkpoints:
            return []
        self._pausing = True
        return self._timers.set(Timer.PAUSE, self._context.settings.min_pause_ms, self._on_pause_over)

    def _on_interval_over(self, _event: TimerFired) -> list[Instruction]:
        self.interval_over = True
        return self._changed()

    def _on_pause_over(self, _event: TimerFired) -> list[Instruction]:
        self._pausing = False
        return self._changed()
