"""The recipe for numbered records: an epoch that runs again has the same numbers, however Spark divides its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from kafka_numbered import number_of, numbered
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

pytestmark = [pytest.mark.campaign, pytest.mark.spark]

ROWS, PARTITIONS = 1000, 3


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.local.dir", str(folder)).config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    yield session
    session.stop()


def divided(spark: SparkSession, pieces: int) -> DataFrame:
    """The same rows, some of them equal, in another order and other pieces."""
    rows = spark.range(ROWS).select((F.col("id") % 700).alias("id"), F.concat(F.lit("v"), F.col("id") % 350).alias("value"))
    spark.conf.set("spark.sql.shuffle.partitions", str(pieces))
    return rows.orderBy(F.rand(pieces)).repartition(pieces, F.rand(pieces))


Number = tuple[int, int, int]


def written(df: DataFrame) -> list[list[tuple[Number, str]]]:
    """((partition, epoch, row), value) in the order in which each task writes them."""
    found = []
    for task in df.rdd.glom().collect():
        records = [(row["partition"], [(h["key"], bytes(h["value"])) for h in row["headers"]], row["value"]) for row in task]
        found.append([((partition, *number_of(headers)), value) for partition, headers, value in records])
    return found


def test_numbers_do_not_depend_on_how_rows_are_divided(spark: SparkSession, tmp_path: Path) -> None:
    tries = [written(numbered(divided(spark, pieces), "id", 7, PARTITIONS)) for pieces in (1, 4, 7)]
    maps = [dict(pair for task in one for pair in task) for one in tries]
    assert maps[0] == maps[1] == maps[2]
    assert len(maps[0]) == ROWS == sum(len(task) for task in tries[2]), "a number stood for two rows"
    assert Counter(number[1] for number in maps[0]) == {7: ROWS}
    assert {number[0] for number in maps[0]} == set(range(PARTITIONS))
    for task in (task for one in tries for task in one):
        for partition in range(PARTITIONS):
            rows = [number[2] for number, _ in task if number[0] == partition]
            assert rows == list(range(1, len(rows) + 1)), "a reader needs them in this order, from one task"
            assert all(b == a + 1 for a, b in pairwise(rows))


def test_numbers_by_sparks_own_partition_are_others_every_time(spark: SparkSession) -> None:
    """Why the recipe does not use them."""

    def naive(pieces: int) -> dict[tuple[int, int], str]:
        rows = divided(spark, pieces).select(F.spark_partition_id().alias("p"), F.monotonically_increasing_id().alias("n"), "value")
        return {(row["p"], row["n"]): row["value"] for row in rows.collect()}

    assert naive(4) != naive(7)
