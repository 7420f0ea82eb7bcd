"""`spark-ckpt list`"""

from __future__ import annotations

from typing import Any

import click

from spark_ckpt.cli.options import json_option, opened_stream, s3_options
from spark_ckpt.cli.output import Line, Output, Report, Table
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.listing import COLUMNS, NUMBERS, listed, owner_text
from spark_ckpt.stored.standing import Use


@click.command("list")
@click.argument("stream")
@s3_options
@json_option
def command(stream: str, s3: S3Options, output: Output) -> int:
    """List the completed checkpoints of STREAM (s3://bucket/prefix/path, file:///path or a path).

    The checkpoint from which the next start goes on is marked as latest. One that is not retained may be deleted at any moment, and cannot
    be chosen. No start would use one that is SUPERSEDED (a later run goes on from another checkpoint). One that is BAD a run has found
    damaged: a start looks at it once more where it can go on from no other. DAMAGED means that its _metadata is damaged, UNREADABLE that it
    may not be read from here.

    STREAM may also be the folder of one checkpoint or savepoint. Exit status 1 if a checkpoint that a start could use, or the log, cannot
    be read.
    """
    with opened_stream(stream, s3) as (_, reader):
        overview = reader.overview()
        found, standing, latest, problem = overview.found, overview.standing, overview.latest, overview.problem
        checkpoints = listed(reader, overview)
        damaged = [item for item in found if item.error is not None and overview.use(item.id) is Use.USABLE]
        notes = [Line(str(item.error)) for item in damaged] + ([Line(problem)] if problem else [])
        table = Table(COLUMNS, [one.row for one in checkpoints], right=NUMBERS)
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
                    "checkpoints": [one.to_json() for one in checkpoints],
                    "problem": problem,
                },
                [*([table] if found else []), *told, *([Line(owner_text(standing.claim))] if standing else []), *notes],
            )
        )
    return 1 if damaged or problem else 0


def _owner(claim: Claim) -> dict[str, Any]:
    """Who has begun the newest run."""
    application = claim.application.to_json() if claim.application else None
    return {"run": claim.run, "host": claim.host, "application": application, "time_ms": claim.time_ms}
