"""When a stream's executor is at the start of a run, and what is read together then (`restores.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_ckpt.agent.restores import Load, Reach, Restore
from spark_ckpt.model import CheckpointId, Snapshot


class RunStart:
    """From the first fetch of a run until its second epoch commits: by then every store has been loaded. Thread-safe.

    What moves between executors later is read by itself. It is another checkpoint's, of which most of the others need nothing.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._needed = self._here = Load()
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
                if self.reach.ahead:
                    self._needed = self._restore.load
            return self._restore

    def asked(self, run: int, snapshot: Snapshot) -> None:
        """A task waits for a store's files."""
        with self._lock:
            self._begin(run)
            if run == self._run and not self._over and not (self.reach.ahead and self._restore is not None):
                self._needed += Load.of(snapshot)

    def loaded(self, run: int, snapshot: Snapshot) -> None:
        """They are in place."""
        with self._lock:
            if run == self._run and not self._over:
                self._here += Load.of(snapshot)

    def report(self) -> dict[str, int]:
        """How far it has come (docs/pipes.md, `storage`)."""
        with self._lock:
            here, needed = self._here, self._needed
            return {
                "restored_snapshots": here.snapshots,
                "restore_snapshots": needed.snapshots,
                "restored_bytes": here.bytes,
                "restore_bytes": needed.bytes,
            }

    def committed(self, run: int, epoch: int) -> None:
        """An epoch that commits after another one did."""
        with self._lock:
            self._begin(run)
            if self._epoch is None:
                self._epoch = epoch
            elif run == self._run and epoch > self._epoch:
                self._close()

    def end(self) -> None:
        """Of the run: there is nothing more to tell."""
        with self._lock:
            self._close()
            self._needed = self._here = Load()

    def _begin(self, run: int) -> None:
        if run > self._run:
            self._close()
            self._run, self._epoch, self._base, self._over = run, None, None, False
            self._needed = self._here = Load()

    def _close(self) -> None:
        restore, self._restore, self._over = self._restore, None, True
        self._needed = self._here  # nothing more is waited for
        if restore is not None:
            restore.close()
