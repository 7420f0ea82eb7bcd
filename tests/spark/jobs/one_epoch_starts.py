"""A running total for each key, started anew for each epoch, as a scheduled job is: nothing comes after a start's only commit.

usage: one_epoch_starts.py TIMES KEYS INPUT CHECKPOINTS
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def forget(df: DataFrame, batch: int) -> None:
    df.count()


def main() -> None:
    times, keys, source, location = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    spark = SparkSession.builder.appName("one epoch a start").getOrCreate()
    os.makedirs(source)
    for n in range(times):
        with open(f"{source}/.{n}.json", "w") as out:
            out.writelines(json.dumps({"key": f"k{key}", "value": n}) + "\n" for key in range(keys))
        os.rename(f"{source}/.{n}.json", f"{source}/{n}.json")
        totals = spark.readStream.schema("key string, value long").json(source).groupBy("key").agg(F.sum("value"))
        to = totals.writeStream.outputMode("update").option("checkpointLocation", location).trigger(availableNow=True)
        to.foreachBatch(forget).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
