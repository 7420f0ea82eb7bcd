"""`python -m benchmarks`: all of it, or one figure by itself."""

from __future__ import annotations

import math
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import (
    agents,
    chains,
    clients,
    edits,
    epochs,
    finalise,
    machine,
    many_files,
    plans,
    realtime,
    restore,
    short_epochs,
    standing,
    states,
    streams,
)
from benchmarks.budget import Budget
from benchmarks.far_s3 import FarS3, far_s3
from benchmarks.figures import Figures
from benchmarks.judging import ROUNDS
from benchmarks.page import render
from benchmarks.plots import draw
from benchmarks.state_targets import WRITTEN_ROWS
from benchmarks.systems import System
from benchmarks.tables import show, tables
from benchmarks.targets import AGGREGATION, INTERVAL, JOIN, KAFKA
from benchmarks.workloads import QUERIES, Workload
from documents import realtime_costs
from spark_ckpt.errors import CheckpointError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
_ENGINES = {engine.name.lower().replace("_", "-"): engine for engine in realtime.Engine}
PLANS = {plan.name: plan for plan in (plans.SHORT, plans.FULL)}
_NAMES = {system.name.lower().replace("_", "-"): system for system in System}

_systems = click.option(
    "--system",
    "chosen",
    multiple=True,
    type=click.Choice(list(_NAMES)),
    default=["same-local", "floor", "s3"],
    show_default=True,
    help="May be given several times.",
)
_partitions = click.option("--partitions", type=click.IntRange(1), default=20, show_default=True)
_rows = click.option("--rows", type=click.IntRange(1), default=20_000, show_default=True, help="In each epoch.")
_rounds = click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
_json = click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False), help="Every value, into this file.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def cli() -> None:
    """What a checkpoint costs, side by side with the systems one would choose between."""


@cli.command("run")
@click.option("--full", is_flag=True, help="Everything, for hours; without it the short form, under 10 minutes.")
@click.option("--minutes", type=click.FloatRange(0), help="After so many no part is begun; the same command goes on with the next one.")
@click.option("--rounds", type=click.IntRange(1), help="Of each workload, at most: fewer take less time, and leave more to chance.")
@click.option("--anew", is_flag=True, help="Forget a run that ended early, instead of going on with it.")
@click.option(
    "--again",
    multiple=True,
    type=click.Choice(sorted(plans.FULL.experiments - {restore.FILLED})),
    help="Measure this anew, or what the last run did not have, and keep all else of it. May be given several times.",
)
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="Folder for JSON and plots.")
@click.option("--page", "page_path", type=click.Path(path_type=Path, dir_okay=False), default=PAGE, help="The Markdown page.")
def run_all(
    full: bool, minutes: float | None, rounds: int | None, anew: bool, again: Sequence[str], results: Path, page_path: Path
) -> None:
    """Run the benchmark, print its tables, write JSON, plots and the page.

    Each part is stored as soon as it is measured, in a file of its own until all are there. A run that ends early, in whatever way, is
    gone on with by the same command.
    """
    form = plans.FULL if full else plans.SHORT
    here, unfinished = results / f"{form.name}.json", results / f"{form.name}.unfinished.json"
    if anew:
        unfinished.unlink(missing_ok=True)
    if again and (unfinished.exists() or not here.exists()):
        why = f"{unfinished} is a run that ended early: go on with it, or add --anew" if unfinished.exists() else f"there is no {here}"
        raise click.UsageError(f"nothing can be measured again: {why}")
    if rounds and unfinished.exists():
        raise click.UsageError(
            f"{unfinished} is a run that ended early, and goes on with its own rounds: leave out --rounds, or add --anew"
        )
    if missing := sorted(set(again) - form.experiments):
        raise click.UsageError(f"{', '.join(missing)} is not in the {form.name} form; run `python -m benchmarks run --help`")
    figures = _begun(here, unfinished, again, rounds)
    plan = form.only(figures.about["again"]) if figures.about["again"] else form
    if figures.about["rounds"]:
        plan = plan.limited(figures.about["rounds"])
    if again:
        figures.forget(lambda case: case.experiment in plan.experiments)
        figures.sittings = {part: found for part, found in figures.sittings.items() if found[0].experiment not in plan.experiments}
    until, complete = Budget(math.inf if minutes is None else minutes * 60), False
    try:
        complete = plans.run(plan, figures, _tell, lambda: figures.write(unfinished), until)
    finally:
        _print(figures)
        if complete:
            unfinished.replace(here)
            _write_page(results, page_path)
        else:
            _tell(f"{len(figures.parts)} parts are measured, and kept in {unfinished}: the same command goes on with the next one")


def _begun(here: Path, unfinished: Path, again: Sequence[str], rounds: int | None) -> Figures:
    """The figures of a run that ended early, those of the last one to measure some of them `again`, or none yet."""
    now = machine.describe()
    if unfinished.exists():
        return Figures.read(unfinished, now)
    figures = Figures.read(here, now) if again else Figures(now)
    figures.about |= {"again": list(again), "rounds": rounds or 0}
    return figures


@cli.command("page")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS)
@click.option("--page", "page_path", type=click.Path(path_type=Path, dir_okay=False), default=PAGE)
def write_page(results: Path, page_path: Path) -> None:
    """Write the page and its plots anew from the JSON files."""
    _write_page(results, page_path)


@cli.command("show")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def show_file(file: Path) -> None:
    """Print the tables of a JSON file."""
    _print(Figures.read(file))


@cli.command("epochs")
@_systems
@click.option("--query", type=click.Choice(list(QUERIES)), default="aggregation", show_default=True)
@_partitions
@_rows
@_rounds
@click.option("--warm", type=click.IntRange(1), default=3, show_default=True, help="Epochs that do not count, in each turn.")
@click.option("--warm-seconds", type=click.IntRange(0), default=0, show_default=True, help="For at least so long, in the first round.")
@click.option("--epochs", "count", type=click.IntRange(1), default=6, show_default=True, help="Epochs that do, in each turn.")
@click.option("--seconds", type=click.IntRange(0), default=0, show_default=True, help="For at least so long.")
@_json
def one_workload(
    chosen: Sequence[str],
    query: str,
    partitions: int,
    rows: int,
    rounds: int,
    warm: int,
    warm_seconds: int,
    count: int,
    seconds: int,
    out: Path | None,
) -> None:
    """Epochs of one workload, the systems in turn: times, S3 requests by kind, bytes."""
    experiment = {"join": JOIN, "kafka": KAFKA}.get(query, AGGREGATION)
    turns = epochs.Turns(experiment, Workload(query, partitions, rows), _chosen(chosen), rounds, warm, count, seconds, warm_seconds)
    _measure(out, lambda s3, folder, figures: epochs.run([turns], s3, folder, figures, _tell))


@cli.command("interval")
@click.option("--partitions", type=click.IntRange(1), default=200, show_default=True)
@_rounds
@click.option("--seconds", type=click.IntRange(1), default=2 * plans.INTERVAL_S, show_default=True, help="Of each turn, warm epochs apart.")
@_json
def one_interval(partitions: int, rounds: int, seconds: int, out: Path | None) -> None:
    """A checkpoint every 10 s on s3:// against the floor: medians and means of as many epochs of each."""
    turns = epochs.Turns(INTERVAL, Workload("aggregation", partitions), plans.INTERVAL_SYSTEMS, rounds, 3, 1, seconds, alike=True)
    _measure(out, lambda s3, folder, figures: epochs.run([turns], s3, folder, figures, _tell))


@cli.command("restore")
@click.option("--megabytes", type=click.IntRange(10, 1000), default=1000, show_default=True, help="Of state.")
@_rounds
@click.option("--stock/--no-stock", default=True, show_default=True, help="Stock Spark on tuned S3A as well.")
@_json
def one_restore(megabytes: int, rounds: int, stock: bool, out: Path | None) -> None:
    """A query with much state on a machine that has nothing of it, against plain parallel reads of the same bytes."""
    systems = plans.RESTORED if stock else (System.S3,)
    _measure(out, lambda s3, folder, figures: restore.run(megabytes, systems, rounds, s3, folder, figures, _tell))


@cli.command("chains")
@click.option("--system", "chosen", type=click.Choice(["s3", "s3-cluster", "same-local"]), default="s3", show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=100, show_default=True)
@click.option("--epochs", "count", type=click.IntRange(1), default=100, show_default=True, help="Of 1,000 rows.")
@click.option("--snapshots", is_flag=True, help="The engine takes full snapshots, and Spark's maintenance writes none; else: none.")
@_rounds
def one_chains(chosen: str, partitions: int, count: int, snapshots: bool, rounds: int) -> None:
    """A first epoch from long chains of changelogs, and one on nothing: time and requests."""
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        for found in chains.run(_NAMES[chosen], partitions, count, rounds, s3, Path(work), _tell, snapshots):
            click.echo("\n".join(f"{name}: {start}" for name, start in found.items()))


@cli.command("short-epochs")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--epochs", "count", type=click.IntRange(10), default=500, show_default=True, help="Of 200 rows, in each application.")
@click.option("--applications", type=click.IntRange(1), default=3, show_default=True, help="One after the other, each on an empty disk.")
@click.option("--no-snapshots", is_flag=True, help="The engine takes no full snapshots: what it would be without.")
def one_short_epochs(partitions: int, count: int, applications: int, no_snapshots: bool) -> None:
    """Short epochs over 1,000 keys: bytes of an epoch, size of `_metadata` and time of a restart, over the life of a stream."""
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        lives = short_epochs.run(partitions, count, applications, s3, Path(work) / "lives", _tell, not no_snapshots)
    first = lives[0].first_state_bytes
    for number, life in enumerate(lives):
        click.echo(
            f"application {number}: first epoch {life.first_epoch_ms / 1000:.1f} s, {life.gets} GET; epochs of {life.epoch_ms:.0f} ms, "
            f"{life.state_bytes:,.0f} bytes of state ({life.state_bytes / first:.2f} x the first ones, at most {life.most_state_bytes:,}), "
            f"`_metadata` {life.metadata_bytes:,.0f} bytes (at most {life.most_metadata_bytes:,})"
        )


@cli.command("finalise")
@click.argument("partitions", type=click.IntRange(1), nargs=-1)
@click.option("--epochs", "count", type=click.IntRange(1), default=finalise.EPOCHS, show_default=True)
@click.option("--profile/--no-profile", default=True, show_default=True, help="Where the time goes, in a second coordinator.")
@_json
def one_finalise(partitions: Sequence[int], count: int, profile: bool, out: Path | None) -> None:
    """A coordinator alone, with so many simulated PARTITIONS (10000 if none are given): time, size and memory."""
    figures = Figures(machine.describe())
    finalise.run(partitions or (10_000,), figures, count, profile)
    _finish(figures, out)


@cli.command("agents")
@click.argument("partitions", type=click.IntRange(1), nargs=-1)
@click.option("--agents", "number", type=click.IntRange(1), default=plans.AGENTS, show_default=True)
@click.option("--epochs", "count", type=click.IntRange(1), default=plans.AGENT_EPOCHS, show_default=True)
@_json
def one_agents(partitions: Sequence[int], number: int, count: int, out: Path | None) -> None:
    """A coordinator and several agents on S3, without Spark, over so many PARTITIONS (5000 if none are given): requests, memory, time."""
    _measure(out, lambda s3, folder, figures: agents.run(partitions or (5_000,), number, count, s3, folder, figures))


@cli.command("streams")
@click.argument("counts", type=click.IntRange(1), nargs=-1)
@click.option("--system", "chosen", multiple=True, type=click.Choice(list(_NAMES)), default=["stock-local", "s3"], show_default=True)
@_json
def one_streams(counts: Sequence[int], chosen: Sequence[str], out: Path | None) -> None:
    """So many streams (1, 10 and 50 if no COUNTS are given) in one session: processes, threads, open files and memory."""
    _measure(out, lambda s3, folder, figures: streams.run(counts or (1, 10, 50), _chosen(chosen), s3, folder, figures, _tell))


@cli.command("many-files")
@click.argument("seen", type=click.IntRange(1), nargs=-1)
@_json
def one_many_files(seen: Sequence[int], out: Path | None) -> None:
    """A coordinator alone, with a file source that has SEEN so many files (100000 if none are given): bytes and time of an epoch."""
    figures = Figures(machine.describe())
    many_files.run(seen or (100_000,), figures)
    _finish(figures, out)


@cli.command("clients")
@click.option("--megabytes", type=click.IntRange(64), default=512, show_default=True, help="Of large objects.")
@click.option("--small", type=click.IntRange(10), default=200, show_default=True, help="Small objects of each kind.")
@click.option("--near", is_flag=True, help="Without the 20 ms.")
@_rounds
def one_clients(megabytes: int, small: int, near: bool, rounds: int) -> None:
    """boto3 and obstore on the same work: latency of small objects, MB/s of large ones, requests, memory, processor."""
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        clients.run(s3, near, megabytes, small, rounds, Path(work), click.echo)


@cli.command("rescale")
@click.argument("source")
@click.option("--partitions", type=click.IntRange(1), multiple=True, required=True, help="Given several times: one after the other.")
@_json
def one_rescale(source: str, partitions: Sequence[int], out: Path | None) -> None:
    """The state of SOURCE, a stream or savepoint, in other numbers of partitions: the time of each, for each million keys and each GiB."""
    _measure_locally(out, lambda folder, figures: edits.rescaled(_place(source), partitions, folder, figures, _tell))


@cli.command("write-state")
@click.argument("source")
@click.option("--rows", type=click.IntRange(1), default=WRITTEN_ROWS, show_default=True)
@_rounds
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="A folder for the savepoint. Default: it is removed.")
@_json
def one_write_state(source: str, rows: int, rounds: int, keep: Path | None, out: Path | None) -> None:
    """State of so many rows of a Parquet file, written into SOURCE and read again.

    SOURCE is a stream or savepoint of an aggregation with texts and bigints, such as tests/stored/states/update. It is not changed.
    """

    def measure(folder: Path, figures: Figures) -> None:
        _tell(edits.written(_place(source), rows, rounds, folder, figures, _tell, keep.resolve() if keep else None))

    _measure_locally(out, measure)


@cli.command("state")
@click.argument("source")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True)
@_json
def one_state(source: str, rows: int, rounds: int, out: Path | None) -> None:
    """Rows a second of `read_state` beside Spark's own reader, of as many rows written into SOURCE, and the time of `spark-ckpt state`.

    SOURCE is a stream or savepoint of an aggregation with texts and bigints, such as tests/stored/states/update. It is not changed.
    """
    _measure_locally(out, lambda folder, figures: states.run(_place(source), rows, rounds, folder, figures, _tell))


@cli.command("start-up")
@_systems
@_rounds
@_json
def one_start_up(chosen: Sequence[str], rounds: int, out: Path | None) -> None:
    """From nothing to the end of a query's first epoch on an empty storage."""
    _measure(out, lambda s3, folder, figures: standing.start_up(_chosen(chosen), rounds, s3, folder, figures, _tell))


@cli.command("idle")
@click.option("--seconds", type=click.IntRange(1), default=60, show_default=True)
@_json
def one_idle(seconds: int, out: Path | None) -> None:
    """Processor and memory of coordinator and agent while their query waits."""
    _measure(out, lambda s3, folder, figures: standing.idle(seconds, s3, folder, figures, _tell))


@cli.command("forks")
@_systems
@_partitions
@_rows
@click.option("--epochs", "count", type=click.IntRange(1), default=3, show_default=True)
@_json
def one_forks(chosen: Sequence[str], partitions: int, rows: int, count: int, out: Path | None) -> None:
    """Programs that an application starts for each epoch, by name (strace)."""
    work = Workload("aggregation", partitions, rows)
    _measure(out, lambda s3, folder, figures: standing.forks(_chosen(chosen), work, count, s3, folder, figures, _tell))


def _chosen(names: Sequence[str]) -> tuple[System, ...]:
    return tuple(_NAMES[name] for name in names)


def _place(source: str) -> str:
    """A URL, or a folder by whatever path."""
    return f"file://{Path(source).resolve()}" if Path(source).exists() else source


def _measure_locally(out: Path | None, experiment: Callable[[Path, Figures], Any]) -> None:
    """Without S3."""
    figures = Figures(machine.describe())
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work:
        experiment(Path(work), figures)
    _finish(figures, out)


@cli.command("realtime")
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(_ENGINES)), help="Without it all.")
@click.option("--batch", "batches", multiple=True, type=float, default=realtime.BATCHES_S, show_default=True, help="Seconds.")
@click.option(
    "--partitions", multiple=True, type=click.IntRange(1), default=realtime.STATE_PARTITIONS, show_default=True, help="Of the state."
)
@click.option("--rate", "rates", multiple=True, type=click.IntRange(1), default=realtime.RATES, show_default=True, help="Records a second.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often each is measured.")
@click.option("--anew", is_flag=True, help="Forget what was measured.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="The folder of the JSON files.")
def real_time(
    engines: Sequence[str],
    batches: Sequence[float],
    partitions: Sequence[int],
    rates: Sequence[int],
    rounds: int,
    anew: bool,
    results: Path,
) -> None:
    """Latency with Spark's real-time trigger, from Kafka to Kafka, beside Flink; docs/real-time.md shows it. Goes on where it was."""
    chosen = [_ENGINES[name] for name in engines or _ENGINES]
    for batch in batches:
        path = realtime.file_of(results, batch)
        figures = Figures(machine.describe()) if anew or not path.exists() else _of_here(path)
        turns = [realtime.Turn(e, n, batch, rate) for n in partitions for rate in rates for e in chosen]
        realtime.run(turns, rounds, figures, _tell, partial(figures.write, path))
        click.echo(realtime_costs.table(figures))


def _of_here(path: Path) -> Figures:
    """Raises click.ClickException: figures of two machines, or of two states of the code, do not stand in one table."""
    figures, here = Figures.read(path), machine.describe()
    if differ := [fact for fact in ("processors", "pyspark", "commit") if figures.about[fact] != here[fact]]:
        was, now = (", ".join(str(about[fact]) for fact in differ) for about in (figures.about, here))
        raise click.ClickException(f"{path.name} was measured on {was}, and this is {now}: --anew forgets it")
    return figures


def _measure(out: Path | None, experiment: Callable[[FarS3, Path, Figures], Any]) -> None:
    figures = Figures(machine.describe())
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        experiment(s3, Path(work), figures)
    _finish(figures, out)


def _finish(figures: Figures, out: Path | None) -> None:
    if out is not None:
        figures.write(out)
    _print(figures, everything=False)


def _print(figures: Figures, everything: bool = True) -> None:
    for note in figures.notes:
        click.echo(note)
    show(tables(figures, everything), Console(width=None if sys.stdout.isatty() else 200))


def _write_page(results: Path, page_path: Path) -> None:
    runs = []
    for name in PLANS:
        file = results / f"{name}.json"
        if file.exists():
            figures = Figures.read(file)
            runs.append((name, figures, draw(figures, results, name)))
    page_path.parent.mkdir(parents=True, exist_ok=True)
    page_path.write_text(render(runs, page_path))
    click.echo(f"written: {page_path}")


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _end(number: int, _frame: object) -> None:
    """As Ctrl-C does: servers, applications and the temporary folder go on the way out, and a second signal must not cut that short."""
    for ignored in _ENDING:
        signal.signal(ignored, signal.SIG_IGN)
    sys.exit(128 + number)


_ENDING = (signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        cli()
    except CheckpointError as error:
        click.echo(f"benchmarks: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
