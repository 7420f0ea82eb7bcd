"""A savepoint without some keys: all that an operator keeps of them is left out, in each of its stores, state variables and indexes.

What stays keeps its bytes, so that this is possible where entries cannot be written: all that is needed is in the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, groups, remove
from spark_ckpt.state.saving import Saving, Written, refuse_taken
from spark_ckpt.state.schemas import Family, Operator, Variable
from spark_ckpt.state.store_files import Held, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

    from spark_ckpt.model import Snapshot
    from spark_ckpt.storage.base import Storage

_TIMERS = ("$procTimers_", "$eventTimers_")
_TTL = "$ttl_"


class Dropping:
    """`which` gets batches of keys, a column for each part of the key by which the operator groups, and says of each whether it goes.

    It is asked of each store in turn, so its answer must depend on the key alone. Raises `ConfigError`, `ConflictError`, `DamagedError`,
    `StorageError`; then there is no savepoint.
    """

    def __init__(self, storage: Storage, state: StateOfCheckpoint, operator: Operator, target: Storage, tell: Tell = nobody) -> None:
        self._storage, self._state, self._operator, self._target, self._tell = storage, state, operator, target, tell
        self._stores = {store.name: store for store in operator.stores}
        refuse_taken(target)

    def drop(self, which: Callable[[pa.RecordBatch], Any]) -> bool:
        """Whether there was any that went."""
        dropped = False
        checkpoint = self._state.checkpoint
        saving = Saving(self._storage, checkpoint, self._target)
        snapshots = [snapshot for snapshot in checkpoint.snapshots if snapshot.store.operator == self._operator.id]
        task = Task(self._tell, "state stores", len(snapshots))
        with temporary_folder("edit") as folder:
            for number, snapshot in enumerate(task.each(snapshots)):
                written = self._rewritten(snapshot, which, folder / f"{number}")
                dropped |= written.changed
                if written.changed:
                    saving.take(written)
                else:
                    written.writer.close()
            saving.done()
        return dropped

    def _rewritten(self, snapshot: Snapshot, which: Callable[[pa.RecordBatch], Any], folder: Path) -> Written:
        store = self._stores[snapshot.store.store]
        written = Written(snapshot, StoreWriter(folder.with_name(f"{folder.name}-new"), Held()))
        try:
            with self._state.contents(snapshot, folder) as contents:
                written.families = dict(contents.families or {}) if store.has_families else {}
                known: set[bytes] = set()
                for family in store.families:
                    selected = Selected(self._operator, store, family)
                    prefix = self._state.prefix(contents, selected)
                    if prefix is None:
                        continue
                    known.add(prefix)
                    for keys, values in groups(contents, prefix):
                        stays = np.flatnonzero(~self._answer(which, selected, keys)).tolist()
                        written.changed |= len(stays) < len(keys)
                        written.keep([keys[n] for n in stays], [values[n] for n in stays])
                if store.has_families:
                    for keys, values in groups(contents, b""):
                        other = [n for n, key in enumerate(keys) if key[:2] not in known]
                        written.keep([keys[n] for n in other], [values[n] for n in other])
        except BaseException:
            written.writer.close()
            raise
        remove(folder)
        return written

    def _answer(self, which: Callable[[pa.RecordBatch], Any], selected: Selected, keys: list[bytes]) -> Any:
        grouping = grouping_keys(self._operator, selected.family, self._state.decoder(selected).keys(keys))
        names = [field.name for field in grouping.type]
        if not names:
            raise ConfigError(
                f"operator {self._operator.id} ({self._operator.name}) groups by no key, so there is none to choose by; transform_state "
                "changes its rows, or leaves them out"
            )
        batch = pa.RecordBatch.from_arrays([grouping.field(n) for n in range(len(names))], names=names)
        said = which(batch)
        array = said.combine_chunks() if isinstance(said, pa.ChunkedArray) else said
        if isinstance(array, np.ndarray):
            array = pa.array(array)
        if not isinstance(array, pa.Array) or not pa.types.is_boolean(array.type) or len(array) != len(keys):
            what = f"{type(said).__name__} of {len(said)}" if hasattr(said, "__len__") else type(said).__name__
            raise ConfigError(
                f"the function returned {what} for {len(keys)} keys; let it return an Arrow array of one boolean for each row"
            )
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def grouping_keys(operator: Operator, family: Family, keys: Any) -> Any:
    """Of the keys of a family, a struct array, those columns by which the operator groups its rows. Raises `ConfigError` for a family of
    which that is not known."""
    name, key = family.name, family.key
    if family.variable in (Variable.MAP, Variable.TIMER) or name.startswith(_TIMERS):
        return keys.field("key")
    if name.startswith(_TTL):
        element = keys.field("elementKey")
        of = name.removeprefix(_TTL)
        maps = {f.name for store in operator.stores for f in store.families if f.variable is Variable.MAP}
        return element.field("key") if of in maps else element
    kind = operator.name.lower()
    if "session" in kind or ("join" in kind and key.fields and key.fields[-1].name == "index"):
        return pa.StructArray.from_arrays(
            [keys.field(n) for n in range(len(key.fields) - 1)], names=[field.name for field in key.fields[:-1]]
        )
    if name.startswith("$") and not name.startswith(("$rowCounter_", "$min_", "$count_")):
        raise ConfigError(f"operator {operator.id} ({operator.name}) keeps {name}, which this spark-ckpt does not know; take a newer one")
    return keys
