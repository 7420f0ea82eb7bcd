"""When a stream's executor is at the start of a run, and what is read together then (`restores.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_ckpt.agent.restores import Load, Reach, Restore
from spark_ckpt.model import CheckpointId, Snapshot, StoreId


class RunStart:
    """From the first fetch of a run until its second epoch commits: by then every store has been loaded. Thread-safe.

    What moves between executors later is read by itself. It is another checkpoint's, of which most of the others need nothing.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._needed = Load()
        self._awaited: dict[StoreId, Load] = {}
        self._lock = threading.Lock()
        self._run = 0
        self._epoch: int | None = None
        self._base: CheckpointId | None = None
        self._restore: Restore | None = None
        self._over = False
        self._ended = False

    def restore(self, run: int, base: CheckpointId, make: Callable[[], Restore]) -> Restore | None:
        """Of that checkpoint, if the run starts with it."""
        with self._lock:
            self._begin(run)
            if self._over or run < self._run or self._base not in (None, base):
                return None
            if self._restore is None:
                self._restore, self._base = make(), base
                if self.reach.ahead:
                    for snapshot in self._restore.snapshots:
                        self._await(snapshot)
            return self._restore

    def asked(self, run: int, snapshot: Snapshot) -> None:
        """A task waits for a store's files."""
        with self._lock:
            self._begin(run)
            if run == self._run and not self._over and not (self.reach.ahead and self._restore is not None):
                self._await(snapshot)

    def loaded(self, run: int, store: StoreId) -> None:
        """Its files are in place."""
        with self._lock:
            if run == self._run:
                self._awaited.pop(store, None)

    def failed(self, run: int, store: StoreId) -> None:
        """Its files could not be fetched: the task may be tried again on another executor."""
        with self._lock:
            if run == self._run and not (self.reach.ahead and self._restore is not None) and (load := self._awaited.pop(store, None)):
                self._needed -= load

    def report(self) -> dict[str, int]:
        """How far it has come (docs/pipes.md, `storage`)."""
        with self._lock:
            needed, left = self._needed, len(self._awaited)
            left_bytes = sum(load.bytes for load in self._awaited.values())
            return {
                "restored_snapshots": needed.snapshots - left,
                "restore_snapshots": needed.snapshots,
                "restored_bytes": needed.bytes - left_bytes,
                "restore_bytes": needed.bytes,
            }

    def committed(self, run: int, epoch: int, store: StoreId) -> None:
        """A store that commits is loaded, whether it needed a file or not. With the second epoch that commits the start is over."""
        with self._lock:
            self._begin(run)
            if run != self._run:
                return
            self._awaited.pop(store, None)
            if self._epoch is None:
                self._epoch = epoch
            elif epoch > self._epoch:
                self._close()

    def end(self) -> None:
        """Of all runs: there is nothing more to tell, and what asks late is no start."""
        with self._lock:
            self._close()
            self._needed = Load()
            self._ended = True

    def _begin(self, run: int) -> None:
        if run > self._run and not self._ended:
            self._close()
            self._run, self._epoch, self._base, self._over = run, None, None, False
            self._needed = Load()

    def _await(self, snapshot: Snapshot) -> None:
        if snapshot.store not in self._awaited:
            load = self._awaited[snapshot.store] = Load.of(snapshot)
            self._needed += load

    def _close(self) -> None:
        restore, self._restore, self._over = self._restore, None, True
        for load in self._awaited.values():  # nothing more is waited for
            self._needed -= load
        self._awaited = {}
        if restore is not None:
            restore.close()
