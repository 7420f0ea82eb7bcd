"""A windowed count under a processingTime trigger that only waits for the query's end; an ordinary PySpark job.

usage: endless.py INPUT CHECKPOINT OUTPUT [available | processed]

available: it ends with the data. processed: it says so when all that is there has been processed.
"""

from __future__ import annotations

import sys

from operators import QUERIES, SCHEMA, writer
from pyspark.sql import SparkSession


def main() -> None:
    source, checkpoint, out, *how = sys.argv[1:]
    spark = SparkSession.builder.appName("endless").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    query = QUERIES["windows"]
    df = query.stream(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source))
    to = df.writeStream.outputMode(query.mode).option("checkpointLocation", checkpoint).foreachBatch(writer("windows", query, out))
    to = to.trigger(availableNow=True) if how == ["available"] else to.trigger(processingTime="100 milliseconds")
    started = to.start()
    if how == ["processed"]:
        started.processAllAvailable()
        print("all is processed", flush=True)
    started.awaitTermination()


if __name__ == "__main__":
    main()
