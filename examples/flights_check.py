"""The same question as flights_job.py, asked once of all the data, and compared row by row with what the stream has left in its sink.

Prints one line of JSON: `expected` and `found` rows, those `missing` from the sink and in `excess` there (as multisets), some of each.
"""

from __future__ import annotations

import argparse
import json
import sys

from pyspark.sql import SparkSession

BATCH_QUERY = """
WITH once AS (SELECT DISTINCT * FROM flights),
windows AS (
    SELECT window.start AS start, window.end AS end, carrier, origin, count(*) AS flights, count(dep_delay) AS departed,
           sum(dep_delay) AS dep_delay, max(arr_delay) AS worst_arr_delay
    FROM once GROUP BY window(time, '6 hours'), carrier, origin)
-- a stream in append mode gives a window once the watermark has passed its end
SELECT start, carrier, origin, flights, departed, dep_delay, worst_arr_delay
FROM windows WHERE end <= (SELECT max(time) - INTERVAL 1 DAY FROM flights)
"""
EXAMPLES = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("flights-check").getOrCreate()
    spark.read.parquet(options.input).createOrReplaceTempView("flights")
    expected = spark.sql(BATCH_QUERY).cache()
    found = spark.read.schema(expected.schema).parquet(f"{options.output}/batch_id=*").cache()
    missing = expected.exceptAll(found).cache()
    excess = found.exceptAll(expected).cache()
    answer = {
        "expected": expected.count(),
        "found": found.count(),
        "missing": missing.count(),
        "excess": excess.count(),
        "examples_missing": [str(row) for row in missing.sort("start", "carrier", "origin").take(EXAMPLES)],
        "examples_excess": [str(row) for row in excess.sort("start", "carrier", "origin").take(EXAMPLES)],
    }
    spark.stop()
    print(json.dumps(answer))
    return 0 if answer["expected"] and not answer["missing"] and not answer["excess"] else 1


if __name__ == "__main__":
    sys.exit(main())
