"""A savepoint whose state is that of a checkpoint, changed: one column family of one operator goes through a function, or gets more rows.

Stores of which nothing changes are copied as they are; the others are written anew, each as a full snapshot of its version under a new
unique id. A row stays in its partition as long as its key is one of those that were there; any other goes where Spark's hash says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_ckpt.errors import ConfigError, ConflictError, DamagedError
from spark_ckpt.model import Checkpoint
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.state.entry_encoder import EntryEncoder
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, groups, remove
from spark_ckpt.state.saving import Saving, Written, refuse_taken
from spark_ckpt.state.store_files import Held, StoreWriter
from spark_ckpt.storage.base import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_ckpt.state.contents import Contents
    from spark_ckpt.state.other_columns import OtherColumns

Function = Callable[["pa.RecordBatch"], Any]


class Editing:
    """Changes the entries of `selected` at the checkpoint of `state`, whose `storage` is rooted at its stream.

    `target`: the storage of the savepoint's folder. `columns`: what is to be kept in the place of the state's own columns; then every
    entry is written anew. Raises `ConfigError` for what cannot be changed here, or does not fit the state's
    schema, `ConflictError` for keys that are there twice, `DamagedError`, `StorageError`; then there is no savepoint.
    """

    def __init__(
        self,
        storage: Storage,
        state: StateOfCheckpoint,
        selected: Selected,
        target: Storage,
        tell: Tell = nobody,
        columns: OtherColumns | None = None,
    ) -> None:
        self._storage, self._state, self._selected, self._target, self._tell = storage, state, selected, target, tell
        self._columns = columns
        self._keeps_columns = columns is None or columns.family.value == selected.family.value
        self._given = EntryEncoder(selected.operator, selected.family, state.encoding, selected.store.has_families)
        family = columns.family if columns is not None else selected.family
        self._encoder = EntryEncoder(selected.operator, family, state.encoding, selected.store.has_families)
        self._decoder = state.decoder(selected)
        self._snapshots = state.snapshots(selected)
        self._all: list[Written] = []
        self._moved: list[StoreWriter] = []
        """For each store the rows that come to it from others, without the number of their family: the store may not be read yet."""
        refuse_taken(target)

    @property
    def schema(self) -> pa.Schema:
        """Of the batches that are written."""
        return self._encoder.schema

    def transform(self, function: Function) -> Checkpoint:
        """Each batch of entries through `function`, which returns those that there are to be."""

        def through(written: Written, contents: Contents) -> None:
            if written.prefix is not None:
                for keys, values in groups(contents, written.prefix, self._decoder.rows_at_once):
                    self._apply(function, written, keys, values)

        return self._rewrite(through)

    def write(self, batches: Iterable[Any], overwrite: bool) -> Checkpoint:
        """More entries, or with `overwrite` these in the place of all."""
        if self._encoder.only_values is not None:
            raise ConfigError(f"no rows can be put into {self._selected.name}: {self._encoder.only_values}; transform_state changes values")
        self._refuse_no_stores()

        def keep(written: Written, contents: Contents) -> None:
            written.changed |= overwrite
            if written.prefix is None:
                return
            for keys, values in groups(contents, written.prefix, self._decoder.rows_at_once):
                self._check_places(written, keys, values)
                if overwrite:
                    return
                written.writer.put(keys, values)

        def more() -> None:
            task = Task(self._tell, "rows written", None)
            for given in batches:
                for batch in given.to_batches() if hasattr(given, "to_batches") else [given]:
                    checked = self._encoder.normalized(self._encoder.checked(batch))
                    self._refuse(self._encoder.never_in_spark(checked))
                    self._add(checked, self._partitions(checked))
                    task.add(checked.num_rows)

        return self._rewrite(keep, more)

    def _rewrite(self, fill: Callable[[Written, Contents], None], then: Callable[[], None] = lambda: None) -> Checkpoint:
        with temporary_folder("edit") as folder, ExitStack() as opened:
            self._all.clear()
            self._moved.clear()
            held = Held()
            for snapshot in self._snapshots:
                writer = StoreWriter(folder / f"new-{snapshot.store.partition}", held)
                moved = StoreWriter(folder / f"moved-{snapshot.store.partition}", held)
                opened.callback(writer.close)
                opened.callback(moved.close)
                self._all.append(Written(snapshot, writer))
                self._moved.append(moved)
            task = Task(self._tell, "state stores read", len(self._snapshots))
            for written in task.each(self._all):
                self._read(written, fill, folder / f"old-{written.snapshot.store.partition}")
            self._arrive()
            then()
            return self._stored()

    def _read(self, written: Written, fill: Callable[[Written, Contents], None], folder: Path) -> None:
        with self._state.contents(written.snapshot, folder) as contents:
            written.prefix = self._state.prefix(contents, self._selected)
            written.families = dict(contents.families or {}) if self._selected.store.has_families else {}
            if self._selected.store.has_families:
                for keys, values in _others(contents, written.prefix):
                    written.keep(keys, values)
            fill(written, contents)
        remove(folder)

    def _apply(self, function: Function, written: Written, keys: list[bytes], values: list[bytes]) -> None:
        batch = self._decoder.decode(keys, values, written.snapshot.store.partition)
        returned = function(batch)
        if returned is batch and self._keeps_columns:
            written.writer.put(keys, values)
            return
        if returned is None:
            raise ConfigError("the function returned None; let it return a batch, an empty one to drop all of its rows")
        made = self._encoder.normalized(self._encoder.checked(returned))
        given = self._given.checked(batch)
        # Spark itself does not look at nulls, so that what was there may have some too.
        if not self._keeps_columns or self._given.never_in_spark(given) is None:
            self._refuse(self._encoder.never_in_spark(made))
        self._encoder.check_keys(given, made)
        lengths = self._decoder.lengths(values) if self._selected.family.is_list else ()
        encoded = self._encoder.encode(made, self._prefix(written), lengths)
        again = self._given.encode(given, self._prefix(written), lengths)
        new_keys, new_values = encoded
        if not self._keeps_columns and again[1] != values:
            raise ConfigError(
                f"a value of partition {written.snapshot.store.partition} has a string that is no UTF-8, whose bytes would be lost with "
                "other columns; leave such keys out with drop_keys first"
            )
        if again != (keys, values):
            where = f"partition {written.snapshot.store.partition}"
            new_keys, new_values = _as_they_were(again, (keys, values), encoded, self._keeps_columns, where)
        if self._keeps_columns and (new_keys, new_values) == (keys, values):
            written.writer.put(keys, values)
            return
        written.changed = True
        there = set(keys)
        if all(key in there for key in new_keys):
            written.writer.put(new_keys, new_values)
            return
        self._check_hash(given, written.snapshot.store.partition)
        partitions = self._partitions(made)
        for row, key in enumerate(new_keys):
            if key in there:
                partitions[row] = written.snapshot.store.partition
        self._put(new_keys, new_values, partitions, written)

    def _arrive(self) -> None:
        """Rows that have gone to another store get the number that their family has there."""
        for written, moved in zip(self._all, self._moved, strict=True):
            for keys, values in moved.taken():
                if keys:
                    prefix = self._prefix(written)
                    written.writer.put([prefix + key for key in keys], values)
                    written.changed = True

    def _refuse_no_stores(self) -> None:
        if not self._snapshots:
            raise ConfigError(
                f"operator {self._selected.operator.id} ({self._selected.operator.name}) has no state stores yet: it begins with the next "
                "epoch. Start the query once from this checkpoint, and write into its next savepoint"
            )

    def _partitions(self, batch: pa.RecordBatch) -> Any:
        """Where Spark looks for rows. Raises `DamagedError` where one of the stores is not there, and so its rows would be lost."""
        there = [snapshot.store.partition for snapshot in self._snapshots]
        if there != list(range(len(there))):
            raise DamagedError(
                f"operator {self._selected.operator.id} has the partitions {', '.join(map(str, there))}, and others below the highest are "
                "not there; choose another checkpoint"
            )
        return self._encoder.partitions(batch, len(there))

    def _refuse(self, why: str | None) -> None:
        if why is not None:
            raise ConfigError(why)

    def _check_places(self, written: Written, keys: list[bytes], values: list[bytes]) -> None:
        """Rule: rows are added only where those that are there lie where the hash says; else Spark looks for the new ones elsewhere."""
        import pyarrow as pa

        partition = written.snapshot.store.partition
        batch = self._given.checked(self._decoder.decode(keys, values, partition))
        elsewhere = self._partitions(batch) != partition
        if not elsewhere.any():
            return
        # Of a string that is no UTF-8 Arrow has another one, and so another hash: of such a key nothing is known.
        again, _ = self._given.encode(batch, self._prefix(written))
        known = [key == other for key, other in zip(keys, again, strict=True)]
        self._check_hash(batch.filter(pa.array(known, pa.bool_())), partition)

    def _check_hash(self, given: pa.RecordBatch, partition: int) -> None:
        found = self._partitions(given)
        if (found != partition).any():
            raise ConflictError(
                f"rows of partition {partition} are not where Spark's hash of their keys says, so it is not known where a new key belongs; "
                "return only keys that there are"
            )

    def _prefix(self, written: Written) -> bytes:
        if written.prefix is None:
            raise ConflictError(
                f"partition {written.snapshot.store.partition} has no state variable {self._selected.name} yet, so no row can be put "
                "there; run the query for an epoch, and take its next savepoint"
            )
        return written.prefix

    def _add(self, batch: pa.RecordBatch, partitions: Any) -> None:
        """Rows with their partitions. The number of a family can be another one in each."""
        import numpy as np
        import pyarrow as pa

        if not self._selected.store.has_families:
            self._put(*self._encoder.encode(batch, b""), partitions)
            return
        for partition in np.unique(partitions).tolist():
            chosen = batch.filter(pa.array(partitions == partition))
            written = self._all[partition]
            written.writer.put(*self._encoder.encode(chosen, self._prefix(written)))
            written.changed = True

    def _put(self, keys: list[bytes], values: list[bytes], partitions: Any, source: Written | None = None) -> None:
        """`partitions` of the keys, whose prefix is the same in all: the one that `source` has, where families have numbers."""
        import numpy as np

        prefix = len(self._prefix(source)) if source is not None else 0
        order = np.argsort(partitions, kind="stable")
        ends = np.searchsorted(partitions[order], np.arange(1, len(self._snapshots) + 1)).tolist()
        begin = 0
        for written, moved, end in zip(self._all, self._moved, ends, strict=True):
            if end > begin:
                rows = order[begin:end].tolist()
                if prefix and written is not source:
                    moved.put([keys[n][prefix:] for n in rows], [values[n] for n in rows], distinct=True)
                else:
                    written.writer.put([keys[n] for n in rows], [values[n] for n in rows])
                    written.changed = True
            begin = end

    def _stored(self) -> Checkpoint:
        saving = Saving(self._storage, self._state.checkpoint, self._target, self._columns.files if self._columns else {})
        task = Task(self._tell, "state stores written", len(self._all))
        for written in task.each(self._all):
            if written.changed:
                saving.take(written)
        return saving.done()


_Entries = tuple[list[bytes], list[bytes]]
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
"""What is read in the place of bytes that are no UTF-8."""


def _as_they_were(again: _Entries, before: _Entries, after: _Entries, same_columns: bool, where: str) -> _Entries:
    """What has not changed keeps its bytes: of a string that is no UTF-8 Arrow has another one. `again`: `before`, read and written.

    Raises `ConfigError` where it is not known whose row one is, and for a value that was changed beside such a string, whose bytes the
    function was not given.
    """
    rows_of: dict[bytes, list[int]] = {}
    for row, key in enumerate(again[0]):
        rows_of.setdefault(key, []).append(row)
    keys, values = [], []
    for key, value in zip(*after, strict=True):
        rows = rows_of.get(key)
        if rows is None:
            keys.append(key)
            values.append(value)
            continue
        same = [row for row in rows if again[1][row] == value] if same_columns else []
        if len(rows) > 1 and len(same) != 1:
            raise ConfigError(
                f"{where} has {len(rows)} keys that read alike, with strings that are no UTF-8, so it is not known whose row one of them "
                "is; return such rows as they are, or leave such keys out with drop_keys first"
            )
        row = same[0] if same else rows[0]
        if not same and again[1][row].count(_REPLACED) > before[1][row].count(_REPLACED):
            raise ConfigError(
                f"a value of {where} has a string that is no UTF-8, whose bytes would be lost with the rest changed; return such rows as "
                "they are, or leave such keys out with drop_keys first"
            )
        keys.append(before[0][row])
        values.append(before[1][row] if same else value)
    return keys, values


def _others(contents: Contents, prefix: bytes | None) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Entries of all other families."""
    for keys, values in groups(contents, b""):
        if prefix is None:
            yield keys, values
            continue
        kept = [n for n, key in enumerate(keys) if not key.startswith(prefix)]
        yield [keys[n] for n in kept], [values[n] for n in kept]
