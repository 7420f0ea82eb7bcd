"""docs/benchmarks.md: written by the benchmark, not by hand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.machine import kernel
from benchmarks.systems import System
from benchmarks.tables import Table, tables
from benchmarks.targets import Met

_HEAD = """# Benchmarks

Written by `python -m benchmarks page`; do not edit. Every single value is in [benchmarks/results](../benchmarks/results).

    make bench         # the short form, under 10 minutes
    make bench-full    # everything, for hours (`python -m benchmarks run --full --rounds 1` takes less)
    .venv/bin/python -m benchmarks --help    # each figure by itself

Needed beside Java: Go, or versitygw and toxiproxy-server on the PATH; Maven, for stock Spark's S3A (fetched once, into `.venv`);
strace for `forks`.

## How it is measured
- **S3** is [versitygw](https://github.com/versity/versitygw) with an access log, behind [toxiproxy](https://github.com/Shopify/toxiproxy)
  with 20 ms added to each round trip, 10 ms each way. Connections are kept. Requests and bytes are counted in the server's log.
- **Systems** take turns within one run: each is a Spark application of its own (`local[2]`, a heap of 2 GB) that stays from turn to turn,
  so a noisy moment hits all of them. A turn is a new query on an empty storage; its first epochs do not count. All warm up for the same
  time, and then run for at least the same time: what a fast system spends on compiling its code is as long past as a slow one's.
  With a limit on its time, a round that would not fit is left out for all systems of its workload, and noted.
- **Ratios** count, not milliseconds: they are of medians within one run. A ratio of times is **too noisy** for a yes or a no where the load
  before the run was above 0.5 a processor, or where the limit lies within what the ratio would come out as again (the notches of box
  plots: median +- 1.57 IQR / sqrt(n); extremes for fewer than 4 values). What is counted holds: requests, bytes, memory, processor time.
- **Every 10 s** and its floor run for the same time, at least three intervals; of both as many epochs are compared as the slower one
  ran, their means as well, since the few epochs in which a checkpoint is taken do not move a median.
- **Restore** is told twice: the first epoch of a fresh machine, JVM started, less the same on an empty state; and as it is.

## Not covered
- **Several executors**: `local[2]` is one. With two, in processes of their own, only requests are counted, in the full form.
- **Bounds on an agent's memory under load**: what it took is told, there is no limit in bytes to hold it against.

## Targets at the limit
- **`_metadata` of 10,000 partitions with 8 handles each in 1 MB** cannot be: it names 80,000 files, and 80,000 x (122 random bits that
  Spark puts into each name + 32 bits of CRC) is more than that already, and no codec makes it smaller.
- **An epoch of one row within 3 round trips of the floor**: it is three puts, one after the other (plan, segment, `_metadata`), and each
  takes a few milliseconds in client, proxy and server beside the 20 on its way.
- **A restore 3 x as fast as stock's** cannot be where plain parallel reads of the same bytes are not ("stock's time over plain boto3's"):
  server, proxy and reader share the machine's processors, and no processor is idle while any of the three systems reads.
- **Bytes at most 1.2 x changelogs and new SSTs** holds or not by when it is looked at: `_metadata` names every changelog since its store's
  last full snapshot, and Spark takes those once a minute (`stateStore.maintenanceInterval`): the more epochs a minute has, and the fewer
  bytes an epoch, the larger is its share.
"""

_SYSTEMS = {
    System.STOCK_LOCAL: "Spark's RocksDB store with changelogs, `checkpointLocation` on the local disk: nothing survives the machine.",
    System.STOCK_S3A: "The same with an `s3a://` location and no option changed; in the full form only.",
    System.STOCK_TUNED: "The same with `AbortableStreamBasedCheckpointFileManager` of spark-hadoop-cloud: no renames.",
    System.FLOOR: "This project with a storage that throws away what it is given: what it costs before any byte is stored.",
    System.FILE: "This project, every epoch a checkpoint, on the local disk, synced to it.",
    System.S3: "This project, every epoch a checkpoint, on S3.",
    System.S3_INTERVAL: "This project on S3 with `spark.ckpt.interval=10s`.",
    System.S3_CLUSTER: "This project on S3 with two executors of one core (`local-cluster`); in the full form only.",
}


def render(runs: Sequence[tuple[str, Figures, Sequence[Path]]], page: Path) -> str:
    """`runs`: name, figures and plots of each; plots are linked relative to the page."""
    lines = [_HEAD, "| system | |", "|---|---|", *(f"| {system.value} | {text} |" for system, text in _SYSTEMS.items()), ""]
    if not runs:
        lines += ["No run is recorded yet.", ""]
    for name, figures, plots in runs:
        lines += [f"## The {name} form", "", _about(figures), ""]
        lines += [f"- {note.splitlines()[0]}" for note in figures.notes] + ([""] if figures.notes else [])
        lines += [f"![{plot.stem}]({os.path.relpath(plot, page.parent)})" for plot in plots] + ([""] if plots else [])
        for table in tables(figures):
            lines += [f"### {table.title}", table.about, "", *_markdown(table), ""]
    return "\n".join(lines).rstrip() + "\n"


def _about(figures: Figures) -> str:
    a = figures.about
    facts = (
        f"{a['time']}, {a['processors']}, {a['memory_gib']} GiB, Linux {kernel(a['kernel'])}, {a['java']}, PySpark {a['pyspark']}, "
        f"Python {a['python']}. Load before: {a['load_before']}."
    )
    return facts + (f" It took {a['took_s'] / 60:.0f} minutes." if "took_s" in a else "")


def _markdown(table: Table) -> list[str]:
    rule = "|".join("---" if number < table.text else "---:" for number in range(len(table.columns)))
    head = [f"| {' | '.join(table.columns)} |", f"|{rule}|"]
    return [*head, *(f"| {' | '.join(_bold(cell) for cell in row)} |" for row in table.rows)]


def _bold(cell: str) -> str:
    return f"**{cell}**" if cell in (Met.NO.value, Met.NOISY.value) else cell.replace("|", "\\|")
