"""A recipe: Kafka's sink with numbered records, so that readers can drop what comes twice. It needs nothing of spark-ckpt.

    def each(rows, epoch):
        numbered(rows, "id", epoch, partitions=6).write.format("kafka").options(**servers).option("topic", "orders").save()

    query = orders.writeStream.foreachBatch(each).option("checkpointLocation", ...).start()

Each record has the headers `epoch`, `row` (1, 2, 3, … within epoch and topic partition) and `checkpoint`. Under which conditions a reader
gets each row exactly once, docs/guarantees.md says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

BARRIER = "spark.ckpt.barrier"


def numbered(rows: DataFrame, key: str, epoch: int, partitions: int) -> DataFrame:
    """What `write.format("kafka")` takes: key, value (JSON of all columns), partition and headers.

    Key and value alone decide the partition and the number of a row, so an epoch that runs again has the same numbers, however Spark
    divides its rows. `partitions`: of the topic, or fewer; always the same for a topic. Within a partition rows are written in the order
    of their numbers.
    """
    records = rows.select(F.col(key).cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))
    placed = records.withColumn("partition", F.pmod(F.xxhash64("key"), F.lit(partitions)).cast("int"))
    row = F.row_number().over(Window.partitionBy("partition").orderBy("key", "value"))
    headers = [_header("epoch", F.lit(str(epoch))), _header("row", row.cast("string"))]
    checkpoint = checkpoint_of(rows)
    if checkpoint:
        headers.append(_header("checkpoint", F.lit(checkpoint)))
    return placed.withColumn("headers", F.array(*headers))


def checkpoint_of(rows: DataFrame) -> str:
    """The id that a checkpoint of this epoch has, if one is made: `run-3/chk-42`. Empty without the plugin.

    The run is another one when the epoch runs again: it says who wrote a record, and must not be part of what readers compare.
    """
    barrier = rows.sparkSession.sparkContext.getLocalProperty(BARRIER)
    if not barrier:
        return ""
    found = json.loads(barrier)
    return f"run-{found['run']}/chk-{found['epoch']}"


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


class NumberError(Exception):
    """The numbers of a topic are not those of the recipe: a row would be lost."""


@dataclass
class Numbers:
    """Which records of a topic are new. All that a reader has to remember is the last number of each partition: store `last` together with
    what was read, in one transaction."""

    last: dict[int, tuple[int, int]] = field(default_factory=dict)

    def is_new(self, partition: int, epoch: int, row: int) -> bool:
        """To be asked in the order of the partition's offsets. Raises NumberError."""
        before = self.last.get(partition)
        if before is not None and (epoch, row) <= before:
            return False
        if before is not None and row != (before[1] + 1 if epoch == before[0] else 1):
            raise NumberError(f"partition {partition}: row {row} of epoch {epoch} follows row {before[1]} of epoch {before[0]}")
        self.last[partition] = (epoch, row)
        return True


def number_of(headers: Sequence[tuple[str, bytes]]) -> tuple[int, int]:
    """Epoch and row of a record that `numbered` has made."""
    found = dict(headers)
    return int(found["epoch"]), int(found["row"])
