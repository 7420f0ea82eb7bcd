"""When the next checkpoint is due (Flink: `CheckpointCoordinator`'s scheduling, `CheckpointRequestDecider`)."""

from __future__ import annotations

_SPREAD = 0x9E3779B97F4A7C15
_BITS = 64
_ALL = (1 << _BITS) - 1


class Schedule:
    """Knows no clock: its owner sets the timers and tells when they fired. Durations in milliseconds."""

    def __init__(self, interval_ms: int, min_pause_ms: int, max_concurrent: int) -> None:
        self.interval_ms = max(interval_ms, min_pause_ms)
        self.min_pause_ms = min_pause_ms
        self.due = False
        """The interval has passed since the last one was triggered."""
        self.pausing = False
        """`minPause` has not passed yet since the last one ended."""
        self._max_concurrent = max_concurrent

    def first_delay_ms(self, nonce: str) -> int:
        """Evenly between pause and interval, so that the streams of a cluster do not all begin at once; the nonce is the dice."""
        dice = (int.from_bytes(nonce.encode(), "big") * _SPREAD) & _ALL
        return self.min_pause_ms + (dice * (self.interval_ms - self.min_pause_ms + 1) >> _BITS)

    def wants(self, pending: int, pressure: bool) -> bool:
        """Whether a checkpoint is to begin now. `pressure`: spools fill up, which waits for neither interval nor pause."""
        return pending < self._max_concurrent and (pressure or (self.due and not self.pausing))
