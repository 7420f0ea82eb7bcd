"""`python -m benchmarks`: all of it, or one figure by itself."""

from __future__ import annotations

import itertools
import math
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from benchmarks import (
    agents,
    clients,
    edits,
    epochs,
    finalise,
    large_state,
    machine,
    many_files,
    plans,
    realtime,
    restore,
    standing,
    start_commands,
    states,
    streams,
)
from benchmarks.budget import Budget
from benchmarks.far_s3 import FarS3, far_s3
from benchmarks.figures import Figures
from benchmarks.judging import ROUNDS
from benchmarks.measuring import (
    NAMES,
    finish,
    json_option,
    measure,
    measure_locally,
    partitions_option,
    print_tables,
    rounds_option,
    rows_option,
    systems_of,
    systems_option,
    tell,
)
from benchmarks.page import render
from benchmarks.plots import draw
from benchmarks.state_targets import WRITTEN_ROWS
from benchmarks.targets import AGGREGATION, INTERVAL, JOIN, KAFKA
from benchmarks.workloads import QUERIES, Workload
from documents import realtime_costs
from spark_ckpt.errors import CheckpointError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
_ENGINES = {engine.name.lower().replace("_", "-"): engine for engine in realtime.Engine}
PLANS = {plan.name: plan for plan in (plans.SHORT, plans.FULL)}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def cli() -> None:
    """What a checkpoint costs, side by side with the systems one would choose between."""


for _command in start_commands.COMMANDS:
    cli.add_command(_command)


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
    goes_on = unfinished.exists() and not anew
    if again and not goes_on and not here.exists():
        raise click.UsageError(f"nothing can be measured again: there is no {here}")
    if missing := sorted(set(again) - form.experiments):
        raise click.UsageError(f"{', '.join(missing)} is not in the {form.name} form; run `python -m benchmarks run --help`")
    if anew:
        unfinished.unlink(missing_ok=True)
    if goes_on:
        _check_words(unfinished, again, rounds)
    machine.quietened(tell)
    figures = Figures.read(unfinished, machine.describe()) if goes_on else _begun(here, again, rounds)
    plan = form.only(figures.about["again"]) if figures.about["again"] else form
    if figures.about["rounds"]:
        plan = plan.limited(figures.about["rounds"])
    if again and not goes_on:
        figures.forget(lambda case: case.experiment in plan.experiments)
        figures.sittings = {part: found for part, found in figures.sittings.items() if found[0].experiment not in plan.experiments}
    until, complete = Budget(math.inf if minutes is None else minutes * 60), False
    try:
        complete = plans.run(plan, figures, tell, lambda: figures.write(unfinished), until)
        if complete:
            unfinished.replace(here)
            _write_page(results, page_path)
    finally:
        if not complete:
            tell(f"{len(figures.parts)} parts are measured, and kept in {unfinished}: the same command goes on with the next one")
        print_tables(figures)


def _begun(here: Path, again: Sequence[str], rounds: int | None) -> Figures:
    """The figures of the last run to measure some of them `again`, or none yet."""
    now = machine.describe()
    figures = Figures.read(here, now) if again else Figures(now)
    figures.about |= {"again": list(again), "rounds": rounds or 0}
    return figures


def _check_words(unfinished: Path, again: Sequence[str], rounds: int | None) -> None:
    """Raises click.UsageError where a run that ended early measured something else, or in other rounds."""
    figures = Figures.read(unfinished)
    begun = [*(f"--again {one!r}" for one in figures.about["again"]), *([f"--rounds {n}"] if (n := figures.about["rounds"]) else ())]
    if (again and set(again) != set(figures.about["again"])) or (rounds and rounds != figures.about["rounds"]):
        told = f"with {' '.join(begun)}" if begun else "without --again and --rounds"
        raise click.UsageError(f"{unfinished} is a run that ended early, and was begun {told}: go on with it so, or forget it with --anew")


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
    print_tables(Figures.read(file))


@cli.command("epochs")
@systems_option
@click.option("--query", type=click.Choice(list(QUERIES)), default="aggregation", show_default=True)
@partitions_option
@rows_option
@rounds_option
@click.option("--warm", type=click.IntRange(1), default=3, show_default=True, help="Epochs that do not count, in each turn.")
@click.option("--warm-seconds", type=click.IntRange(0), default=0, show_default=True, help="For at least so long, in the first round.")
@click.option("--epochs", "count", type=click.IntRange(1), default=6, show_default=True, help="Epochs that do, in each turn.")
@click.option("--seconds", type=click.IntRange(0), default=0, show_default=True, help="For at least so long.")
@json_option
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
    turns = epochs.Turns(experiment, Workload(query, partitions, rows), systems_of(chosen), rounds, warm, count, seconds, warm_seconds)
    measure(out, lambda s3, folder, figures: epochs.run([turns], s3, folder, figures, tell))


@cli.command("interval")
@click.option("--partitions", type=click.IntRange(1), default=200, show_default=True)
@rounds_option
@click.option("--seconds", type=click.IntRange(1), default=2 * plans.INTERVAL_S, show_default=True, help="Of each turn, warm epochs apart.")
@json_option
def one_interval(partitions: int, rounds: int, seconds: int, out: Path | None) -> None:
    """A checkpoint every 10 s on s3:// against the floor: medians and means of as many epochs of each."""
    turns = epochs.Turns(INTERVAL, Workload("aggregation", partitions), plans.INTERVAL_SYSTEMS, rounds, 3, 1, seconds, alike=True)
    measure(out, lambda s3, folder, figures: epochs.run([turns], s3, folder, figures, tell))


@cli.command("finalise")
@click.argument("partitions", type=click.IntRange(1), nargs=-1)
@click.option("--epochs", "count", type=click.IntRange(1), default=finalise.EPOCHS, show_default=True)
@click.option("--profile/--no-profile", default=True, show_default=True, help="Where the time goes, in a second coordinator.")
@json_option
def one_finalise(partitions: Sequence[int], count: int, profile: bool, out: Path | None) -> None:
    """A coordinator alone, with so many simulated PARTITIONS (10000 if none are given): time, size and memory."""
    figures = Figures(machine.describe())
    finalise.run(partitions or (10_000,), figures, count, profile)
    finish(figures, out)


@cli.command("agents")
@click.argument("partitions", type=click.IntRange(1), nargs=-1)
@click.option("--agents", "number", type=click.IntRange(1), default=agents.AGENTS, show_default=True)
@click.option("--epochs", "count", type=click.IntRange(1), default=agents.EPOCHS, show_default=True)
@json_option
def one_agents(partitions: Sequence[int], number: int, count: int, out: Path | None) -> None:
    """A coordinator and several agents on S3, without Spark, over so many PARTITIONS (5000 if none are given): requests, memory, time."""
    measure(out, lambda s3, folder, figures: agents.run(partitions or (agents.PARTITIONS,), number, count, s3, folder, figures))


@cli.command("streams")
@click.argument("counts", type=click.IntRange(1), nargs=-1)
@click.option("--system", "chosen", multiple=True, type=click.Choice(list(NAMES)), default=["stock-local", "s3"], show_default=True)
@json_option
def one_streams(counts: Sequence[int], chosen: Sequence[str], out: Path | None) -> None:
    """So many streams (1, 10 and 50 if no COUNTS are given) in one session: processes, threads, open files and memory."""
    measure(out, lambda s3, folder, figures: streams.run(counts or streams.COUNTS, systems_of(chosen), s3, folder, figures, tell))


@cli.command("busy-streams")
@click.argument("count", type=click.IntRange(1), default=max(streams.COUNTS))
@json_option
def one_busy_streams(count: int, out: Path | None) -> None:
    """COUNT streams (50 if none is given) in one session that all run: requests of an epoch, time to finalise it, memory."""
    measure(out, lambda s3, folder, figures: streams.busy(count, s3, folder, figures, tell))


@cli.command("large-state")
@click.option("--megabytes", type=click.IntRange(1), default=large_state.MEGABYTES, show_default=True, help="Of state, in keys of 1 KiB.")
@click.option("--minutes", type=click.FloatRange(0), default=large_state.MINUTES, show_default=True, help="Of updates.")
@click.option("--partitions", type=click.IntRange(1), default=large_state.PARTITIONS, show_default=True)
@click.option("--system", "chosen", multiple=True, type=click.Choice(list(NAMES)), default=["s3", "same-local"], show_default=True)
@json_option
def one_large_state(megabytes: int, minutes: float, partitions: int, chosen: Sequence[str], out: Path | None) -> None:
    """Much state, updated at random for long: epochs early and late, bytes to S3, memory and disk."""
    systems = systems_of(chosen)

    def run(s3: FarS3, folder: Path, figures: Figures) -> None:
        for system in systems:
            large_state.run(system, megabytes, partitions, minutes, s3, folder / system.name.lower(), figures, tell)

    measure(out, run)


@cli.command("many-files")
@click.argument("seen", type=click.IntRange(1), nargs=-1)
@json_option
def one_many_files(seen: Sequence[int], out: Path | None) -> None:
    """A coordinator alone, with a file source that has SEEN so many files (100000 if none are given): bytes and time of an epoch."""
    figures = Figures(machine.describe())
    many_files.run(seen or (100_000,), figures)
    finish(figures, out)


@cli.command("clients")
@click.option("--megabytes", type=click.IntRange(64), default=512, show_default=True, help="Of large objects.")
@click.option("--small", type=click.IntRange(10), default=200, show_default=True, help="Small objects of each kind.")
@click.option("--near", is_flag=True, help="Without the 20 ms.")
@rounds_option
def one_clients(megabytes: int, small: int, near: bool, rounds: int) -> None:
    """boto3 and obstore on the same work: latency of small objects, MB/s of large ones, requests, memory, processor."""
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        clients.run(s3, near, megabytes, small, rounds, Path(work), click.echo)


@cli.command("rescale")
@click.argument("source")
@click.option("--partitions", type=click.IntRange(1), multiple=True, required=True, help="Given several times: one after the other.")
@json_option
def one_rescale(source: str, partitions: Sequence[int], out: Path | None) -> None:
    """The state of SOURCE, a stream or savepoint, in other numbers of partitions: the time of each, for each million keys and each GiB."""
    measure_locally(out, lambda folder, figures: edits.rescaled(_place(source), partitions, folder, figures, tell))


@cli.command("write-state")
@click.argument("source")
@click.option("--rows", type=click.IntRange(1), default=WRITTEN_ROWS, show_default=True)
@rounds_option
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="A folder for the savepoint. Default: it is removed.")
@json_option
def one_write_state(source: str, rows: int, rounds: int, keep: Path | None, out: Path | None) -> None:
    """State of so many rows of a Parquet file, written into SOURCE and read again.

    SOURCE is a stream or savepoint of an aggregation with texts and bigints, such as tests/stored/states/update. It is not changed.
    """

    def written(folder: Path, figures: Figures) -> None:
        tell(edits.written(_place(source), rows, rounds, folder, figures, tell, keep.resolve() if keep else None))

    measure_locally(out, written)


@cli.command("state")
@click.argument("source")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True)
@json_option
def one_state(source: str, rows: int, rounds: int, out: Path | None) -> None:
    """Rows a second of `read_state` beside Spark's own reader, of as many rows written into SOURCE, and the time of `spark-ckpt state`.

    SOURCE is a stream or savepoint of an aggregation with texts and bigints, such as tests/stored/states/update. It is not changed.
    """
    measure_locally(out, lambda folder, figures: states.run(_place(source), rows, rounds, folder, figures, tell))


@cli.command("idle")
@click.option("--seconds", type=click.IntRange(1), default=60, show_default=True)
@json_option
def one_idle(seconds: int, out: Path | None) -> None:
    """Processor and memory of coordinator and agent while their query waits."""
    measure(out, lambda s3, folder, figures: standing.idle(seconds, s3, folder, figures, tell))


@cli.command("forks")
@systems_option
@partitions_option
@rows_option
@click.option("--epochs", "count", type=click.IntRange(1), default=3, show_default=True)
@json_option
def one_forks(chosen: Sequence[str], partitions: int, rows: int, count: int, out: Path | None) -> None:
    """Programs that an application starts for each epoch, by name (strace)."""
    work = Workload("aggregation", partitions, rows)
    measure(out, lambda s3, folder, figures: standing.forks(systems_of(chosen), work, count, s3, folder, figures, tell))


def _place(source: str) -> str:
    """A URL, or a folder by whatever path."""
    return f"file://{Path(source).resolve()}" if Path(source).exists() else source


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
    for batch, count in itertools.product(batches, partitions):
        path = realtime.file_of(results, batch, count)
        figures = Figures(machine.describe()) if anew or not path.exists() else _of_here(path)
        turns = [realtime.Turn(engine, count, batch, rate) for rate in rates for engine in chosen]
        realtime.run(turns, rounds, figures, tell, partial(figures.write, path))
        click.echo(realtime_costs.table(figures))


def _of_here(path: Path) -> Figures:
    """Raises click.ClickException: figures of two machines, or of two states of the code, do not stand in one table."""
    figures, here = Figures.read(path), machine.describe()
    if differ := [fact for fact in ("processors", "pyspark", "commit") if figures.about[fact] != here[fact]]:
        was, now = (", ".join(str(about[fact]) for fact in differ) for about in (figures.about, here))
        raise click.ClickException(f"{path.name} was measured on {was}, and this is {now}: --anew forgets it")
    return figures


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
