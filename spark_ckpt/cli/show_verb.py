"""`spark-ckpt show`"""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from spark_ckpt.cli.options import checkpoint_option, json_option, opened_stream, s3_options
from spark_ckpt.cli.output import Facts, Line, Output, Report, Table, origin_of
from spark_ckpt.model import Checkpoint, CheckpointId, Content, FileHandle, Snapshot, key_count
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.offsets_conf import is_drained
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.units import size_text, time_text

_SHOWN = 50


@click.command("show")
@click.argument("stream")
@checkpoint_option("the latest")
@s3_options
@json_option
def command(stream: str, checkpoint: CheckpointId | None, s3: S3Options, output: Output) -> None:
    """Show what is in a checkpoint of STREAM: job, offsets, stores, objects, sizes.

    STREAM may also be the folder of one checkpoint or savepoint.
    """
    with opened_stream(stream, s3) as (_, reader):
        output.show(_report(reader, reader.read(checkpoint or reader.latest())))


def _report(reader: StreamReader, c: Checkpoint) -> Report:
    path = reader.path_of(c.id)
    document: dict[str, Any] = {
        "checkpoint": checkpoint_name(c.id),
        "run": c.id.run,
        "epoch": c.id.epoch,
        "path": path,
        "time_ms": c.time_ms,
        "query_id": c.query_id,
        "log_entry": c.log,
        "claim": c.claim,
        "job": c.job.to_json(),
        "imported_from": c.imported.location if c.imported is not None else None,
        "begins": list(c.begins),
        "drained": is_drained(c),
        "size": c.size,
        "objects": sorted(c.objects),
        "files": {name: _content(data) for name, data in sorted(c.files.items())},
        "stores": [_store(s) for s in c.snapshots],
        "counters": dict(c.counters),
        "hooks": {name: _content(state) for name, state in sorted(c.hooks.items())},
    }
    kinds = Counter(h.kind.value.lower() for s in c.snapshots for h in s.handles)
    keys = key_count(c.snapshots)
    facts = Facts(
        [
            ("checkpoint", checkpoint_name(c.id)),
            ("path", path),
            ("epoch", str(c.id.epoch)),
            ("triggered", time_text(c.time_ms)),
            ("query id", c.query_id),
            ("operators", ", ".join(c.job.operators) or "none (offsets only)"),
            *([("begin empty", f"operators {', '.join(map(str, c.begins))}")] if c.begins else []),
            *origin_of(c),
            ("size", f"{size_text(c.size)} in {len(c.objects)} objects"),
            ("files of state", ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"),
            ("keys", "not counted" if keys is None else str(keys)),
            *((f"hook {name}", f"a state of {size_text(len(state))}") for name, state in sorted(c.hooks.items())),
            ("log entry", f"{c.log}, claimed in log entry {c.claim}"),
            *((f"  {name}", str(round(value, 1))) for name, value in sorted(c.counters.items()) if isinstance(value, (int, float))),
        ]
    )
    stores = [
        (
            str(s.store.operator),
            str(s.store.partition),
            s.store.store,
            str(s.version),
            "-" if s.num_keys is None else str(s.num_keys),
            str(len(s.handles)),
            size_text(s.size),
        )
        for s in c.snapshots
    ]
    files = [
        (name, size_text(data.length), data.object) if isinstance(data, FileHandle) else (name, size_text(len(data)), "")
        for name, data in sorted(c.files.items())
    ]
    sections: list[Any] = [facts]
    if stores:
        columns = ("OPERATOR", "PARTITION", "STORE", "VERSION", "KEYS", "FILES", "SIZE")
        right = ("OPERATOR", "PARTITION", "VERSION", "KEYS", "FILES", "SIZE")
        sections += [Line(""), Table(columns, stores[:_SHOWN], right=right), *_more(len(stores), "stores")]
    sections += [Line(""), Table(("DRIVER FILE", "SIZE", "OBJECT"), files[:_SHOWN], right=("SIZE",)), *_more(len(files), "files")]
    return Report(document, sections)


def _more(count: int, what: str) -> list[Line]:
    return [Line(f"… and {count - _SHOWN} more {what}; --json shows all")] if count > _SHOWN else []


def _content(data: Content) -> dict[str, Any]:
    """Spark's own small files are text; anything else is shown by its size only, a large one with the object that it is."""
    if isinstance(data, FileHandle):
        return {"bytes": data.length, "object": data.object, "checksum": data.checksum}
    try:
        return {"bytes": len(data), "text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bytes": len(data)}


def _store(s: Snapshot) -> dict[str, Any]:
    return {
        "operator": s.store.operator,
        "partition": s.store.partition,
        "store": s.store.store,
        "version": s.version,
        "uid": s.uid,
        "num_keys": s.num_keys,
        "size": s.size,
        "handles": [
            {"kind": h.kind.value, "name": h.name, "object": h.object, "offset": h.offset, "length": h.length, "checksum": h.checksum}
            for h in s.handles
        ],
    }
