"""Spark's own reader of state (`format("statestore")`) over stock checkpoints: what it finds, as Arrow files.

usage: state_reader.py READS OUTPUT   (READS: a JSON list of {"name", "path", "options"}; each becomes OUTPUT/<name>.arrow)
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa
from pyspark.sql import SparkSession


def main() -> None:
    reads, out = sys.argv[1:]
    spark = SparkSession.builder.appName("state_reader").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    with open(reads) as file:
        wanted = json.load(file)
    failed = []
    for read in wanted:
        began = time.monotonic()
        try:
            found = spark.read.format("statestore").options(**read["options"]).load(read["path"]).toArrow()
        except Exception as e:  # whatever Spark says, the others are read too
            failed.append(f"{read['name']}: {e}")
            continue
        with pa.OSFile(f"{out}/{read['name']}.arrow", "wb") as sink, pa.ipc.new_file(sink, found.schema) as writer:
            writer.write_table(found)
        print(f"read: {read['name']} {found.num_rows} rows in {time.monotonic() - began:.3f} s", flush=True)
    spark.stop()
    if failed:
        sys.exit("not read: " + "\n".join(failed))


if __name__ == "__main__":
    main()
