"""`spark-ckpt export`"""

from __future__ import annotations

import re

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
from spark_ckpt.cli.output import Facts, Line, Output, Report, Section
from spark_ckpt.conf.passwords import shown
from spark_ckpt.conf.spark_settings import FORMAT_KEY, PROVIDER_CLASS, PROVIDER_KEY
from spark_ckpt.errors import ConfigError
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.stock.exporting import Exported, to_export
from spark_ckpt.stock.layout import CheckpointFormat, location_of
from spark_ckpt.stock.writing import Written, write_stock
from spark_ckpt.storage import S3Options
from spark_ckpt.units import size_text


@click.command("export")
@click.argument("source")
@click.argument("target")
@checkpoint_option("the latest")
@click.option(
    "--location",
    metavar="URL",
    help="The checkpointLocation that the job will have, where that is not TARGET: you copy the folder to hdfs://… afterwards.",
)
@click.option(
    "--checkpoint-format",
    type=click.Choice([str(int(form)) for form in CheckpointFormat]),
    default=str(int(CheckpointFormat.V1)),
    show_default=True,
    help="Of Spark's state checkpoints. 2 for a job that goes on in real time, which sets it as well.",
)
@s3_options
@progress_option
@json_option
def command(
    source: str,
    target: str,
    checkpoint: CheckpointId | None,
    location: str | None,
    checkpoint_format: str,
    s3: S3Options,
    output: Output,
    progress: Progress,
) -> None:
    """Write a checkpoint as stock Spark has it, from which the job goes on without the plugin.

    SOURCE is a savepoint, a stream, or the folder of a checkpoint. TARGET is a new folder, local or on S3, written as the job will write
    its checkpointLocation: s3a://bucket/path, for Hadoop's S3A. End the query first, best with `savepoint --stop`.

    Interrupted, the same command goes on. Nothing of SOURCE is changed. Exit status 1 if stock Spark could not go on exactly once.
    """
    if location is not None and re.match(r"$|~|[A-Za-z][A-Za-z0-9+.-]*:(?!/)", location):
        raise ConfigError(f"--location {shown(location)!r} is no checkpointLocation; write a path or a URL")
    named = target if location is None else location
    place = location_of(named if ":" in named.split("/", 1)[0] else storage_url(named))
    with opened_stream(source, s3) as (storage, reader), new_folder(target, s3, "TARGET") as folder, progress() as tell:
        if f"{folder.url.rstrip('/')}/".startswith(f"{storage.url.rstrip('/')}/"):
            raise ConfigError(f"{folder.url} lies in what is exported, {storage.url}; choose another folder")
        tell_of_a_run(storage)
        exported = to_export(storage, reader, checkpoint, tell)
        form = CheckpointFormat(int(checkpoint_format))
        written = write_stock(storage, exported, folder, place, tell, form)
    output.show(_report(exported, written, folder.url, place, form))


def _report(exported: Exported, written: Written, target: str, location: str, form: CheckpointFormat) -> Report:
    content, planned = exported.checkpoint, exported.planned
    epoch = exported.next_epoch
    document = {
        "source": exported.source,
        "checkpoint": checkpoint_name(content.id),
        "epoch": content.id.epoch,
        "query_id": content.query_id,
        "target": target,
        "location": location,
        "checkpoint_format": int(form),
        "next_epoch": epoch,
        "planned": planned is not None,
        "files": written.files,
        "size": written.size,
        "hooks": sorted(content.hooks),
    }
    facts = Facts([("from", exported.source), ("to", target), ("files", f"{written.files}, {size_text(written.size)}")])
    lines: list[Section] = [facts, Line(f"start the job without the plugin, with checkpointLocation {location}")]
    if form is CheckpointFormat.V2:
        lines.append(Line(f"the job has to set {FORMAT_KEY}={int(form)}: without it stock Spark does not find the state"))
        lines.append(Line(f"and, as for any query in real time, {PROVIDER_KEY}={PROVIDER_CLASS}"))
    if planned is None:
        lines.append(Line(f"its epochs begin with {epoch}: a sink that has seen later batches must be a new one"))
    else:
        lines.append(Line(f"epoch {epoch} had been planned: it runs first, on the same input"))
        lines.append(
            Line(
                f"if the sink has batch {epoch} already and skips it, stock Spark ends, for it has no state of it: start the query once "
                "more with the plugin then, end it with `spark-ckpt savepoint --stop`, and export that savepoint"
            )
        )
    if content.hooks:
        lines.append(Line(f"not written, for stock Spark has no place for it: the state of the hooks {', '.join(sorted(content.hooks))}"))
    return Report(document, lines)
