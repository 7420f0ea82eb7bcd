"""What an edit has stored that was cut short does not stay beside the savepoint that was made in its place."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import spark_ckpt
from spark_ckpt.cli.main import run
from spark_ckpt.errors import ConflictError, StorageError
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.state.saving import Saving, Written
from spark_ckpt.state.store_files import Held, StoreWriter
from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.storage import open_storage
from spark_ckpt.storage.base import PutResult
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.copies import RestorePath, finish_savepoint, put_savepoint
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.metadata.reading import GIVEN_UP
from spark_ckpt.stored.reading import StreamReader
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.checkpoints import sample, taken_over
from tests.drivers.stock_location import StockLocation
from tests.stored.earlier import place

LEFT = "run-00000001/seg/5-edited-0123456789abcdef-0-0123456789abcdef0123456789abcdef"


def half(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(0, batch.num_rows // 2)


@pytest.mark.parametrize("other", [None, "offsets/0", "notes.txt"])
def test_objects_of_an_attempt_go_with_its_success(tmp_path: Path, other: str | None) -> None:
    """Not where anything lies there that no savepoint has."""
    place("1", tmp_path / "stream")
    with open_storage(f"file://{tmp_path}/stream/savepoints/one") as target:
        target.put(LEFT, b"a person who wants to be forgotten")
        if other is not None:
            target.put(other, b"x")
        url = spark_ckpt.transform_state(f"{tmp_path}/stream", 0, half, name="one")
        assert url == target.url
        named = RestorePath.at(url).read(target).objects
        there = {found.key for found in target.list("")} - {"_metadata"}
        assert there == (named if other is None else named | {LEFT, other})


def test_a_savepoint_is_complete_also_where_nothing_can_be_removed(tmp_path: Path) -> None:
    made = sample()
    with open_storage(f"file://{tmp_path}/one") as target:
        for key in (*made.objects, LEFT):
            target.put(key, b"x")
        faulty = FaultyStorage(target, [Fault(Moment.FAIL_BEFORE, operations=frozenset({"delete"}))])
        with pytest.raises(StorageError, match=r"the savepoint at .*/one is complete, but what an earlier attempt .* could not be removed"):
            finish_savepoint(faulty, made)
        assert target.get("_metadata") == encode_metadata(made)
        assert target.size(LEFT) == 1


def test_what_is_made_anew_while_the_first_maker_sleeps_is_left_alone(tmp_path: Path) -> None:
    """(1) A puts `_metadata`, and sleeps; (2) a person deletes the folder, and B makes the savepoint; (3) A goes on."""
    made = sample()
    with open_storage(f"file://{tmp_path}/one") as target:
        for key in (*made.objects, LEFT):
            target.put(key, b"x")

        def again(_: float) -> None:
            shutil.rmtree(tmp_path / "one")
            for key in others:
                target.put(key, b"B")

        others = [LEFT.replace("0123", "4567"), "_metadata"]
        fault = Fault(Moment.DELAY, operations=frozenset({"delete"}), delay_s=1, times=1)
        finish_savepoint(FaultyStorage(target, [fault], sleep=again), made)
        assert {found.key for found in target.list("")} == set(others)


def test_a_savepoint_with_nothing_beside_it_is_complete_once_it_is_stored(tmp_path: Path) -> None:
    made = sample()
    with open_storage("memory://unit-leftovers") as target:
        for key in made.objects:
            target.put(key, b"x")
        finish_savepoint(FaultyStorage(target, [Fault(Moment.FAIL_BEFORE, operations=frozenset({"get", "delete"}), times=None)]), made)
        assert target.get("_metadata") == encode_metadata(made)


class Sleeping(FileStorage):
    """`meanwhile` happens behind its put."""

    def __init__(self, url: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(url)
        self._meanwhile = meanwhile

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = super().put_if_absent(key, data)
        self._meanwhile()
        return result


def test_what_somebody_else_is_writing_when_the_first_maker_wakes_up_is_left_alone(tmp_path: Path) -> None:
    """(1) A puts `_metadata`, and sleeps; (2) a person deletes the folder, and B writes there; (3) A goes on."""
    made = sample()
    with open_storage(f"file://{tmp_path}/one") as target:
        for key in made.objects:
            target.put(key, b"x")
        writing = tmp_path / "one/.tmp/0123456789abcdef0123456789abcdef"

        def again() -> None:
            (tmp_path / "one/_metadata").unlink()
            writing.parent.mkdir(exist_ok=True)
            writing.write_bytes(b"B")

        assert put_savepoint(Sleeping(str(target.url), again), made)
        assert writing.exists()


def test_a_savepoint_that_is_deleted_while_it_is_compared_is_not_this_ones(tmp_path: Path) -> None:
    """(1) B's `_metadata` of the same length is there; (2) A is told so, and asks for its size; (3) a person deletes it; (4) A reads it."""
    made = sample()
    with open_storage(f"file://{tmp_path}/one") as target:
        for key in made.objects:
            target.put(key, b"x")
        target.put("_metadata", b"x" * len(encode_metadata(made)))

        def gone(_: float) -> None:
            target.delete(["_metadata"])

        fault = Fault(Moment.DELAY, "_metadata", frozenset({"get"}), delay_s=1)
        assert not put_savepoint(FaultyStorage(target, [fault], sleep=gone), made)


def test_a_savepoint_whose_answer_was_lost_is_complete_and_cleared(tmp_path: Path) -> None:
    made = sample()
    with open_storage(f"file://{tmp_path}/one") as target:
        for key in (*made.objects, LEFT):
            target.put(key, b"x")
        lost = Fault(Moment.LOSE_ANSWER, "_metadata", frozenset({"put_if_absent"}))
        finish_savepoint(FaultyStorage(target, [lost]), made)
        assert {found.key for found in target.list("")} == {*made.objects, "_metadata"}


def test_a_savepoint_whose_objects_somebody_has_deleted_is_not_completed(tmp_path: Path) -> None:
    """(1) Two import the same under one name; (2) A completes it; (3) a stream that owns it deletes it; (4) B goes on."""
    at = StockLocation(tmp_path / "stock").begin()
    at.batch(0)
    location = open_storage(f"file://{at.folder}")
    with open_storage(f"file://{tmp_path}/one") as target:

        def claimed() -> None:
            taken_over(target, import_checkpoint(location, target))

        late = Fault(Moment.DELAY, operations=frozenset({"list"}), skip=2, pause=claimed)
        with pytest.raises(ConflictError, match="has been deleted meanwhile; make it again"):
            import_checkpoint(location, FaultyStorage(target, [late]))
        assert target.size("_metadata") is None


def test_an_attempt_that_is_refused_takes_its_objects_away(tmp_path: Path) -> None:
    place("1", tmp_path / "stream")
    url = f"{tmp_path}/stream/savepoints/one"

    def second(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not (tmp_path / "stream/savepoints/one/_metadata").exists():
            spark_ckpt.transform_state(f"{tmp_path}/stream", 0, half, name="one")
        return batch

    with pytest.raises(ConflictError, match="which somebody has just made"):
        spark_ckpt.transform_state(f"{tmp_path}/stream", 0, second, name="one")
    with open_storage(f"file://{url}") as target:
        there = {found.key for found in target.list("")} - {"_metadata"}
        assert there == RestorePath.at(target.url).read(target).objects
    assert run(["verify", url, "--deep"]) == 0


def test_what_a_killed_writer_left_on_a_disk_goes_too(tmp_path: Path) -> None:
    place("1", tmp_path / "stream")
    left = tmp_path / "stream/savepoints/one/.tmp/0123456789abcdef0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"a person who wants to be forgotten")
    spark_ckpt.transform_state(f"{tmp_path}/stream", 0, half, name="one")
    assert not left.parent.exists()


@pytest.mark.parametrize(("operation", "fails_at"), [("put", 0), ("put", 2), ("put_if_absent", 0)])
def test_who_comes_second_and_fails_is_told_so_and_leaves_nothing(tmp_path: Path, operation: str, fails_at: int) -> None:
    """The winner takes the file away that the other one is just writing."""
    place("1", tmp_path / "stream")
    url = f"file://{tmp_path}/stream/savepoints/one"
    winning = threading.Lock()

    def first() -> None:
        with winning:
            if not (tmp_path / "stream/savepoints/one/_metadata").exists():
                spark_ckpt.transform_state(f"{tmp_path}/stream", 0, half, name="one")

    with open_storage(f"file://{tmp_path}/stream") as storage, open_storage(url) as target:
        reader = StreamReader(storage)
        late = Fault(Moment.DELAY, operations=frozenset({operation}), times=None, pause=first)
        faulty = FaultyStorage(target, [late, replace(late, moment=Moment.FAIL_BEFORE, skip=fails_at, times=1)])
        with pytest.raises(ConflictError, match="which somebody has just made; choose another name"):
            Saving(storage, reader.read(reader.latest()), faulty).done()
        assert Moment.FAIL_BEFORE in {hit.moment for hit in faulty.hits}
        assert {found.key for found in target.list("")} - {"_metadata"} == RestorePath.at(url).read(target).objects


def test_large_files_of_who_comes_second_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place("1", tmp_path / "stream")
    url = f"file://{tmp_path}/stream/savepoints/one"
    monkeypatch.setattr("spark_ckpt.state.store_files.SHARED", 1)
    with open_storage(f"file://{tmp_path}/stream") as storage, open_storage(url) as target:
        reader = StreamReader(storage)
        checkpoint = reader.read(reader.latest())

        def first() -> None:
            if target.size("_metadata") is None:
                Saving(storage, checkpoint, target).done()

        late = Fault(Moment.DELAY, "*/sst/*", operations=frozenset({"put"}), pause=first)
        fails = Fault(Moment.FAIL_BEFORE, "*/seg/*", operations=frozenset({"put"}), times=None)
        snapshot = checkpoint.snapshots[0]
        with temporary_folder("edit") as folder:
            writer = StoreWriter(folder / "store", Held())
            writer.put([b"\0\0key"], [b"\0value"])
            saving = Saving(storage, checkpoint, FaultyStorage(target, [late, fails]))
            saving.take(Written(snapshot, writer, prefix=None, families={}, internal=0, changed=True))
            with pytest.raises(ConflictError, match="which somebody has just made; choose another name"):
                saving.done()
        assert {found.key for found in target.list("")} - {"_metadata"} == RestorePath.at(url).read(target).objects


def test_two_edits_of_one_checkpoint_share_no_object(tmp_path: Path) -> None:
    """What one of them takes for left by a third is never the other's."""
    place("1", tmp_path / "stream")
    named = []
    for name in ("one", "two"):
        made = spark_ckpt.transform_state(f"{tmp_path}/stream", 0, half, name=name)
        with open_storage(made) as target:
            named.append(RestorePath.at(target.url).read(target).objects)
    assert all(named)
    assert named[0].isdisjoint(named[1])


def test_a_name_that_gc_has_given_up_is_told_as_that(tmp_path: Path) -> None:
    place("1", tmp_path / "stream")
    with open_storage(f"file://{tmp_path}/stream") as storage:
        storage.put("savepoints/one/_metadata", GIVEN_UP)
    with pytest.raises(ConflictError, match="was never completed, and `gc` has given its name up; choose another name"):
        spark_ckpt.transform_state(f"{tmp_path}/stream", 0, half, name="one")


def test_what_a_cut_import_left_goes_with_one_of_a_later_batch(tmp_path: Path) -> None:
    at = StockLocation(tmp_path / "stock").begin()
    for batch in range(2):
        at.batch(batch)
    location = open_storage(f"file://{at.folder}")
    with open_storage(f"file://{tmp_path}/made") as target:
        cut = FaultyStorage(target, [Fault(Moment.FAIL_BEFORE, "_metadata", frozenset({"put_if_absent"}))])
        with pytest.raises(StorageError):
            import_checkpoint(location, cut)
        left = {found.key for found in target.list("")}
        assert left
        at.batch(2)
        made = import_checkpoint(location, target)
        assert not left & made.objects
        assert {found.key for found in target.list("")} - {"_metadata"} == made.objects
