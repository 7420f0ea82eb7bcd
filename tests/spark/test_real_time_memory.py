"""Spark's real-time trigger with nothing but Spark: a source in memory, stopped, and started again without its checkpointLocation."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt import paths
from spark_ckpt.errors import ObjectMissingError
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.real_time import REAL_TIME

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Words:
    """What was read, and what was said of it."""

    def __init__(self, start: Start, tmp: Path) -> None:
        self._told, self._out, self.location = tmp / "told", tmp / "out", tmp / "location"
        self._told.mkdir()
        self._out.mkdir()
        self.read: Counter[str] = Counter()
        self._orders = 0
        storage = f"file://{tmp / 'storage'}"
        self.stream = paths.stream_url(storage, f"file:{self.location}")
        spec = {"told": str(self._told), "location": str(self.location), "out": str(self._out)}
        self.app: Application = start("real_time_memory.py", json.dumps(spec), conf=REAL_TIME, storage=storage, master="local[6]")

    def tell(self, order: str | list[str]) -> None:
        """Returns when it is done."""
        new = self._told / f"{self._orders}.new"
        new.write_text(json.dumps(order))
        new.rename(new.with_suffix(".json"))
        self.app.until(new.with_suffix(".done").exists, f"{order} is done")
        self._orders += 1
        if isinstance(order, list):
            self.read += Counter(order)

    def epochs(self, start: int) -> set[int]:
        """In which `foreach` was opened after that start."""
        return {int(file.name.partition("-")[0]) for file in (self._out / str(start)).iterdir()}

    def said(self) -> Counter[tuple[str, int]]:
        """How often each count of a word was said."""
        lines = [json.loads(line) for file in self._out.glob("*/*") for line in file.read_text().splitlines()]
        return Counter((word, int(count)) for word, count in lines)

    def held(self) -> Counter[str]:
        """By the newest checkpoint."""
        rows = spark_ckpt.read_state(self.stream).to_table().to_pylist()
        return Counter({row["key"]["value"]: row["value"]["count"] for row in rows})

    @property
    def newest(self) -> int:
        """The epoch of the newest checkpoint."""
        found = Path(self.stream.removeprefix("file://")).glob("run-*/chk-*/_metadata")
        return max(int(file.parent.name.removeprefix("chk-")) for file in found)

    def is_all_held(self) -> bool:
        try:
            return self.held() == self.read
        except ObjectMissingError:
            return False  # the first checkpoint is not complete yet


def test_a_query_goes_on_from_its_checkpoint_in_epochs_with_new_ids(start: Start, tmp_path: Path) -> None:
    words = Words(start, tmp_path)
    words.tell(["a", "b", "a", "c"])
    words.tell("start")
    words.app.until(words.is_all_held, "a checkpoint of four words")
    words.app.until(lambda: words.newest >= 3, "some more checkpoints, after which the log does not say of each epoch that it begins")
    words.tell(["a", "d"])
    words.app.until(lambda: max(words.epochs(0)) > words.newest, "a batch that runs")
    words.tell("stop")
    shutil.rmtree(words.location)
    words.tell("start")
    words.tell(["b", "e", "a"])
    words.app.until(words.is_all_held, "a checkpoint of all words")
    words.tell("end")
    words.app.expect_success(60)
    assert max(words.epochs(0)) < min(words.epochs(1))
    assert set(words.said()) == {(word, n + 1) for word, times in words.read.items() for n in range(times)}
