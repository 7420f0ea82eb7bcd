"""Queries that are deleted by their stop (spark.ckpt.onStop=DELETE) and begun anew, into the same sinks; an ordinary PySpark job.

usage: anew.py first INPUT CHECKPOINTS OUTPUT ARCHIVE   (all of INPUT, stop, INPUT is archived, the first files of what follows, SIGKILL)
       anew.py second INPUT CHECKPOINTS OUTPUT ARCHIVE  (the rest)
       anew.py batch OUTPUT INPUT...                    (what a batch query makes of each INPUT, in OUTPUT/0, OUTPUT/1, ...)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys

from operators import QUERIES, SCHEMA, writer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

NAMES = ("unique", "stateless", "inner", "update")
KEPT = ("unique", "inner")
"""Whose checkpointLocation is still there when they begin anew, and with it the query's id."""


def one(spark: SparkSession, name: str, source: str, checkpoints: str, out: str) -> StreamingQuery:
    query = QUERIES[name]
    df = query.stream(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source))
    to = df.writeStream.outputMode(query.mode).queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
    return to.format("json").start(f"{out}/{name}") if query.sink == "files" else to.foreachBatch(writer(name, query, out)).start()


def start(spark: SparkSession, source: str, checkpoints: str, out: str) -> list[StreamingQuery]:
    started = [one(spark, name, source, checkpoints, out) for name in NAMES]
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source).dropDuplicates(["id"])
    to = events.writeStream.queryName("identified").option("checkpointLocation", f"{checkpoints}/identified")
    started.append(to.foreachBatch(identified(f"{out}/identified", f"{checkpoints}/identified/metadata")).start())
    return started


def identified(folder: str, metadata: str):  # type: ignore[no-untyped-def]
    """As Delta's sink: what the table's log holds is the query's id and its highest batch id, and every one up to that is skipped."""
    os.makedirs(folder, exist_ok=True)

    def each(df: DataFrame, batch: int) -> None:
        with open(metadata) as f:
            held = f"{folder}/held-{json.load(f)['id']}"
        seen = -1
        if os.path.exists(held):
            with open(held) as f:
                seen = int(f.read())
        if batch <= seen:
            return
        df.select("id", "key", "value").write.json(f"{folder}/{batch}-{os.path.basename(held)}")
        with open(held, "w") as f:
            f.write(str(batch))

    return each


def finish(queries: list[StreamingQuery]) -> None:
    for query in queries:
        query.processAllAvailable()


def main() -> None:
    what, *paths = sys.argv[1:]
    spark = SparkSession.builder.appName("anew").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    if what == "batch":
        out, *sources = paths
        for n, source in enumerate(sources):
            for name in NAMES:
                QUERIES[name].batch(spark.read.schema(SCHEMA).json(source)).write.json(f"{out}/{n}/{name}")
        spark.stop()
        return
    source, checkpoints, out, archive = paths
    queries = start(spark, source, checkpoints, out)
    finish(queries)
    if what == "first":
        queries.append(one(spark, "transform", source, checkpoints, out))
        finish(queries[-1:])
        for query in queries:
            query.stop()
        os.rename(source, f"{archive}/0")
        os.rename(f"{archive}/1", source)
        for name in NAMES:
            if name not in KEPT:
                shutil.rmtree(f"{checkpoints}/{name}")
        finish(start(spark, source, checkpoints, out))
        try:
            one(spark, "transform", source, checkpoints, out).awaitTermination()
        except StreamingQueryException as refused:
            # What is printed goes through the JVM, which ends now.
            with open(f"{archive}/refused", "w") as f:
                f.write(str(refused))
        os.kill(spark._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)  # type: ignore[union-attr]
    spark.stop()


if __name__ == "__main__":
    main()
