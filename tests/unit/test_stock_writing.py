"""`spark-ckpt export`: what is written, what is refused, and what becomes of an export that was interrupted."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.cli.main import run
from spark_ckpt.errors import ConfigError, ConflictError, DamagedError, ObjectMissingError
from spark_ckpt.model import Checkpoint, FileHandle, HandleKind, Snapshot
from spark_ckpt.protocol.entries import Claim, Plan, decode, encode
from spark_ckpt.state.changelogs import read_records, unpacked
from spark_ckpt.stock.changelog_forms import without_lineage
from spark_ckpt.stock.exporting import Exported, to_export
from spark_ckpt.stock.layout import OURS, STOCK, CheckpointFormat, for_stock, location_of
from spark_ckpt.stock.writing import MARK, mark_of, write_stock
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.ranges import IN_MEMORY
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.command_line import call
from tests.drivers.stock_location import changelog, packed
from tests.drivers.stored_stream import StreamWriter, flip, make_store

OFFSETS = b'v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.streaming.stateStore.providerClass":"%s"}}\n{"a":"%s"}'
OPERATOR = {
    "operatorInfo": {"operatorId": 0, "operatorName": "tws"},
    "operatorPropertiesJson": '{"ü":1}',
    "stateStoreInfo": [
        {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": ["file:/old/state/3/x/state/0/_stateSchema/default/0_a"]}
    ],
}


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    """Two checkpoints; the newest has three stores with a real changelog each, the last of them nothing else."""
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [make_store(tmp_path, 30, "a")])
    made = writer.complete(1, 1, [make_store(tmp_path, 40, "b"), make_store(tmp_path, 50, "c")], changelogs_only=1)
    snapshots = []
    for snapshot in made.snapshots:
        content = packed(changelog(records(snapshot), 4, [(7, "u"), (8, "v")]), "lz4")
        key = paths.segment_key(1, 1, f"log{snapshot.store.partition}")
        storage.put(key, content)
        real = replace(snapshot.handles[-1], object=key, offset=0, length=len(content), checksum=zlib.crc32(content))
        snapshots.append(replace(snapshot, handles=(*snapshot.handles[:-1], real)))
    commit = b'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["v0"],["v1"],["v2"]]}}'
    writer.checkpoints[-1] = replace(made, snapshots=tuple(snapshots), files={**made.files, "commits/1": commit})
    storage.put(paths.metadata_key(made.id), encode_metadata(writer.checkpoints[-1]))
    return writer


def records(snapshot: Snapshot) -> list[tuple[bytes, bytes]]:
    return [(b"key%d" % number, b"of partition %d" % snapshot.store.partition) for number in range(100)]


def exported(writer: StreamWriter) -> Exported:
    return to_export(writer.storage, StreamReader(writer.storage), None)


def stored(writer: StreamWriter, checkpoint: Checkpoint) -> Exported:
    writer.storage.put(paths.metadata_key(checkpoint.id), encode_metadata(checkpoint))
    return exported(writer)


def everything(target: Storage) -> dict[str, bytes]:
    return {found.key: target.get(found.key) for found in target.list("")}


def test_every_file_of_a_checkpoint_is_where_spark_looks_for_it(
    writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, doc = call(capsys, "export", url, str(tmp_path / "out"))
    assert status == 0
    checkpoint = writer.checkpoints[-1]
    target = open_storage(f"file://{tmp_path}/out")
    found = everything(target)
    assert json.loads(found.pop("metadata")) == {"id": "query"}
    assert (found.pop("offsets/1"), found.pop("commits/1")) == (b"v1\n{}", b'v1\n{"nextBatchWatermarkMs":7}')
    for snapshot in checkpoint.snapshots:
        below = f"state/0/{snapshot.store.partition}/"
        plain = found.pop(f"{below}8.changelog")
        assert b"".join(unpacked(BytesIO(plain), "x", "lz4")) == changelog(records(snapshot), 2)
        for handle in snapshot.handles[:-1]:
            name = "7.zip" if handle.kind is HandleKind.SNAPSHOT else handle.name
            assert found.pop(below + name) == writer.storage.get(handle.object, handle.offset, handle.length)
    assert found == {}
    everywhere = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert (doc["files"], doc["next_epoch"], doc["planned"]) == (len(everywhere), 2, False)
    assert doc["size"] == sum(path.stat().st_size for path in everywhere)
    assert not (tmp_path / "out" / ".tmp").exists()


DRAINED = b'v1\n{"batchWatermarkMs":253402300799999,"conf":{"spark.ckpt.drained":"true"}}\n0'


def test_a_drained_query_is_not_exported(writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its watermark is at the end of time: stock Spark would drop every later row, and say nothing."""
    made = writer.checkpoints[-1]
    writer.storage.put(paths.metadata_key(made.id), encode_metadata(replace(made, files={**made.files, "offsets/1": DRAINED})))
    for source in (url, f"{url}/run-00000001/chk-1"):
        assert run(["export", source, str(tmp_path / "out")]) == 1
        assert "cannot be exported: the query was drained, so that all later rows count as late" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    for verb in ("show", "restore"):
        status, found = call(capsys, verb, f"{url}/run-00000001/chk-1")
        assert (status, found["drained"]) == (0, True)
        assert run([verb, f"{url}/run-00000001/chk-1"]) == 0
        assert "yes: all rows that come later count as late" in capsys.readouterr().out
    assert call(capsys, "show", f"{url}/run-00000001/chk-0")[1]["drained"] is False


def test_a_drain_that_was_planned_is_not_exported(writer: StreamWriter, url: str, tmp_path: Path) -> None:
    plan(writer, 2, offsets=DRAINED)
    assert run(["export", url, str(tmp_path / "out")]) == 1


def test_the_folder_of_the_newest_checkpoint_is_the_same(
    writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(writer, 2)
    documents = [
        call(capsys, "export", *source, str(tmp_path / f"out-{number}"))[1]
        for number, source in enumerate([(url,), (f"{url}/run-00000001/chk-1",), (url, "--checkpoint", "run-1/chk-1")])
    ]
    assert [(d["checkpoint"], d["planned"]) for d in documents] == [("run-1/chk-1", True)] * 3
    assert len({repr(everything(open_storage(f"file://{tmp_path}/out-{number}"))) for number in range(3)}) == 1


def test_large_files_of_state_go_through_the_disk(writer: StreamWriter, tmp_path: Path) -> None:
    checkpoint = writer.checkpoints[-1]
    first, *others = checkpoint.snapshots
    plain = changelog([(b"key%d" % number, os.urandom(1 << 16)) for number in range(80)], 2)
    content = packed(changelog([], 4, [(7, "u")])[:-1] + plain[4:], "lz4")
    writer.storage.put("run-00000001/seg/1-large", content)
    large = replace(first.handles[-1], object="run-00000001/seg/1-large", offset=0, length=len(content), checksum=zlib.crc32(content))
    chosen = stored(writer, replace(checkpoint, snapshots=(replace(first, handles=(*first.handles[:-1], large)), *others)))
    target = open_storage(f"file://{tmp_path}/out")
    write_stock(writer.storage, chosen, target, "file:/out")
    assert len(content) > IN_MEMORY
    assert b"".join(unpacked(BytesIO(target.get("state/0/0/8.changelog")), "x", "lz4")) == plain


def test_a_store_with_a_name_has_a_folder_of_its_own(writer: StreamWriter, tmp_path: Path) -> None:
    checkpoint = writer.checkpoints[-1]
    joined = tuple(replace(s, store=replace(s.store, store="left-keyToNumValues")) for s in checkpoint.snapshots)
    target = open_storage(f"file://{tmp_path}/out")
    write_stock(writer.storage, stored(writer, replace(checkpoint, snapshots=joined)), target, "file:/out")
    assert target.size("state/0/0/left-keyToNumValues/8.changelog") is not None


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy"])
@pytest.mark.parametrize("form", [3, 4])
@pytest.mark.parametrize("versions", [1, 700])
def test_a_changelog_loses_its_lineage_and_nothing_else(form: int, codec: str, versions: int, tmp_path: Path) -> None:
    """Of 700 versions the lineage is longer than a block."""
    puts = [(b"key%d" % number, os.urandom(40)) for number in range(3000)]
    lineage = [(number, "u" * 36) for number in range(versions)]
    (tmp_path / "old").write_bytes(packed(changelog(puts, form, lineage), codec))
    without_lineage(tmp_path / "old", tmp_path / "new", "x", codec)
    assert b"".join(unpacked(BytesIO((tmp_path / "new").read_bytes()), "x", codec)) == changelog(puts, form - 2)
    assert [(key, value) for _, key, value in read_records(BytesIO((tmp_path / "new").read_bytes()), "x", codec)] == puts


@pytest.mark.parametrize("content", [b"", b"nothing", packed(changelog([], 2), "lz4"), packed(changelog([], 4), "lz4")[:30]])
def test_a_changelog_that_is_none_of_format_2_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(content)
    with pytest.raises(DamagedError, match="changelog 8_v"):
        without_lineage(tmp_path / "old", tmp_path / "new", "8_v", "lz4")


def test_what_committed_a_batch_has_no_unique_ids_in_format_1() -> None:
    v2 = b'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a"]]}}'
    assert for_stock("commits/7", v2, "file:/x", CheckpointFormat.V1) == b'v1\n{"nextBatchWatermarkMs":5}'
    assert for_stock("commits/7", v2, "file:/x", CheckpointFormat.V2) == v2
    v3 = b'v3\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{},"sinkMetadataMap":{"a":1}}'
    assert for_stock("commits/7", v3, "file:/x", CheckpointFormat.V1) == b'v3\n{"nextBatchWatermarkMs":5,"sinkMetadataMap":{"a":1}}'
    assert for_stock("commits/7", b"v1\n{}", "file:/x", CheckpointFormat.V1) == b"v1\n{}"
    with pytest.raises(DamagedError, match="commits/7"):
        for_stock("commits/7", b"v2\n[]", "file:/x", CheckpointFormat.V1)


def test_the_provider_and_the_places_of_schemas_are_those_of_stock_spark() -> None:
    ours, theirs = OFFSETS % (OURS, OURS), OFFSETS % (STOCK, OURS)
    assert for_stock("offsets/7", ours, "file:/new", CheckpointFormat.V1) == theirs
    assert for_stock("sources/0/offsets/7", ours, "file:/new", CheckpointFormat.V1) == ours
    content = b"v2\n" + json.dumps(OPERATOR).encode()
    said = for_stock("state/0/_metadata/v2/0", content, "s3a://bucket/new/", CheckpointFormat.V1).split(b"\n", 1)
    assert said[0] == b"v2"
    document = json.loads(said[1])
    assert document["stateStoreInfo"][0].pop("stateSchemaFilePaths") == ["s3a://bucket/new/state/0/_stateSchema/default/0_a"]
    assert document["operatorPropertiesJson"] == OPERATOR["operatorPropertiesJson"]
    assert for_stock("state/0/_metadata/metadata", content, "file:/new", CheckpointFormat.V1) == content


@pytest.mark.parametrize("content", [b"v2", b"v2\n[]", b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["elsewhere"]}]}'])
def test_an_operators_metadata_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError, match=r"state/0/_metadata/v2/0"):
        for_stock("state/0/_metadata/v2/0", content, "file:/new", CheckpointFormat.V1)


def test_large_files_of_the_driver_are_written_too_and_changed_where_they_must_be(writer: StreamWriter, tmp_path: Path) -> None:
    def large(name: str, content: bytes) -> FileHandle:
        key = f"run-00000001/drv/1-{name * 32}"
        writer.storage.put(key, content)
        return FileHandle(key, len(content), zlib.crc32(content))

    operator, seen = b"v2\n" + json.dumps(OPERATOR).encode(), OFFSETS % (OURS, OURS)
    files = {"state/0/_metadata/v2/0": large("a", operator), "sources/0/9.compact": large("b", seen)}
    checkpoint = replace(writer.checkpoints[-1], files={**writer.checkpoints[-1].files, **files})
    target = open_storage(f"file://{tmp_path}/out")
    write_stock(writer.storage, stored(writer, checkpoint), target, "file:/new")
    assert target.get("sources/0/9.compact") == seen
    assert b"file:/new/state/0/_stateSchema/default/0_a" in target.get("state/0/_metadata/v2/0")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/data/x", "file:/data/x"),
        ("/data/a@b:c", "file:/data/a@b:c"),
        ("file:///data/x/", "file:/data/x"),
        ("s3a://bucket/x", "s3a://bucket/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("abfss://container@account.dfs.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x"),
        ("hdfs://nn:8020/x", "hdfs://nn:8020/x"),
        ("hdfs:/x", "hdfs:///x"),
    ],
)
def test_a_location_is_written_as_spark_writes_it(text: str, location: str) -> None:
    assert location_of(text) == location


def test_a_relative_target_is_below_the_working_folder(
    writer: StreamWriter, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    assert call(capsys, "export", url, "out")[1]["location"] == f"file:{tmp_path}/out"
    assert call(capsys, "export", url, "out-2", "--location", "x")[1]["location"] == f"file:{tmp_path}/x"
    assert call(capsys, "export", url, "out-3", "--location", "hdfs://nn/x")[1]["location"] == "hdfs://nn/x"


@pytest.mark.parametrize("url", ["s3a://key:secret@bucket/x", "s3a://key:secret/x", "s3:key:secret/x", "hdfs://secret@nn/x"])
def test_no_credentials_go_into_a_location(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        location_of(url)
    assert "secret" not in str(refused.value)


def test_what_stock_spark_has_no_place_for_is_named(
    writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(writer, replace(writer.checkpoints[-1], hooks={"offsets of mine": b"x"}))
    assert run(["export", url, str(tmp_path / "out")]) == 0
    assert "the state of the hooks offsets of mine" in capsys.readouterr().out


# --- what was planned past it


def plan(writer: StreamWriter, epoch: int, offsets: bytes = b"v1\n{}", **files: bytes | None) -> None:
    writer.append(Plan(writer.claim, 1, epoch, offsets, {name.replace("__", "/"): content for name, content in files.items()}))


def test_the_epoch_that_was_planned_goes_along(writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = writer.checkpoints[-1]
    files = {**checkpoint.files, "sources/0/1": b"old", "sources/0/2": b"here"}
    writer.storage.put(paths.metadata_key(checkpoint.id), encode_metadata(replace(checkpoint, files=files)))
    plan(writer, 2, OFFSETS % (OURS, b"x"), sources__0__1=None, sources__0__3=b"new")
    status, doc = call(capsys, "export", url, str(tmp_path / "out"))
    assert (status, doc["planned"], doc["next_epoch"], doc["epoch"]) == (0, True, 2, 1)
    found = everything(open_storage(f"file://{tmp_path}/out"))
    assert found["offsets/2"] == OFFSETS % (STOCK, b"x")
    assert "commits/2" not in found
    assert {path: data for path, data in found.items() if path.startswith("sources/")} == {"sources/0/2": b"here", "sources/0/3": b"new"}


def test_several_planned_epochs_are_refused_with_the_way_out(writer: StreamWriter, tmp_path: Path, url: str) -> None:
    plan(writer, 2)
    plan(writer, 3)
    with pytest.raises(ConflictError, match=r"2 epochs were planned past run-1/chk-1.*savepoint .* --stop`, and export that savepoint"):
        exported(writer)
    assert run(["export", url, str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()


def test_at_least_once_is_refused(writer: StreamWriter) -> None:
    key = paths.log_key(writer.claim)
    claim = decode(writer.claim, writer.storage.get(key))
    assert isinstance(claim, Claim)
    writer.storage.put(key, encode(replace(claim, ahead=64)))
    with pytest.raises(ConflictError, match="AT_LEAST_ONCE"):
        exported(writer)


def test_numbers_that_went_on_elsewhere_are_refused(writer: StreamWriter) -> None:
    origin = writer.checkpoints[-1].id
    writer.begin(2, origin)
    key = paths.log_key(writer.claim)
    claim = decode(writer.claim, writer.storage.get(key))
    assert isinstance(claim, Claim)
    writer.storage.put(key, encode(replace(claim, first=70, used=69, adopts=())))
    with pytest.raises(ConflictError, match="70"):
        exported(writer)


def test_an_older_checkpoint_is_refused_for_what_ran_past_it(writer: StreamWriter, url: str) -> None:
    writer.complete(1, 2, [])
    reader = StreamReader(writer.storage)
    with pytest.raises(ConflictError, match="2 epochs were planned past run-1/chk-0"):
        to_export(writer.storage, reader, writer.checkpoints[0].id)


def test_a_log_that_lacks_an_entry_is_refused(writer: StreamWriter) -> None:
    plan(writer, 2)
    plan(writer, 3)
    writer.storage.delete([paths.log_key(writer.log - 1)])
    with pytest.raises(DamagedError, match=f"entry {writer.log - 1} is missing"):
        exported(writer)


def test_a_checkpoint_without_its_objects_is_refused_before_anything_is_written(writer: StreamWriter, url: str, tmp_path: Path) -> None:
    writer.storage.delete([writer.checkpoints[-1].snapshots[0].handles[0].object])
    with pytest.raises(DamagedError, match="is missing"):
        exported(writer)
    assert run(["export", url, str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()


# --- the target


@pytest.mark.parametrize("location", ["", "~/x", "file:rel/x"])
def test_a_location_that_is_none_is_refused(url: str, tmp_path: Path, location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", url, str(tmp_path / "out"), "--location", location]) == 2
    assert "is no checkpointLocation; write a path or a URL" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_export_does_not_go_into_what_it_reads(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert writer.checkpoints
    assert run(["export", url, f"{url}/out"]) == 2
    assert "lies in what is exported" in capsys.readouterr().err


def test_a_target_that_holds_anything_is_left_alone(writer: StreamWriter, url: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "theirs").write_text("x")
    assert run(["export", url, str(tmp_path / "out")]) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theirs"]


def test_what_is_damaged_leaves_no_query_behind(writer: StreamWriter, tmp_path: Path) -> None:
    chosen = exported(writer)
    flip(writer.storage, chosen.checkpoint.snapshots[0].handles[-1].object)
    target = open_storage(f"file://{tmp_path}/out")
    with pytest.raises(DamagedError, match="CRC-32"):
        write_stock(writer.storage, chosen, target, "file:/out")
    assert target.size("metadata") is None
    assert target.size("offsets/1") is None


def test_interrupted_anywhere_the_same_export_goes_on_and_another_one_is_refused(writer: StreamWriter, tmp_path: Path) -> None:
    """Every put is the last one once; `metadata` is there only when all is."""
    chosen = exported(writer)
    whole = open_storage(f"file://{tmp_path}/whole")
    written = write_stock(writer.storage, chosen, whole, "file:/out")
    for last in itertools.count(1):
        target = open_storage(f"file://{tmp_path}/out-{last}")
        done = itertools.count(1)

        def until(put: Any, done: Any = done, last: int = last) -> Any:
            def one(key: str, content: Any) -> None:
                if next(done) > last:
                    raise ObjectMissingError("interrupted")
                put(key, content)

            return one

        target.put, target.put_slices = until(target.put), until(target.put_slices)  # type: ignore[method-assign]
        try:
            write_stock(writer.storage, chosen, target, "file:/out")
        except ObjectMissingError:
            again = open_storage(f"file://{tmp_path}/out-{last}")
            assert again.size("metadata") is None
            assert again.size(MARK) is not None
            with pytest.raises(ConflictError, match="another export"):
                write_stock(writer.storage, chosen, again, "file:/elsewhere")
            assert write_stock(writer.storage, chosen, again, "file:/out") == written
            assert everything(again) == everything(whole)
        else:
            assert last == written.files
            return


def test_an_export_does_not_go_on_from_other_state_of_the_same_name(writer: StreamWriter, tmp_path: Path) -> None:
    """A savepoint was deleted and made again: what is there of the first one must not lie beside the second one's."""
    chosen, target = exported(writer), open_storage(f"file://{tmp_path}/out")
    checkpoint = replace(chosen.checkpoint, snapshots=chosen.checkpoint.snapshots[1:])
    target.put(MARK, mark_of(replace(chosen, checkpoint=checkpoint), "file:/out", CheckpointFormat.V1))
    with pytest.raises(ConflictError, match="another export"):
        write_stock(writer.storage, chosen, target, "file:/out")


def test_a_local_disk_that_is_full_is_named(writer: StreamWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spark_ckpt.stock.writing.without_lineage", full)
    with pytest.raises(ConfigError, match=r"No space left on device.*TMPDIR"):
        write_stock(writer.storage, exported(writer), open_storage(f"file://{tmp_path}/out"), "file:/out")


def test_what_was_complete_but_for_its_mark_is_complete(writer: StreamWriter, tmp_path: Path) -> None:
    """Spark may have gone on from it already."""
    chosen = exported(writer)
    target = open_storage(f"file://{tmp_path}/out")
    marks: list[bytes] = []
    delete = target.delete
    target.delete = lambda keys: marks.append(target.get(next(iter(keys))))  # type: ignore[method-assign]
    write_stock(writer.storage, chosen, target, "file:/out")
    for path in ("offsets/2", "commits/2", "offsets/3"):
        target.put(path, b"of stock Spark")
    before = everything(target)
    target.delete = delete  # type: ignore[method-assign]
    write_stock(writer.storage, chosen, target, "file:/out")
    assert marks
    assert before.pop(MARK) == marks[0]
    assert everything(target) == before


_KILLED = """
import os, signal, sys
from spark_ckpt.storage import file
from spark_ckpt.cli.main import main
give_name, left = file.give_name, int(sys.argv.pop(1))
def last(*args):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return give_name(*args)
file.give_name = last
main()
"""


@pytest.mark.parametrize("puts", [1, 2, 9])
def test_what_a_killed_export_has_left_goes_with_the_next_one(puts: int, writer: StreamWriter, url: str, tmp_path: Path) -> None:
    """With the first put it is the mark that has no name yet."""
    out, others = tmp_path / "out", tmp_path / "out" / ".tmp"
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(puts), "export", url, str(out)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    left = {path.name for path in others.iterdir()}
    assert left
    theirs = {f"{0:032x}": b"not ours", "notes": b"", f"{1:032x}": b"{}"}
    for name, content in theirs.items():
        (others / name).write_bytes(content)
        os.utime(others / name, (time.time() - 3600,) * 2)
    (others / f"{2:032x}").symlink_to(tmp_path)
    assert run(["export", url, str(out)]) == 0
    assert {path.name for path in others.iterdir()} == {*theirs, f"{2:032x}"}
    for name in [*theirs, f"{2:032x}"]:
        (others / name).unlink()
    assert run(["export", url, str(tmp_path / "whole")]) == 0
    assert not (tmp_path / "whole" / ".tmp").exists()
    assert everything(open_storage(f"file://{out}")).keys() == everything(open_storage(f"file://{tmp_path}/whole")).keys()


def test_a_target_that_cannot_be_written_is_named_as_the_command_names_it(
    writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".tmp").write_text("")
    targets = [str(tmp_path / "file" / "out"), str(tmp_path / "out"), f"/{'x' * 300}", "/proc/no"]
    for target in targets:
        assert run(["export", url, target]) != 0
        err = capsys.readouterr().err
        assert "spark.ckpt.storage" not in err
        assert "TARGET" in err, err
    assert run(["import", str(tmp_path / "file" / "out"), str(tmp_path / "saved")]) != 0
    assert "spark.ckpt.storage" not in capsys.readouterr().err
