"""A query of `tests/spark/jobs/real_time_queries.py` in real time, in executors of their own, compared with what the same gives as a batch
query over the topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import spark_ckpt
from spark_ckpt.errors import ObjectMissingError
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.real_time import RealTimeTrial
from tests.drivers.spark.topics import Topics, ends

CLUSTER = "local-cluster[2,3,1024]"
"""As many cores as a topic of two partitions and a state of three need, and one more."""


class Row(NamedTuple):
    """What the query has said of a key, as JSON; of files also after which start, and in which epoch."""

    key: str
    value: str
    start: int = 0
    epoch: int = -1

    @property
    def number(self) -> tuple[str, int]:
        """Which row of its key it is. Read again, records of a key may come in another order, with other totals on the way."""
        return self.key, count(self.value)


class QueryTrial(RealTimeTrial):
    """`foreach`: its rows go to files, not to a topic."""

    def __init__(self, start: Start, topics: Topics, tmp: Path, query: str, foreach: bool = False) -> None:
        name = f"{tmp.name}-{query.replace(' ', '-')}"
        super().__init__(start, topics, tmp, f"{name}-in", f"{name}-out")
        self.query, self._batch, self._out = query, tmp / "batch", tmp / "out"
        self._foreach = foreach
        self._starts = 0

    def begin(self, conf: Mapping[str, str] | None = None, **more: Any) -> Application:
        spec = {"query": self.query, "batch": str(self._batch)}
        if self._foreach:
            out = self._out / str(self._starts)
            out.mkdir(parents=True)
            spec["foreach"] = str(out)
        self._starts += 1
        return self.start(conf, **{"master": CLUSTER, **more}, spec=spec)

    def rows(self) -> list[Row]:
        """In the order in which a key's have come."""
        if not self._foreach:
            return [Row(key, json.dumps(value)) for key, value in self.passed()]
        files = sorted((start, epoch, file) for start in range(self._starts) for epoch, file in self._files(start))
        return [Row(key, same(value), start, epoch) for start, epoch, file in files for key, value in map(json.loads, lines_of(file))]

    def opened(self, start: int = -1) -> set[int]:
        """The epochs in which `foreach` was opened, by the newest application or the one of that start."""
        return {epoch for epoch, _ in self._files(range(self._starts)[start])}

    def _files(self, start: int) -> list[tuple[int, Path]]:
        return [(int(file.name.partition("-")[0]), file) for file in (self._out / str(start)).glob("*.jsonl")]

    def wait_until_all_is_held(self, timeout: float = 120) -> None:
        """By the newest checkpoint: all that was produced."""
        assert self.app is not None
        self.app.until(self._is_held, "a checkpoint of all that was produced", timeout)

    def _is_held(self) -> bool:
        produced: dict[tuple[str, int], int] = {}
        for record in self.topics.records:
            of = (record.topic, record.partition)
            produced[of] = max(produced.get(of, 0), record.offset + 1)
        with self.storage() as storage:
            reader = StreamReader(storage)
            try:
                newest, _ = reader.checkpoints()[-1]
                content = reader.read(newest).files[f"offsets/{newest.epoch}"]
            except (IndexError, ObjectMissingError):
                return False  # there is none yet, or it has just been dropped for a newer one
        assert isinstance(content, bytes)
        return ends(content) == produced

    def held(self) -> dict[str, str]:
        """By key what the state at the newest checkpoint says, as the query does."""
        if self.query in ("totals", "joined"):
            return {key: json.dumps({"n": n, "most": most, "total": total}) for key, (n, most, total) in self.state().items()}
        transformed = self.query != "unique"
        rows = spark_ckpt.read_state(self.stream, store="totals" if transformed else None).to_table().to_pylist()
        return {str(next(iter(row["key"].values()))): json.dumps(row["value"]) if transformed else "1" for row in rows}

    def batch(self) -> dict[str, str]:
        """By key what a batch query says, once the query was stopped."""
        return {key: same(value) for key, value in json.loads(self._batch.read_text())}

    def newest_rows(self) -> dict[str, str]:
        return {row.key: row.value for row in self.rows()}

    def progressed(self) -> list[dict[str, Any]]:
        """What Spark has told of each batch, of all applications."""
        return [json.loads(line) for line in self.progress.read_text().splitlines()] if self.progress.exists() else []

    def rows_beyond(self, held: Mapping[str, str]) -> set[tuple[str, int]]:
        """Those that came so far and this state does not hold: who goes on from there says all of them again."""
        return {row.number for row in self.rows() if row.number[1] > count(held.get(row.key, "0"))}

    def repeated(self) -> Counter[tuple[str, int]]:
        """How often more than once a key's row of that number was said."""
        counted = Counter(row.number for row in self.rows())
        return Counter({number: times - 1 for number, times in counted.items() if times > 1})


def count(value: str) -> int:
    """Of records that a key had had."""
    said = json.loads(value)
    return int(said["n"] if isinstance(said, dict) else said)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


def same(value: str) -> str:
    """JSON as Python writes it."""
    return json.dumps(json.loads(value))
