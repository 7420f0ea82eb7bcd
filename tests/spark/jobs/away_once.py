"""usage: away_once.py INPUT CHECKPOINT BEEN: counts rows of a source that cannot be made the first time (`AwayOnce.scala`)."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main() -> None:
    source, checkpoint, been = sys.argv[1:]
    spark = SparkSession.builder.appName("away-once").getOrCreate()
    rows = spark.readStream.format("away.Once").schema("id long, key string, value long").option("been", been).load(source)
    totals = rows.groupBy("key").count().writeStream.format("console").outputMode("update").option("checkpointLocation", checkpoint)
    totals.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
