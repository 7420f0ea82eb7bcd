"""When a stream's executor is at the start of a run, and what is read together then (`restores.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_ckpt.agent.restores import Reach, Restore
from spark_ckpt.model import CheckpointId


class RunStart:
    """From the first fetch of a run until its second epoch commits: by then every store has been loaded. Thread-safe.

    What moves between executors later is read by itself. It is another checkpoint's, of which most of the others need nothing.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._lock = threading.Lock()
        self._run = 0
        self._epoch: int | None = None
        self._base: CheckpointId | None = None
        self._restore: Restore | None = None
        self._over = False

    def restore(self, run: int, base: CheckpointId, make: Callable[[], Restore]) -> Restore | None:
        """Of that checkpoint, if the run starts with it."""
        with self._lock:
            self._begin(run)
            if self._over or run < self._run or self._base not in (None, base):
                return None
            if self._restore is None:
                self._restore, self._base = make(), base
            return self._restore

    def committed(self, run: int, epoch: int) -> None:
        """An epoch that commits after another one did."""
        with self._lock:
            self._begin(run)
            if self._epoch is None:
                self._epoch = epoch
            elif run == self._run and epoch > self._epoch:
                self._close()

    def end(self) -> None:
        with self._lock:
            self._close()

    def _begin(self, run: int) -> None:
        if run > self._run:
            self._close()
            self._run, self._epoch, self._base, self._over = run, None, None, False

    def _close(self) -> None:
        restore, self._restore, self._over = self._restore, None, True
        if restore is not None:
            restore.close()
