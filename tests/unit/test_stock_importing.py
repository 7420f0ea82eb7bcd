"""`spark-ckpt import`: what becomes of a stock checkpoint, what is refused, and what becomes of an import that was interrupted."""

from __future__ import annotations

import errno
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import CheckpointError, DamagedError, StorageError
from spark_ckpt.model import Checkpoint, FileHandle, HandleKind, Snapshot
from spark_ckpt.protocol import large_files
from spark_ckpt.state.changelogs import Change, read_records
from spark_ckpt.stock import reading
from spark_ckpt.stock.changelog_forms import read_lineage
from spark_ckpt.stock.importing import describe, import_checkpoint
from spark_ckpt.stock.layout import OURS
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.verify import Verifier
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.command_line import call
from tests.drivers.stock_location import QUERY, StockLocation, changelog, packed
from tests.drivers.stored_stream import make_store
from tests.stored.earlier import place

Row = tuple[str, bytes]


def located(tmp_path: Path, **how: Any) -> StockLocation:
    return StockLocation(tmp_path / "stock", **how).begin()


def imported(at: StockLocation, to: Path) -> tuple[Storage, Checkpoint]:
    target = open_storage(f"file://{to}")
    made = import_checkpoint(open_storage(f"file://{at.folder}"), target)
    assert RestorePath.at(target.url).read(target) == made
    return target, made


def content(target: Storage, snapshot: Snapshot, position: int) -> bytes:
    handle = snapshot.handles[position]
    return target.get(handle.object, handle.offset, handle.length)


def lineage_of(target: Storage, snapshot: Snapshot, codec: str, tmp_path: Path) -> list[tuple[int, str]]:
    path = tmp_path / "newest.changelog"
    path.write_bytes(content(target, snapshot, -1))
    return list(read_lineage(path, path.name, codec))


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy"])
@pytest.mark.parametrize("form", [1, 2])
def test_state_of_format_1_gets_unique_ids_and_its_changelogs_their_lineage(tmp_path: Path, form: int, codec: str) -> None:
    at = located(tmp_path, form=form, codec=codec)
    for batch in range(4):
        at.batch(batch, full=batch == 1)
    target, made = imported(at, tmp_path / "out")
    for snapshot in made.snapshots:
        *ssts, full, third, fourth = snapshot.handles
        assert {h.kind for h in ssts} == {HandleKind.SST}
        ids = [h.name.split(".")[0].split("_")[1] for h in (full, third, fourth)]
        assert [h.name for h in (full, third, fourth)] == [f"2_{ids[0]}.zip", f"3_{ids[1]}.changelog", f"4_{ids[2]}.changelog"]
        assert (snapshot.version, snapshot.uid, snapshot.num_keys) == (4, ids[2], None)
        assert list(read_records(io.BytesIO(content(target, snapshot, -1)), "4", codec)) == [(Change.PUT, b"\0key3", b"\0value3")]
        assert lineage_of(target, snapshot, codec, tmp_path) == [(2, ids[0]), (3, ids[1])]
    commit = json.loads((made.file("commits/3") or b"").split(b"\n")[1])
    assert commit == {"nextBatchWatermarkMs": 4000, "stateUniqueIds": {"0": [[s.uid] for s in made.snapshots]}}
    assert (made.file("commits/3") or b"").startswith(b"v2\n")
    assert len({s.uid for s in made.snapshots}) == 2


def test_state_of_format_2_is_copied_as_it_is(tmp_path: Path) -> None:
    at = located(tmp_path, format=2, stores=("left-keyToNumValues", "left-keyWithIndexToValue"))
    for batch in range(3):
        at.batch(batch, full=batch == 0)
    target, made = imported(at, tmp_path / "out")
    assert [(s.store.partition, s.store.store, s.uid) for s in made.snapshots] == [
        (p, name, f"u-{name}-{p}-2") for p in range(2) for name in at.stores
    ]
    folder = at.folder / "state/0/1/left-keyWithIndexToValue"
    for handle in made.snapshots[-1].handles:
        assert target.get(handle.object, handle.offset, handle.length) == (folder / handle.name).read_bytes()
    assert made.file("commits/2") == (at.folder / "commits/2").read_bytes().replace(b": ", b":").replace(b", ", b",")


def test_a_full_snapshot_of_the_version_itself_is_enough(tmp_path: Path) -> None:
    at = located(tmp_path)
    at.batch(0, full=True)
    for changes in at.folder.glob("state/0/*/1.changelog"):
        changes.unlink()
    _, made = imported(at, tmp_path / "out")
    assert [(s.version, s.handles[-1].kind, s.num_keys) for s in made.snapshots] == [(1, HandleKind.SNAPSHOT, 5)] * 2


def test_the_drivers_files_are_those_that_a_start_takes(tmp_path: Path) -> None:
    at = located(tmp_path)
    for batch in range(4):
        at.batch(batch)
    at.write("offsets/.3.crc", b"crc")
    at.write("offsets/3.crc", b"crc")
    at.write("sources/0/3.crc", b"crc")
    at.write("sources/0/9", b"x" * 70_000)
    target, made = imported(at, tmp_path / "out")
    state = {"state/0/_metadata/metadata", "state/0/0/_metadata/schema"}
    assert set(made.files) == {"offsets/2", "offsets/3", "commits/2", "commits/3", *(f"sources/0/{n}" for n in (0, 1, 2, 3, 9)), *state}
    large = made.files["sources/0/9"]
    assert not isinstance(large, bytes)
    assert target.get(large.object) == b"x" * 70_000
    lines = (made.file("offsets/3") or b"").split(b"\n")
    assert json.loads(lines[1])["conf"]["spark.sql.streaming.stateStore.providerClass"] == OURS.decode()
    assert json.loads(lines[1])["batchWatermarkMs"] == 3000
    assert lines[2] == b'{"logOffset":3}'
    assert (made.query_id, made.id.epoch, made.job.operators) == (QUERY, 3, ("stateStoreSave",))
    assert made.imported is not None
    assert made.imported.planned is None


def test_a_batch_that_was_begun_is_taken_along(tmp_path: Path) -> None:
    at = located(tmp_path)
    at.batch(0)
    at.plan(1)
    _, made = imported(at, tmp_path / "out")
    assert made.imported is not None
    planned = (made.imported.planned or b"").split(b"\n")
    assert planned[2] == b'{"logOffset":1}'
    assert OURS in planned[1]
    assert "sources/0/1" in made.files


def test_the_location_is_only_read_and_a_second_import_finds_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = located(tmp_path)
    at.batch(0, full=True)
    at.batch(1)
    before = at.contents()
    url = f"file://{tmp_path}/lake/savepoints/import-1"
    for _ in range(2):
        status, doc = call(capsys, "import", str(at.folder), f"{tmp_path}/lake")
        assert (status, doc["savepoint"], doc["option"], doc["stores"]) == (0, url, f"spark.ckpt.restore.path={url}", 2)
    assert at.contents() == before
    assert call(capsys, "verify", url)[0] == 0
    assert call(capsys, "restore", url)[0] == 0
    status, doc = call(capsys, "import", str(at.folder), str(at.folder / "here"))
    assert status == 2 or "only read" in json.dumps(doc)
    at.batch(2)
    status, doc = call(capsys, "import", str(at.folder), f"{tmp_path}/lake", "--name", "import-1")
    assert status == 1
    assert "there is another savepoint" in json.dumps(doc)


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("full", [True, False])
def test_a_location_that_holds_something_else_now_is_another_savepoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: int, full: bool
) -> None:
    """Of the same query, place and batch: state was exported there again, with other rows."""
    at = located(tmp_path, format=form)
    at.batch(0, full)
    lake = f"{tmp_path}/lake"
    assert call(capsys, "import", str(at.folder), lake)[0] == 0
    saved = contents(tmp_path / "lake")
    first = at.contents()
    if full:
        other = make_store(tmp_path, 7, "other")
        (zip_file,) = (at.folder / "state/0/1").glob("1*.zip")
        zip_file.write_bytes(other.zip_bytes)
        for sst, data in other.ssts.items():
            at.write(f"state/0/1/SSTs/{sst}", data)
    else:
        (newest,) = (at.folder / "state/0/1").glob("1*.changelog")
        newest.write_bytes(packed(changelog([(b"\0key0", b"\0other")], 1 if form == 1 else 3), "lz4"))
    status, doc = call(capsys, "import", str(at.folder), lake)
    assert status == 1
    assert "and not of what is in" in json.dumps(doc)
    assert contents(tmp_path / "lake") == saved
    for name, (data, _) in first.items():
        at.write(name, data)
    assert call(capsys, "import", str(at.folder), lake)[0] == 0


def test_another_batch_is_told_apart_before_all_is_read(tmp_path: Path) -> None:
    at = located(tmp_path)
    at.batch(0)
    imported(at, tmp_path / "out")
    at.batch(1)
    for path in (at.folder / "state/0/0").glob("*.changelog"):
        path.write_bytes(b"is not read")
    with pytest.raises(CheckpointError, match="there is another savepoint at"):
        import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{tmp_path}/out"))


def test_an_import_that_is_not_whole_any_more_is_not_told_as_made(tmp_path: Path) -> None:
    """As where a rule of the bucket has deleted what is old: `_metadata` was stored last, so it goes last."""
    at = located(tmp_path)
    at.batch(0)
    target, made = imported(at, tmp_path / "out")
    target.delete(sorted(made.objects)[:1])
    with pytest.raises(CheckpointError, match=r"is not whole any more: .* is missing; import it again under another name"):
        import_checkpoint(open_storage(f"file://{at.folder}"), target)


def test_no_import_is_put_into_the_folder_of_a_stream(tmp_path: Path) -> None:
    at = located(tmp_path)
    at.batch(0)
    place("1", tmp_path / "stream")
    before = contents(tmp_path / "stream")
    with pytest.raises(CheckpointError, match="there is a stream at"):
        import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{tmp_path}/stream"))
    assert contents(tmp_path / "stream") == before


def test_no_import_is_put_into_a_run_of_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = located(tmp_path)
    at.batch(0)
    place("1", tmp_path / "stream")
    status, doc = call(capsys, "import", str(at.folder), f"{tmp_path}/stream/run-00000001")
    assert (status, "lies in the folder of a run of the stream" in json.dumps(doc)) == (2, True)
    assert not (tmp_path / "stream/run-00000001/savepoints").exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_a_half_done_import_has_left_is_not_taken_for_another_content(tmp_path: Path) -> None:
    at = located(tmp_path)
    at.batch(0)
    target, made = imported(at, tmp_path / "out")
    Path(tmp_path, "out", "_metadata").unlink()
    left = contents(tmp_path / "out")
    (newest,) = (at.folder / "state/0/1").glob("1*.changelog")
    newest.write_bytes(packed(changelog([(b"\0key0", b"\0other")], 1), "lz4"))
    target, again = imported(at, tmp_path / "out")
    assert again != made
    there = contents(tmp_path / "out")
    assert there.keys() == {*again.objects, "_metadata"}, "what nothing names may be of somebody who was to be forgotten"
    assert left.keys() - there.keys()
    assert not Verifier(target).verify(again).problems


def test_an_import_that_was_cut_short_leaves_no_savepoint_and_is_done_again(tmp_path: Path) -> None:
    at = located(tmp_path)
    at.batch(0, full=True)
    target = FaultyStorage(open_storage(f"file://{tmp_path}/out"), [Fault(Moment.LOSE_ANSWER, operations=frozenset({"put"}))])
    with pytest.raises(StorageError):
        import_checkpoint(open_storage(f"file://{at.folder}"), target)
    assert len(target.hits) == 1
    assert target.size("_metadata") is None
    left = {found.key: target.get(found.key) for found in target.list("")}
    assert left
    imported(at, tmp_path / "out")
    assert {key: target.get(key) for key in left} == left


@pytest.mark.parametrize(("goes_on", "committed"), [("batch", 1), ("plan", 0)])
def test_a_query_that_goes_on_meanwhile_is_told_of(tmp_path: Path, goes_on: str, committed: int) -> None:
    at = located(tmp_path)
    at.batch(0)
    meanwhile = Fault(Moment.DELAY, operations=frozenset({"put"}), pause=lambda: getattr(at, goes_on)(1))
    target = FaultyStorage(open_storage(f"file://{tmp_path}/out"), [meanwhile])
    with pytest.raises(CheckpointError, match=f"has begun batch 1 and committed batch {committed} while batch 0 was imported; stop it"):
        import_checkpoint(open_storage(f"file://{at.folder}"), target)
    assert target.size("_metadata") is None


def remove(name: str) -> Callable[[StockLocation], None]:
    return lambda at: (at.folder / name).unlink()


def cut(name: str) -> Callable[[StockLocation], None]:
    return lambda at: at.write(name, (at.folder / name).read_bytes()[:30])


def replaced(name: str, old: bytes, new: bytes) -> Callable[[StockLocation], None]:
    return lambda at: at.write(name, (at.folder / name).read_bytes().replace(old, new))


def shortened(name: str) -> Callable[[StockLocation], None]:
    return lambda at: at.write(name, (at.folder / name).read_bytes()[:-21])


def ahead(at: StockLocation) -> None:
    at.plan(3)
    at.plan(4)


def no_commits(at: StockLocation) -> None:
    for path in at.folder.glob("commits/*"):
        path.unlink()


def an_sst(change: Callable[[Path], object]) -> Callable[[StockLocation], None]:
    def changed(at: StockLocation) -> None:
        change(sorted(at.folder.glob("state/0/1/SSTs/*"))[0])

    return changed


STATE = b"RocksDBStateStoreProvider"


@pytest.mark.parametrize(("spoil", "message"), [
    (no_commits, "has committed no batch yet"),
    (ahead, r"has begun batches up to 4 and committed up to 2, as with asyncProgressTrackingEnabled"),
    (remove("offsets/2"), r"commits/2 is there and offsets/2 is not; put it back"),
    (remove("metadata"), r"/stock/metadata .*; without it the checkpoint cannot be imported: put it back"),
    (cut("metadata"), r"/stock/metadata is not what Spark writes .*put it back"),
    (cut("offsets/2"), r"/stock/offsets/2 is not what Spark writes .*put it back"),
    (cut("commits/2"), r"/stock/commits/2 is not what Spark writes .*put it back"),
    (replaced("offsets/2", b'partitions": "2"', b'partitions": "two"'), r"/stock/offsets/2 has \S+partitions='two', which is no number"),
    (replaced("offsets/2", b'partitions": "2"', b'partitions": null'), r"/stock/offsets/2 has \S+partitions=.*which is no number"),
    (replaced("offsets/2", b'providerClass": "org', b'providerClass": 5, "x": "org'), r"is kept by 5, and only that of"),
    (replaced("offsets/2", b'codec": "lz4"', b'codec": 5'), r"3.changelog is compressed with '5', and lz4, zstd and snappy are read"),
    (replaced("commits/2", b"v1", b"v9"), r"/stock/commits/2 has the form 'v9', known are v1 to v3: .* another Spark"),
    (replaced("offsets/2", b"v1", b"v9"), r"/stock/offsets/2 has the form 'v9', known are v1 and v2: .* another Spark"),
    (replaced("offsets/2", STATE, b"HDFSBackedStateStoreProvider"), r"is kept by HDFSBacked\S+, and only that of Spark's RocksDB"),
    (lambda at: at.write("state/0/0/3.delta", b""), r"is kept by HDFSBackedStateStoreProvider"),
    (replaced("offsets/2", b"org.apache.spark.sql.execution.streaming.state.", b"com.example."), r"is kept by com.example.RocksDB"),
    (lambda at: at.write("offsets/2", (at.folder / "offsets/2").read_bytes().replace(
        b"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider", OURS)), r"runs with the plugin already"),
    (remove("state/0/1/3.changelog"), r"state/0/1 lacks the changelog of version 3"),
    (remove("state/0/1/2.zip"), r"state/0/1 lacks .* version"),
    (cut("state/0/1/2.zip"), r"state/0/1/2.zip cannot be read: .*; put it back"),
    (cut("state/0/1/3.changelog"), r"state/0/1/3.changelog"),
    (shortened("state/0/1/3.changelog"), r"state/0/1/3.changelog .*ends early"),
    (an_sst(Path.unlink), r"SSTs/.* the import needs it: put it back"),
    (an_sst(lambda path: path.write_bytes(path.read_bytes()[:-1])), r"SSTs/.* bytes, and the full snapshot that names it says"),
])  # fmt: skip
def test_what_cannot_be_imported_is_named_and_nothing_is_there(
    tmp_path: Path, spoil: Callable[[StockLocation], None], message: str
) -> None:
    at = located(tmp_path)
    for batch in range(3):
        at.batch(batch, full=batch == 1)
    if "lacks .* version" in message:
        (at.folder / "state/0/1/1.changelog").unlink()
    spoil(at)
    target = open_storage(f"file://{tmp_path}/out")
    with pytest.raises(CheckpointError, match=message) as raised:
        import_checkpoint(open_storage(f"file://{at.folder}"), target)
    assert "; " in str(raised.value)
    assert target.size("_metadata") is None


def test_a_checkpoint_of_a_spark_that_wrote_no_operators_metadata(tmp_path: Path) -> None:
    at = located(tmp_path, stores=("right-keyToNumValues", "left-keyWithIndexToValue"))
    at.batch(0)
    (at.folder / "state/0/_metadata/metadata").unlink()
    _, made = imported(at, tmp_path / "out")
    assert made.job.operators == ()
    assert [s.store.store for s in made.snapshots] == ["left-keyWithIndexToValue", "right-keyToNumValues"] * 2


@pytest.mark.parametrize(("columns", "together"), [(1000, large_files.TOGETHER), (1, 500)])
def test_a_schema_that_is_an_object_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, together: int) -> None:
    """It has many columns, or the logs of sources have taken the room of `_metadata`."""
    monkeypatch.setattr(reading, "TOGETHER", together)
    at = located(tmp_path, values=[f"measurement_{n:04d}" for n in range(columns)])
    at.batch(0)
    at.write("sources/0/0", b"v1\n" + 300 * b"x")
    name = "state/0/0/_metadata/schema"
    target, made = imported(at, tmp_path / "out")
    assert (len(made.snapshots), made.job.operators) == (2, ("stateStoreSave",))
    schema = made.files[name]
    assert isinstance(schema, FileHandle)
    assert target.get(schema.object) == (at.folder / name).read_bytes()
    described = describe(open_storage(f"file://{at.folder}"))
    assert described.file(name) == target.get(schema.object)
    assert (described.job, [s.store for s in described.snapshots]) == (made.job, [s.store for s in made.snapshots])
    with_checksums(at)
    replaced(name, b"measurement_0000", b"measurement_0001")(at)
    with pytest.raises(DamagedError, match=rf"{name} is not what was written"):
        describe(open_storage(f"file://{at.folder}"))


@pytest.mark.parametrize(("form", "said"), [(1, r"state/1/0 lacks version 3, the state of batch 2; put"), (2, "names 0 of 2 partitions")])
def test_an_operator_of_which_only_the_drivers_files_are_left(tmp_path: Path, form: int, said: str) -> None:
    at = located(tmp_path, format=form)
    for batch in range(3):
        at.batch(batch)
    for name in ("_metadata/metadata", "0/_metadata/schema"):
        at.write(f"state/1/{name}", (at.folder / "state/0" / name).read_bytes())
    with pytest.raises(DamagedError, match=said):
        imported(at, tmp_path / "out")
    if form == 2:
        ids = [[f"v{partition}"] for partition in range(2)]
        replaced("commits/2", b'"0": [', f'"1": {json.dumps(ids)}, "0": ['.encode())(at)
        with pytest.raises(DamagedError, match=r"state/1/0 lacks version 3, the state of batch 2; put its files back"):
            imported(at, tmp_path / "out")


@pytest.mark.parametrize("gone", ["state/0/*/right-keyToNumValues/*", "state/0/*/*/1.changelog"])
def test_state_that_is_gone_where_spark_wrote_no_operators_metadata(tmp_path: Path, gone: str) -> None:
    at = located(tmp_path, stores=("right-keyToNumValues", "left-keyWithIndexToValue"))
    at.batch(0)
    (at.folder / "state/0/_metadata/metadata").unlink()
    for path in at.folder.glob(gone):
        if path.is_file():
            path.unlink()
    with pytest.raises(DamagedError, match=r"state/0/0/\S+ lacks version 1, the state of batch 0; put its files back"):
        imported(at, tmp_path / "out")


def test_a_location_is_no_savepoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = located(tmp_path)
    at.batch(0)
    status, doc = call(capsys, "restore", str(at.folder))
    assert status == 1
    assert "is no savepoint but a query's checkpointLocation; if the query has run without the plugin" in json.dumps(doc)


def with_checksums(at: StockLocation) -> None:
    """Hadoop's, of all that is there."""
    for file in [path for path in at.folder.rglob("*") if path.is_file()]:
        sums = (zlib.crc32(file.read_bytes()[i : i + 512]) for i in range(0, file.stat().st_size, 512))
        (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + struct.pack(">i", 512) + b"".join(struct.pack(">I", s) for s in sums))


@pytest.mark.parametrize("name", [
    *("state/0/1/1.zip", "state/0/0/2.changelog", "state/0/1/SSTs"),
    *("metadata", "offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1", "sources/0/1"),
    *("state/0/_metadata/metadata", "state/0/0/_metadata/schema"),
])  # fmt: skip
def test_what_hadoops_checksums_do_not_fit_is_damaged(tmp_path: Path, name: str) -> None:
    """One bit of a file."""
    at = located(tmp_path)
    at.batch(0, full=True)
    at.batch(1)
    at.plan(2)
    with_checksums(at)
    imported(at, tmp_path / "whole")
    chosen = at.folder / name
    chosen = sorted(chosen.glob("[0-9]*"))[0] if chosen.is_dir() else chosen
    data = bytearray(chosen.read_bytes())
    data[len(data) // 2] ^= 1
    chosen.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{name}.* is not what was written: its checksums in .* differ; put it back"):
        imported(at, tmp_path / "out")


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_a_changelog_that_spark_would_refuse_is_not_made_right(tmp_path: Path, version: int, form: int) -> None:
    """Its block is written anew, with a checksum that fits: on an object store nothing else tells that a byte is another one."""
    at = located(tmp_path, format=version, form=form)
    at.batch(0)
    at.batch(1)
    imported(at, tmp_path / "whole")
    chosen = next(at.folder.glob("state/0/0/2*.changelog"))
    data = bytearray(chosen.read_bytes())
    data[data.index(b"value1")] ^= 1
    chosen.write_bytes(data)
    with pytest.raises(DamagedError, match=r"2.*\.changelog has a block whose checksum is another one; it is damaged"):
        imported(at, tmp_path / "out")


@pytest.mark.parametrize("member", ["MANIFEST", "CURRENT"])
def test_a_full_snapshot_is_read_to_its_end(tmp_path: Path, member: str) -> None:
    at = located(tmp_path)
    at.batch(0, full=True)
    chosen = at.folder / "state/0/0/1.zip"
    data = bytearray(chosen.read_bytes())
    with zipfile.ZipFile(chosen) as archive:
        found = next(info for info in archive.infolist() if info.filename.startswith(member))
    data[found.header_offset + 30 + len(found.filename) + len(found.extra) + found.compress_size // 2] ^= 0x55
    chosen.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"state/0/0/1\.zip cannot be read: .* is not a snapshot of Spark's state store"):
        imported(at, tmp_path / "out")


def members_of(source: Path | io.BytesIO) -> dict[str, bytes]:
    with zipfile.ZipFile(source) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def as_a_task_of_4_0_writes_it(path: Path) -> None:
    members = members_of(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(b"v1\n", b"v2\n", 1) if name == "metadata" else data)


def test_a_full_snapshot_that_a_task_of_spark_4_0_has_written_is_read(tmp_path: Path) -> None:
    """Twice with the same result; the location stays as it is."""
    at = located(tmp_path, format=2)
    at.batch(0, full=True)
    at.batch(1)
    zips = sorted(at.folder.glob("state/0/*/1_*.zip"))
    plain = {path.name: members_of(path) for path in zips}
    for path in zips:
        as_a_task_of_4_0_writes_it(path)
    before = {path: path.read_bytes() for path in at.folder.rglob("*") if path.is_file()}
    target, made = imported(at, tmp_path / "out")
    assert imported(at, tmp_path / "out")[1] == made
    assert {path: path.read_bytes() for path in at.folder.rglob("*") if path.is_file()} == before
    full = [(snapshot, n) for snapshot in made.snapshots for n, h in enumerate(snapshot.handles) if h.kind is HandleKind.SNAPSHOT]
    stored = {s.handles[n].name: members_of(io.BytesIO(content(target, s, n))) for s, n in full}
    assert stored == plain
    with zipfile.ZipFile(io.BytesIO(content(target, *full[0]))) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}, "done again later, it has the same bytes"
    assert all(members["metadata"].startswith(b"v1\n{") for members in stored.values())


def test_what_a_later_spark_may_call_v2_is_not_taken_for_that_of_4_0(tmp_path: Path) -> None:
    at = located(tmp_path, format=2)
    at.batch(0, full=True)
    (chosen,) = at.folder.glob("state/0/0/1_*.zip")
    as_a_task_of_4_0_writes_it(chosen)
    members = members_of(chosen)
    with zipfile.ZipFile(chosen, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(b"{", b'{"more":1,', 1) if name == "metadata" else data)
    with pytest.raises(CheckpointError, match="has the format 'v2', known is v1"):
        imported(at, tmp_path / "out")


def test_a_forged_snapshot_of_spark_4_0_is_named(tmp_path: Path) -> None:
    at = located(tmp_path, format=2)
    at.batch(0, full=True)
    (chosen,) = at.folder.glob("state/0/0/1_*.zip")
    as_a_task_of_4_0_writes_it(chosen)
    with zipfile.ZipFile(chosen, "a") as archive:
        archive.writestr("../x", b"x")
    with pytest.raises(CheckpointError, match=r"/stock/state/0/0/1_.*\.zip cannot be read: .* '\.\./x'.*; put it back"):
        imported(at, tmp_path / "out")


def test_a_local_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = located(tmp_path, format=2)
    at.batch(0, full=True)
    for path in at.folder.glob("state/0/*/1_*.zip"):
        as_a_task_of_4_0_writes_it(path)

    def full(_: object, to: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", to)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageError, match=r"No space left on device; free space there or choose another folder, .* TMPDIR"):
        imported(at, tmp_path / "out")


def test_another_digit_in_the_offsets_is_damage(tmp_path: Path) -> None:
    """The query would leave rows out, or read some twice."""
    at = located(tmp_path)
    for batch in range(3):
        at.batch(batch)
    with_checksums(at)
    replaced("offsets/2", b'"logOffset":2', b'"logOffset":6')(at)
    with pytest.raises(DamagedError, match=r"/stock/offsets/2 is not what was written: its checksums in \.2\.crc differ; put it back"):
        imported(at, tmp_path / "out")
    (at.folder / "offsets/.2.crc").write_bytes(b"crc\0of another form")
    imported(at, tmp_path / "out")


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no checkpoint of Spark at .*/nothing: .*; give"):
        import_checkpoint(open_storage(f"file://{tmp_path}/nothing"), open_storage(f"file://{tmp_path}/out"))
    assert not (tmp_path / "nothing").exists()


def test_a_stateless_query_whatever_its_provider_is_said_to_be(tmp_path: Path) -> None:
    at = StockLocation(tmp_path / "stock", conf={"spark.sql.streaming.stateStore.providerClass": "x.HDFSBackedStateStoreProvider"})
    at.stores = ()
    at.write("metadata", b'{"id":"q"}')
    at.batch(0)
    _, made = imported(at, tmp_path / "out")
    assert (made.snapshots, made.job.operators) == ((), ())
