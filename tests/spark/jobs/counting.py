"""Counts what is there, in whatever session the configuration gives: nothing in here knows of checkpoints.

usage: counting.py INPUT CHECKPOINT OUTPUT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    source, location, out = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    counts = spark.readStream.schema("key LONG").json(source).groupBy("key").count()
    query = counts.writeStream.outputMode("complete").format("memory").queryName("counts").option("checkpointLocation", location)
    query.trigger(availableNow=True).start().awaitTermination()
    spark.table("counts").coalesce(1).write.json(out)
    spark.stop()
