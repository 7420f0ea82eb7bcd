"""Queries with state, one after the other in one session, each of which ends by itself; then waits to be told to end.

usage: many.py INPUT CHECKPOINTS QUERIES LOCATIONS FOLDER   (LOCATIONS are used in turn; FOLDER/end ends the application)
"""

from __future__ import annotations

import os
import sys
import time

from operators import SCHEMA
from pyspark.sql import SparkSession
from saying import say


def main() -> None:
    source, checkpoints, queries, locations, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("many").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for number in range(int(queries)):
        counts = spark.readStream.schema(SCHEMA).json(source).groupBy("key").count()
        to = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", f"{checkpoints}/{number % int(locations)}")
        to.trigger(availableNow=True).start().awaitTermination()
        say(f"ENDED {number}")
    while not os.path.exists(f"{folder}/end"):
        time.sleep(0.05)
    spark.stop()


if __name__ == "__main__":
    main()
