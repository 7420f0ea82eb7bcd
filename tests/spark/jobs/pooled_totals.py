"""usage: pooled_totals.py INPUT CHECKPOINT OUTPUT QUERIES FAILURES: totals by key, in as many queries at once.

Each writes through the one thread of `PooledBatches.scala`, below CHECKPOINT/<number> and OUTPUT/<number>. FAILURES: so many of their
batches fail, and the query whose batch it was begins anew, in the same application.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

PAUSE_MS = 700


def main() -> None:
    source, checkpoint, output, queries, failures = sys.argv[1:]
    spark = SparkSession.builder.appName("pooled-totals").getOrCreate()
    jvm: Any = spark._jvm
    batches = jvm.pooled.Batches
    batches.failing(int(failures))

    def begin(number: int) -> Any:
        events = spark.readStream.schema("id long, key string, value long").option("maxFilesPerTrigger", 1).json(source)
        totals = events.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        to = totals.writeStream.outputMode("update").option("checkpointLocation", f"{checkpoint}/{number}").trigger(availableNow=True)
        return batches.keeping(to._jwrite, f"{output}/{number}", PAUSE_MS if int(failures) else 0).start()

    running = [(number, begin(number)) for number in range(int(queries))]
    while running:
        number, query = running.pop(0)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "the sink is away" not in str(error):
                raise
            running.append((number, begin(number)))


if __name__ == "__main__":
    main()
