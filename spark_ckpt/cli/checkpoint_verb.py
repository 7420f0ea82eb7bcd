"""`spark-ckpt checkpoint`"""

from __future__ import annotations

import click

from spark_ckpt.api.requests import Wish, ask
from spark_ckpt.cli.options import DURATION, Progress, json_option, opened_stream, progress_option, refuse_checkpoint, s3_options
from spark_ckpt.cli.output import Line, Output, Report, tell
from spark_ckpt.protocol.entries import CHECKPOINT
from spark_ckpt.storage import S3Options


@click.command("checkpoint")
@click.argument("stream")
@click.option(
    "--timeout", default="10min", show_default=True, type=DURATION, metavar="DURATION", help="How long to wait for it: 12h at most."
)
@s3_options
@progress_option
@json_option
def command(stream: str, timeout: int, s3: S3Options, output: Output, progress: Progress) -> None:
    """Have STREAM, whose query must be running, complete a checkpoint now, and print its URL.

    It is one of the stream's own checkpoints: only what has changed is uploaded, nothing is copied, and it goes when newer ones make it
    superfluous. It holds every epoch that had ended when the query met the request. Where a completed checkpoint does already, its URL is
    printed.

    On stderr the command says what it waits for. Exit status 1 if there is none: no query has taken up the request, or the query could not
    complete it. The query goes on in both cases.
    """
    with opened_stream(stream, s3) as (storage, reader):
        refuse_checkpoint(stream, reader)
        stopped = f"interrupted; it is not known whether the request is in the log of {reader.url}"

        def asked(number: int, _place: str) -> None:
            nonlocal stopped
            stopped = f"interrupted; the request stays in log entry {number} of {reader.url}, and its query may still meet it"
            tell(f"asked in log entry {number} of {reader.url}, waiting for up to {timeout / 1000:g} s")

        try:
            with progress() as shown:
                url = ask(storage, Wish(CHECKPOINT), timeout / 1000, asked=asked, tell=shown)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(stopped) from None
        output.show(Report({"stream": reader.url, "checkpoint": url}, [Line(url)]))
