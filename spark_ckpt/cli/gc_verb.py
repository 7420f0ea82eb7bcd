"""`spark-ckpt gc`"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from spark_ckpt.cli.options import DURATION, Progress, json_option, opened_stream, progress_option, s3_options
from spark_ckpt.cli.output import Line, Output, Report, Section, Table
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.gc import Amount, Collector, Garbage, RunGarbage
from spark_ckpt.units import size_text


@click.command("gc")
@click.argument("stream")
@click.option("--delete", is_flag=True, help="Delete what was found. Without it nothing is changed.")
@click.option("--min-age", default="1h", show_default=True, type=DURATION, metavar="DURATION", help="Leave younger objects alone.")
@s3_options
@progress_option
@json_option
def command(stream: str, delete: bool, min_age: int, s3: S3Options, output: Output, progress: Progress) -> int:
    """Find what runs of STREAM have left behind and nothing refers to.

    Of runs that crashed: uploads, and checkpoints that no later run has taken over. Of the run that lives: uploads of agents that died,
    old answers to requests, copies of restores that were refused. Also what is left of a stream that was deleted (onStop=DELETE), what
    tests of the storage have left, and below savepoints/ what is a day old of savepoints that were cut off,
    also beside one that was completed later.

    This is safe beside a running query, whatever --min-age says: what may still be on its way there stays for the query's
    spark.ckpt.timeout. What a start could use, what the run that lives may still need, and what complete savepoints name is never
    touched. Exit status 1 if it cannot be known what is referred to; then nothing is deleted. Also where something in a savepoint's
    folder could not be deleted, or somebody has changed it meanwhile: that folder is named.
    """
    with opened_stream(stream, s3) as (storage, reader):
        with progress() as tell:
            collector = Collector(storage, min_age, int(time.time() * 1000), tell)
            found = collector.look()
            stays = collector.delete(found) if delete else {}
        output.show(_report(reader.url, found, delete, min_age, stays))
    return 1 if stays else 0


def _report(url: str, found: Garbage, deleted: bool, min_age_ms: int, stays: Mapping[str, str]) -> Report:
    total = found.total()
    document: dict[str, Any] = {
        "stream": url,
        "newest_run": found.claim.run,
        "claim": found.claim.claim,
        "deleted": deleted and not stays,
        "min_age_ms": min_age_ms,
        "garbage": _amount(total.garbage),
        "young": _amount(total.young),
        "referenced": _amount(total.referenced),
        "probes": {"garbage": _amount(found.probes.garbage), "young": _amount(found.probes.young)},
        "savepoints": {
            "garbage": _amount(found.savepoints.share.garbage),
            "young": _amount(found.savepoints.share.young),
            "unread": list(found.savepoints.unread),
            "stays": dict(stays),
        },
        "checkpoints": [checkpoint_name(c) for c in found.checkpoints],
        "runs": [
            {"run": r.run, "garbage": _amount(r.garbage), "young": _amount(r.young), "referenced": _amount(r.referenced)}
            for r in found.runs
        ],
        "keys": [*found.metadata, *found.objects, *found.savepoints.keys],
    }
    return Report(document, _sections(found, total, deleted, stays))


def _amount(amount: Amount) -> dict[str, int]:
    return {"objects": amount.objects, "bytes": amount.bytes}


def _sections(found: Garbage, total: RunGarbage, deleted: bool, stays: Mapping[str, str]) -> list[Section]:
    others = [("probes", found.probes), ("savepoints", found.savepoints.share)]
    shown = [(name, share) for name, share in others if share.garbage.objects + share.young.objects]
    kept = [
        *(Line(f"all of {folder[:-1]} stays, for what its _metadata names cannot be read now") for folder in found.savepoints.unread),
        *(Line(f"not all that is garbage in {folder[:-1]} could be deleted: {why}") for folder, why in stays.items()),
    ]
    if not found.runs and not shown:
        what = "of the deleted stream" if found.ended else f"of runs before the newest, run-{found.claim.run}, nor of that one"
        return [Line(f"nothing is left {what}"), *kept]
    columns = ("RUN", "GARBAGE", "SIZE", "TOO YOUNG", "REFERENCED", "SIZE OF THOSE")
    rows = [
        (
            name,
            str(r.garbage.objects),
            size_text(r.garbage.bytes),
            str(r.young.objects),
            str(r.referenced.objects),
            size_text(r.referenced.bytes),
        )
        for name, r in (*((f"run-{r.run}", r) for r in found.runs), *shown)
    ]
    what = f"{total.garbage.objects} objects ({size_text(total.garbage.bytes)}), among them {len(found.checkpoints)} checkpoints"
    done = f"of {what} some could not be deleted" if stays else f"deleted {what}"
    verdict = done if deleted else f"nothing refers to {what}; --delete deletes them"
    nothing = f"there is nothing {'else ' if stays else ''}to delete"
    return [Table(columns, rows, right=columns[1:]), *kept, Line(verdict if total.garbage.objects else nothing)]
