"""`spark-ckpt state`"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spark_ckpt.cli.options import checkpoint_option, json_option, opened, opened_stream, s3_options, storage_url
from spark_ckpt.cli.output import Line, Output, Report, Section, Table
from spark_ckpt.errors import ConfigError
from spark_ckpt.model import CheckpointId, key_count
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.process import owner_only
from spark_ckpt.process.packages import require
from spark_ckpt.process.scratch import TEMPORARY, ScratchFolder
from spark_ckpt.state.changes import Changes, older_checkpoint, read_older
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, default_threads
from spark_ckpt.state.spark_types import to_text
from spark_ckpt.state.summary import BIGGEST, Counted, count, partitions_of, shown_keys
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.units import size_text

if TYPE_CHECKING:
    import pyarrow as pa

_WIDEST = 100
"""Characters of a key that are shown to people; `--json` has all of it."""


@click.command("state")
@click.argument("stream")
@checkpoint_option("the latest")
@click.option("--operator", type=int, metavar="N", help="Only this operator.")
@click.option("--store", metavar="NAME", help="Only this store or state variable.")
@click.option("--partition", "partitions", type=int, multiple=True, metavar="N", help="With --to: only this one; may be given often.")
@click.option(
    "--since",
    metavar="CHECKPOINT",
    help="Only what has changed since this older one: run-N/chk-M, or the URL of a checkpoint or savepoint.",
)
@click.option("--deep", is_flag=True, help="Also read all entries: count them, and find the biggest keys.")
@click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one store's entries to this local Parquet file, over one that is there.",
)
@s3_options
@json_option
def command(
    stream: str,
    checkpoint: CheckpointId | None,
    operator: int | None,
    store: str | None,
    partitions: tuple[int, ...],
    since: str | None,
    deep: bool,
    target: Path | None,
    s3: S3Options,
    output: Output,
) -> None:
    """Show what the state of STREAM holds: operators, stores, schemas, keys, sizes, the biggest partitions.

    State variables of transformWithState are stores here, and so are its timers. STREAM may also be the folder of one checkpoint or
    savepoint. The query may run.

    With --since: how many keys were inserted, updated and deleted between two checkpoints; with --to too, which ones, with the column
    _change_type and the words of Delta's change data feed.
    """
    require(("numpy", "pyarrow", "rocksdict"))
    if partitions and target is None:
        raise ConfigError("--partition says what is written, and nothing is; give --to too")
    if since is not None and deep:
        raise ConfigError("--deep counts what there is, --since what has changed; leave one of them out")
    with ExitStack() as stack:
        storage, reader = stack.enter_context(opened_stream(stream, s3))
        state = StateOfCheckpoint(storage, reader.read(checkpoint or reader.latest()))
        before: _Before | None = None
        if since is not None:
            older = older_checkpoint(since, storage.url, storage_url)
            other = stack.enter_context(opened(older.storage_url, s3))
            found = read_older(older, other, reader, state.checkpoint)
            elsewhere = "" if older.storage_url == storage.url.rstrip("/") else older.url
            before = _Before(StateOfCheckpoint(other, found.checkpoint), found.same_numbers, elsewhere)
        if target is not None:
            output.show(_written(_source(before, state, state.select(operator, store), partitions or None), target))
        elif before is not None:
            output.show(_changed(reader, before, state, _chosen(state, operator, store)))
        else:
            output.show(_report(reader, state, _chosen(state, operator, store), deep))


def _chosen(state: StateOfCheckpoint, operator: int | None, store: str | None) -> list[Selected]:
    if store is not None:
        return [state.select(operator, store)]
    if operator is not None and operator not in {o.id for o in state.operators}:
        state.select(operator, None)
    found = [Selected(o, s, f) for o in state.operators if operator in (None, o.id) for s in o.stores for f in s.families]
    return [one for one in found if not one.family.is_internal]


def _report(reader: StreamReader, state: StateOfCheckpoint, chosen: Sequence[Selected], deep: bool) -> Report:
    counted = _counted(state, chosen) if deep else {}
    documents = [_document(state, one, counted.get(one.name_in_checkpoint)) for one in chosen]
    name = checkpoint_name(state.checkpoint.id)
    document = {"checkpoint": name, "path": reader.path_of(state.checkpoint.id), "stores": documents}
    sections: list[Section] = [Line(f"{name} of {reader.url}")]
    if not documents:
        return Report(document, [*sections, Line("no state: the query has no stateful operator")])
    columns = ("OPERATOR", "KIND", "STORE", "PARTITIONS", "KEYS", "SIZE", *(("ENTRIES", "BYTES") if deep else ()))
    right = ("OPERATOR", "PARTITIONS", "KEYS", "SIZE", "ENTRIES", "BYTES")
    sections += [Line(""), Table(columns, [_row(d, deep) for d in documents], right)]
    for d in documents:
        title = f"operator {d['operator']}, store {d['store']}"
        sections += [Line(""), Line(title), *(Line(f"  {column}: {kind}") for column, kind in d["schema"].items())]
        largest = ", ".join(f"{p['partition']} ({size_text(p['size'])})" for p in d["biggest_partitions"])
        sections.append(Line(f"  biggest partitions: {largest or 'none'}"))
        for one in d.get("biggest_keys", ()):
            sections.append(Line(f"  {size_text(one['bytes'])} in partition {one['partition']}: {_short(one['key'])}"))
    return Report(document, sections)


def _counted(state: StateOfCheckpoint, chosen: Sequence[Selected]) -> dict[tuple[int, str, str], Counted]:
    """A store is read once, whatever it has of families."""
    by_store: dict[tuple[int, str], list[Selected]] = {}
    for one in chosen:
        by_store.setdefault((one.operator.id, one.store.name), []).append(one)
    found = {}
    for together in by_store.values():
        for one, counted in zip(together, count(state, together, default_threads()), strict=True):
            found[one.name_in_checkpoint] = counted
    return found


def _document(state: StateOfCheckpoint, one: Selected, counted: Counted | None) -> dict[str, Any]:
    snapshots = partitions_of(state, one)
    keys = key_count(snapshots)
    document: dict[str, Any] = {
        "operator": one.operator.id,
        "kind": one.operator.name,
        "store": one.name,
        "partitions": len(snapshots),
        "keys": keys if len(one.store.families) == 1 else None,
        "size": sum(s.size for s in snapshots),
        "variable": None if one.family.variable is None else one.family.variable.value,
        "schema": {"key": to_text(one.family.key), "value": to_text(one.family.value)},
        "biggest_partitions": [{"partition": s.store.partition, "size": s.size, "keys": s.num_keys} for s in snapshots[:BIGGEST]],
    }
    if counted is not None:
        document |= {
            "entries": counted.entries,
            "bytes": counted.size,
            "biggest_keys": [
                {"bytes": size, "partition": partition, "key": _plain(key)} for size, partition, key in shown_keys(state, one, counted)
            ],
        }
    return document


def _row(d: dict[str, Any], deep: bool) -> tuple[str, ...]:
    keys = "-" if d["keys"] is None else str(d["keys"])
    row = (str(d["operator"]), d["kind"], d["store"], str(d["partitions"]), keys, size_text(d["size"]))
    return (*row, str(d["entries"]), size_text(d["bytes"])) if deep else row


def _plain(value: Any) -> Any:
    """As JSON has it; what it has not is text."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _short(key: Any) -> str:
    text = ", ".join(f"{name}={item}" for name, item in key.items()) if isinstance(key, dict) else str(key)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"


@dataclass(frozen=True)
class _Before:
    """The older of two checkpoints."""

    state: StateOfCheckpoint
    same_numbers: bool
    elsewhere: str
    """URL of its folder, if that is not of the stream that is looked at."""

    @property
    def name(self) -> str:
        return checkpoint_name(self.state.checkpoint.id)

    @property
    def title(self) -> str:
        return f"{self.name} at {self.elsewhere}" if self.elsewhere else self.name

    def changes(self, after: StateOfCheckpoint, selected: Selected) -> Changes:
        return Changes(self.state, after, selected, self.same_numbers)


@dataclass(frozen=True)
class _Source:
    """What is written. `facts`: of what it is, in a report."""

    store: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    facts: dict[str, Any]


def _source(before: _Before | None, state: StateOfCheckpoint, selected: Selected, partitions: tuple[int, ...] | None) -> _Source:
    threads = default_threads()
    facts: dict[str, Any] = {"checkpoint": checkpoint_name(state.checkpoint.id), "operator": selected.operator.id, "store": selected.name}
    if before is None:
        schema = state.decoder(selected).schema
        return _Source(selected.name, schema, lambda: state.batches(selected, partitions, threads), facts)
    changes = before.changes(state, selected)
    facts["since"] = before.name
    return _Source(selected.name, changes.schema, lambda: changes.batches(partitions, threads), facts)


def _changed(reader: StreamReader, before: _Before, state: StateOfCheckpoint, chosen: Sequence[Selected]) -> Report:
    then, now = before.name, checkpoint_name(state.checkpoint.id)
    documents = []
    for one in chosen:
        found = before.changes(state, one).count(default_threads())
        documents.append({"operator": one.operator.id, "kind": one.operator.name, "store": one.name, **asdict(found)})
    title = Line(f"from {before.title} to {now} of {reader.url}")
    if not documents:
        return Report({"since": then, "checkpoint": now, "stores": []}, [title, Line("no state: the query has no stateful operator")])
    columns = ("OPERATOR", "KIND", "STORE", "INSERTED", "UPDATED", "DELETED")
    rows = [tuple(str(value) for value in d.values()) for d in documents]
    table = Table(columns, rows, ("OPERATOR", "INSERTED", "UPDATED", "DELETED"))
    return Report({"since": then, "checkpoint": now, "stores": documents}, [title, Line(""), table])


def _written(source: _Source, target: Path) -> Report:
    """Written beside and renamed: under the name that was asked for there is all of it, or what was there before."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    try:
        file_itself = _to_be_replaced(target)
        with ScratchFolder(file_itself.parent, f"{TEMPORARY}state-") as folder:
            beside = folder / "state.parquet"
            with open(beside, "xb", opener=owner_only.opener) as file:
                schema = source.schema
                names = parquet_columns(schema)
                with pq.ParquetWriter(file, pa.schema([schema.field(name) for name in names]), compression="zstd") as writer:
                    for batch in source.batches():
                        writer.write_batch(batch.select(names))
                        rows += batch.num_rows
                file.flush()
                os.fsync(file.fileno())
            beside.rename(file_itself)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as e:
        raise ConfigError(f"store {source.store} cannot be written as Parquet ({e}); read it with spark_ckpt.read_state") from e
    except OSError as e:
        raise ConfigError(f"{target} cannot be written: {e.strerror or e}; choose a folder that is writable and has free space") from e
    size = target.stat().st_size
    facts = source.facts
    at = f"from {facts['since']} to {facts['checkpoint']}" if "since" in facts else f"at {facts['checkpoint']}"
    text = f"{rows} rows of operator {facts['operator']}, store {facts['store']}, {at}: {target} ({size_text(size)})"
    return Report({**facts, "rows": rows, "file": str(target), "size": size}, [Line(text)])


def parquet_columns(schema: pa.Schema) -> list[str]:
    """Parquet has no struct without fields, such as the key of an aggregation over everything: it is left out."""
    import pyarrow as pa

    return [field.name for field in schema if not (pa.types.is_struct(field.type) and field.type.num_fields == 0)]


def _to_be_replaced(target: Path) -> Path:
    """The file that a link leads to. Raises `ConfigError` for what is there and is no file, and OSError."""
    file_itself = Path(os.path.realpath(target))
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(target.stat().st_mode):
            raise ConfigError(f"{target} is there and is no regular file, which --to would replace; name a file")
    file_itself.parent.stat()  # what was named by mistake is not made
    return file_itself
