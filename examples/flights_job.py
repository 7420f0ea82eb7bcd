"""An ordinary Structured Streaming job: punctuality per airline, airport and quarter of a day; the feed delivers some flights twice.

Nothing in it knows about spark-ckpt; `spark-submit` turns that on by configuration (examples/demo.py shows how). Two stateful operators are
chained: a deduplication and a windowed aggregation. The sink is idempotent by batch id: an epoch that runs twice overwrites its own folder.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="folder of Parquet files, in event-time order by modification time")
    parser.add_argument("--output", required=True, help="folder of the result, a subfolder for each batch")
    parser.add_argument("--checkpoint", required=True, help="checkpointLocation")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("flights").getOrCreate()

    def store(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{options.output}/batch_id={batch_id}")

    flights = (
        spark.readStream.schema("time TIMESTAMP, carrier STRING, flight INT, origin STRING, dep_delay INT, arr_delay INT")
        .option("maxFilesPerTrigger", 1)
        .parquet(options.input)
    )
    once = flights.withWatermark("time", "1 day").dropDuplicatesWithinWatermark(["carrier", "flight", "origin", "time"])
    punctuality = once.groupBy(F.window("time", "6 hours"), "carrier", "origin").agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("dep_delay"),
        F.max("arr_delay").alias("worst_arr_delay"),
    )
    columns = ["carrier", "origin", "flights", "departed", "dep_delay", "worst_arr_delay"]
    result = punctuality.select(F.col("window.start").alias("start"), *columns)

    query = (
        result.writeStream.queryName("punctuality")
        .outputMode("append")
        .foreachBatch(store)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
