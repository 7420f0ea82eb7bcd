"""What changed in a state store between two checkpoints, key by key.

Where the newer one goes on from the older one with changelogs, those name the keys, and only these are looked at, in the older state. Where
it does not, after a full snapshot say, both are read in the order of their keys, side by side. Both give the same: a value that was put
again as it was is no change.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spark_ckpt.errors import ConfigError, DamagedError
from spark_ckpt.model import Checkpoint, Handle, HandleKind, Snapshot
from spark_ckpt.paths import checkpoint_name, checkpoint_url, parse_checkpoint_name
from spark_ckpt.process import owner_only
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.state import contents as held
from spark_ckpt.state.contents import Changed, Contents, replayed
from spark_ckpt.state.operators import description
from spark_ckpt.state.reading import BATCH_BYTES, Selected, StateOfCheckpoint, gathered, name_of, remove
from spark_ckpt.state.schemas import Operator
from spark_ckpt.state.spark_types import SparkType, to_text
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.reading import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "_change_type"
"""With the values that Delta's change data feed has in a column of this name."""
INSERT, BEFORE, AFTER, DELETE = "insert", "update_preimage", "update_postimage", "delete"

Change = tuple[bytes, bytes | None, bytes | None]
"""A key and its values before and after. None: it was not there, it is not there any more."""


@dataclass
class Counts:
    """Keys that changed; of a list, its values, none of which is said to be updated."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def add(self, types: list[str]) -> None:
        found = Counter(types)
        self.inserted += found[INSERT]
        self.updated += found[AFTER]
        self.deleted += found[DELETE]


class Changes:
    """Of one store or state variable, from `before` to `after`: two states of one stream, or of two where the one's state goes on from the
    other's. `selected` is of `after`.

    `same_numbers`: as in `Older`. Raises `ConfigError` where the two cannot be compared: another operator, other columns, another number of
    partitions, another stream.
    """

    def __init__(self, before: StateOfCheckpoint, after: StateOfCheckpoint, selected: Selected, same_numbers: bool = False) -> None:
        self._before, self._after, self._selected = before, after, selected
        self._same_numbers = same_numbers
        self._older = self._counterpart()
        if comes_after(before.checkpoint, after.checkpoint):
            raise ConfigError(f"{self._names[0]} comes after {self._names[1]}; let since be the older one of the two")
        self._refuse_other_stream()
        older = self._before.snapshots(self._older) if self._older is not None else ()
        self._older_snapshots = {snapshot.store.partition: snapshot for snapshot in older}
        self._decoder = after.decoder(selected)

    @property
    def schema(self) -> pa.Schema:
        """That of the entries, and what became of them."""
        import pyarrow as pa

        return self._decoder.schema.append(pa.field(COLUMN, pa.string()))

    def batches(self, partitions: Collection[int] | None, threads: int) -> Iterator[pa.RecordBatch]:
        """Of an update the old row, and behind it the new one. Raises like `StateOfCheckpoint.batches`."""

        def of_store(snapshot: Snapshot, folder: Path) -> Generator[pa.RecordBatch, None, None]:
            prefix = b"\0\0" if self._selected.store.has_families else b""
            with self._after.named(snapshot):
                for keys, values, types in self._groups(snapshot, folder):
                    at = 0
                    for batch in self._decoder.batches([prefix + key for key in keys], values, snapshot.store.partition):
                        yield self._with(batch, types[at : at + batch.num_rows])
                        at += batch.num_rows

        return gathered(of_store, self._after.snapshots(self._selected, partitions), threads)

    def count(self, threads: int) -> Counts:
        """How many there are in all partitions. Raises like `batches`."""
        found = Counts()
        with temporary_folder("state") as folder, ThreadPoolExecutor(threads, "state") as pool:

            def one(item: tuple[int, Snapshot]) -> Counts:
                counted = Counts()
                with self._after.named(item[1]):
                    for _, _, types in self._groups(item[1], folder / str(item[0])):
                        counted.add(types)
                return counted

            for counted in pool.map(one, enumerate(self._after.snapshots(self._selected))):
                found.inserted += counted.inserted
                found.updated += counted.updated
                found.deleted += counted.deleted
        return found

    def _with(self, batch: pa.RecordBatch, types: list[str]) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(types, pa.string())], schema=self.schema)

    def _groups(self, snapshot: Snapshot, folder: Path) -> Iterator[tuple[list[bytes], list[bytes], list[str]]]:
        """Keys without their family, values, and what became of each row of them; each group becomes a batch."""
        keys: list[bytes] = []
        values: list[bytes] = []
        types: list[str] = []
        size = 0
        for key, before, after in self._changes(snapshot, folder):
            for value, found in self._rows(before, after):
                if keys and (size + len(key) + len(value) > BATCH_BYTES or len(keys) >= self._decoder.rows_at_once):
                    yield keys, values, types
                    keys, values, types, size = [], [], [], 0
                keys.append(key)
                values.append(value)
                types += found
                size += len(key) + len(value)
        if keys:
            yield keys, values, types

    def _rows(self, before: bytes | None, after: bytes | None) -> Iterator[tuple[bytes, list[str]]]:
        """Values, and what became of each row that they are. Of a list, those of its values that one of the two has more often."""
        if self._selected.family.is_list:
            old, new = (self._decoder.values_of_list(value) for value in (before or b"", after or b""))
            for kind, values in ((DELETE, _more(old, new)), (INSERT, _more(new, old))):
                if values:
                    yield self._decoder.list_of(values), [kind] * len(values)
        elif before is not None and after is not None:
            yield before, [BEFORE]
            yield after, [AFTER]
        elif before is not None:
            yield before, [DELETE]
        elif after is not None:
            yield after, [INSERT]

    def _changes(self, snapshot: Snapshot, folder: Path) -> Iterator[Change]:
        """In the order of keys, which are without their family. `folder`: a new one in a folder of the reader's own."""
        owner_only.make_last(folder)
        found = self._older_snapshots.get(snapshot.store.partition)
        later = None if found is None else later_changelogs(found, snapshot)
        if found is not None and later is not None:
            changed = self._by_changelogs(found, snapshot, later, folder)
            if changed is not None:
                yield from changed
                return
        yield from self._side_by_side(found, snapshot, folder)

    def _by_changelogs(self, before: Snapshot, after: Snapshot, later: list[Handle], folder: Path) -> Iterator[Change] | None:
        """None: too much for memory has changed, and it is cheaper to read both."""
        if not later:
            return iter(())
        with self._after.named(after):
            changed = Changed("the changelogs of a store", self._after.encoding.delimiter)
            for change, key, value in replayed(self._after.storage, later, folder, self._after.codec):
                changed.apply(change, key, value, over=True)
                if changed.size > held.SPILL_BYTES:
                    return None
        return self._looked_up(before, changed, folder)

    def _looked_up(self, before: Snapshot, changed: Changed, folder: Path) -> Iterator[Change]:
        assert self._older is not None
        with self._before.contents(before, folder / "before") as contents:
            prefix = self._before.prefix(contents, self._older)
            for key in changed.keys_from(prefix) if prefix is not None else ():
                old = contents.get(key)
                new = changed.value(key, old)
                if old != new:
                    yield key[len(prefix or b"") :], old, new
        remove(folder)

    def _side_by_side(self, before: Snapshot | None, after: Snapshot, folder: Path) -> Iterator[Change]:
        with self._after.contents(after, folder / "after") as new:
            if before is None or self._older is None:
                yield from merged(iter(()), _entries(self._after, new, self._selected))
            else:
                with self._before.contents(before, folder / "before") as old:
                    yield from merged(_entries(self._before, old, self._older), _entries(self._after, new, self._selected))
        remove(folder)

    @property
    def _names(self) -> tuple[str, str]:
        return checkpoint_name(self._before.checkpoint.id), checkpoint_name(self._after.checkpoint.id)

    def _refuse_other_stream(self) -> None:
        """What a query in another place has gone on from keeps its unique ids there, until a full snapshot takes its place."""
        before, (then, now) = self._before.checkpoint, self._names
        if _of_one_stream(before, self._after.checkpoint):
            return
        older = {snapshot.store: snapshot for snapshot in before.snapshots}
        newer = self._after.snapshots(self._selected)
        if not all(one.store in older and later_changelogs(older[one.store], one) is not None for one in newer):
            raise ConfigError(
                f"since names {then} of another stream (query {before.query_id}), and it is not known that {now} goes on from that; name a "
                "checkpoint of the same stream, or read both instead"
            )

    def _may_be_another(self, older: Operator) -> bool:
        """Whether the number may have been another operator's.

        Rule: among several that are alike a number proves nothing. What an operator holds tells it from others only where that cannot
        change: Avro may evolve, and state variables come and go.
        """
        evolves = self._after.encoding.avro or self._selected.store.has_families
        alike = max(_alike(older, self._before.operators, evolves), _alike(self._selected.operator, self._after.operators, evolves))
        if alike < 2 or self._same_numbers:
            return False
        before, after = (
            {s.store: s for s in state.checkpoint.snapshots if s.store.operator == older.id} for state in (self._before, self._after)
        )
        return all(later_changelogs(before[store], after[store]) is None for store in before.keys() & after.keys())

    def _counterpart(self) -> Selected | None:
        """The same store in the older state. None: there was no such state variable yet."""
        one, (then, now) = self._selected, self._names
        operator = next((o for o in self._before.operators if o.id == one.operator.id), None)
        if operator is None or operator.name != one.operator.name:
            was = f"was {operator.name}" if operator is not None else "was not there"
            raise ConfigError(f"operator {one.operator.id}, {one.operator.name} at {now}, {was} at {then}; read both checkpoints instead")
        if self._may_be_another(operator):
            raise ConfigError(
                f"operator {one.operator.id} ({one.operator.name}) is one of several at {then} or {now} that are alike, and since then the "
                "query may have changed, so it is not known which goes on from which; read both checkpoints instead, and compare them"
            )
        store = next((s for s in operator.stores if s.name == one.store.name), None)
        shown = name_of(one.store, one.family)
        if store is None or store.has_families != one.store.has_families:
            raise ConfigError(f"store {shown} was kept in another form at {then} than at {now}; read both checkpoints instead")
        if self._before.encoding != self._after.encoding:
            raise ConfigError(f"state was encoded in another way at {then} than at {now}; read both checkpoints instead")
        had, has = len(self._before.snapshots(Selected(operator, store, one.family))), len(self._after.snapshots(one))
        if had != has:
            raise ConfigError(f"store {shown} had {had} partitions at {then} and has {has} at {now}; read both checkpoints instead")
        family = next((f for f in store.families if f.name == one.family.name), None)
        if family is None:
            return None
        same_value = self._after.encoding.avro or _same(family.value, one.family.value)
        if family.variable is not one.family.variable or not _same(family.key, one.family.key) or not same_value:
            raise ConfigError(
                f"the columns of store {shown} were others at {then} ({to_text(family.key)}, {to_text(family.value)}) than at {now} "
                f"({to_text(one.family.key)}, {to_text(one.family.value)}); read both checkpoints instead"
            )
        return Selected(operator, store, family)


def older_checkpoint(text: str, stream: str, to_url: Callable[[str], str]) -> RestorePath:
    """What a person has named: `run-3/chk-42` of the stream at `stream`, or one or a savepoint by its folder. `ConfigError`: none."""
    try:
        return RestorePath.at(checkpoint_url(stream.rstrip("/"), parse_checkpoint_name(text)))
    except ConfigError:
        pass
    try:
        return RestorePath.at(to_url(text))
    except ConfigError as e:
        raise ConfigError(f"since names no checkpoint ({e}); write run-3/chk-42, or the URL of one or of a savepoint") from None


@dataclass(frozen=True)
class Older:
    """`same_numbers`: it is known that its operators have the numbers that they have in the newer checkpoint."""

    checkpoint: Checkpoint
    same_numbers: bool


def read_older(older: RestorePath, storage: Storage, reader: StreamReader, after: Checkpoint) -> Older:
    """The one that `older_checkpoint` has named, out of its `storage`. What the stream of `after` says that it has gone on from
    (`spark.ckpt.restore.path`) is its own checkpoint that was copied from there; what became of operators' numbers then it does not say.

    Raises `DamagedError`, `ObjectMissingError`, `StorageError`.
    """
    found = older.read(storage)
    if _of_one_stream(found, after):
        return Older(found, _same_numbers(found, after, reader))
    standing = reader.standing()
    restored = standing.claim.restored if standing is not None else None
    if restored is None or restored.imported is None or RestorePath.at(restored.path).url != older.url:
        return Older(found, False)
    if restored.imported.epoch != found.id.epoch:
        return Older(found, False)  # somebody has made another one there
    return Older(replace(found, id=restored.imported, stream=after.stream, query_id=after.query_id), False)


def _same_numbers(before: Checkpoint, after: Checkpoint, reader: StreamReader) -> bool:
    """Of two in one stream. Rules: a run's operators keep their numbers; a run that begins with a checkpoint of an earlier run has that
    one's. One whose query has changed, and one that was restored from elsewhere, begins with a copy that is a checkpoint of its own.
    """
    if not before.stream or before.stream != after.stream:
        return False
    if before.id.run == after.id.run:
        return True
    if len({snapshot.store.operator for snapshot in after.snapshots}) < 2:
        return False  # there is none to mistake it for, and the log need not be read
    try:
        standing = reader.standing(after.log)
    except DamagedError:
        return False
    if standing is None or (standing.claim.run, standing.claim.stream) != (after.id.run, after.stream):
        return False
    return standing.claim.origin is not None and standing.claim.origin.run == before.id.run


def later_changelogs(before: Snapshot, after: Snapshot) -> list[Handle] | None:
    """What has to be replayed over the older version of a store to have the newer one. None: that is not known.

    A version's file, changelog or full snapshot, has the version's unique id in its name. One that an import has made up is the same for
    other content, after stock Spark's query went back or the location was copied: then all that the older version is made of has to be
    in the newer one, byte for byte.
    """
    if not before.handles:
        return None
    last = before.handles[-1]
    if _is_made_up(last):
        count = len(before.handles)
        if list(map(_content, before.handles)) != list(map(_content, after.handles[:count])):
            return None
        later = list(after.handles[count:])
        return later if all(one.kind is HandleKind.CHANGELOG for one in later) else None
    for number, handle in enumerate(after.handles):
        if handle.kind is not HandleKind.SST and _version(handle) == _version(last):
            if handle.kind is last.kind and _content(handle) != _content(last):
                return None  # of another stream, which has given the same name
            later = list(after.handles[number + 1 :])
            return later if all(one.kind is HandleKind.CHANGELOG for one in later) else None
    return None


def merged(before: Iterator[tuple[bytes, bytes]], after: Iterator[tuple[bytes, bytes]]) -> Iterator[Change]:
    """What differs between two stores' entries, each in the order of keys."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None
            yield old[0], old[1], None
            old = next(before, None)
        elif old is None or new[0] < old[0]:
            yield new[0], None, new[1]
            new = next(after, None)
        else:
            if old[1] != new[1]:
                yield new[0], old[1], new[1]
            old, new = next(before, None), next(after, None)


def _entries(state: StateOfCheckpoint, contents: Contents, selected: Selected) -> Iterator[tuple[bytes, bytes]]:
    prefix = state.prefix(contents, selected)
    if prefix is not None:
        skip = len(prefix)
        yield from ((key[skip:], value) for key, value in contents.entries(prefix))


def _more(values: list[bytes], others: list[bytes]) -> list[bytes]:
    """Those of `values` that `others` has not, or has fewer times."""
    left = Counter(others)
    found = []
    for value in values:
        left[value] -= 1
        if left[value] < 0:
            found.append(value)
    return found


def _version(handle: Handle) -> str:
    return handle.name.rpartition(".")[0]


def _content(handle: Handle) -> tuple[HandleKind, str, int, int]:
    return handle.kind, handle.name, handle.length, handle.checksum


def _is_made_up(handle: Handle) -> bool:
    """Spark's unique ids are random UUIDs, of version 4 (RFC 9562); an import's are of version 5 (`StockCheckpoint.made_up`)."""
    try:
        return uuid.UUID(_version(handle).partition("_")[2]).version == 5
    except ValueError:
        return False


def comes_after(one: Checkpoint, other: Checkpoint) -> bool:
    """What was imported or rescaled is of no run, whatever its name says."""
    if not _of_one_stream(one, other):
        return False
    if one.claim and other.claim:
        return (one.id.run, one.id.epoch) > (other.id.run, other.id.epoch)
    return one.id.epoch > other.id.epoch


def _of_one_stream(one: Checkpoint, other: Checkpoint) -> bool:
    """An older release, and `spark-ckpt import`, give a stream no name."""
    if one.stream and other.stream:
        return one.stream == other.stream
    return one.query_id == other.query_id


def _alike(one: Operator, among: Sequence[Operator], evolves: bool) -> int:
    """How many have its kind and its keys, and hold the same unless that `evolves`."""

    def signature(operator: Operator) -> tuple[object, ...]:
        found = description(operator)
        return (found.kind, found.keys, *(() if evolves else (found.values, found.stores)))

    return sum(signature(one) == signature(other) for other in among)


def _same(one: SparkType, other: SparkType) -> bool:
    """Whether both hold the same: types and names, not whether there may be nulls. By a key or a value of another name another operator
    is known that has got the number."""
    return to_text(one) == to_text(other)
