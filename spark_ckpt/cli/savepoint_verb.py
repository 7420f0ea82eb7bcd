"""`spark-ckpt savepoint`"""

from __future__ import annotations

from contextlib import suppress

import click

from spark_ckpt.api.requests import ask
from spark_ckpt.api.savepoints import SavepointRequest
from spark_ckpt.cli.options import (
    DURATION,
    Progress,
    json_option,
    opened_stream,
    progress_option,
    refuse_checkpoint,
    s3_options,
    storage_url,
)
from spark_ckpt.cli.output import Line, Output, Report, tell
from spark_ckpt.errors import CheckpointError
from spark_ckpt.protocol.offsets_conf import is_drained
from spark_ckpt.storage import S3Options


@click.command("savepoint")
@click.argument("stream")
@click.option(
    "--target",
    metavar="FOLDER",
    help="A folder below the query's savepointDir, or below savepoints/ in the stream's folder. Default: that folder itself.",
)
@click.option("--name", help="Its name in that folder. Default: a new one.")
@click.option("--stop", is_flag=True, help="End the query after the savepoint.")
@click.option(
    "--drain",
    is_flag=True,
    help="With --stop: first run one more epoch with the watermark at its end, so that windows and event-time timers fire.",
)
@click.option(
    "--timeout",
    default="10min",
    show_default=True,
    type=DURATION,
    metavar="DURATION",
    help="How long to wait for it: 12h at most. A plain number is milliseconds.",
)
@s3_options
@progress_option
@json_option
def command(
    stream: str,
    target: str | None,
    name: str | None,
    stop: bool,
    drain: bool,
    timeout: int,
    s3: S3Options,
    output: Output,
    progress: Progress,
) -> None:
    """Make a savepoint of STREAM, whose query must be running, and print its URL.

    A savepoint is complete in itself. You may copy or move it anywhere. Restore it with spark.ckpt.restore.path. Only people delete it,
    unless it was restored with spark.ckpt.restore.mode=CLAIM.

    On stderr the command says what it waits for. The same --name gives the same URL again while the newest epoch is the same; after that
    it is an error. Exit status 1 if there is no savepoint: no query has taken up the request, or the query could not make one.
    """
    request = SavepointRequest(storage_url(target) if target is not None else "", name or "", stop, drain)
    with opened_stream(stream, s3) as (storage, reader):
        refuse_checkpoint(stream, reader)
        stopped = f"interrupted; it is not known whether the request is in the log of {reader.url}, so that a savepoint may still be made"

        def asked(number: int, place: str) -> None:
            nonlocal stopped
            after = "make the savepoint, and end" if stop else "make the savepoint"
            look = f"`spark-ckpt verify {place}` says whether it is there" if name else f"it would be in a new folder of {place}"
            stopped = f"interrupted; the request stays in log entry {number} of {reader.url}, and its query may still {after}: {look}"
            tell(f"asked in log entry {number} of {reader.url}, waiting for up to {timeout / 1000:g} s")

        try:
            with progress() as shown:
                path = ask(storage, request.wish, timeout / 1000, asked=asked, tell=shown)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(stopped) from None
        output.show(Report({"stream": reader.url, "savepoint": path, "stopping": stop}, [Line(path)]))
    if stop and not drain:
        _tell_of_drain(path, s3)


def _tell_of_drain(path: str, s3: S3Options) -> None:
    """Two may ask for the end at the same moment. The savepoint is there, whether it can be looked at or not."""
    with suppress(CheckpointError), opened_stream(path, s3) as (_, reader):
        if is_drained(reader.read(reader.latest())):
            tell("somebody else has asked to drain the query before its end: in this savepoint all rows that come later count as late")
