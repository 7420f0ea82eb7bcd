"""What a run is configured with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_ckpt.protocol.retention.log_trim import DAY_MS, EVERY

REAL_TIME_AHEAD = 2
"""In real time an epoch is recorded when it has ended, and nobody waits for that: while one runs, so may the record of the one before it be
on its way."""
REAL_TIME_CONCURRENT = 2
"""Checkpoints in the making at a time, where every epoch in real time is one."""


@dataclass(frozen=True)
class Settings:
    """Durations in milliseconds, sizes in bytes.

    `interval_ms` 0: every epoch is a checkpoint; None: never, only if a person asks. `most_behind`: with so many epochs past the newest
    checkpoint one is due all the same, for a start has to read all their plans, and a claim to name them (`entries.MAX_ADOPTED`).
    `ahead`: so many epochs may run whose plan is not stored yet (0: exactly-once).
    `log_kept_ms`, `trim_every`: how old entries of the log become at least, and how many are appended between two looks at the old ones.
    """

    retained: int = 3
    timeout_ms: int = 600_000
    grace_ms: int = 5_000
    idle_ms: int = 5_000
    interval_ms: int | None = 0
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    ahead: int = 0
    spool_max_bytes: int = 10 * 1024**3
    log_kept_ms: int = DAY_MS
    trim_every: int = EVERY
    most_behind: int = 10_000
    real_time: bool = False

    def in_real_time(self) -> Settings:
        """Those of a run in real time. Rule: what comes after such an epoch runs under numbers past all that may have run."""
        concurrent = self.max_concurrent if self.interval_ms != 0 else max(self.max_concurrent, REAL_TIME_CONCURRENT)
        return replace(self, real_time=True, ahead=REAL_TIME_AHEAD, max_concurrent=concurrent)
