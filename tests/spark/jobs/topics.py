"""Queries over Kafka topics, all in one session; an ordinary PySpark job that knows nothing of checkpoints.

usage: topics.py SPEC

SPEC is a JSON document: `queries` (name -> options of each of its Kafka sources), `locations` and `out` (folders), `trigger`
("available" or a processing time). With a processing time the application goes on until the file `<out>/stop` is there. What ends a query
is said.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

from collected import collected
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from saying import say


class Queries:
    """Each method is a query over the rows of a Kafka source."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark, self._out = spark, out

    def records(self, rows: DataFrame) -> DataFrame:
        """Every record once, by its place in the log: state that lost or doubled anything shows."""
        return self._plain(rows).dropDuplicates(["topic", "partition", "offset"])

    def totals(self, rows: DataFrame) -> DataFrame:
        """How many records each key has, and the sum of their numbers, whenever it changes."""
        plain = self._plain(rows)
        return plain.groupBy("key").agg(F.count("*").alias("n"), F.sum(F.col("value").cast("long")).alias("total"))

    def start(self, name: str, sources: Sequence[Mapping[str, str]], location: str, trigger: str) -> StreamingQuery:
        rows = reduce(DataFrame.union, [self._spark.readStream.format("kafka").options(**source).load() for source in sources])
        to = getattr(self, name.split("-")[0])(rows).writeStream.outputMode("update").queryName(name)
        when = to.trigger(availableNow=True) if trigger == "available" else to.trigger(processingTime=trigger)
        kept = when.option("checkpointLocation", location)
        query: StreamingQuery = kept.foreachBatch(lambda df, batch: self._write(name, df, batch)).start()
        return query

    def _plain(self, rows: DataFrame) -> DataFrame:
        text = [F.col(name).cast("string").alias(name) for name in ("key", "value")]
        return rows.select("topic", "partition", "offset", *text)

    def _write(self, name: str, df: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in collected(df)]
        os.makedirs(f"{self._out}/{name}", exist_ok=True)
        path = f"{self._out}/{name}/{batch}.json"
        with open(path + ".tmp", "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        os.replace(path + ".tmp", path)


def main() -> None:
    spec = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("topics").getOrCreate()
    spark.sparkContext.setLogLevel("INFO" if spec.get("verbose") else "WARN")
    queries = Queries(spark, spec["out"])
    started = [queries.start(name, sources, f"{spec['locations']}/{name}", spec["trigger"]) for name, sources in spec["queries"].items()]
    say(f"UI {spark.sparkContext.uiWebUrl or ''}")
    stop = Path(spec["out"]) / "stop"
    while any(query.isActive for query in started) and not stop.exists():
        time.sleep(0.1)
    failed = False
    for query in started:
        try:
            if stop.exists():
                query.stop()
            query.awaitTermination()
        except StreamingQueryException as e:
            failed = True
            say("FAILED " + json.dumps({"query": query.name, "message": str(e)}))
    spark.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
