"""Spark's own reader of state (`format("statestore")`) over stock checkpoints: what it finds, as Arrow files.

usage: state_reader.py READS OUTPUT   (READS: a JSON list of {"name", "path", "options"}; each becomes OUTPUT/<name>.arrow,
       where the fields of keys and values have their numbers for names)
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


def told_apart(df: DataFrame) -> DataFrame:
    """The fields of keys and values under their numbers: an aggregation has several of one name, which Arrow's structs have not."""
    columns = []
    for column in df.schema:
        kind = column.dataType
        if isinstance(kind, StructType):
            numbered = StructType()
            for number, field in enumerate(kind):
                numbered.add(str(number), field.dataType, field.nullable)
            columns.append(F.col(column.name).cast(numbered).alias(column.name))
        else:
            columns.append(F.col(column.name))
    return df.select(*columns)


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
            found = told_apart(spark.read.format("statestore").options(**read["options"]).load(read["path"])).toArrow()
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
