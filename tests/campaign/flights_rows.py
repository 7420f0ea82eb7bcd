"""What a batch query gives for the year of flights, a line of JSON for each row. usage: flights_rows.py INPUT OUTPUT"""

from __future__ import annotations

import json
import sys

from flights_check import BATCH_QUERY
from pyspark.sql import SparkSession


def main() -> None:
    source, out = sys.argv[1:]
    spark = SparkSession.builder.appName("flights in a batch").getOrCreate()
    spark.read.parquet(source).createOrReplaceTempView("flights")
    rows = spark.sql(f"SELECT *, cast(start AS string) AS at FROM ({BATCH_QUERY})").collect()
    with open(out, "w") as f:
        f.writelines(json.dumps({**row.asDict(), "start": row["at"], "at": None}, default=str) + "\n" for row in rows)
    spark.stop()


if __name__ == "__main__":
    main()
