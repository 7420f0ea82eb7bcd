"""Counts of lines from two servers: over the source that connects again, and over Spark's own. Each batch is kept under its number.

usage: sockets.py PORT PORT_OF_SPARKS_OWN PORT_OF_NOBODY CHECKPOINTS OUTPUT   (ends once a file OUTPUT/end exists)

A third query tries a port where nobody listens, and gives up after three more tries. What ends it, or the query over Spark's own source,
is written to OUTPUT/nobody-failed.txt or OUTPUT/own-failed.txt, and the first query goes on.

While a file OUTPUT/hold exists, a batch of the first query with rows says which they are, in OUTPUT/held.json, and does not end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from collected import collected
from pyspark.sql import DataFrame, SparkSession

import spark_ckpt


def written(path: Path, text: str) -> None:
    temp = path.with_suffix(".tmp")
    temp.write_text(text)
    temp.rename(path)


def keeping(out: Path, name: str) -> Callable[[DataFrame, int], None]:
    def each(df: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in collected(df)]
        if rows and name == "retrying" and (out / "hold").exists():
            written(out / "held.json", json.dumps(rows))
            time.sleep(600)
        (out / name).mkdir(exist_ok=True)
        written(out / name / f"{batch:05d}.json", json.dumps(rows))

    return each


def main() -> None:
    port, own_port, nobodys_port, checkpoints, to = sys.argv[1:]
    out = Path(to)
    out.mkdir(exist_ok=True)
    spark = SparkSession.builder.appName("sockets").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(spark_ckpt.RetryingSocket)
    lines = spark.readStream.format("retrying-socket").option("delayBetweenRetries", "100ms").option("includeTimestamp", "true")
    sources = {
        "retrying": lines.option("port", port),
        "own": spark.readStream.format("socket").option("port", own_port),
        "nobody": spark.readStream.format("retrying-socket").option("port", nobodys_port).option("maxNumRetries", 3),
    }
    queries = {}
    for name, source in sources.items():
        counts = source.option("host", "127.0.0.1").load().groupBy("value").count()
        writer = counts.writeStream.outputMode("update").queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
        queries[name] = writer.foreachBatch(keeping(out, name)).trigger(processingTime="200 milliseconds").start()
    while not (out / "end").exists():
        if (failure := queries["retrying"].exception()) is not None:
            raise failure
        for name in ("own", "nobody"):
            if (failure := queries[name].exception()) is not None:
                written(out / f"{name}-failed.txt", str(failure))
        time.sleep(0.1)
    for query in queries.values():
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
