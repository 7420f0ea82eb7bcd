"""Folders that somebody else writes to, while an export is made or before it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.errors import ConflictError, StorageError
from spark_ckpt.stock.exporting import Exported, to_export
from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.stock.layout import METADATA, CheckpointFormat
from spark_ckpt.stock.writing import MARK, Written, mark_of, write_stock
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.reading import CheckpointReader
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.stock_location import StockLocation


def savepoint(tmp_path: Path, batches: int) -> tuple[Storage, Exported]:
    at = StockLocation(tmp_path / f"stock-{batches}", partitions=1, conf={"spark.sql.shuffle.partitions": "1"}).begin()
    for batch in range(batches):
        at.batch(batch)
    made = open_storage(f"file://{tmp_path}/made-{batches}")
    import_checkpoint(open_storage(f"file://{at.folder}"), made)
    return made, to_export(made, CheckpointReader(made, RestorePath.at(made.url)), None)


@pytest.fixture
def target(tmp_path: Path) -> Storage:
    return open_storage(f"file://{tmp_path}/out")


def export(made: tuple[Storage, Exported], target: Storage) -> Written:
    return write_stock(*made, target, "file:/out")


def everything(target: Storage) -> dict[str, bytes]:
    return {found.key: target.get(found.key) for found in target.list("")}


def test_an_export_that_was_made_while_another_looked_is_left_alone(tmp_path: Path, target: Storage) -> None:
    first, second = savepoint(tmp_path, 3), savepoint(tmp_path, 5)
    fault = Fault(Moment.DELAY, MARK, frozenset({"put_if_absent"}), delay_s=1, times=1)
    late = FaultyStorage(target, [fault], sleep=lambda _: made.append(export(second, target)))
    made: list[Written] = []
    with pytest.raises(ConflictError, match=r"or of another export, by now .*; export to a folder that does not exist yet"):
        export(first, late)
    assert len(late.hits) == 1
    found = everything(target)
    assert MARK not in found
    export(second, again := open_storage(f"file://{tmp_path}/again"))
    assert found == everything(again)


def cut(made: tuple[Storage, Exported], target: Storage, pattern: str) -> None:
    with pytest.raises(StorageError):
        export(made, FaultyStorage(target, [Fault(Moment.FAIL_BEFORE, pattern, frozenset({"put"}))]))


@pytest.mark.parametrize("pattern", ["commits/*", "offsets/*", METADATA])
def test_a_query_that_began_in_an_export_that_was_cut_short_is_no_complete_export(tmp_path: Path, target: Storage, pattern: str) -> None:
    made = savepoint(tmp_path, 3)
    cut(made, target, pattern)
    target.put(METADATA, b'{"id":"another"}')
    target.put("offsets/0", b"v1\n{}\n0")
    before = everything(target)
    with pytest.raises(ConflictError, match=r"is the checkpointLocation of a query, .* there is not this export's"):
        export(made, target)
    del before[MARK]
    assert everything(target) == before


def test_the_same_export_twice_at_once(tmp_path: Path, target: Storage) -> None:
    """The second meets the first one's mark, and is cut short; the first goes on, and so does a third."""
    made = savepoint(tmp_path, 3)
    fault = Fault(Moment.DELAY, METADATA, frozenset({"head"}), delay_s=1, times=1)
    late = FaultyStorage(target, [fault], sleep=lambda _: cut(made, target, "offsets/*"))
    export(made, late)
    assert len(late.hits) == 1
    assert MARK not in everything(target)
    export(made, again := open_storage(f"file://{tmp_path}/again"))
    assert everything(target) == everything(again)


def test_a_mark_whose_answer_was_lost_is_not_left_in_anothers_export(tmp_path: Path, target: Storage) -> None:
    first, second = savepoint(tmp_path, 3), savepoint(tmp_path, 5)
    export(second, target)
    whole = everything(target)
    target.put(MARK, mark_of(first[1], "file:/out", CheckpointFormat.V1))
    with pytest.raises(ConflictError, match="or of another export, by now"):
        export(first, target)
    assert everything(target) == whole


def test_the_mark_says_which_format_is_being_written(tmp_path: Path, target: Storage) -> None:
    made = savepoint(tmp_path, 3)
    cut(made, target, "offsets/*")
    assert b"checkpoint_format" not in target.get(MARK)  # as an earlier version has begun it
    with pytest.raises(ConflictError, match="another export that is not complete"):
        write_stock(*made, target, "file:/out", form=CheckpointFormat.V2)
    assert b'"checkpoint_format": 2' in mark_of(made[1], "file:/out", CheckpointFormat.V2)
    export(made, target)


def test_an_export_of_which_only_the_mark_is_left_is_complete(tmp_path: Path, target: Storage) -> None:
    made = savepoint(tmp_path, 3)
    with pytest.raises(StorageError):
        export(made, FaultyStorage(target, [Fault(Moment.FAIL_BEFORE, MARK, frozenset({"delete"}))]))
    written = export(made, target)
    assert MARK not in everything(target)
    assert written.files == len(everything(target))
