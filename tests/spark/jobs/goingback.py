"""A deduplication of numbered rows, of which a task fails once whenever FOLDER/throw is there; ends with FOLDER/end.

usage: goingback.py CHECKPOINTS OUTPUT FOLDER

Each epoch's numbers are OUTPUT/<epoch>.json.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from steady import written


def main() -> None:
    checkpoints, out, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("going back").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    @F.udf("boolean")
    def passes(_: int) -> bool:
        try:
            os.remove(f"{folder}/throw")
        except FileNotFoundError:
            return True
        raise RuntimeError("this task fails once")

    df = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    unique = df.dropDuplicates(["value"]).where(passes("value"))
    query = unique.writeStream.foreachBatch(written(out)).option("checkpointLocation", checkpoints).start()
    while not os.path.exists(f"{folder}/end"):
        if query.awaitTermination(1):
            raise AssertionError("the query has ended")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
