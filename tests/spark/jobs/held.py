"""A deduplication of events whose sink waits while it is told to; an ordinary PySpark job.

usage: held.py INPUT CHECKPOINT OUTPUT FOLDER

Each epoch's ids are OUTPUT/<epoch>.json. While FOLDER/hold exists, the sink does not return.
"""

from __future__ import annotations

import json
import os
import sys
import time

from collected import collected
from pyspark.sql import DataFrame, SparkSession
from saying import say


def main() -> None:
    source, checkpoint, out, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("held").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    def written(df: DataFrame, batch: int) -> None:
        ids = sorted(row["id"] for row in collected(df.select("id")))
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/.{batch}-{os.getpid()}", "w") as f:
            json.dump(ids, f)
        os.replace(f"{out}/.{batch}-{os.getpid()}", f"{out}/{batch}.json")
        say(f"WRITTEN {batch}")
        while os.path.exists(f"{folder}/hold"):
            time.sleep(0.05)

    df = spark.readStream.schema("id long, key string").option("maxFilesPerTrigger", 1).json(source)
    to = df.dropDuplicates(["id"]).writeStream.foreachBatch(written).option("checkpointLocation", checkpoint)
    to.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
