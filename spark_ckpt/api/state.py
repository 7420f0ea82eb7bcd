"""`read_state`: the state of a query as Arrow, out of any of its checkpoints, while it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from numbers import Integral
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from spark_ckpt.conf.forms import parse_stream
from spark_ckpt.conf.options import parse_options
from spark_ckpt.conf.passwords import shown
from spark_ckpt.conf.table import PREFIX
from spark_ckpt.errors import ConfigError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import parse_checkpoint_name
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, default_threads
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.opening import opened, opened_stream

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from spark_ckpt.state.changes import Older

_MAX_PARTITIONS = 1_000_000


class State:
    """The entries of one state store, read whenever they are asked for: whoever goes through them twice reads them twice.

    Arrow's C stream (`__arrow_c_stream__`) is what DuckDB, Polars, pandas and pyarrow take. Memory is bounded by what some batches of 4 MiB
    take. Above 32 MiB of stored state other processes help (`state.reader_pool`), and batches come as they are made, each of one partition.
    Reading raises `DamagedError` where what is stored is damaged, `StorageError` where the storage does not answer, or where the running
    query has deleted the checkpoint meanwhile.
    """

    def __init__(
        self,
        place: tuple[str, S3Options],
        checkpoint: Checkpoint,
        selected: Selected,
        schema: pa.Schema,
        partitions: Collection[int] | None,
        since: tuple[str, Older] | None = None,
    ) -> None:
        self._place, self._checkpoint, self._selected, self._partitions = place, checkpoint, selected, partitions
        self._since = since
        self.schema = schema
        """`key` and `value` (of a list `list_element`, of a map `user_map_key` and `user_map_value`, of timers
        `expiration_timestamp_ms`), and `partition_id`: as Spark's own reader has them. With `since` also `_change_type`."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with opened_stream(*self._place) as (storage, _):
            state = StateOfCheckpoint(storage, self._checkpoint)
            if self._since is None:
                yield from state.batches(self._selected, self._partitions, default_threads())
                return
            from spark_ckpt.state.changes import Changes

            url, older = self._since
            with opened(url, self._place[1]) as other:
                changes = Changes(StateOfCheckpoint(other, older.checkpoint), state, self._selected, older.same_numbers)
                yield from changes.batches(self._partitions, default_threads())

    def to_reader(self) -> pa.RecordBatchReader:
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """All of it in memory."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """All of it in memory; keys and values are dictionaries."""
        return self.to_table().to_pandas()


def read_state(
    url: str | PathLike[str],
    operator: int | None = None,
    store: str | None = None,
    partitions: Iterable[int] | None = None,
    checkpoint: str | None = None,
    conf: Mapping[str, Any] | None = None,
    since: str | PathLike[str] | None = None,
) -> State:
    """The entries of a state store at a checkpoint of the stream at `url`, which may also be the folder of one checkpoint or savepoint.

    `operator`: its number, where the query has several. `store`: its name, or that of a state variable of `transformWithState`, or
    `timers`, where there are several; `spark-ckpt state` prints them. `partitions`: their numbers, None for all. `checkpoint`:
    `run-3/chk-42`, None for the latest. `conf`: `spark.ckpt.s3.…`, where the storage needs them.

    `since`: an older checkpoint of the stream, or the URL of the folder of one or of a savepoint: then the rows are what has changed
    since, and the column `_change_type` says how, with the words of Delta's change data feed: `insert`, `update_preimage` with the old
    value, `update_postimage` with the new one, `delete` with the last value. Of a list each value is a row, inserted or deleted.

    Only names and schemas are read at once, entries when they are asked for. Raises `ConfigError` for names that there are not,
    `ObjectMissingError` where no stream is, `FormatError` (a `DamagedError`) for state in a form that is not read, `StorageError`.
    """
    from spark_ckpt.process.packages import require

    require(("numpy", "pyarrow", "rocksdict"))
    stream = stream_of(url, "the stream's URL")
    number, chosen = chosen_of(operator, store, checkpoint)
    numbers = None if partitions is None else _numbers(partitions)
    s3 = options_of(conf)
    with opened_stream(stream, s3) as (storage, reader):
        found = reader.read(chosen or reader.latest())
        state = StateOfCheckpoint(storage, found)
        selected = state.select(number, store)
        state.snapshots(selected, numbers)
        if since is None:
            return State((stream, s3), found, selected, state.decoder(selected).schema, numbers)
        from spark_ckpt.state.changes import Changes, older_checkpoint, read_older

        named = _text("since", fspath(since) if isinstance(since, PathLike) else since)
        path = older_checkpoint(named, storage.url, lambda text: stream_of(text, "since"))
        with opened(path.storage_url, s3) as other:
            older = read_older(path, other, reader, found)
            schema = Changes(StateOfCheckpoint(other, older.checkpoint), state, selected, older.same_numbers).schema
        return State((stream, s3), found, selected, schema, numbers, (path.storage_url, older))


def stream_of(url: object, what: str) -> str:
    """Raises `ConfigError` with the form of a URL."""
    try:
        return parse_stream(_text(what, fspath(url) if isinstance(url, PathLike) else url))
    except ValueError as e:
        raise ConfigError(f"{what} {shown(str(url))!r:.200} cannot be used; write {e}") from None


def chosen_of(operator: object, store: object, checkpoint: object) -> tuple[int | None, CheckpointId | None]:
    """Which operator and which checkpoint, None for those that were not chosen. Raises `ConfigError` for what is neither."""
    if store is not None:
        _text("store", store)
    number = None if operator is None else _number("operator", operator)
    return number, None if checkpoint is None else parse_checkpoint_name(_text("checkpoint", checkpoint))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r:.100}, and must be text; write str(…)")
    return value


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"{name} is {value!r:.100}, and must be a whole number; `spark-ckpt state` prints them")
    return int(value)


def _numbers(partitions: object) -> tuple[int, ...]:
    """What can be gone through only once, too."""
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise ConfigError(f"partitions is {partitions!r:.100}, and must be several whole numbers; write [0]")
    found = tuple(_number("one of partitions", value) for value in islice(partitions, _MAX_PARTITIONS + 1))
    if len(found) > _MAX_PARTITIONS:
        raise ConfigError(f"partitions has more than {_MAX_PARTITIONS} numbers, more than any query has partitions; leave it out for all")
    return found


def options_of(conf: object) -> S3Options:
    if conf is not None and not isinstance(conf, Mapping):
        raise ConfigError(f"conf is {conf!r:.100}, and must be a dictionary of spark.ckpt.s3.… options")
    given = {str(key): str(value) for key, value in (conf or {}).items() if value is not None}
    other = next((key for key in given if not key.startswith(PREFIX)), None)
    if other is not None:
        raise ConfigError(f"conf has {other!r:.100}, which is no option of spark-ckpt and would change nothing; write spark.ckpt.s3.…")
    return parse_options(given).s3
