"""A deduplication of numbered rows, of which a task fails once whenever FOLDER/throw is there; ends with FOLDER/end. While FOLDER/heavy is
there, the state keeps some 128 KiB of each row.

usage: goingback.py CHECKPOINTS OUTPUT FOLDER

Each epoch's numbers are OUTPUT/<epoch>.json. FOLDER/hook gets a line of JSON for each snapshot and restore of a hook, whose state is
the epoch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from steady import written

import spark_ckpt


class Remembers(spark_ckpt.CheckpointHook):
    def __init__(self, told: str) -> None:
        self._told = told

    def snapshot(self, epoch: int) -> bytes:
        self._tell("snapshot", epoch)
        return str(epoch).encode()

    def restore(self, state: bytes | None) -> None:
        self._tell("restore", None if state is None else int(state))

    def _tell(self, call: str, epoch: int | None) -> None:
        with open(self._told, "a") as f:
            f.write(json.dumps([call, epoch]) + "\n")


def main() -> None:
    checkpoints, out, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("going back").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    spark_ckpt.register_hook("remembers", Remembers(f"{folder}/hook"))

    @F.udf("boolean")
    def passes(_: int) -> bool:
        try:
            os.remove(f"{folder}/throw")
        except FileNotFoundError:
            return True
        raise RuntimeError("this task fails once")

    @F.udf("string")
    def weight(value: int) -> str:
        heavy = os.path.exists(f"{folder}/heavy")
        return "".join(hashlib.sha512(f"{value} {n}".encode()).hexdigest() for n in range(1024)) if heavy else ""

    df = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load().withColumn("weight", weight("value"))
    unique = df.dropDuplicates(["value", "weight"]).where(passes("value"))
    query = unique.writeStream.foreachBatch(written(out)).option("checkpointLocation", checkpoints).start()
    while not os.path.exists(f"{folder}/end"):
        if query.awaitTermination(1):
            raise AssertionError("the query has ended")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
