"""`read_state`: what is in a checkpoint's state stores, as Arrow record batches, without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from spark_ckpt import paths
from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConfigError, DamagedError, FormatError, ObjectMissingError, StorageError
from spark_ckpt.model import Checkpoint, Snapshot
from spark_ckpt.process.at_exit import done_at_exit
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.state.contents import Batch, Contents, changelogs_beside, opened, options_beside
from spark_ckpt.state.operators import state_files
from spark_ckpt.state.schemas import DEFAULT, Family, Operator, Store, Variable, read_operators
from spark_ckpt.storage.base import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_ckpt.state.rows import Decoder, Encoding

BATCH_BYTES = 4 << 20
"""Bytes of keys and values with which a batch ends; its last entry may be larger."""
MOST_ROWS = 1 << 20
"""Entries of a batch, however few bytes they have."""
MANY_BYTES = 32 << 20
"""Of stores as they are stored, from which on it takes longer to read them than to start a process."""
_AHEAD = 2
"""Batches of a partition that may wait to be taken, so that memory stays bounded."""
_CONF = "spark.sql.streaming.stateStore."
_JOIN = "spark.sql.streaming.join.stateFormatVersion"
_TIMERS = "timers"
_MAX_VALUES = 2_000_000
"""Of the JSON of an epoch's configuration."""


@dataclass(frozen=True)
class Selected:
    """What is read: one column family of one store of one operator."""

    operator: Operator
    store: Store
    family: Family

    @property
    def name(self) -> str:
        return name_of(self.store, self.family)

    @property
    def name_in_checkpoint(self) -> tuple[int, str, str]:
        return self.operator.id, self.store.name, self.family.name


class StateOfCheckpoint:
    """A checkpoint's operators, and their entries. `storage` is rooted at the stream, and stays open as long as this is used.

    Raises `DamagedError`, and `FormatError` for what another Spark has written in a form that is not known.
    """

    def __init__(self, storage: Storage, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.storage = storage
        self._conf = conf_of(checkpoint)
        provider = self._conf.get(f"{_CONF}providerClass", "RocksDB")
        if "HDFSBacked" in provider:
            raise FormatError(f"the state was written by {provider}, not by RocksDB; Spark's own reader of its checkpoint reads it")
        if self._conf.get(f"{_CONF}rowChecksum.enabled", "false").lower() == "true":
            raise FormatError(
                "the stream keeps a checksum with each row (spark.sql.streaming.stateStore.rowChecksum.enabled), which is not read yet; "
                "Spark's own reader reads it"
            )
        self.operators = read_operators(state_files(storage, checkpoint))
        if checkpoint.snapshots and not self.operators:
            raise FormatError(
                f"{self._where} has state, and no file of the driver's says of what kind: it was written by a Spark before 3.5, or is "
                "damaged; run the query once with the plugin, and read a checkpoint of that run"
            )
        join = self._conf.get(_JOIN, "2")
        if join not in ("1", "2", "3") and any("join" in operator.name.lower() for operator in self.operators):
            raise FormatError(f"the state of a join has the format {join!r:.40}, known are 1 to 3; Spark's own reader reads it")

    @property
    def encoding(self) -> Encoding:
        from spark_ckpt.state.rows import Encoding

        name = self._conf.get(f"{_CONF}encodingFormat", "unsaferow").lower()
        if name not in ("unsaferow", "avro"):
            raise FormatError(f"the state is written as {name!r:.40}; unsaferow and avro are known, take a newer spark-ckpt")
        version = self._conf.get(f"{_CONF}rocksdb.mergeOperatorVersion", "1")
        if version not in ("1", "2"):
            raise FormatError(f"the state's merge operator has the version {version!r:.40}, known are 1 and 2; take a newer spark-ckpt")
        return Encoding(name == "avro", b"," if version == "1" else b"")

    @property
    def codec(self) -> str:
        """With which changelogs are compressed."""
        return self._conf.get(f"{_CONF}compression.codec", "lz4")

    def operator(self, operator: int | None) -> Operator:
        """By its number; None: there is only one. Raises `ConfigError` with those that there are."""
        if not self.operators:
            raise ConfigError(f"{self._where} has no state: its query has no stateful operator")
        if operator is None and len(self.operators) > 1:
            raise ConfigError(f"{self._where} has {len(self.operators)} stateful operators; choose one of {self._ids}")
        chosen = next((o for o in self.operators if operator is None or o.id == operator), None)
        if chosen is None:
            raise ConfigError(f"{self._where} has no operator {operator}; choose one of {self._ids}")
        return chosen

    def select(self, operator: int | None, store: str | None) -> Selected:
        """By the names that `spark-ckpt state` prints; None: there is only one. Raises `ConfigError` with the names that there are."""
        chosen = self.operator(operator)
        there = {name_of(s, f): Selected(chosen, s, f) for s in chosen.stores for f in s.families}
        shown = [name for name, selected in there.items() if not selected.family.is_internal]
        if store is None:
            if len(shown) != 1:
                raise ConfigError(f"operator {chosen.id} ({chosen.name}) has {len(shown)} stores; choose one of {', '.join(shown)}")
            return there[shown[0]]
        if store not in there:
            raise ConfigError(f"operator {chosen.id} ({chosen.name}) has no store {store!r:.100}; choose one of {', '.join(shown)}")
        return there[store]

    def snapshots(self, selected: Selected, partitions: Collection[int] | None = None) -> list[Snapshot]:
        """Ascending by partition. Raises `ConfigError` for a partition that there is not."""
        found = {
            s.store.partition: s
            for s in self.checkpoint.snapshots
            if s.store.operator == selected.operator.id and s.store.store == selected.store.name
        }
        wanted = sorted(set(found if partitions is None else partitions))
        if missing := [partition for partition in wanted if partition not in found]:
            raise ConfigError(f"operator {selected.operator.id} has no partition {missing[0]}; they are 0 to {max(found, default=-1)}")
        return [found[partition] for partition in wanted]

    def decoder(self, selected: Selected) -> Decoder:
        from spark_ckpt.state.rows import Decoder

        return Decoder(selected.family, self.encoding, selected.store.has_families)

    def batches(self, selected: Selected, partitions: Collection[int] | None, threads: int) -> Iterator[pa.RecordBatch]:
        """Partition by partition. What is large is read by several processes, and its batches come as they are made."""
        decoder, snapshots = self.decoder(selected), self.snapshots(selected, partitions)
        if threads > 1 and len(snapshots) > 1 and sum(snapshot.size for snapshot in snapshots) >= MANY_BYTES:
            from spark_ckpt.state.reader_pool import read_by_processes

            return read_by_processes(self, selected, snapshots, threads)

        def of_store(snapshot: Snapshot, folder: Path) -> Generator[pa.RecordBatch, None, None]:
            with self.contents(snapshot, folder) as contents:
                yield from decoded(contents, selected, decoder, snapshot.store.partition, BATCH_BYTES)
            remove(folder)

        return gathered(of_store, snapshots, threads)

    @contextmanager
    def contents(self, snapshot: Snapshot, folder: Path) -> Iterator[Contents]:
        """Of one store. Raises `DamagedError`, `StorageError`, with the names of checkpoint and store."""
        delimiter = self.encoding.delimiter
        with self.named(snapshot), opened(self.storage, self.checkpoint, snapshot, folder, self.codec, delimiter) as contents:
            yield contents

    @staticmethod
    def prefix(contents: Contents, selected: Selected) -> bytes | None:
        """With what the family's keys begin in this store; None: it has no entry there yet. Raises `FormatError` where nobody says."""
        if not selected.store.has_families:
            return b""
        if contents.families is None:
            raise FormatError(
                "the store has no full snapshot yet, and only there Spark says which keys belong to which state variable; "
                "read a later checkpoint"
            )
        number = contents.families.get(selected.family.name)
        return None if number is None else number.to_bytes(2, "little")

    @contextmanager
    def named(self, snapshot: Snapshot) -> Iterator[None]:
        """What goes wrong with a store inside tells the names of checkpoint and store."""
        where = f"operator {snapshot.store.operator}, partition {snapshot.store.partition}, store {snapshot.store.store}"
        try:
            yield
        except (DamagedError, StorageError) as e:
            told = str(e) if where in str(e) else f"{self._where}: {where}: {e}"
            if isinstance(e, ObjectMissingError):
                raise ObjectMissingError(f"{told}; a running query deletes its older checkpoints: read again, or read a savepoint") from e
            raise type(e)(told) from e
        except OSError as e:
            raise StorageError(f"{self._where}: {where} cannot be unpacked: {e.strerror or e}; free space there or set TMPDIR") from e

    @property
    def _where(self) -> str:
        return f"checkpoint {paths.checkpoint_name(self.checkpoint.id)}"

    @property
    def _ids(self) -> str:
        return ", ".join(f"{operator.id} ({operator.name})" for operator in self.operators)


def decoded(contents: Contents, selected: Selected, decoder: Decoder, partition: int, size: int) -> Iterator[pa.RecordBatch]:
    """The family's entries in one store, in batches of about `size` bytes."""
    prefix = StateOfCheckpoint.prefix(contents, selected)
    if prefix is not None:
        for keys, values in groups(contents, prefix, decoder.rows_at_once, size):
            yield from decoder.batches(keys, values, partition)


Make = Callable[[Snapshot, Path], "Generator[pa.RecordBatch, None, None]"]
"""The batches of one store. The folder is a new one, in a folder of the reader's own; it is removed with it, or sooner."""


def gathered(
    make: Make, snapshots: Sequence[Snapshot], threads: int, *, in_order: bool = True, at_end: Callable[[], None] = lambda: None
) -> Iterator[pa.RecordBatch]:
    """The batches of some stores, made by so many threads; of each store so much is made as has room.

    `in_order`: one store's come after the other's; else they come as soon as they are made, so that no thread waits for another's store.
    `at_end` is called before threads are waited for that may still be in `make`. Raises `StorageError` where the program has ended, and
    in a process that was forked meanwhile.
    """
    with temporary_folder("state") as folder, ThreadPoolExecutor(threads, "state") as pool:
        waiting: list[_Batches] = []
        pid, has_ended = os.getpid(), False

        def finish() -> None:
            nonlocal has_ended
            had_ended, has_ended = has_ended, True
            if os.getpid() != pid:
                if not had_ended:
                    # It is read there, by threads that are not here. Python would close it at its end: wait for them, or write its files.
                    import ctypes

                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(waiting))
                return
            with ExitStack() as closing:
                for made in tuple(waiting):
                    closing.callback(made.close)
                at_end()
                pool.shutdown(cancel_futures=True)

        def check() -> None:
            """A thread may go on to read when all that is done at the end is done: for it, that is not the end of the state. Who was forked
            has the pool without its threads, and the sockets to the helpers with the one who reads."""
            if os.getpid() != pid:
                raise StorageError("this process was forked from the one that reads the state; read it anew here")
            if has_ended:
                raise StorageError("the program ends, so that no more of the state is read")

        numbered = iter(enumerate(snapshots))
        with done_at_exit(finish), ExitStack() as ending:
            ending.callback(finish)
            while True:
                check()
                while len(waiting) < threads and (item := next(numbered, None)) is not None:
                    waiting.append(_Batches(make(item[1], folder / str(item[0]))))
                    waiting[-1].begin(pool)
                if not waiting:
                    return
                # Whatever ends this wait, all that has begun is in `waiting`, and is closed before its folder goes.
                made = waiting[0] if in_order else _first_done(waiting)
                try:
                    found = made.next.result()
                except Exception:
                    check()
                    raise
                check()
                if made.ended:
                    waiting.remove(made)
                else:
                    made.begin(pool)
                yield from found


def _first_done(waiting: Sequence[_Batches]) -> _Batches:
    wait([made.next for made in waiting], return_when=FIRST_COMPLETED)
    return next(made for made in waiting if made.next.done())


class _Batches:
    """The batches of one partition. It is used by one thread at a time, and whoever takes its last one, or gives up, closes it."""

    def __init__(self, made: Generator[pa.RecordBatch, None, None]) -> None:
        self._made = made
        self._first = Lock()
        self.next: Future[list[pa.RecordBatch]] = Future()
        self.ended = False

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """To make the next ones, by a thread of the pool; by this one where there can be no more threads, as when the main one has ended.

        Whoever is first makes them: a pool that could not start a thread has taken the work all the same, and may do it later.
        """
        found: Future[list[pa.RecordBatch]] = Future()
        first = Lock()
        self._first, self.next = first, found

        def make() -> None:
            if first.acquire(blocking=False):
                try:
                    found.set_result(self._some())
                except BaseException as e:
                    found.set_exception(e)
                    if not isinstance(e, Exception):
                        raise

        try:
            pool.submit(make)
        except RuntimeError:
            make()

    def _some(self) -> list[pa.RecordBatch]:
        found = []
        for _ in range(_AHEAD):
            batch = next(self._made, None)
            if batch is None:
                self.ended = True
                break
            found.append(batch)
        return found

    def close(self) -> None:
        if self._first.acquire(blocking=False):  # nobody makes them any more
            self.next.set_exception(CancelledError())
        with suppress(ValueError):  # an interrupt has kept a thread from being waited for that is in it
            self._made.close()


def groups(contents: Contents, prefix: bytes, rows: int = MOST_ROWS, size: int | None = None) -> Iterator[Batch]:
    """Keys and values of at most `rows` entries that have about `size` bytes together; None: `BATCH_BYTES`."""
    return contents.batches(prefix, rows, BATCH_BYTES if size is None else size)


def name_of(store: Store, family: Family) -> str:
    """As people choose it: a state variable by its own name, `timers`, also by Spark's where a variable is called so; a store without
    families by the store's."""
    if family.variable is Variable.TIMER and all(other.name != _TIMERS for other in store.families):
        return _TIMERS
    if not store.has_families:
        return store.name
    return family.name if store.name == DEFAULT else f"{store.name}/{family.name}"


def remove(folder: Path) -> None:
    """Stores are removed one by one: together they can be larger than the disk."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(options_beside(folder), ignore_errors=True)
    shutil.rmtree(changelogs_beside(folder), ignore_errors=True)


def default_threads() -> int:
    return max(1, min(4, len(os.sched_getaffinity(0))))


def conf_of(checkpoint: Checkpoint) -> Mapping[str, str]:
    """What the query had begun with, as its offset log says: a later configuration changes nothing of these."""
    name = f"offsets/{checkpoint.id.epoch}"
    text = checkpoint.file(name)
    if text is None:
        raise DamagedError(f"the driver's file {name} is not in the checkpoint, which says how state is written; choose another checkpoint")
    try:
        conf = parse_json(text.split(b"\n")[1], _MAX_VALUES).get("conf", {})
        return {str(key): str(value) for key, value in conf.items()}
    except (ValueError, IndexError, AttributeError, RecursionError) as e:
        raise DamagedError(f"{name} cannot be read ({type(e).__name__}: {e}); it is damaged") from e
