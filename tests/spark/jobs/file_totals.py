"""Totals by key over a folder of JSON files, which a `foreachBatch` keeps as OUTPUT/batch-<epoch>.json.

usage: file_totals.py INPUT CHECKPOINT OUTPUT [--files N] [--savepoint NAME] [--die-in EPOCH] [--compact-interval N]

`--files`: so many an epoch. `--savepoint`: of this name, once all input is through. `--die-in`: the process group dies in the middle of
that epoch, as when a machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

from collected import collected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_ckpt

SCHEMA = "id long, key string, ts timestamp, value long"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("checkpoint")
    parser.add_argument("output", type=Path)
    parser.add_argument("--files", default="1")
    parser.add_argument("--savepoint")
    parser.add_argument("--die-in", type=int, default=-1)
    parser.add_argument("--compact-interval", default="10")
    given = parser.parse_args()

    def write(df: DataFrame, epoch: int) -> None:
        if epoch == given.die_in:
            os.killpg(0, signal.SIGKILL)
        given.output.mkdir(parents=True, exist_ok=True)
        aside = given.output / f".{epoch}"
        aside.write_text("".join(json.dumps(row.asDict()) + "\n" for row in collected(df)))
        aside.rename(given.output / f"batch-{epoch}.json")

    spark = SparkSession.builder.config("spark.sql.streaming.fileSource.log.compactInterval", given.compact_interval).getOrCreate()
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", given.files).json(given.input)
    totals = events.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    to = totals.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", given.checkpoint)
    query = to.start()
    query.processAllAvailable()
    if given.savepoint:
        spark_ckpt.savepoint(query, name=given.savepoint, timeout="60s")
    query.stop()


if __name__ == "__main__":
    main()
