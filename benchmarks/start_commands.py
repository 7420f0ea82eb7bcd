"""Commands for one figure of a start: how long it takes until a query runs, what it asks of S3, and whether that grows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from benchmarks import chains, plans, restart_pieces, restore, short_epochs, standing
from benchmarks.epochs import Rounds
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Figures
from benchmarks.flink import commands
from benchmarks.measuring import NAMES, json_option, measure, rounds_option, systems_of, systems_option, tell
from benchmarks.systems import System


def _take(number: int, measured: Rounds, figures: Figures, experiment: str) -> None:
    """So many rounds."""
    with closing(measured):
        for found in itertools.islice(measured, number):
            figures.complete(experiment, experiment, found)


@click.command("restore")
@click.option("--megabytes", type=click.IntRange(10, restore.MEGABYTES), default=restore.MEGABYTES, show_default=True, help="Of state.")
@rounds_option
@click.option("--stock/--no-stock", default=True, show_default=True, help="Stock Spark on tuned S3A as well.")
@json_option
def one_restore(megabytes: int, rounds: int, stock: bool, out: Path | None) -> None:
    """A query with much state on a machine that has nothing of it, against plain parallel reads of the same bytes."""
    systems = plans.RESTORED if stock else (System.S3,)

    def restored(s3: FarS3, folder: Path, figures: Figures) -> None:
        _take(rounds, restore.rounds(megabytes, systems, s3, folder / "restore", figures, tell), figures, restore.EXPERIMENT)

    measure(out, restored)


@click.command("chains")
@click.option("--system", "chosen", type=click.Choice(["s3", "s3-cluster", "same-local"]), default="s3", show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=chains.PARTITIONS, show_default=True)
@click.option("--epochs", "count", type=click.IntRange(1), default=chains.EPOCHS, show_default=True, help="Of 1,000 rows.")
@rounds_option
@json_option
def one_chains(chosen: str, partitions: int, count: int, rounds: int, out: Path | None) -> None:
    """A first epoch from long chains of changelogs, and one on nothing: time, requests and bytes."""
    how = ([NAMES[chosen]], partitions, count)
    measure(out, lambda s3, folder, figures: _take(rounds, chains.rounds(*how, s3, folder, tell), figures, chains.EXPERIMENT))


@click.command("short-epochs")
@click.option("--epochs", "count", type=click.IntRange(10), default=500, show_default=True, help="Of 200 rows.")
@rounds_option
@json_option
def one_short_epochs(count: int, rounds: int, out: Path | None) -> None:
    """Short epochs over 1,000 keys: bytes of an epoch, size of `_metadata` and time of a restart, early and late in a stream's life."""
    measure(out, lambda s3, folder, figures: _take(rounds, short_epochs.rounds(count, s3, folder, tell), figures, short_epochs.EXPERIMENT))


@click.command("restart-pieces")
@click.option(
    "--gigabytes",
    type=click.IntRange(0, 10),
    multiple=True,
    default=[size // 1000 for size in restart_pieces.SIZES],
    show_default=True,
    help="Of state; 0: one row. May be given several times.",
)
@rounds_option
@click.option("--flink/--no-flink", default=True, show_default=True, help="Flink as well, which needs a JDK and Maven.")
@json_option
def one_restart_pieces(gigabytes: Sequence[int], rounds: int, flink: bool, out: Path | None) -> None:
    """A restart after a kill until its first epoch is committed, in pieces: this on S3, beside stock on the local disk and on S3A, and
    Flink on S3."""

    if flink and (why := commands.missing()):
        raise BenchmarkError(f"{why}; or leave Flink out with --no-flink")

    def restarted(s3: FarS3, folder: Path, figures: Figures) -> None:
        for size in gigabytes:
            measured = restart_pieces.rounds(size * 1000, plans.PIECES, s3, folder / str(size), tell, flink)
            _take(rounds, measured, figures, restart_pieces.EXPERIMENT)

    measure(out, restarted)


@click.command("start-up")
@systems_option
@rounds_option
@json_option
def one_start_up(chosen: Sequence[str], rounds: int, out: Path | None) -> None:
    """From nothing to the end of a query's first epoch on an empty storage."""
    measure(out, lambda s3, folder, figures: standing.start_up(systems_of(chosen), rounds, s3, folder, figures, tell))


COMMANDS: Sequence[click.Command] = (one_restore, one_restart_pieces, one_chains, one_short_epochs, one_start_up)
