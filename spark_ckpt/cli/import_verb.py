"""`spark-ckpt import`"""

from __future__ import annotations

import click

from spark_ckpt.cli.options import Progress, json_option, new_folder, opened, progress_option, s3_options, storage_url
from spark_ckpt.cli.output import Facts, Line, Output, Report
from spark_ckpt.errors import ConfigError
from spark_ckpt.model import Checkpoint
from spark_ckpt.paths import savepoint_url
from spark_ckpt.process.packages import require
from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.stock.reading import newest_batch
from spark_ckpt.storage import S3Options
from spark_ckpt.units import size_text


@click.command("import")
@click.argument("location")
@click.argument("target")
@click.option("--name", help="Its name in the folder savepoints/ of TARGET. Default: import- and the number of the batch.")
@s3_options
@progress_option
@json_option
def command(location: str, target: str, name: str | None, s3: S3Options, output: Output, progress: Progress) -> None:
    """Make a savepoint out of LOCATION, the checkpointLocation of a query that has run without the plugin, and print its URL.

    TARGET is the URL of a storage or a stream; the savepoint lies in savepoints/ there. The query must be stopped. LOCATION is only read:
    start the query with spark.ckpt.restore.path and a new checkpointLocation, and it goes on behind the last batch, with its state,
    offsets, watermark and batch ids. A batch that was begun and not committed runs again with the same data.

    State must be that of Spark's RocksDB provider, in checkpoint format 1 or 2. Done again, the command compares LOCATION with the
    savepoint that is there, and prints its URL.
    """
    require(("pyarrow",))
    place = storage_url(location)
    with opened(place, s3, "LOCATION") as source:
        batch = newest_batch(source)
        url = savepoint_url(storage_url(target), "", name or f"import-{batch if batch is not None else 0}")
        if url.startswith(f"{source.url.rstrip('/')}/"):
            raise ConfigError(f"{url} is below {source.url}, which is only read; give the URL of a storage elsewhere")
        with new_folder(url, s3, "TARGET") as folder, progress() as tell:
            made = import_checkpoint(source, folder, tell)
            output.show(_report(folder.url, made))


def _report(url: str, c: Checkpoint) -> Report:
    planned = c.imported is not None and c.imported.planned is not None
    document = {
        "savepoint": url,
        "location": c.imported.location if c.imported is not None else None,
        "epoch": c.id.epoch,
        "query_id": c.query_id,
        "operators": list(c.job.operators),
        "stores": len(c.snapshots),
        "size": c.size,
        "reruns": [c.id.epoch + 1] if planned else [],
        "option": f"spark.ckpt.restore.path={url}",
    }
    facts = Facts(
        [
            ("savepoint", url),
            ("epoch", f"{c.id.epoch} of query {c.query_id}"),
            ("operators", ", ".join(c.job.operators) or "none (offsets only)"),
            ("state", f"{len(c.snapshots)} stores, {size_text(c.size)}"),
            *([("runs again", f"epoch {c.id.epoch + 1}, which was begun and not committed")] if planned else []),
        ]
    )
    return Report(document, [facts, Line(f"start the query with spark.ckpt.restore.path={url} and a new checkpointLocation")])
