"""Deduplications of numbered rows that go on until they are told to stop, and what a listener hears of their checkpoints, as lines of JSON.

usage: steady.py NAMES CHECKPOINTS OUTPUT FOLDER ROWS BYTES   (queries; rows an epoch; bytes that the state keeps of each row)

A file FOLDER/again stops the queries and starts them again in the same session, FOLDER/stop stops them, FOLDER/end ends the application.
Each epoch's numbers are OUTPUT/<query>/<epoch>.json. With STEADY_CONFIGURES in its environment the job calls `configure` itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from collected import collected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from saying import say

from spark_ckpt import CheckpointListener, configure

DIGEST = 128
"""Characters of one SHA-512, which no compression makes much shorter."""


class Telling(CheckpointListener):
    def on_triggered(self, event: object) -> None:
        tell("triggered", event)

    def on_completed(self, event: object) -> None:
        tell("completed", event)

    def on_aborted(self, event: object) -> None:
        tell("aborted", event)


def tell(kind: str, event: object) -> None:
    fields = {name: value for name, value in vars(event).items() if name != "operators"}
    say("HEARD " + json.dumps({"kind": kind, "at": time.time(), **fields}))


def written(out: str) -> Callable[[DataFrame, int], None]:
    def each(df: DataFrame, batch: int) -> None:
        numbers = sorted(row["value"] for row in collected(df.select("value")))
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/.{batch}", "w") as f:
            json.dump(numbers, f)
        os.replace(f"{out}/.{batch}", f"{out}/{batch}.json")

    return each


def started(spark: SparkSession, name: str, checkpoints: str, out: str, rows: int, size: int) -> StreamingQuery:
    df = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    digests = [F.sha2(F.concat_ws("-", "value", F.lit(n)), 512) for n in range(max(1, size // DIGEST))]
    unique = df.withColumn("payload", F.concat(*digests)).dropDuplicates(["value", "payload"])
    to = unique.writeStream.queryName(name).foreachBatch(written(f"{out}/{name}")).option("checkpointLocation", f"{checkpoints}/{name}")
    return to.trigger(processingTime="200 milliseconds").start()


def told(folder: str, words: tuple[str, ...], queries: list[StreamingQuery]) -> str:
    """The first of the words that there is a file of; it is removed."""
    while True:
        for query in queries:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
        for word in words:
            if os.path.exists(f"{folder}/{word}"):
                os.remove(f"{folder}/{word}")
                return word
        time.sleep(0.05)


def main() -> None:
    names, checkpoints, out, folder, rows, size = sys.argv[1:]
    builder = SparkSession.builder.appName("steady")
    spark = (configure(builder) if "STEADY_CONFIGURES" in os.environ else builder).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    Telling().attach(spark)
    say(f"UI {spark.sparkContext.uiWebUrl}")
    word = "again"
    while word == "again":
        queries = [started(spark, name, checkpoints, out, int(rows), int(size)) for name in names.split(",")]
        word = told(folder, ("again", "stop"), queries)
        for query in queries:
            query.stop()
    say("STOPPED")
    told(folder, ("end",), [])
    spark.stop()


if __name__ == "__main__":
    main()
