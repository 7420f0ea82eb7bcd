"""What `configure` makes of a session that spark-submit has started, as lines.

usage: configured.py STORAGE [JARS]   (JARS: what the builder has for spark.jars)
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt.errors import ConfigError

builder = SparkSession.builder
if len(sys.argv) > 2:
    builder = builder.config("spark.jars", sys.argv[2])
try:
    spark = spark_ckpt.configure(builder, storage=sys.argv[1]).getOrCreate()
except ConfigError as e:
    sys.exit(f"refused: {e}")
conf = spark.sparkContext.getConf()
for key in ("spark.plugins", "spark.jars", "spark.ckpt.storage"):
    print(f"{key}={conf.get(key)}")
spark.stop()
