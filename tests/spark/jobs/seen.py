"""Runs one aggregation and prints, as JSON lines, what a person would see of its checkpoints: the query's progress, the Checkpoints tab.

usage: seen.py INPUT CHECKPOINT
"""

from __future__ import annotations

import json
import sys
import urllib.request

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    source, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.appName("seen").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    df = spark.readStream.schema("id long, key string, ts timestamp, value long").option("maxFilesPerTrigger", 1).json(source)
    counts = df.groupBy("key").agg(F.count("*").alias("n"))
    to = counts.writeStream.outputMode("complete").format("noop").option("checkpointLocation", checkpoint)
    query = to.trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        metrics = [op["customMetrics"] for op in json.loads(progress.json)["stateOperators"]]
        print("PROGRESS " + json.dumps({"epoch": progress["batchId"], "metrics": metrics}), flush=True)
    base = spark.sparkContext.uiWebUrl or ""
    for what, path in (("PAGE", "/checkpoints/"), ("JSON", "/checkpoints/json/")):
        with urllib.request.urlopen(base + path, timeout=30) as answer:
            print(f"{what} " + answer.read().decode().replace("\n", " "), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
