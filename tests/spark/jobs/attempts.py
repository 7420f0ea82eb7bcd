"""Queries whose foreachBatch keeps every execution of every batch, and feeds two sinks: one that takes all, one that skips seen batch ids.

usage: attempts.py NAMES INPUT CHECKPOINTS OUTPUT FILES

FILES is how many files make a batch: epochs that are planned anew with another number of them hold other data.

OUTPUT/<name>/tried/<batch>-<attempt>.json   the rows of one execution
OUTPUT/<name>/plain/part-<attempt>.json      the same, as a sink has them that takes what it gets
OUTPUT/<name>/skips/part-<batch>.json        as a sink has them that takes each batch id once
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from collected import collected
from operators import QUERIES, SCHEMA
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def writer(out: Path) -> Callable[[DataFrame, int], None]:
    def each(df: DataFrame, batch: int) -> None:
        attempt = uuid.uuid4()
        rows = "".join(sorted(f"{row}\n" for (row,) in collected(df.select(F.to_json(F.struct("*"))))))
        place(out / "tried" / f"{batch:06d}-{attempt}.json", rows)
        place(out / "plain" / f"part-{attempt}.json", rows)
        once = out / "skips" / f"part-{batch:06d}.json"
        if not once.exists():
            place(once, rows)

    return each


def place(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}")
    temp.write_text(text)
    temp.rename(path)


def main() -> None:
    names, source, checkpoints, out, files = sys.argv[1:]
    spark = SparkSession.builder.appName("attempts").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    started = []
    for name in names.split(","):
        query = QUERIES[name]
        df = query.stream(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).json(source))
        to = df.writeStream.outputMode(query.mode).queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
        started.append(to.trigger(availableNow=True).foreachBatch(writer(Path(out) / name)).start())
    for q in started:
        q.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
