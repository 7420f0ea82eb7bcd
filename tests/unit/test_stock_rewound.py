"""A location that stock Spark went back in, imported before and after: versions have the names that they had, and other content."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.model import Checkpoint
from spark_ckpt.state.changes import later_changelogs
from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.storage import open_storage
from tests.drivers.stock_location import StockLocation, changelog, packed


def located(tmp_path: Path) -> StockLocation:
    at = StockLocation(tmp_path / "stock", partitions=1, conf={"spark.sql.shuffle.partitions": "1"}).begin()
    for batch in range(3):
        at.batch(batch)
    return at


def imported(at: StockLocation, name: str) -> Checkpoint:
    return import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{at.folder.parent}/{name}"))


def names(before: Checkpoint, after: Checkpoint) -> list[str] | None:
    found = later_changelogs(before.snapshots[0], after.snapshots[0])
    return None if found is None else [handle.name.partition("_")[0] for handle in found]


def test_what_follows_is_told_by_its_changelogs(tmp_path: Path) -> None:
    at = located(tmp_path)
    before = imported(at, "a")
    assert names(before, before) == []
    at.batch(3)
    assert names(before, imported(at, "b")) == ["4"]


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_an_older_changelog_with_other_content_is_not_passed_over(tmp_path: Path, batch: int) -> None:
    """The last one alone proves nothing: a batch that brought a partition no rows has the same changelog whatever came before."""
    at = located(tmp_path)
    before = imported(at, "a")
    at.write(f"state/0/0/{batch + 1}.changelog", packed(changelog([(b"\0other", b"\0row")], 1), "lz4"))
    at.batch(3)
    assert names(before, imported(at, "b")) is None


def test_a_full_snapshot_of_a_version_is_not_taken_for_its_changelog(tmp_path: Path) -> None:
    at = located(tmp_path)
    before = imported(at, "a")
    at.batch(2, full=True)
    at.batch(3)
    after = imported(at, "b")
    assert names(before, after) is None
    at.batch(4)
    assert names(after, imported(at, "c")) == ["5"]


def test_versions_of_spark_itself_are_known_by_their_ids(tmp_path: Path) -> None:
    """A random id is that of one content, also where a full snapshot has taken the changelog's place."""
    at = StockLocation(tmp_path / "stock", format=2, partitions=1, conf={"spark.sql.shuffle.partitions": "1"}).begin()
    at.batch(0)
    before = imported(at, "a")
    at.batch(1)
    assert names(before, imported(at, "b")) == ["2"]


def test_a_key_that_cannot_be_decoded_is_told_with_its_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(located(tmp_path), "a")
    assert run(["state", f"file://{tmp_path}/a", "--deep"]) == 1
    assert "operator 0, partition 0, store default: a row of" in capsys.readouterr().err
