"""The tables of a run: the same rows for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from benchmarks import agents, edits, finalise, many_files, processes, restore, size_tables, standing, start_tables, states, streams
from benchmarks.cells import Table, median, spread, spreads, times_text
from benchmarks.figures import Case, Estimate, Figures, Summary
from benchmarks.judging import Met, Profile, times
from benchmarks.sittings import Sitting
from benchmarks.state_targets import per_gib, per_million
from benchmarks.systems import System
from benchmarks.targets import (
    AGGREGATION,
    INTERVAL,
    JOIN,
    KAFKA,
    NO_FLOOR,
    REQUESTS,
    ROWS,
    SETTINGS,
    over_floor,
    verdicts,
)


@dataclass(frozen=True)
class _Column:
    name: str
    metric: str
    scale: float = 1.0
    digits: int = 0
    wide: bool = False


_EPOCH_COLUMNS = (
    _Column("epoch ms", "epoch_ms", wide=True),
    _Column("tasks ms", "tasks_ms"),
    _Column("driver logs ms", "logs_ms"),
    _Column("commit ms a store", "commit_per_store_ms", digits=1),
    _Column("processor ms", "all_cpu_ms"),
    _Column("agent's", "agent_cpu_ms"),
    _Column("coordinator's", "coordinator_cpu_ms"),
    _Column("of others", "elsewhere_cpu_ms"),
    _Column("end to end ms", "end_to_end_ms", wide=True),
    _Column("requests", "requests", digits=1),
    _Column("LIST", "list_requests", digits=1),
    _Column("MB put", "put_bytes", 1e-6, digits=2),
)
_EPOCH_TITLES = {
    AGGREGATION: ("Aggregation", "Count and sum per key, 100,000 keys, 20,000 rows an epoch, changelog on."),
    INTERVAL: ("A checkpoint every 10 s", "The same aggregation; as many epochs of the floor."),
    ROWS: ("Rows an epoch", "The same aggregation over 20 partitions."),
    JOIN: ("Stream-stream join", "Two streams joined by key and time: four state stores a partition."),
    KAFKA: ("Kafka", "The same aggregation of numbers from a topic of two partitions. A consumer group follows checkpoints that are kept."),
    restore.FILLED: ("Large state", "While the state of the restore was built, full snapshots every few epochs."),
    SETTINGS: ("Settings that reach beyond the plugin", "The same aggregation, each suggested setting once as Spark has it."),
    REQUESTS: ("Requests of a long run", "100 epochs, snapshots and deletions included."),
}
_EXPLAINED = (
    "Medians, in brackets the quartiles. Driver logs: `walCommit` and `commitOffsets`; "
    "with spark-ckpt the latter holds the wait for the checkpoint. "
    "End to end: from the barrier to `_metadata` stored, the epoch's tasks included. "
    "Processor: all processes of the application, for each epoch, and what agent and coordinator have of it; then what all else on the "
    "machine used meanwhile, S3 server and proxy among it. "
    "x floor, x local, x same: times the floor, stock on the local disk as it comes, and with the plugin's settings; "
    f"no floor: {NO_FLOOR}. "
    "Requests and megabytes are for each epoch, from the server's log."
)


def tables(figures: Figures, everything: bool = True) -> list[Table]:
    """Those that have rows; the targets first, those of which nothing was measured among them if `everything` is to be shown."""
    found = [targets_table(figures, everything), _recorded(figures), *profiles(figures)]
    found += [_epochs(figures, experiment) for experiment in _EPOCH_TITLES]
    found += [_restore(figures), _finalise(figures), _agents(figures), _many_files(figures)]
    found += [start_tables.pieces_table(figures), start_tables.chain_table(figures), start_tables.short_epochs_table(figures)]
    found += [size_tables.large_state_table(figures)]
    found += [_streams(figures), _busy_streams(figures), _start_up(figures), _idle(figures), _forks(figures)]
    found += [_read(figures), _command(figures), _written(figures), _rescaled(figures)]
    return [table for table in found if table.rows]


def targets_table(figures: Figures, everything: bool = True) -> Table:
    rows = [(v.what, v.target, v.measured, v.met.value) for v in verdicts(figures) if everything or v.measured != "not measured"]
    return Table("Targets", "Ratios and differences within this run; S3 is 20 ms away.", ("what", "target", "measured", "met"), rows)


def _recorded(figures: Figures) -> Table:
    """Of figures that no part is recorded of, the experiment at least."""
    known = {sitting.experiment for found in figures.sittings.values() for sitting in found}
    others = dict.fromkeys(case.experiment for case, _, _ in figures if case.experiment not in known | {restore.FILLED})
    rows = [(part, *_sat(sitting)) for part, found in figures.sittings.items() for sitting in found]
    rows += [(experiment, *_sat(Sitting(experiment, 0))) for experiment in others] if rows else []
    about = (
        "A run may go on another day, and measure parts of it again. Rounds of one part that were measured at several times have a line "
        "each. A + behind a commit: the code had changes beside it. Load: of the machine, before the first of all parts that were measured "
        "in one go."
    )
    columns = ("part", "when it was begun", "commit", "machine", "load before all", "rounds")
    return Table("When each part was measured", about, columns, rows, text=4)


def _sat(sitting: Sitting) -> tuple[str, ...]:
    facts = (text or "not recorded" for text in (sitting.time, sitting.commit, sitting.machine))
    return (*facts, "" if sitting.load_before is None else f"{sitting.load_before:.2f}", f"{sitting.rounds or ''}")


def profiles(figures: Figures) -> list[Table]:
    """Where time, bytes or requests go, for targets that are missed or too near their limits; one table for all that look at the same."""
    missed: dict[Profile, list[str]] = {}
    for v in verdicts(figures):
        if v.met in (Met.NO, Met.NOISY, Met.FEW) and v.profile is not None:
            missed.setdefault(v.profile, []).append(v.what)
    return [_profile(figures, profile, whose) for profile, whose in missed.items()]


def _profile(figures: Figures, profile: Profile, whose: Sequence[str]) -> Table:
    cases = profile.cases(figures)
    known = list(dict.fromkeys(metric for case, metric, _ in figures if case in cases))
    chosen = [
        metric for start in profile.metrics for metric in known if metric == start or (start.endswith("_") and metric.startswith(start))
    ]
    rows = [(_words(metric), *(_measured(figures, case, metric) for case in cases)) for metric in dict.fromkeys(chosen)]
    names = (("partitions", profile.partitions), ("size", profile.size))
    several = [name for name, fixed in names if fixed is None and len({getattr(c, name) for c in cases}) > 1]
    columns = [", ".join((case.system, *(f"{getattr(case, name):,}" for name in several))) for case in cases]
    where = ", ".join(f"{n:,} {what}" for n, what in ((profile.partitions, "partitions"), (profile.size, profile.unit)) if n is not None)
    title = f"Profile of {profile.kind}: {profile.experiment}{where and f', {where}'}"
    return Table(title, f"Medians. Of what was missed, or cannot be told: {'; '.join(whose)}.", ("", *columns), rows)


def _words(metric: str) -> str:
    """`phase_addBatch_ms` -> `phase addBatch, ms`."""
    name, _, unit = metric.rpartition("_")
    return f"{name.replace('_', ' ')}, {'MB' if unit == 'bytes' else unit}" if name else metric


def _measured(figures: Figures, case: Case, metric: str) -> str:
    scale, digits = (1e-6, 3) if metric.endswith("_bytes") else (1.0, 1)
    return median(figures.summary(case, metric), scale, digits)


def _epochs(figures: Figures, experiment: str) -> Table:
    title, about = _EPOCH_TITLES[experiment]
    systems = {system.value: number for number, system in enumerate(System)}
    cases = [case for case in figures.cases(experiment) if case.system in systems]
    cases.sort(key=lambda case: (case.partitions, case.size, systems[case.system]))
    rows = []
    for case in cases:
        epochs = figures.summary(case, "epoch_ms")
        against = [_against(figures, case, system) for system in _BASES]
        cells = [(spread if c.wide else median)(figures.summary(case, c.metric), c.scale, c.digits) for c in _EPOCH_COLUMNS]
        rows.append(
            (case.system, f"{case.partitions}", f"{case.size:,}", f"{epochs.count if epochs else 0}", cells[0], *against, *cells[1:])
        )
    size = "MB of state" if experiment == restore.FILLED else "rows"
    names = [c.name for c in _EPOCH_COLUMNS]
    columns = ("system", "partitions", size, "epochs", names[0], "x floor", "x local", "x same", *names[1:])
    return Table(title, f"{about} {_EXPLAINED}" if experiment == AGGREGATION else about, columns, rows)


_BASES = (System.FLOOR, System.STOCK_LOCAL, System.SAME_LOCAL)


def _against(figures: Figures, case: Case, base: System) -> str:
    ours, others = (figures.values(c, "epoch_ms") for c in (case, replace(case, system=base.value)))
    if not ours or not others or not (below := Estimate.median(others)).value:
        return ""
    ratio: Estimate | str = Estimate.median(ours).over(below)
    if base is System.FLOOR:
        ratio = over_floor(ratio, times, 1)
    return "no floor" if isinstance(ratio, str) else times_text(ratio.value)


def _restore(figures: Figures) -> Table:
    rows = []
    for case in figures.cases(restore.EXPERIMENT):
        plain = Case(case.experiment, restore.PLAIN, case.partitions, case.size)
        size = figures.median(Case(case.experiment, System.S3.value, case.partitions, case.size), "state_bytes")
        took = figures.median(case, "restore_ms")
        rate = f"{size / took / 1000:,.0f}" if size and took and case.system in (System.S3.value, restore.PLAIN) else ""
        cells = [spread(figures.summary(case, metric)) for metric in ("first_epoch_ms", "empty_ms", "restore_ms")]
        rows.append((case.system, f"{case.size:,}", *cells, rate, times_text(figures.ratio("restore_ms", case, plain))))
    about = (
        "From the query's start to the end of its first epoch, in a new JVM that has no file of the state; then over an empty state. "
        "The difference is the restore. Plain boto3 reads the same bytes into files by ranges in parallel, and does nothing else."
    )
    columns = ("system", "MB of state", "first epoch ms", "on nothing ms", "restore ms", "MB/s", "x plain")
    return Table("Restore on a fresh machine", about, columns, rows)


def _finalise(figures: Figures) -> Table:
    rows = [
        (
            f"{case.partitions:,}",
            f"{case.size}",
            *spreads(figures, case, ("acks_ms", 1, 0), ("acks_cpu_ms", 1, 0), ("finalise_ms", 1, 0), ("finalise_cpu_ms", 1, 0)),
            *spreads(figures, case, ("metadata_bytes", 1e-6, 2), ("memory_before_bytes", 1e-6, 0), ("memory_bytes", 1e-6, 0)),
        )
        for case in sorted(figures.cases(finalise.EXPERIMENT))
    ]
    about = (
        "A real coordinator process with simulated partitions over a storage that throws away: taking in all acknowledgements, "
        "then from the seal to the stored `_metadata`."
    )
    memory = ("memory before MB", "memory at most MB")
    columns = ("partitions", "handles each", "acks ms", "of it processor", "finalise ms", "of it processor", "_metadata MB", *memory)
    return Table("Finalise in the coordinator", about, columns, rows, text=0)


def _agents(figures: Figures) -> Table:
    times = (("acks_ms", 1, 0), ("finalise_ms", 1, 0), ("coordinator_cpu_ms", 1, 0), ("agents_cpu_ms", 1, 0))
    sizes = (("messages", 1, 0), ("requests", 1, 1), ("put_bytes", 1e-6, 2), ("metadata_bytes", 1e-6, 2))
    memory = (("memory_bytes", 1e-6, 0), ("agent_memory_bytes", 1e-6, 0))
    cases = sorted(figures.cases(agents.EXPERIMENT))
    rows = [(f"{case.partitions:,}", f"{case.size}", *spreads(figures, case, *times, *sizes, *memory)) for case in cases]
    about = (
        "A real coordinator and real agents on S3, without Spark: all commits and a flush to each agent until the last acknowledgement is "
        "with the coordinator, then from the seal to the stored `_metadata`."
    )
    counted = ("messages of acks", "requests", "MB put", "_metadata MB", "coordinator's memory at most MB", "an agent's MB")
    columns = ("partitions", "agents", "acks ms", "finalise ms", "coordinator's processor", "agents'", *counted)
    return Table("Many partitions and agents", about, columns, rows, text=0)


def _streams(figures: Figures) -> Table:
    metrics = (("processes", 1, 0), ("threads", 1, 0), ("files", 1, 0), ("memory_bytes", 1e-6, 0))
    cases = sorted(figures.cases(streams.EXPERIMENT), key=lambda case: (case.system, case.size))
    rows = [(case.system, f"{case.size}", *spreads(figures, case, *metrics)) for case in cases]
    about = "Queries over two partitions, each of which has run an epoch and waits. Resident memory, shared pages included."
    return Table("Streams in one session", about, ("process", "streams", "processes", "threads", "open files", "memory MB"), rows)


def _busy_streams(figures: Figures) -> Table:
    asked = (("epochs", 1, 0), ("requests", 1, 1), ("look_requests", 1, 1), ("finalise_ms", 1, 0), ("end_to_end_ms", 1, 0))
    memory = (("coordinator_memory_bytes", 1e-6, 0), ("agent_memory_bytes", 1e-6, 0))
    rows = [(case.system, f"{case.size}", *spreads(figures, case, *asked, *memory)) for case in figures.cases(streams.BUSY)]
    about = (
        f"All run, an epoch of two partitions each every {streams.EVERY_S} s. Requests an epoch, looks among them: a stream that waits "
        "asks for the next entry of its log, which is not there. Memory: resident at most."
    )
    counted = ("epochs", "requests an epoch", "looks", "finalise ms", "end to end ms", "coordinator's memory MB", "agent's")
    return Table("Streams that run in one session", about, ("system", "streams", *counted), rows)


def _many_files(figures: Figures) -> Table:
    metrics = (("trigger_bytes", 1, 0), ("entry_bytes", 1, 0), ("metadata_bytes", 1, 0), ("epoch_ms", 1, 1))
    large = (("compact_bytes", 1e-6, 1), ("compact_ms", 1, 0), ("start_ms", 1, 0), ("start_bytes", 1, 0), ("memory_bytes", 1e-6, 0))
    cases = sorted(figures.cases(many_files.EXPERIMENT))
    rows = [(f"{case.size:,}", *spreads(figures, case, *metrics), *spreads(figures, case, *large)) for case in cases]
    about = (
        "A real coordinator process over a local folder, told what Spark tells of a file source that has seen so many files and "
        "sees ten more in each epoch. Every tenth epoch Spark writes all of them anew: the one thing that grows, stored once and "
        "read back at a start."
    )
    columns = ("files seen", "pipe B an epoch", "log B an epoch", "_metadata B", "epoch ms", "compact file MB", "its epoch's plan ms")
    return Table("A source of many files", about, (*columns, "start ms", "pipe B at start", "memory at most MB"), rows, text=0)


def _start_up(figures: Figures) -> Table:
    metrics = (("session_ms", 1, 0), ("first_epoch_ms", 1, 0), ("start_up_ms", 1, 0))
    rows = [(case.system, *spreads(figures, case, *metrics)) for case in figures.cases(standing.START_UP)]
    about = "A new JVM, an empty storage, one row."
    return Table("Start-up", about, ("system", "session ms", "query's start to its first epoch's end ms", "both ms"), rows)


def _idle(figures: Figures) -> Table:
    idle = [
        (case.system, "idle", *spreads(figures, case, ("cpu_percent", 1, 2), ("memory_bytes", 1e-6, 0)))
        for case in figures.cases(standing.IDLE)
    ]
    load = [
        (case.system, f"at most, {case.size:,} MB of state", "", *spreads(figures, case, ("peak_memory_bytes", 1e-6, 0)))
        for case in figures.cases(restore.FILLED)
        if case.system in processes.OWN
    ]
    return Table(
        "Coordinator and agent",
        "Resident memory, shared pages included.",
        ("process", "when", "processor %", "memory MB"),
        idle + load,
        text=2,
    )


def _forks(figures: Figures) -> Table:
    rows = []
    for case in figures.cases(standing.FORKS):
        named = [m for c, m, _ in figures if c == case and m.endswith("_forks")]
        programs = ", ".join(f"{m.removesuffix('_forks')} {figures.median(case, m):,.1f}" for m in sorted(named))
        rows.append((case.system, programs, f"{case.partitions}", *spreads(figures, case, ("forks", 1, 1))))
    about = "Programs that the application starts, for each epoch."
    return Table("Forked programs", about, ("system", "programs", "partitions", "forks an epoch"), rows, text=2)


def _read(figures: Figures) -> Table:
    cases = [case for case in figures.cases(states.EXPERIMENT) if case.system != states.COMMAND]
    cases.sort(key=lambda case: (case.size, case.system == states.SPARKS))
    rows = []
    for case in cases:
        values, sparks = figures.values(case, "read_ms"), replace(case, system=states.SPARKS)
        rate = spread(Summary.of([1000 * case.size / ms for ms in values])) if values else ""
        cells = spreads(figures, case, ("read_ms", 1, 0), ("read_cpu_ms", 1, 0))
        times_sparks = times_text(figures.ratio("read_ms", sparks, case))
        rows.append((case.system, f"{case.partitions}", f"{case.size:,}", f"{len(values)}", cells[0], rate, times_sparks, cells[1]))
    about = (
        "All entries of an aggregation's state, on the local disk. In turn: `read_state`, and Spark's own reader, `statestore` in "
        "`local[2]`, of an export of the same checkpoint. Start-up and the first read of each are left out."
    )
    columns = ("reader", "partitions", "rows", "reads", "ms", "rows a second", "x Spark's", "processor ms")
    return Table("State: read", about, columns, rows)


def _command(figures: Figures) -> Table:
    metrics = (("command_ms", 1, 0), ("imports_ms", 1, 0), ("command_cpu_ms", 1, 0))
    cases = sorted(case for case in figures.cases(states.EXPERIMENT) if case.system == states.COMMAND)
    rows = [(f"{case.size:,}", f"{len(figures.values(case, 'command_ms'))}", *spreads(figures, case, *metrics)) for case in cases]
    about = "`spark-ckpt state` from the command's start to its end, without `--deep`."
    return Table("State: what the command answers", about, ("rows", "tries", "ms", "of it Python's imports", "processor ms"), rows, text=0)


def _written(figures: Figures) -> Table:
    sizes = (("memory_bytes", 1e-6, 0), ("parquet_bytes", 1e-6, 0), ("state_bytes", 1e-6, 0))
    rows = []
    for case in sorted(figures.cases(edits.WRITTEN)):
        took = figures.median(case, "write_ms")
        rate = f"{1000 * case.size / took:,.0f}" if took else ""
        cells = spreads(figures, case, ("write_ms", 1e-3, 1), ("read_ms", 1e-3, 1), *sizes)
        rows.append((f"{case.size:,}", f"{case.partitions}", f"{len(figures.values(case, 'write_ms'))}", cells[0], rate, *cells[1:]))
    about = (
        "Rows of a Parquet file in the place of all state, with `write_state` in a process of its own, Python's start-up included: a "
        "savepoint on the local disk. Then all of it is read with `read_state`."
    )
    columns = ("keys", "partitions", "tries", "write s", "keys a second", "read s", "memory at most MB", "Parquet MB", "state MB")
    return Table("State: written from Parquet", about, columns, rows, text=0)


def _rescaled(figures: Figures) -> Table:
    rows = []
    for case in sorted(figures.cases(edits.RESCALED), key=lambda case: (case.size, case.partitions)):
        took, size = spreads(figures, case, ("rescale_ms", 1e-3, 0), ("state_bytes", 1e-6, 0))
        each = [f"{value / 1000:,.1f}" if value is not None else "" for value in (per_million(figures, case), per_gib(figures, case))]
        rows.append((case.system, f"to {case.partitions}", f"{case.size:,}", size, took, *each))
    about = (
        "`spark-ckpt rescale` on the local disk, the start and the end of its Spark included. Spark makes one store after the other, "
        "however small. State in MB and GiB is what the checkpoint has stored before."
    )
    columns = ("", "partitions", "keys", "state MB", "s", "s for each million keys", "s for each GiB")
    return Table("State: another number of partitions", about, columns, rows, text=2)


def show(found: Iterable[Table], console: Console) -> None:
    for table in found:
        shown = RichTable(
            title=table.title, title_justify="left", title_style="bold", caption=table.about, caption_justify="left", box=None
        )
        for number, name in enumerate(table.columns):
            shown.add_column(name, justify="left" if number < table.text else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        console.print(shown)
        console.print()


_STYLES = {Met.YES.value: "green", Met.NO.value: "bold red", Met.NOISY.value: "yellow", Met.FEW.value: "yellow"}
