"""What completed checkpoints hold, read once per checkpoint and kept for the newest ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future

from spark_ckpt.errors import ObjectMissingError
from spark_ckpt.model import CheckpointId, Snapshot, StoreId
from spark_ckpt.paths import metadata_key
from spark_ckpt.storage.base import Storage

Snapshots = Mapping[StoreId, Snapshot]
_KEPT = 2


class Bases:
    """Thread-safe. Many partitions ask for the same checkpoint at once when a query starts: the first one reads it, the others wait."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._loads: OrderedDict[CheckpointId, Future[Snapshots]] = OrderedDict()

    def find(self, base: CheckpointId, store: StoreId) -> Snapshot | None:
        """The store's snapshot in a completed checkpoint. Raises like `snapshots`."""
        return self.snapshots(base).get(store)

    def snapshots(self, base: CheckpointId) -> Snapshots:
        """All that a completed checkpoint holds. Raises `StorageError` and `DamagedError`; a failed read is not kept."""
        with self._lock:
            load = self._loads.get(base)
            mine = load is None
            if load is None:
                load = self._loads[base] = Future()
                while len(self._loads) > _KEPT:
                    self._loads.popitem(last=False)
            self._loads.move_to_end(base)
        if mine:
            try:
                load.set_result(self._read(base))
            except BaseException as error:
                with self._lock:
                    if self._loads.get(base) is load:
                        del self._loads[base]
                load.set_exception(error)
        return load.result()

    def _read(self, base: CheckpointId) -> Snapshots:
        from spark_ckpt.stored.metadata.reading import read_metadata  # takes a while to load, and most agents never need it

        key = metadata_key(base)
        try:
            checkpoint = read_metadata(self._storage, key, base)
        except ObjectMissingError as error:
            raise ObjectMissingError(
                f"{key} is missing in {self._storage.url}: the checkpoint that the query runs from was deleted; "
                "restart the query, it begins again from the newest complete checkpoint"
            ) from error
        return {s.store: s for s in checkpoint.snapshots}
