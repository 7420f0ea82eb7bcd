"""A query of two stateful operators that goes on until it is told to end; tells what a `CheckpointListener` hears.

usage: watched.py INPUT CHECKPOINT FOLDER       FOLDER/savepoint asks for a savepoint, FOLDER/end for the end
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from saying import say
from seen import Telling

import spark_ckpt


def main() -> None:
    source, checkpoint, folder = sys.argv[1:]
    asked, end = Path(folder) / "savepoint", Path(folder) / "end"
    spark = SparkSession.builder.appName("watched").getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    listener = Telling()
    listener.attach(spark)
    df = spark.readStream.schema("id long, key string, ts timestamp, value long").option("maxFilesPerTrigger", 1).json(source)
    distinct = df.withWatermark("ts", "10 minutes").dropDuplicates(["id", "ts"])
    counts = distinct.groupBy(F.window("ts", "10 minutes"), "key").agg(F.count("*").alias("n"))
    to = counts.writeStream.outputMode("append").format("noop").option("checkpointLocation", checkpoint).queryName("orders")
    query = to.trigger(processingTime="500 milliseconds").start()
    say(f"UI {spark.sparkContext.uiWebUrl} {spark.sparkContext.applicationId}")
    while not end.exists():
        if asked.exists():
            asked.unlink()
            say(f"SAVEPOINT {spark_ckpt.savepoint(query, name='noon', timeout='60s')}")
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
