"""Copies of checkpoints: complete, without dead space, relocatable, refused where anything is wrong."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.errors import (
    ConfigError,
    ConflictError,
    DamagedError,
    ObjectMissingError,
    OutcomeUnknownError,
    StorageError,
    StorageSetupError,
)
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.process.scratch import TEMPORARY
from spark_ckpt.state.saving import refuse_taken
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.storage.base import LARGEST_READ, PutResult, Slice
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.copies import RestorePath, import_objects, store_savepoint
from spark_ckpt.stored.metadata.codec import decode_metadata, encode_metadata
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.taken_over import TakenOver, is_copy
from spark_ckpt.stored.verify import Verifier
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.checkpoints import SEED, taken_over, written
from tests.drivers.stored_stream import JOB, StreamWriter, make_store


@pytest.fixture
def stream() -> Iterator[Storage]:
    yield MemoryStorage("memory://stream/s")
    wipe("stream")


@pytest.fixture(params=["memory", "file"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with open_storage("memory://target/deep/sp" if request.param == "memory" else f"file://{tmp_path}/deep/sp") as storage:
        yield storage
    wipe("target")


def intact(storage: Storage, checkpoint: Checkpoint) -> bool:
    return not Verifier(storage).verify(checkpoint).problems


def test_a_savepoint_is_complete_and_has_no_dead_space(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    made = store_savepoint(stream, checkpoint, target)
    assert RestorePath.at(target.url).read(target) == made
    assert intact(target, made)
    assert replace(made, snapshots=()) == replace(checkpoint, snapshots=())
    for old, new in zip(checkpoint.snapshots, made.snapshots, strict=True):
        assert replace(old, handles=()) == replace(new, handles=())
        assert [(h.kind, h.name, h.length, h.checksum) for h in old.handles] == [
            (h.kind, h.name, h.length, h.checksum) for h in new.handles
        ]
    distinct = {(h.object, h.offset, h.length) for s in checkpoint.snapshots for h in s.handles}
    objects = {s.key: s.size for s in target.list("") if s.key != paths.METADATA_NAME}
    assert set(objects) == made.objects
    assert sum(objects.values()) == sum(length for _, _, length in distinct)


def test_it_is_read_where_it_is_copied_to_whatever_becomes_of_the_stream(stream: Storage, target: Storage) -> None:
    made = store_savepoint(stream, written(stream, random.Random(SEED)), target)
    stream.delete([s.key for s in stream.list("")])
    with MemoryStorage("memory://elsewhere/x") as elsewhere:
        for stored in target.list(""):
            elsewhere.put(stored.key, target.get(stored.key))
        assert RestorePath.at(elsewhere.url).read(elsewhere) == made
        assert intact(elsewhere, made)
    wipe("elsewhere")


def test_made_again_it_is_the_same_and_another_one_is_refused_and_changes_nothing(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    made = store_savepoint(stream, checkpoint, target)
    before = [(s.key, target.get(s.key)) for s in target.list("")]
    assert store_savepoint(stream, replace(checkpoint, counters={"acked": 0}), target).snapshots == made.snapshots
    fewer = replace(checkpoint, id=CheckpointId(1, 9), snapshots=checkpoint.snapshots[1:])
    with pytest.raises(ConflictError, match=r"another savepoint at .* choose another name"):
        store_savepoint(stream, fewer, target)
    assert [(s.key, target.get(s.key)) for s in target.list("")] == before


def test_made_again_it_gets_back_what_somebody_has_begun_to_remove(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    made = store_savepoint(stream, checkpoint, target)
    before = {s.key: target.get(s.key) for s in target.list("")}
    gone = sorted(made.objects)[::2]
    target.delete(gone)

    class Counting(FaultyStorage):
        def put(self, key: str, data: bytes) -> None:
            again.append(key)
            super().put(key, data)

        def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
            again.append(key)
            super().put_slices(key, slices)

    again: list[str] = []
    assert store_savepoint(stream, checkpoint, Counting(target, [])) == made
    assert sorted(again) == gone
    assert {s.key: target.get(s.key) for s in target.list("")} == before


def test_one_that_goes_while_it_is_made_again_is_not_told_as_made(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    made = store_savepoint(stream, checkpoint, target)
    target.delete(sorted(made.objects)[:1])

    def goes() -> None:
        target.delete([paths.METADATA_NAME])

    late = FaultyStorage(target, [Fault(Moment.DELAY, operations=frozenset({"put"}), pause=goes)])
    with pytest.raises(ConflictError, match="is being deleted; make it again"):
        store_savepoint(stream, checkpoint, late)
    assert target.size(sorted(made.objects)[0]) is None


def test_none_is_made_in_the_folder_of_a_stream(stream: Storage, target: Storage) -> None:
    """Every tool would read that folder as the savepoint, and `gc` take its objects for what the stream's runs have left."""
    StreamWriter(target).begin(1)
    before = [s.key for s in target.list("")]
    with pytest.raises(ConflictError, match=r"there is a stream at .*choose another name or place"):
        store_savepoint(stream, written(stream, random.Random(SEED)), target)
    with pytest.raises(ConflictError, match="there is a stream at"):
        refuse_taken(target)
    assert [s.key for s in target.list("")] == before


def test_nor_in_a_folder_in_which_a_stream_begins_while_it_is_made(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    late = FaultyStorage(target, [Fault(Moment.DELAY, operations=frozenset({"put"}), pause=lambda: StreamWriter(target).begin(1))])
    with pytest.raises(ConflictError, match="there is a stream at"):
        store_savepoint(stream, checkpoint, late)
    assert target.size(paths.METADATA_NAME) is None


def test_nor_in_a_location_that_has_its_stream_beside_it(stream: Storage) -> None:
    with MemoryStorage("memory://location/x") as location, MemoryStorage("memory://location/x/_ckpt") as inner:
        StreamWriter(inner).begin(1)
        with pytest.raises(ConflictError, match="there is a stream at"):
            store_savepoint(stream, written(stream, random.Random(SEED)), location)
    wipe("location")


class LosesAnswers(MemoryStorage):
    """Of puts of `_metadata`."""

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = self._put(key, data)
        if key == paths.METADATA_NAME:
            raise OutcomeUnknownError(f"no answer to the put of {key}")
        return result

    def _put(self, key: str, data: bytes) -> PutResult:
        return super().put_if_absent(key, data)


class LosesRequests(LosesAnswers):
    def _put(self, key: str, data: bytes) -> PutResult:
        return PutResult.EXISTS if key == paths.METADATA_NAME else super()._put(key, data)


def test_one_whose_answer_was_lost_is_known_for_its_own(stream: Storage) -> None:
    with LosesAnswers("memory://target/deep/sp") as target:
        made = store_savepoint(stream, written(stream, random.Random(SEED)), target)
        assert RestorePath.at(target.url).read(target) == made
    wipe("target")


def test_one_that_is_not_there_when_the_answer_is_lost_is_not_made(stream: Storage) -> None:
    with LosesRequests("memory://target/deep/sp") as target, pytest.raises(OutcomeUnknownError):
        store_savepoint(stream, written(stream, random.Random(SEED)), target)
    wipe("target")


def test_where_nothing_can_be_said_the_error_of_the_put_is_told(stream: Storage) -> None:
    """It is what tells whether trying again can help."""

    class Refuses(MemoryStorage):
        refused = False

        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            self.refused = True
            raise StorageSetupError("no permission to put")

        def size(self, key: str) -> int | None:
            if self.refused:
                raise StorageError("slow down")
            return super().size(key)

    with Refuses("memory://target/deep/sp") as target, pytest.raises(StorageSetupError):
        store_savepoint(stream, written(stream, random.Random(SEED)), target)
    wipe("target")


def test_two_at_once_in_one_folder_leave_the_first_intact(stream: Storage, target: Storage) -> None:
    """The second one has looked before the first was complete."""
    checkpoint = written(stream, random.Random(SEED))
    fewer = replace(checkpoint, snapshots=checkpoint.snapshots[1:])

    class Slow(MemoryStorage):
        def size(self, key: str) -> int | None:
            found = super().size(key)
            if key == paths.METADATA_NAME and found is None:
                store_savepoint(stream, checkpoint, MemoryStorage(self.url))
            return found

    with Slow("memory://target/both") as both, pytest.raises(ConflictError):
        store_savepoint(stream, fewer, both)
    with MemoryStorage("memory://target/both") as both:
        first = RestorePath.at(both.url).read(both)
        assert len(first.snapshots) == len(checkpoint.snapshots)
        assert intact(both, first)


def test_what_is_left_of_a_copy_that_failed_is_not_tried(stream: Storage, target: Storage) -> None:
    """An outage would be waited for once for each object."""
    checkpoint = written(stream, random.Random(SEED))
    (snapshot, *_) = checkpoint.snapshots
    handles = [replace(snapshot.handles[0], object=f"run-00000001/seg/gone-{n}") for n in range(400)]
    asked: list[str] = []

    class Away(MemoryStorage):
        def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
            asked.append(key)
            time.sleep(0.01)
            raise StorageError(f"cannot read {key}")

    with Away(stream.url) as away, pytest.raises(StorageError, match="cannot read"):
        store_savepoint(away, replace(checkpoint, snapshots=(replace(snapshot, handles=tuple(handles)),), files={}), target)
    assert 0 < len(asked) < 200


def test_a_copy_that_was_killed_leaves_nothing_behind(
    stream: Storage, target: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    left = temporary / f"{TEMPORARY}copy-killed"
    left.mkdir(parents=True)
    (left / "lock").touch()
    (left / "3.0").write_bytes(b"half")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    store_savepoint(stream, written(stream, random.Random(SEED)), target)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("large", [False, True])
def test_a_damaged_range_makes_no_savepoint(stream: Storage, target: Storage, large: bool) -> None:
    data = b"x" * ((5 << 20) if large else 5)
    stream.put("run-00000001/seg/1-a", data)
    handle = Handle(HandleKind.CHANGELOG, "1_u.changelog", "run-00000001/seg/1-a", 0, len(data), 7)
    snapshot = Snapshot(StoreId(0, 0, "default"), 1, "u", (handle,))
    checkpoint = Checkpoint(CheckpointId(1, 0), 2, 1, "q", 1, JOB, {}, (snapshot,), {})
    with pytest.raises(DamagedError, match=r"1_u.changelog in memory://stream/s/run-00000001/seg/1-a"):
        store_savepoint(stream, checkpoint, target)
    assert target.size(paths.METADATA_NAME) is None


def test_a_missing_object_makes_no_savepoint(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    stream.delete([sorted(checkpoint.objects)[0]])
    with pytest.raises(ObjectMissingError):
        store_savepoint(stream, checkpoint, target)
    assert target.size(paths.METADATA_NAME) is None


def test_a_query_without_state_has_savepoints_too(stream: Storage, target: Storage) -> None:
    checkpoint = Checkpoint(CheckpointId(1, 0), 2, 1, "q", 1, JOB, {"offsets/0": b"o"}, (), {})
    assert store_savepoint(stream, checkpoint, target) == checkpoint
    assert [s.key for s in target.list("")] == [paths.METADATA_NAME]


def test_an_import_is_under_the_runs_prefix(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    imported = replace(import_objects(stream, checkpoint, target, 7), id=CheckpointId(7, 8))
    assert intact(target, imported)
    assert all(name.startswith("run-00000007/") for name in imported.objects)
    assert {s.key for s in target.list("")} == imported.objects
    decode_metadata(encode_metadata(imported))


def test_a_source_is_a_checkpoint_or_a_savepoint() -> None:
    chk = RestorePath.at("s3://b/s/run-00000003/chk-42/")
    assert (chk.storage_url, chk.key, chk.is_savepoint) == ("s3://b/s", "run-00000003/chk-42/_metadata", False)
    sp = RestorePath.at("s3://b/s/savepoints/x/_metadata")
    assert (sp.url, sp.storage_url, sp.key, sp.is_savepoint) == ("s3://b/s/savepoints/x", "s3://b/s/savepoints/x", "_metadata", True)


def test_a_folder_without_metadata_is_named(stream: Storage) -> None:
    with pytest.raises(ObjectMissingError, match="no checkpoint or savepoint at memory://stream/s; give the URL"):
        RestorePath.at(stream.url).read(stream)


def test_a_claimed_savepoint_is_deleted_and_nothing_else_in_its_folder(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    store_savepoint(stream, checkpoint, target)
    target.put("notes.txt", b"mine")
    taken_over(target, checkpoint)
    assert [s.key for s in target.list("")] == ["notes.txt"]
    taken_over(target, checkpoint)


@pytest.mark.parametrize("change", [{"time_ms": 3}, {"snapshots": 1}, {"id": CheckpointId(1, 99)}])
def test_another_savepoint_with_the_name_of_a_claimed_one_stays(stream: Storage, target: Storage, change: dict[str, Any]) -> None:
    """What was left out by the copy, an operator that is gone, makes no other."""
    there = store_savepoint(stream, written(stream, random.Random(SEED)), target)
    shorter = replace(there, snapshots=there.snapshots[1:])
    assert is_copy(shorter, there)
    if change == {"snapshots": 1}:
        first = there.snapshots[0]
        handles = tuple(replace(handle, checksum=handle.checksum ^ 1) for handle in first.handles)
        change = {"snapshots": (replace(first, handles=handles), *there.snapshots[1:])}
    before = {found.key for found in target.list("")}
    for copy in (replace(there, **change), None):
        with pytest.raises(ConflictError):
            taken_over(target, copy)
    assert {found.key for found in target.list("")} == before


def test_what_is_made_anew_while_a_claimed_savepoint_goes_stays_whole(stream: Storage, target: Storage) -> None:
    """(1) Its `_metadata` is deleted, and no object yet; (2) a person makes the same once more; (3) the deletion is tried again."""
    checkpoint = written(stream, random.Random(SEED))
    store_savepoint(stream, checkpoint, target)
    stream.put(paths.metadata_key(checkpoint.id), encode_metadata(checkpoint))
    going = TakenOver()
    going.look_at_copy(stream, checkpoint.id)
    denied = FaultyStorage(target, [Fault(Moment.FAIL_BEFORE, "run-*", frozenset({"delete"}))])
    with pytest.raises(StorageError):
        going.delete(RestorePath.at(target.url), denied)
    assert target.size(paths.METADATA_NAME) is None
    store_savepoint(stream, checkpoint, target)
    before = {found.key for found in target.list("")}
    with pytest.raises(ConflictError, match="another savepoint is there now"):
        going.delete(RestorePath.at(target.url), target)
    assert {found.key for found in target.list("")} == before


def test_a_claimed_checkpoint_of_another_stream_stays_with_that_stream(stream: Storage, tmp_path: Path) -> None:
    """Its newest one, which a run of it that lives goes back to."""
    writer = StreamWriter(stream)
    writer.begin(1)
    only = writer.complete(1, 0, [make_store(tmp_path, 5, "a")])
    TakenOver().delete(RestorePath.at(f"{stream.url.rstrip('/')}/run-00000001/chk-0"), stream)
    assert {s.key for s in stream.list(paths.RUN_PREFIX)} == {paths.metadata_key(only.id), *only.objects}


def test_a_storage_that_refuses_is_told(stream: Storage, target: Storage) -> None:
    checkpoint = written(stream, random.Random(SEED))
    stream.close()
    with pytest.raises(StorageError):
        store_savepoint(stream, checkpoint, target)


@pytest.mark.parametrize(
    ("savepoint_dir", "target", "name"),
    [
        ("", "s3://b/s/savepoints/run-00000001", "chk-5"),
        ("s3://other/run-00000001", "", "chk-5"),
        ("s3://b/s", "", "run-00000003"),
        ("s3a://b/s", "", "run-00000003"),
        ("s3://b/s/run-00000003", "", "x"),
        ("s3://b/s", "s3://b/s/run-00000003/kept", "x"),
    ],
)
def test_a_savepoint_is_not_made_where_it_would_be_taken_for_something_else(savepoint_dir: str, target: str, name: str) -> None:
    """Restored, its objects would be looked for elsewhere; in a run's folder `gc` would delete it."""
    with pytest.raises(ConfigError, match="the name of a run's folder or of a checkpoint's"):
        Places("s3://b/s", savepoint_dir).savepoint(target, name)


@pytest.mark.parametrize("name", ["run-00000001", "chk-5", "x"])
def test_a_savepoint_may_have_such_a_name_where_nobody_mistakes_it(name: str) -> None:
    assert Places("s3://b/s").savepoint("", name) == f"s3://b/s/savepoints/{name}"
