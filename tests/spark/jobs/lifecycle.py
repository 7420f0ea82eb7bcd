"""Queries and sessions in one plain Python process: starts, stops, sessions, triggers, sources.

usage: python lifecycle.py INPUT OUTPUT STORAGE   (writes OUTPUT/facts.json; the working folder holds the checkpointLocations)
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from collected import collected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import spark_ckpt

SCHEMA = "id long, key string, value long"
ODD = "places/a b & 'ü' #1 100%25 ?x=[1]{2}"
FACTS: dict[str, Any] = {}


def session(**options: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("lifecycle").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "1g")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    builder = builder.config("spark.local.dir", os.path.abspath("scratch"))
    spark = spark_ckpt.configure(builder, **options).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def write(path: str, rows: list[Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.writelines(json.dumps(row.asDict()) + "\n" for row in rows)


def writing(out: str) -> Callable[[DataFrame, int], None]:
    return lambda df, batch: write(f"{out}/batch={batch}.json", collected(df))


def unique(spark: SparkSession, folder: str, per_trigger: int = 1) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", per_trigger).json(folder).dropDuplicates(["id"])


def feed(source: str, folder: str, first: int, files: int) -> None:
    os.makedirs(folder, exist_ok=True)
    for n in range(first, first + files):
        shutil.copy2(f"{source}/{n:05d}.json", f"{folder}/.{n}")
        os.rename(f"{folder}/.{n}", f"{folder}/{n:05d}.json")


def until_progress(queries: list[StreamingQuery], epoch: int) -> None:
    """Each has reported that epoch or a later one, in this run."""
    deadline = time.monotonic() + 60
    while not all(q.lastProgress is not None and q.lastProgress.batchId >= epoch for q in queries):
        for query in queries:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
        if time.monotonic() > deadline:
            raise TimeoutError(f"epoch {epoch} did not come")
        time.sleep(0.02)


def children() -> Iterator[str]:
    """Command lines of our processes below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    for pid in parents:
        up = pid
        while up in parents and up != os.getpid():
            up = parents[up]
        if up == os.getpid():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "-m spark_ckpt." in line:
                yield line.split("-m ", 1)[1].split()[0]


def threads(spark: SparkSession) -> list[str]:
    """Names of our threads in the JVM, but for the one that writes full snapshots when chains are long: it goes when it is idle."""
    every = spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()  # type: ignore[union-attr]
    names = (t.getName() for t in every if t.getName() != "checkpoint-snapshots")
    return sorted(name for name in names if name.startswith(("spark_ckpt", "checkpoint-")))


def spools(folder: str = "scratch") -> list[str]:
    """Folders of runs in executors' spools, and spools themselves."""
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("run-*") if "spark-ckpt" in str(p) and p.is_dir())


def restarted_again_and_again(spark: SparkSession, source: str, out: str) -> None:
    """processingTime: stopped in mid-run and started in the same session, under an odd relative location with a trailing slash."""
    other = spark.newSession()
    for turn in range(5):
        feed(source, "in/odd", 2 * turn, 2)
        feed(source, "in/new session", 2 * turn, 2)
        started = []
        for which, name, location in ((spark, "odd", ODD + "/"), (other, "new session", f"{ODD}/nested")):
            to = unique(which, f"in/{name}").writeStream.foreachBatch(writing(f"{out}/{name}")).option("checkpointLocation", location)
            started.append(to.trigger(processingTime="50 milliseconds").start())
        # The first turns end in the midst of it, the last one when all is done.
        if turn < 4:
            until_progress(started, 0)
        else:
            for q in started:
                q.processAllAvailable()
        for q in started:
            q.stop()
    FACTS["threads"], FACTS["children"], FACTS["spools"] = threads(spark), sorted(children()), spools()


def rates(spark: SparkSession, out: str) -> None:
    for turn in range(2):
        rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        micro = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 7).load()
        started = []
        for name, df in (("rate", rate), ("micro", micro)):
            to = df.select(F.col("value").alias("id")).dropDuplicates(["id"]).writeStream.foreachBatch(writing(f"{out}/{name}"))
            started.append(to.option("checkpointLocation", f"places/{name}").trigger(processingTime="100 milliseconds").start())
        until_progress(started, 3 * (turn + 1))
        for q in started:
            q.stop()


def once(spark: SparkSession, source: str, out: str) -> None:
    for turn in range(3):
        if turn < 2:
            feed(source, "in/once", 3 * turn, 3)
        to = unique(spark, "in/once", 100).writeStream.foreachBatch(writing(f"{out}/once"))
        to = to.option("checkpointLocation", os.path.abspath("places/once"))
        to.trigger(once=True).start().awaitTermination()


def source_log(spark: SparkSession, source: str, out: str) -> None:
    """Three fresh machines in a row; source log and sink log are compacted at the tenth and twentieth epoch."""
    for first, files in ((0, 12), (12, 10), (22, 2)):
        feed(source, "in/many", first, files)
        events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json("in/many")
        to = events.writeStream.format("json").option("path", f"{out}/many").option("checkpointLocation", "places/many")
        to.trigger(availableNow=True).start().awaitTermination()
        FACTS.setdefault("source log", []).append(sorted(os.listdir("places/many/sources/0")))
        shutil.rmtree("places/many")


def begun_within_a_batch(spark: SparkSession, source: str, out: str) -> None:
    """A query that another one's foreachBatch begins, in the session that Spark gives it."""
    feed(source, "in/outer", 0, 2)
    feed(source, "in/inner", 0, 4)

    def begin(df: DataFrame, batch: int) -> None:
        write(f"{out}/outer/batch={batch}.json", collected(df))
        to = unique(df.sparkSession, "in/inner", 100).writeStream.foreachBatch(writing(f"{out}/inner"))
        to.option("checkpointLocation", "places/inner").trigger(availableNow=True).start().awaitTermination()

    to = unique(spark, "in/outer", 100).writeStream.foreachBatch(begin).option("checkpointLocation", "places/outer")
    to.trigger(availableNow=True).start().awaitTermination()


def unheard(spark: SparkSession, source: str) -> None:
    """Somebody has removed the listener that tells the plugin of queries: none may run unprotected."""
    feed(source, "in/unheard", 0, 1)
    manager = spark._jsparkSession.streams()
    for listener in manager.listListeners():
        if listener.getClass().getName().endswith("QueryRunListener"):
            manager.removeListener(listener)
    query = unique(spark, "in/unheard").writeStream.format("noop").option("checkpointLocation", "places/unheard").start()
    try:
        query.processAllAvailable()
    except Exception as e:
        FACTS["unheard"] = str(e)
    query.stop()


def main() -> None:
    source, out, storage = sys.argv[1:]
    spark = session()
    restarted_again_and_again(spark, source, out)
    rates(spark, out)
    once(spark, source, out)
    spark.stop()
    gc.collect()
    FACTS["children between"], FACTS["spools between"] = sorted(children()), spools()
    FACTS["scratch between"] = sorted(str(p) for p in Path("scratch").rglob("spark-ckpt*"))

    spark = session(storage=storage, retained="2")
    source_log(spark, source, out)
    begun_within_a_batch(spark, source, out)
    FACTS["threads again"], FACTS["children again"] = threads(spark), sorted(children())
    unheard(spark, source)
    spark.stop()
    FACTS["children after"] = sorted(children())
    with open(f"{out}/facts.json", "w") as f:
        json.dump(FACTS, f, indent=1)


if __name__ == "__main__":
    main()
