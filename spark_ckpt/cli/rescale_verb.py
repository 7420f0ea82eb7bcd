"""`spark-ckpt rescale`"""

from __future__ import annotations

import secrets

import click

from spark_ckpt.cli.options import (
    Progress,
    checkpoint_option,
    json_option,
    new_folder,
    opened_stream,
    progress_option,
    s3_options,
    storage_url,
    tell_of_a_run,
)
from spark_ckpt.cli.output import Facts, Line, Output, Report
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import savepoint_url
from spark_ckpt.process.packages import require
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.reading import CheckpointReader
from spark_ckpt.units import size_text


@click.command("rescale")
@click.argument("source")
@click.option("--partitions", type=click.IntRange(min=1), required=True, metavar="N", help="How many state partitions it is to have.")
@checkpoint_option("the latest")
@click.option(
    "--target", metavar="FOLDER", help="Where the savepoint's folder is made. Default: savepoints/ of SOURCE's stream, or beside SOURCE."
)
@click.option("--name", help="Its name in that folder. Default: a new one.")
@s3_options
@progress_option
@json_option
def command(
    source: str,
    partitions: int,
    checkpoint: CheckpointId | None,
    target: str | None,
    name: str | None,
    s3: S3Options,
    output: Output,
    progress: Progress,
) -> None:
    """Make a savepoint with N state partitions out of a checkpoint, and print its URL.

    SOURCE is a savepoint, a stream, or the folder of a checkpoint; end the query first, best with `savepoint --stop`. Spark's own offline
    repartition does it, in a JVM that this command starts and ends: that takes PySpark 4.2 or newer, Java, and three times the state's
    size in TMPDIR. SOURCE is not changed. Start the query with spark.ckpt.restore.path and a new checkpointLocation.

    An operator with one partition by its nature, such as a limit, keeps it. Exit status 1 if Spark cannot repartition an operator.
    """
    from spark_ckpt.stock.rescaling import rescale

    require(("pyarrow", "pyspark"))
    with opened_stream(source, s3) as (storage, reader):
        is_savepoint = isinstance(reader, CheckpointReader) and RestorePath.at(storage_url(source)).is_savepoint
        beside = storage.url.rstrip("/").rpartition("/")[0] if is_savepoint else ""
        made_in = storage_url(target) if target is not None else beside
        of = storage.url.rstrip("/")
        url = Places(of).told_apart(savepoint_url(of, made_in, name or f"rescaled-{partitions}-{secrets.token_hex(3)}"))
        with new_folder(url, s3) as folder, progress() as tell:
            tell_of_a_run(storage)
            made = rescale(storage, reader, checkpoint, partitions, folder, tell)
            output.show(_report(folder.url, made, partitions))


def _report(url: str, c: Checkpoint, partitions: int) -> Report:
    option = f"spark.ckpt.restore.path={url}"
    planned = c.imported is not None and c.imported.planned is not None
    document = {
        "savepoint": url,
        "epoch": c.id.epoch,
        "query_id": c.query_id,
        "partitions": partitions,
        "stores": len(c.snapshots),
        "size": c.size,
        "reruns": [c.id.epoch + 1] if planned else [],
        "option": option,
    }
    facts = Facts(
        [
            ("savepoint", url),
            ("epoch", f"{c.id.epoch} of query {c.query_id}"),
            ("partitions", str(partitions)),
            ("state", f"{len(c.snapshots)} stores, {size_text(c.size)}"),
            *([("runs again", f"epoch {c.id.epoch + 1}, which was planned")] if planned else []),
        ]
    )
    return Report(document, [facts, Line(f"start the query with {option} and a new checkpointLocation")])
