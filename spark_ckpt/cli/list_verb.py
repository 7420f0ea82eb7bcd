"""`spark-ckpt list`"""

from __future__ import annotations

from typing import Any

import click

from spark_ckpt.cli.options import json_option, opened_stream, s3_options
from spark_ckpt.cli.output import Line, Output, Report, Table, duration_text, size_text, time_text
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Condition, Found, Overview, Use


@click.command("list")
@click.argument("stream")
@s3_options
@json_option
def command(stream: str, s3: S3Options, output: Output) -> int:
    """List the completed checkpoints of STREAM (s3://bucket/prefix/path, file:///path or a path).

    The checkpoint from which the next start goes on is marked as latest. One that is not retained is deleted when the run goes on, or by
    the next run. No start would use one that is SUPERSEDED (a later run goes on from another checkpoint) or BAD (a run has found it
    damaged). DAMAGED means that its _metadata is damaged, UNREADABLE that it may not be read from here.

    STREAM may also be the folder of one checkpoint or savepoint. Exit status 1 if a checkpoint that a start could use, or the log, cannot
    be read.
    """
    with opened_stream(stream, s3) as (_, reader):
        overview = reader.overview()
        found, standing, latest = overview.found, overview.standing, overview.latest
        problem, retained = overview.problem, overview.retained
        documents = [
            {**_document(reader, item, _status(item, overview), item.id == latest), "retained": item.id in retained} for item in found
        ]
        damaged = [item for item in found if item.error is not None and overview.use(item.id) is Use.USABLE]
        columns = ("CHECKPOINT", "EPOCH", "COMPLETED", "STORES", "SIZE", "NEW", "DURATION", "STATUS")
        rows = [_row(item, _status_text(_status(item, overview), item.id == latest, item.id in retained)) for item in found]
        notes = [Line(str(item.error)) for item in damaged] + ([Line(problem)] if problem else [])
        table = Table(columns, rows, right=("EPOCH", "STORES", "SIZE", "NEW", "DURATION"))
        ended = standing is not None and standing.ended
        what = "was deleted (onStop=DELETE); `spark-ckpt gc --delete` deletes what is left" if ended else "has no completed checkpoint yet"
        told = [Line(f"the stream at {reader.url} {what}")] if ended or not found else []
        output.show(
            Report(
                {
                    "stream": reader.url,
                    "runs": list(reader.runs()),
                    "latest": checkpoint_name(latest) if latest else None,
                    "ended": ended,
                    "owner": _owner(standing.claim) if standing else None,
                    "checkpoints": documents,
                    "problem": problem,
                },
                [*([table] if found else []), *told, *([Line(_owner_text(standing.claim))] if standing else []), *notes],
            )
        )
    return 1 if damaged or problem else 0


def _owner(claim: Claim) -> dict[str, Any]:
    """Who has begun the newest run."""
    application = claim.application.to_json() if claim.application else None
    return {"run": claim.run, "host": claim.host, "application": application, "time_ms": claim.time_ms}


def _owner_text(claim: Claim) -> str:
    app = claim.application
    whose = f"{app.name} ({app.id}) of {app.user}" if app else "an application"
    return f"run-{claim.run} was begun by {whose} on host {claim.host} at {time_text(claim.time_ms)}"


def _status(item: Found, overview: Overview) -> str:
    use = overview.use(item.id)
    return item.condition.value if use is Use.USABLE else use.value


def _document(reader: StreamReader, item: Found, status: str, latest: bool) -> dict[str, Any]:
    doc: dict[str, Any] = {
        "checkpoint": checkpoint_name(item.id),
        "run": item.id.run,
        "epoch": item.id.epoch,
        "path": reader.path_of(item.id),
        "metadata_bytes": item.size,
        "status": status,
        "latest": latest,
    }
    c = item.checkpoint
    if c is None:
        return {**doc, "error": str(item.error)}
    return {**doc, "time_ms": c.time_ms, "stores": len(c.snapshots), "size": c.size, "counters": dict(c.counters)}


def _status_text(status: str, latest: bool, retained: bool) -> str:
    if latest:
        return f"{status}, latest"
    return status if retained or status != Condition.COMPLETED.value else f"{status}, not retained"


def _row(item: Found, status: str) -> tuple[str, ...]:
    c = item.checkpoint
    if c is None:
        return (checkpoint_name(item.id), str(item.id.epoch), "-", "-", "-", "-", "-", status)
    new, took = c.counters.get("new_bytes"), c.counters.get("duration_ms")
    return (
        checkpoint_name(item.id),
        str(item.id.epoch),
        time_text(c.time_ms),
        str(len(c.snapshots)),
        size_text(c.size),
        size_text(new if isinstance(new, int) else None),
        duration_text(took),
        status,
    )
