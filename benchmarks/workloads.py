"""The queries. Every epoch has the same number of rows, however long it takes.

Sources are Spark's `rate-micro-batch`, or a topic of Kafka's that holds more than is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KEYS = 100_000
_MIX = 7919
PAYLOAD_WORDS = 128
"""Long integers in a value of LARGE: 1 KiB that no codec makes smaller."""
LARGE_KEYS, HUGE_KEYS = 1_000_000, 10_000_000
FEW_KEYS = 1000
KEYS_SETTING = "spark.benchmark.keys"
TOPIC, SERVERS = "numbers", "spark.benchmark.kafka"
"""The topic that `benchmarks.topic` fills, and the setting in which an application finds its broker."""


@dataclass(frozen=True)
class Workload:
    """`query` names one of QUERIES; `trigger_s` is the pause between epochs, 0 for none; `once`: end by itself after an epoch."""

    query: str
    partitions: int = 20
    rows: int = 20_000
    trigger_s: int = 0
    once: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _rate(spark: SparkSession, rows: int) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()


def _counted(numbers: DataFrame, keys: int = KEYS) -> DataFrame:
    from pyspark.sql import functions as F

    key = (F.col("value") * _MIX % keys).alias("k")
    return numbers.groupBy(key).agg(F.count("*"), F.sum("value"))


def aggregation(spark: SparkSession, rows: int) -> DataFrame:
    """Count and sum per key, 100,000 keys (baselines.md)."""
    return _counted(_rate(spark, rows))


def kafka(spark: SparkSession, rows: int) -> DataFrame:
    """The same over the numbers in a topic."""
    from pyspark.sql import functions as F

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spark.conf.get(SERVERS)).option("subscribe", TOPIC)
    records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows).load()
    return _counted(records.select(F.col("value").cast("string").cast("long").alias("value")))


def narrow(spark: SparkSession, rows: int) -> DataFrame:
    """The same over 1,000 keys."""
    return _counted(_rate(spark, rows), FEW_KEYS)


def join(spark: SparkSession, rows: int) -> DataFrame:
    """Two streams joined by key and time, four state stores a partition; `rows` are those of both sides together."""
    from pyspark.sql import functions as F

    half = max(1, rows // 2)
    left = _rate(spark, half).select(F.col("value").alias("l"), F.col("timestamp").alias("lt")).withWatermark("lt", "2 seconds")
    right = _rate(spark, half).select(F.col("value").alias("r"), F.col("timestamp").alias("rt")).withWatermark("rt", "2 seconds")
    near = F.expr("rt BETWEEN lt - INTERVAL 2 SECONDS AND lt + INTERVAL 2 SECONDS")
    return left.join(right, (F.col("l") == F.col("r")) & near, "inner")


def large(spark: SparkSession, rows: int) -> DataFrame:
    """1 KiB of state per key, a million keys: 1 GB once every key was seen."""
    return _of_size(spark, rows, LARGE_KEYS)


def huge(spark: SparkSession, rows: int) -> DataFrame:
    """The same with ten million keys."""
    return _of_size(spark, rows, HUGE_KEYS)


def scattered(spark: SparkSession, rows: int) -> DataFrame:
    """1 KiB of state per key, of as many keys as KEYS_SETTING says: first each of them once, then any of them at random."""
    from pyspark.sql import functions as F

    keys, value = int(spark.conf.get(KEYS_SETTING) or 0), F.col("value")
    key = F.when(value < keys, value).otherwise(F.pmod(F.xxhash64(value), F.lit(keys)))
    return _rate(spark, rows).groupBy(key.alias("k")).agg(F.max(_words()))


def _of_size(spark: SparkSession, rows: int, keys: int) -> DataFrame:
    from pyspark.sql import functions as F

    return _rate(spark, rows).groupBy((F.col("value") % keys).alias("k")).agg(F.max(_words()))


def _words() -> Column:
    from pyspark.sql import functions as F

    return F.array([F.xxhash64("value", F.lit(i)) for i in range(PAYLOAD_WORDS)])


QUERIES: Mapping[str, Callable[[SparkSession, int], DataFrame]] = {
    "aggregation": aggregation,
    "narrow": narrow,
    "kafka": kafka,
    "join": join,
    "large": large,
    "huge": huge,
    "scattered": scattered,
}
OUTPUT = {name: "append" if name == "join" else "update" for name in QUERIES}
FROM_KAFKA = frozenset({"kafka"})
