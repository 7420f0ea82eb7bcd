"""docs/benchmarks.md: written by the benchmark, not by hand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cells import Table
from benchmarks.figures import Figures
from benchmarks.judging import Met
from benchmarks.machine import kernel
from benchmarks.systems import HOOKS, SAME_SETTINGS, System
from benchmarks.tables import tables

_HEAD = """# Benchmarks

Written by `python -m benchmarks page`; do not edit. Every single value is in [benchmarks/results](../benchmarks/results).

This page compares an epoch with spark-ckpt to an epoch of stock Spark: how long it takes, and what it asks of S3. There are two runs, a
[short form](#the-short-form) and a [full form](#the-full-form) with more workloads. Each has targets, and says which are not met.

## How it is measured
- **S3** is [versitygw](https://github.com/versity/versitygw) with an access log, behind [toxiproxy](https://github.com/Shopify/toxiproxy).
  The proxy adds 20 ms to each round trip, 10 ms each way. Connections are kept.
- **Requests and bytes** are counted in the server's log. A turn counts those of its own stream: the bucket is its system's, and the key or
  the prefix lies in the stream's own folder. What another system still cleans up, or the same one after an earlier turn, does not count.
  One kind of request cannot be told apart, since the log does not have its keys: a batch of deletions counts for the stream that runs.
  What is read has no length in that log: bytes that came from the server are counted by the proxy, for an application from its start to its
  end, headers among them.
- **Systems take turns** within one run. Each is a Spark application of its own (`local[2]`, a heap of 2 GB) that stays from turn to turn,
  so a noisy moment hits all of them. A turn is a new query on an empty storage; its first epochs do not count.
- **Who waits is stopped.** All processes of an application that waits for its turn are stopped (`SIGSTOP`). Otherwise its maintenance and
  its late cleaning would take time from the others: Spark does that once a minute, also for a query that has ended. What all else on
  the machine has used during a turn is in the column "of others".
- **The same settings.** The plugin sets some of Spark's own settings. "Same settings" is stock Spark with every one of them that is not
  a class of the plugin, and the targets compare with that. Stock Spark cannot have these, which name such classes: {hooks}.
  The benchmark ends with an error if an application runs with any other setting of Spark SQL or of shuffles that stock does not have.
  The same settings are:
{same}
- **The floor** is this project itself, in a process of the same kind, with a storage that keeps nothing: what an epoch costs before any
  byte is stored. So it bounds this project, and only that. Where it was slower than what it is under, by more than chance explains, it is
  called "no floor", and there is no ratio to it.
- **Profiles.** Each target that is missed, or too near its limit to tell, has a table that shows where the time, the bytes or the requests
  go: Spark's phases of an epoch, those of a checkpoint (plan, wait for the last acknowledgement, finalise), processor time, stored bytes
  by the kind of object, columns of `_metadata`, and the modules in which a sampled coordinator used its processor time.
- **All warm up for the same time**, and then run for at least the same time. So a fast system has spent as much time on compiling its code
  as a slow one. In the full form an aggregation of 20,000 rows runs for a minute: Spark maintains its state stores once a minute, which
  slows several epochs down, and a shorter turn has that or not, by chance. With a limit on its time, a round that would not fit is left
  out for all systems of its workload, and noted.
- **Look at ratios, not at milliseconds.** A ratio is of two medians within one run. It is called **too noisy** for a yes or a no in three
  cases: the load before the run (before that part of it) was above 0.5 a processor, although ten minutes were given to it to fall; others
  used more than a quarter of the machine during the turns; or the limit lies within the range in which the ratio would come out again (the
  notches of box plots: median +- 1.57 IQR / sqrt(n); the extremes for fewer than 4 values). What is counted is never too noisy: requests,
  bytes, memory, processor time. Others are all processes but those of the application; where its start is measured, which may read
  gigabytes, S3 server and proxy are no others either (since 2026-11-30).
- **Too few rounds** for a yes or a no are one or two, where times are compared: a round may lie in a slow minute of the machine. So the
  short form judges what is counted, and only tells the times. What is counted is judged by one round.
- **Every 10 s**: this system and its floor run for the same time, at least three intervals. Of both as many epochs are compared as the
  slower one ran. Means are compared too, since a checkpoint is taken in few epochs, and those do not move a median.
- **Kafka** is a real broker of one node on the same machine. Its topic is filled before anybody reads it. With spark-ckpt a consumer group
  follows the checkpoints (`spark.ckpt.kafka.group`), so that its commits are part of what is measured; the floor has no group.
- **Restore** is told twice: the first epoch on a fresh machine with the JVM running, less the same on an empty state; and as it is.
- **A restart in pieces** is told by what can be seen of it: the times of Spark's context, of its session and of the first epoch's phases,
  what the Checkpoints tab and the application's log say, and when the files in `checkpointLocation` were written. The application before
  was killed while its query waited. Flink has a job of its own with as much state, which was killed while it ran, and is told by its log:
  until the first checkpoint after the restart is complete. `python -m benchmarks restart-pieces --gigabytes 10` does the same with more.
- **The bound of an agent's memory** is reckoned from what it works on, as `benchmarks/agent_bound.py` says: 120 MB for an idle one, a block
  of 1 MiB for each of its threads, a line of the pipe, 16 MiB for each stream, and 3 KB for each file of the newest checkpoint. Whether it
  held is asked after the state of the restore was built, with eight agents at once, with 50 streams, and in the hour of large state.
- **Long chains** are filled anew for each round, without any full snapshot: a start may end the chains that it has loaded.
- **An hour of large state**: it is made first, and then updated at random. `python -m benchmarks large-state` takes an hour for each
  system, and the time to make the state, and needs six times as much disk as the state has.
- **Short epochs** run as fast as they come, in a stream that is restarted early and late in its life. Once the same epochs are run by one
  application with a full snapshot every 500 epochs, the fewest that can be set, to compare the bytes.
- **State** is read, written and rescaled without S3 and without a query: on the local disk, in the full form. A stored aggregation, in
  which a text is the key, gets as many rows as are wanted in the place of its own. `read_state` and Spark's own reader read them in turn,
  when the JVM runs and each has read them once. A rescale starts and ends a Spark, and that is part of its time. So is work for each
  store, however small: the time for a GiB holds for about as much state in as many partitions.

## Not covered
- **Several executors**: `local[2]` is one. With two, in processes of their own, requests are counted, and a start from long chains is
  measured, in the full form.

## Targets that cannot be met, or hardly
- **`_metadata` of 10,000 partitions with 8 handles each in 1 MB.** It names 80,000 files. Spark puts 122 random bits into each name, and a
  CRC has 32 bits: 80,000 x 154 bits is more than 1 MB already, and no codec makes it smaller.
- **An epoch of one row within 2.5 round trips of the floor.** It is three puts, one after the other (plan, segment, `_metadata`). Each
  takes a few milliseconds in client, proxy and server, beside the 20 ms on its way. The plan of the next epoch cannot go out beside
  `_metadata`: one thread of Spark's tells the progress of an epoch, which says that its checkpoint is durable and how large it is, before
  it asks where the next epoch ends.
- **A restore 3 x as fast as stock's.** Plain parallel reads of the same bytes are not that fast ("stock's time over plain boto3's"):
  server, proxy and reader share the machine's processors, and no processor is idle while any of the three systems reads.
- **`read_state` as fast as Spark's own reader.** A row takes about as much of the processors as in Spark. One million rows are
  read by one process, and Python works on one processor where Spark has two: another process would take as long to start as it saves.
  Ten million are read by one for each processor.
- **Bytes at most 1.2 x changelogs and new SSTs.** Whether it holds depends on the moment. `_metadata` names every changelog since its
  store's last full snapshot, and most are written once a minute (`stateStore.maintenanceInterval`). With more epochs in a minute, and
  fewer bytes in an epoch, its share is larger.

## How to run it
    make bench                     # the short form, under 10 minutes
    make bench-full                # everything, for hours (`python -m benchmarks run --full --rounds 1` takes less, and judges no times)
    make bench-full MINUTES=60     # begin nothing new after an hour; the same command goes on another time
    .venv/bin/python -m benchmarks --help    # each figure by itself
    .venv/bin/python -m benchmarks run --full --again rescale    # this anew, or for the first time; all else is kept

It begins when the machine is quiet, or after ten minutes.

Each part is stored as soon as it is measured, in `full.unfinished.json`, beside the results. When the run ends early, by `MINUTES`, a
signal or an error, the same command goes on with the next part, and with the next round of a part; on another machine that part is begun
anew, so that all rounds of a part are of one machine. When all parts are there, that file takes the place of `full.json`, and
this page is written anew.

It needs, beside Java: Go, or versitygw and toxiproxy-server on the PATH; Maven, for stock Spark's S3A, for Kafka and for Flink (fetched
once, into `.venv`); Java's compiler for Flink, strace for `forks`, and six times as much disk as the large state has: what needs one of
these is left out without it, and that is noted.

## The systems
"""

_SYSTEMS = {
    System.STOCK_LOCAL: "Spark's RocksDB store with changelogs, `checkpointLocation` on the local disk: nothing survives the machine.",
    System.SAME_LOCAL: "The same with Spark's settings that the plugin sets (above).",
    System.STOCK_S3A: "Stock as it comes with an `s3a://` location and no option changed; in the full form only.",
    System.STOCK_TUNED: "The same with `AbortableStreamBasedCheckpointFileManager` of spark-hadoop-cloud: no renames.",
    System.SAME_TUNED: "The same with Spark's settings as the plugin sets them.",
    System.FLOOR: "This project with a storage that throws away what it is given: what it costs before any byte is stored.",
    System.FILE: "This project, every epoch a checkpoint, on the local disk, synced to it.",
    System.S3: "This project, every epoch a checkpoint, on S3.",
    System.S3_INTERVAL: "This project on S3 with `spark.ckpt.interval=10s`.",
    System.S3_CLUSTER: "This project on S3 with two executors of one core (`local-cluster`); in the full form only.",
    System.LOCAL_VALIDATES: "Stock with the plugin's settings, but `commitValidation` as Spark has it; in the full form only.",
    System.LOCAL_BYPASSES: "Stock with the plugin's settings, but `bypassMergeThreshold` as Spark has it; in the full form only.",
    System.S3_VALIDATES: "This project on S3, `commitValidation` as Spark has it; in the full form only.",
    System.S3_BYPASSES: "This project on S3, `bypassMergeThreshold` as Spark has it; in the full form only.",
}


def render(runs: Sequence[tuple[str, Figures, Sequence[Path]]], page: Path) -> str:
    """`runs`: name, figures and plots of each; plots are linked relative to the page."""
    same = "\n".join(f"  - `{key}={value}`" for key, value in SAME_SETTINGS.items())
    head = _HEAD.replace("{same}", same).replace("{hooks}", ", ".join(f"`{key}`" for key in sorted(HOOKS)))
    lines = [head, "| system | |", "|---|---|", *(f"| {system.value} | {text} |" for system, text in _SYSTEMS.items()), ""]
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
        f"Begun on {a['time']}, {a['processors']}, {a['memory_gib']} GiB, Linux {kernel(a['kernel'])}, {a['java']}, "
        f"PySpark {a['pyspark']}, Python {a['python']}. Load before: {a['load_before']}."
    )
    return facts + (f" It took {a['took_s'] / 60:.0f} minutes." if "took_s" in a else "")


def _markdown(table: Table) -> list[str]:
    rule = "|".join("---" if number < table.text else "---:" for number in range(len(table.columns)))
    head = [f"| {' | '.join(table.columns)} |", f"|{rule}|"]
    return [*head, *(f"| {' | '.join(_bold(cell) for cell in row)} |" for row in table.rows)]


def _bold(cell: str) -> str:
    return f"**{cell}**" if cell in (Met.NO.value, Met.NOISY.value, Met.FEW.value) else cell.replace("|", "\\|")
