"""Savepoints with other state than the checkpoints that they are made of (Flink: State Processor API)."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any

from spark_ckpt.api.state import chosen_of, options_of, stream_of
from spark_ckpt.errors import ConfigError
from spark_ckpt.paths import savepoint_url
from spark_ckpt.state.reading import Selected, StateOfCheckpoint
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.opening import new_folder, opened_stream
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.reading import CheckpointReader

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_ckpt.state.editing import Editing
    from spark_ckpt.state.other_columns import OtherColumns
    from spark_ckpt.storage import Storage


def transform_state(
    url: str,
    operator: int | None,
    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
    store: str | None = None,
    checkpoint: str | None = None,
    target: str | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    like: str | PathLike[str] | None = None,
) -> str:
    """Make a savepoint whose entries of one state store are those that `function` makes of a checkpoint's; returns its URL.

    `function` gets batches with the columns of `read_state`, and returns those rows that there are to be: fewer, or with other values, or
    other keys. The arguments are those of `read_state`; `target` is the folder in which the savepoint's own folder is made, `savepoints/`
    of the stream or beside the savepoint by default, and `name` the name there.

    `like`: the URL of a stream, checkpoint or savepoint of the query as it will be, whose operator of that number keeps other columns of
    the same keys. Then `function` gets batches with the columns that there are, and returns such with the columns that `like` has.

    Nothing that was there is changed, and there is no savepoint unless all of it is stored. Raises `ConfigError` for state that is only
    read, or batches that do not have the state's types; `ConflictError` for a key that is there twice; whatever `function` raises; and
    what `read_state` raises.
    """
    if not callable(function):
        raise ConfigError(f"{function!r:.100} is no function; give one that takes a pyarrow.RecordBatch and returns one")
    with _editing(url, operator, store, checkpoint, target, name, conf, like) as (place, editing):
        editing.transform(function)
        return place


def write_state(
    url: str,
    operator: int | None,
    data: Any,
    store: str | None = None,
    mode: str = "append",
    checkpoint: str | None = None,
    target: str | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
) -> str:
    """Make a savepoint with more entries in one state store, or other ones; returns its URL.

    `data`: Arrow batches or tables, what goes through such (a `pyarrow.dataset.Scanner`'s `to_batches()`, a `RecordBatchReader`), or what
    gives an Arrow stream (a Polars or pandas data frame), with the columns of `read_state`; it is gone through once, and not held in
    memory. `mode`: `append`, where a key that is there already is refused, or `overwrite`, which leaves out all that was there. The other
    arguments and errors are those of `transform_state`.
    """
    if mode not in ("append", "overwrite"):
        raise ConfigError(f"mode is {mode!r:.100}; write append or overwrite")
    batches: Iterable[Any] = data
    if hasattr(data, "schema") and hasattr(data, "num_rows"):
        batches = [data]
    elif hasattr(data, "__arrow_c_stream__") and not hasattr(data, "read_next_batch"):
        batches = _batches_of(data)
    if not isinstance(batches, Iterable):
        raise ConfigError(f"{type(data).__name__} is no Arrow data; give a pyarrow.Table, or batches")
    with _editing(url, operator, store, checkpoint, target, name, conf) as (place, editing):
        editing.write(batches, mode == "overwrite")
        return place


def _batches_of(data: Any) -> Iterable[Any]:
    from spark_ckpt.process.packages import require

    require(("pyarrow",))
    import pyarrow as pa

    try:
        reader: Iterable[Any] = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise ConfigError(f"the {type(data).__name__} cannot be read as Arrow data: {e}; give a pyarrow.Table") from e
    return reader


def drop_keys(
    url: str,
    operator: int | None,
    which: Callable[[pa.RecordBatch], Any],
    checkpoint: str | None = None,
    target: str | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
) -> str:
    """Make a savepoint without all that an operator keeps of some keys, in whatever stores; returns its URL.

    `which` gets batches of keys, with a column for each part of the key that the query groups or joins by, and returns an Arrow array of
    booleans: true for those that go. It is asked of each store in turn, so its answer must depend on the key alone. Kinds of state that
    `transform_state` refuses are no different here: joins, lists, timers, state with a time to live, Avro. Warns (`UserWarning`) where no
    key was chosen; there is a savepoint all the same.

    The other arguments and errors are those of `transform_state`.
    """
    if not callable(which):
        raise ConfigError(f"{which!r:.100} is no function; give one that takes a pyarrow.RecordBatch and returns booleans")
    with _opened(url, operator, None, checkpoint, target, name, conf) as (storage, state, number, made):
        from spark_ckpt.state.dropping import Dropping

        chosen = state.operator(number)
        if not Dropping(storage, state, chosen, made).drop(which):
            warnings.warn(f"no key of operator {chosen.id} was chosen, so {made.url} holds all that there was", stacklevel=2)
        return made.url


@contextmanager
def _editing(
    url: str,
    operator: int | None,
    store: str | None,
    checkpoint: str | None,
    target: str | None,
    name: str | None,
    conf: Mapping[str, Any] | None,
    like: str | PathLike[str] | None = None,
) -> Iterator[tuple[str, Editing]]:
    with _opened(url, operator, store, checkpoint, target, name, conf) as (storage, state, number, made):
        from spark_ckpt.state.editing import Editing

        selected = state.select(number, store)
        columns = _columns_like(like, state, selected, conf) if like is not None else None
        yield made.url, Editing(storage, state, selected, made, columns=columns)


def _columns_like(like: str | PathLike[str], state: StateOfCheckpoint, selected: Selected, conf: Mapping[str, Any] | None) -> OtherColumns:
    from spark_ckpt.state.other_columns import columns_like

    with opened_stream(stream_of(like, "like"), options_of(conf)) as (storage, reader):
        return columns_like(state, selected, StateOfCheckpoint(storage, reader.read(reader.latest())))


@contextmanager
def _opened(
    url: str,
    operator: int | None,
    store: str | None,
    checkpoint: str | None,
    target: str | None,
    name: str | None,
    conf: Mapping[str, Any] | None,
) -> Iterator[tuple[Storage, StateOfCheckpoint, int | None, Storage]]:
    """What the checkpoint's objects are relative to, its state, the operator's number, and the new savepoint's folder."""
    from spark_ckpt.process.packages import require

    require(("numpy", "pyarrow", "rocksdict"))
    number, chosen = chosen_of(operator, store, checkpoint)
    s3 = options_of(conf)
    stream = stream_of(url, "the stream's URL")
    folder = stream_of(target, "target") if target is not None else ""
    with opened_stream(stream, s3) as (storage, reader):
        if not folder and isinstance(reader, CheckpointReader) and RestorePath.at(stream).is_savepoint:
            folder = storage.url.rstrip("/").rpartition("/")[0]
        of = storage.url.rstrip("/")
        place = Places(of).told_apart(savepoint_url(of, folder, name or f"edited-{secrets.token_hex(4)}"))
        state = StateOfCheckpoint(storage, reader.read(chosen or reader.latest()))
        with new_folder(place, s3) as made:
            yield storage, state, number, made
