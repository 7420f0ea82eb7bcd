"""What a stream's sink holds against what a batch query over the same input gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from campaign.dimensions import Mode, Sink, Stream
from campaign.queries import QUERIES, SCHEMA

Rows = Counter[str]
EXAMPLES = 5


@dataclass(frozen=True)
class Comparison:
    """Rows of one stream. `twice`: right ones that came more than once; `excess`: those that no batch query gives, and where the mode
    forbids it those that came twice."""

    expected: int
    missing: int
    excess: int
    twice: int
    examples: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.missing and not self.excess


def compare(expected: Rows, found: Rows, mode: Mode) -> Comparison:
    missing, more = expected - found, found - expected
    twice = {row: n for row, n in more.items() if row in expected}
    wrong = more if mode is not Mode.AT_LEAST_ONCE else Counter({row: n for row, n in more.items() if row not in expected})
    examples = [f"missing {n} x {row}" for row, n in sorted(missing.items())]
    examples += [f"in excess {n} x {row}" for row, n in sorted(wrong.items())]
    return Comparison(expected.total(), missing.total(), wrong.total(), sum(twice.values()), tuple(examples[:EXAMPLES]))


def counted(rows: Iterable[dict[str, Any]]) -> Rows:
    """Without what comes of the events that close the windows."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows if not _closing(row))


def _closing(row: dict[str, Any]) -> bool:
    return "far" in (row.get("key"), row.get("lkey"), row.get("rkey")) or str(row.get("start", "")) >= "2030"


def folded(batches: Sequence[Sequence[dict[str, Any]]], output_mode: str) -> list[dict[str, Any]]:
    """What a table holds that has taken these batches, in the order of their ids."""
    if output_mode == "complete":
        return list(batches[-1]) if batches else []
    if output_mode == "append":
        return [row for rows in batches for row in rows]
    newest = {row["key"]: row for rows in batches for row in rows}
    return list(newest.values())


def parts_of(out: Path) -> list[list[dict[str, Any]]]:
    """What a foreachBatch of the campaign holds, in the order of the batch ids."""
    return [[json.loads(line) for line in part.read_text().splitlines()] for part in sorted(out.glob("part-*.json"))]


def rows_of(df: DataFrame) -> Iterator[dict[str, Any]]:
    """As the streams' own sink writes them."""
    return (json.loads(row[0]) for row in df.select(F.to_json(F.struct("*"))).collect())


class SinkError(Exception):
    """Spark cannot read what the stream has written."""


class Oracle:
    """One plain Spark session for all comparisons, started with the first. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session: SparkSession | None = None

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            self._session.stop()

    def compare(self, stream: Stream, source: Path, out: Path, mode: Mode) -> Comparison:
        """Raises SinkError."""
        expected = self.expected(stream.operator, source)
        if stream.sink is Sink.FILE:
            found = self.in_files(stream.operator, source, out)
        else:
            found = counted(folded(parts_of(out), QUERIES[stream.operator].mode))
        return compare(expected, found, mode)

    def expected(self, operator: str, source: Path) -> Rows:
        """What a batch query gives."""
        rows = counted(rows_of(self._batch(operator, source)))
        assert rows, f"the oracle of {operator} is empty: the comparison would show nothing"
        return rows

    def in_files(self, operator: str, source: Path, out: Path) -> Rows:
        """What Spark's file sink holds. Raises SinkError."""
        try:
            return counted(rows_of(self._spark().read.schema(self._batch(operator, source).schema).json(str(out))))
        except PySparkException as e:
            raise SinkError(f"Spark cannot read what {operator} has written: {str(e).splitlines()[0]}") from e

    def _batch(self, operator: str, source: Path) -> DataFrame:
        return QUERIES[operator].batch(self._spark().read.schema(SCHEMA).json(str(source)))

    def _spark(self) -> SparkSession:
        if self._session is None:
            builder = SparkSession.builder.appName("oracle").master("local[1]")
            conf = {
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.session.timeZone": "UTC",
                "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1",
                "spark.local.dir": str(self._folder / "oracle"),
                "spark.sql.warehouse.dir": str(self._folder / "oracle" / "warehouse"),
            }
            for name, value in conf.items():
                builder = builder.config(name, value)
            self._session = builder.getOrCreate()
            self._session.sparkContext.setLogLevel("ERROR")
        return self._session
