"""One query for each kind of sink, all in one session; an ordinary PySpark job that knows nothing of checkpoints.

usage: sinks.py NAMES INPUT CHECKPOINTS OUTPUT   (AvailableNow, one file an epoch)

INPUT has a folder `few` and a folder `many` of JSON files whose ids overlap from file to file: every query drops duplicates, so each
id must come out once, whatever file it came in.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from collected import collected
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA = "id long, key string, value long"


class Sinks:
    """Each method starts nothing: it says where a query's rows go."""

    def __init__(self, spark: SparkSession, source: str, out: str) -> None:
        self.spark, self.source, self.out = spark, source, out

    def unique(self, folder: str = "few") -> DataFrame:
        events = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{self.source}/{folder}")
        return events.dropDuplicates(["id"])

    def collects(self) -> DataStreamWriter:
        return self.unique().writeStream.foreachBatch(self._writing("collects"))

    def actions(self) -> DataStreamWriter:
        """Two actions on the same frame, nothing persisted: Spark runs the stateful plan twice in one epoch."""

        def each(df: DataFrame, batch: int) -> None:
            n = df.count()
            df.write.mode("overwrite").json(f"{self.out}/actions/batch={batch}")
            held = self.spark.read.schema(SCHEMA).json(f"{self.out}/actions/batch={batch}").count()
            if held != n:
                raise ValueError(f"epoch {batch}: counted {n}, wrote {held}")

        return self.unique().writeStream.foreachBatch(each)

    def persists(self) -> DataStreamWriter:
        def each(df: DataFrame, batch: int) -> None:
            df.persist()
            n = df.count()
            df.write.mode("overwrite").json(f"{self.out}/persists/batch={batch}")
            if df.where("value % 2 = 0").count() + df.where("value % 2 = 1").count() != n:
                raise ValueError(f"epoch {batch}: two halves are not the whole")
            df.unpersist()

        return self.unique().writeStream.foreachBatch(each)

    def remembers(self) -> DataStreamWriter:
        def each(df: DataFrame, batch: int) -> None:
            if not os.path.exists(f"{self.out}/remembers/batch={batch}.json"):
                self._write("remembers", df, batch)

        return self.unique().writeStream.foreachBatch(each)

    def appends(self) -> DataStreamWriter:
        """At least once, as Kafka's sink is: what it has been given twice it holds twice."""

        def each(df: DataFrame, batch: int) -> None:
            os.makedirs(f"{self.out}/appends", exist_ok=True)
            with open(f"{self.out}/appends/all.json", "a") as f:
                f.writelines(json.dumps({**row.asDict(), "epoch": batch}) + "\n" for row in collected(df))

        return self.unique().writeStream.foreachBatch(each)

    def fails(self) -> DataStreamWriter:
        """The user's own code fails in the sixth epoch, after half of its work, the first time it gets there."""

        def each(df: DataFrame, batch: int) -> None:
            self._write("fails", df, batch)
            marker = f"{self.out}/fails/failed"
            if batch == 5 and not os.path.exists(marker):
                open(marker, "w").close()
                raise ValueError("the user's own fault")

        return self.unique().writeStream.foreachBatch(each)

    def files(self) -> DataStreamWriter:
        return self.unique().writeStream.format("json").option("path", f"{self.out}/files")

    def table(self) -> DataStreamWriter:
        return self.unique().writeStream.format("json").option("path", f"{self.out}/table")

    def memory(self) -> DataStreamWriter:
        totals = self.unique().groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        return totals.writeStream.outputMode("complete").format("memory")

    def console(self) -> DataStreamWriter:
        return self.unique().writeStream.format("console")

    def noop(self) -> DataStreamWriter:
        return self.unique().writeStream.format("noop")

    def stateless(self) -> DataStreamWriter:
        events = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{self.source}/few")
        return events.select("id", "key", "value").writeStream.foreachBatch(self._writing("stateless"))

    def many(self) -> DataStreamWriter:
        """Past the tenth and the twentieth epoch: source log and sink log are compacted."""
        events = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{self.source}/many")
        return events.select("id", "key", "value").writeStream.format("json").option("path", f"{self.out}/many")

    def _writing(self, name: str) -> Callable[[DataFrame, int], None]:
        return lambda df, batch: self._write(name, df, batch)

    def _write(self, name: str, df: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in collected(df)]
        os.makedirs(f"{self.out}/{name}", exist_ok=True)
        path = f"{self.out}/{name}/batch={batch}.json"
        with open(path + ".tmp", "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        os.replace(path + ".tmp", path)


def main() -> None:
    names, source, checkpoints, out = sys.argv[1:]
    spark = SparkSession.builder.appName("sinks").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    sinks = Sinks(spark, source, out)

    def begin(name: str):  # type: ignore[no-untyped-def]
        to = getattr(sinks, name)().queryName(name).option("checkpointLocation", f"{checkpoints}/{name}").trigger(availableNow=True)
        return to.toTable("held") if name == "table" else to.start()

    queries = {name: begin(name) for name in names.split(",")}
    if "fails" in queries:
        try:
            queries["fails"].awaitTermination()
        except StreamingQueryException as e:
            if "the user's own fault" not in str(e):
                raise
            queries["fails"] = begin("fails")
    for query in queries.values():
        query.awaitTermination()
    if "memory" in queries:
        with open(f"{out}/memory.json", "w") as f:
            json.dump({row["key"]: [row["n"], row["total"]] for row in spark.table("memory").collect()}, f)
    spark.stop()


if __name__ == "__main__":
    main()
