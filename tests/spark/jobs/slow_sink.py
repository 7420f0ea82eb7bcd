"""A deduplication of numbered rows whose sink takes its time, under a trigger without pauses; an ordinary PySpark job.

usage: slow_sink.py CHECKPOINT OUTPUT SECONDS   (that the sink takes for each epoch)

Each epoch's numbers are OUTPUT/<epoch>.json, written before the sink takes its time.
"""

from __future__ import annotations

import json
import os
import sys
import time

from collected import collected
from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    checkpoint, out, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    spark = SparkSession.builder.appName("slow sink").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    def written(df: DataFrame, batch: int) -> None:
        numbers = sorted(row["value"] for row in collected(df.select("value")))
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/.{batch}", "w") as f:
            json.dump(numbers, f)
        os.replace(f"{out}/.{batch}", f"{out}/{batch}.json")
        time.sleep(seconds)

    df = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    df.dropDuplicates(["value"]).writeStream.foreachBatch(written).option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
