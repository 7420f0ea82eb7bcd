"""What each command of one figure has in common: its options, where it measures, and what it prints."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import machine
from benchmarks.far_s3 import FarS3, far_s3
from benchmarks.figures import Figures
from benchmarks.systems import System
from benchmarks.tables import show, tables

NAMES = {system.name.lower().replace("_", "-"): system for system in System}

systems_option = click.option(
    "--system",
    "chosen",
    multiple=True,
    type=click.Choice(list(NAMES)),
    default=["same-local", "floor", "s3"],
    show_default=True,
    help="May be given several times.",
)
partitions_option = click.option("--partitions", type=click.IntRange(1), default=20, show_default=True)
rows_option = click.option("--rows", type=click.IntRange(1), default=20_000, show_default=True, help="In each epoch.")
rounds_option = click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
json_option = click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False), help="Every value, into this file.")


def systems_of(names: Sequence[str]) -> tuple[System, ...]:
    return tuple(NAMES[name] for name in names)


def measure(out: Path | None, experiment: Callable[[FarS3, Path, Figures], Any]) -> None:
    """On an S3 server of its own. Raises BenchmarkError."""
    with _finished(out) as figures, _work() as work, far_s3(work / "far") as s3:
        experiment(s3, work, figures)


def measure_locally(out: Path | None, experiment: Callable[[Path, Figures], Any]) -> None:
    """Without S3."""
    with _finished(out) as figures, _work() as work:
        experiment(work, figures)


@contextmanager
def _work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work:
        yield Path(work)


@contextmanager
def _finished(out: Path | None) -> Iterator[Figures]:
    """What was measured until something failed is shown, and written with a note that it is not all."""
    figures = Figures(machine.describe())
    try:
        yield figures
    except BaseException:
        figures.note("this ended early, and is not all that was to be measured")
        if list(figures):
            finish(figures, out)
        raise
    finish(figures, out)


def finish(figures: Figures, out: Path | None) -> None:
    if out is not None:
        figures.write(out)
    print_tables(figures, everything=False)


def print_tables(figures: Figures, everything: bool = True) -> None:
    for note in figures.notes:
        click.echo(note)
    show(tables(figures, everything), Console(width=None if sys.stdout.isatty() else 200))


def tell(text: str) -> None:
    click.echo(text, err=True)
