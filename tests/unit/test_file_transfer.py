"""Large files of the driver between JVM, coordinator and storage: by path, checked, stored once, brought back."""

from __future__ import annotations

import base64
import json
import random
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.cli.main import run
from spark_ckpt.coordinator.file_transfer import SMALL, FileTransfer, read, store, taken
from spark_ckpt.errors import CheckpointError, DamagedError, StorageError
from spark_ckpt.model import CheckpointId, FileHandle
from spark_ckpt.paths import driver_file_key, metadata_key
from spark_ckpt.protocol.entries import Plan, decode, encode
from spark_ckpt.protocol.large_files import DIGITS
from spark_ckpt.storage import Storage
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.copies import RestorePath, import_objects, store_savepoint
from spark_ckpt.stored.metadata.codec import decode_metadata, encode_metadata
from spark_ckpt.stored.verify import Verifier
from tests.drivers.checkpoints import SEED, written
from tests.drivers.coordinator_process import FakeJvm, Jvm, b64
from tests.drivers.protocol_driving import offsets
from tests.drivers.stored_stream import StreamWriter, make_store

COMPACT = "sources/0/9.compact"


def big(seed: int = 1, size: int = 3 * SMALL) -> bytes:
    return random.Random(seed).randbytes(size)


def handed(folder: Path, content: bytes) -> dict[str, Any]:
    """As the JVM does it."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{len(list(folder.iterdir()))}"
    file.write_bytes(content)
    return {"file": str(file), "length": len(content), "checksum": zlib.crc32(content), "digest": digest(content)}


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:DIGITS]


def content(given: Any) -> bytes:
    """As the JVM reads it."""
    if isinstance(given, str):
        return base64.b64decode(given)
    data = Path(given["file"]).read_bytes()
    assert (len(data), zlib.crc32(data)) == (given["length"], given["checksum"])
    return data


def handle(content: bytes, run: int = 1, epoch: int = 0) -> FileHandle:
    return FileHandle(driver_file_key(run, epoch, digest(content)), len(content), zlib.crc32(content))


def start(one: FakeJvm, folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return one.ask("start", **one.start_fields(), folder=str(folder))


def test_from_the_jvm_to_the_storage_and_back(jvm: Jvm, tmp_path: Path) -> None:
    one, folder, source = jvm(), tmp_path / "folder", big()
    start(one, folder)
    given = handed(folder, source)
    assert one.ask("trigger", root=one.root, epoch=0, offsets=b64(offsets(0)), files={COMPACT: given, "sources/0/10": b64(b"s")})["ok"]
    assert not Path(given["file"]).exists(), "what is stored is not kept on the disk"
    one.acks(1, 0)
    assert one.seal(1, 0)["ok"]
    stored = handle(source)
    assert one.storage.get(stored.object) == source
    assert decode_metadata(one.storage.get(metadata_key(CheckpointId(1, 0)))).files[COMPACT] == stored
    entry = one.storage.get(paths.log_key(2))
    plan = decode(2, entry)
    assert isinstance(plan, Plan)
    assert plan.files == {COMPACT: stored, "sources/0/10": b"s"}
    assert len(entry) < 1000
    one.ask("trigger", root=one.root, epoch=1, offsets=b64(offsets(1)), files={"sources/0/19.compact": handed(folder, big(2))})
    one.kill()

    two, other = jvm(), tmp_path / "other"
    started = start(two, other)
    assert started["epoch"] == 1
    files = {path: content(given) for path, given in started["files"].items()}
    assert (files[COMPACT], files["sources/0/19.compact"], files["sources/0/10"]) == (source, big(2), b"s")
    assert len(json.dumps(started)) < 5000, "nothing large is in the line"


def test_many_epochs_to_run_again_are_no_long_line(jvm: Jvm, tmp_path: Path) -> None:
    one = jvm(interval="1h")
    start(one, tmp_path / "folder")
    size = SMALL - 1
    for epoch in range(80):
        assert one.trigger(epoch, {f"sources/0/{epoch}": b"%04d" % epoch * (size // 4)})["ok"]
        assert one.ask("seal", **one.seal_fields(1, epoch))["ok"]
    one.kill()
    two = jvm(interval="1h")
    started = start(two, tmp_path / "other")
    assert len(started["planned"]) == 79
    assert [content(p["offsets"]) for p in started["planned"]] == [offsets(epoch) for epoch in range(1, 80)]
    assert all(content(started["files"][f"sources/0/{n}"]) == b"%04d" % n * (size // 4) for n in range(80))
    assert len(json.dumps(started)) < 7_000_000 < 80 * size * 4 // 3 + 7_000_000


def test_what_was_handed_over_to_a_coordinator_that_died(storage: Storage, tmp_path: Path) -> None:
    source = big()
    given = taken(handed(tmp_path / "folder", source))
    assert not isinstance(given, bytes)
    store(storage, handle(source), given.path)
    assert not Path(given.path).exists()
    store(storage, handle(source), given.path)
    with pytest.raises(DamagedError, match="is gone"):
        store(storage, handle(big(2)), given.path)


def test_a_file_that_is_not_what_was_handed_over(storage: Storage, tmp_path: Path) -> None:
    given = handed(tmp_path / "folder", big())
    path = Path(given["file"])
    path.write_bytes(big()[:-1] + b"?")
    with pytest.raises(DamagedError, match="not what it has written"):
        store(storage, handle(big()), str(path))
    with pytest.raises(DamagedError, match="not what it has written"):
        read(given)
    assert list(storage.list("")) == []


def test_offsets_and_commits_are_read_at_once(tmp_path: Path) -> None:
    assert read(handed(tmp_path / "folder", big())) == big()
    assert read(b64(b"small")) == b"small"
    with pytest.raises(CheckpointError, match="base64"):
        read("§")


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda _: None])
def test_damage_is_told_and_nothing_wrong_is_handed_on(storage: Storage, tmp_path: Path, change: Any) -> None:
    source = big()
    changed = change(source)
    if changed is not None:
        storage.put(handle(source).object, changed)
    to = FileTransfer()
    folder = tmp_path / "folder"
    folder.mkdir()
    to.begin(str(folder))
    assert handle(source).object in (to.fetch(storage, [handle(source)]) or "")
    assert list(folder.iterdir()) == [], "no file of it is left"


# --- savepoints, forks, verify, show, gc


def with_large(writer: StreamWriter, tmp_path: Path, run: int, epoch: int, source: bytes) -> FileHandle:
    """A checkpoint whose `_metadata` and plan name a large file."""
    stored = handle(source, run, epoch)
    writer.storage.put(stored.object, source)
    checkpoint = writer.complete(run, epoch, [make_store(tmp_path, 5, f"u{run}{epoch}")])
    writer.storage.put(metadata_key(checkpoint.id), encode_metadata(replace(checkpoint, files={**checkpoint.files, COMPACT: stored})))
    plan = Plan(writer.claim, run, epoch, b"v1\n{}", {COMPACT: stored})
    writer.storage.put(paths.log_key(writer.log), encode(plan))
    return stored


def test_savepoints_and_forks_hold_them(storage: Storage) -> None:
    source = big()
    checkpoint = written(storage, random.Random(SEED))
    checkpoint = replace(checkpoint, files={**checkpoint.files, COMPACT: handle(source)})
    storage.put(handle(source).object, source)
    with MemoryStorage("memory://large/savepoint") as folder, MemoryStorage("memory://large/fork") as fork:
        made = store_savepoint(storage, checkpoint, folder)
        assert RestorePath.at(folder.url).read(folder) == made
        imported = import_objects(folder, made, fork, 7)
        for where, copy in ((folder, made), (fork, imported)):
            copied = copy.files[COMPACT]
            assert isinstance(copied, FileHandle)
            assert where.get(copied.object) == source
            assert not Verifier(where).verify(copy).problems
            assert {s.key for s in where.list("")} - {paths.METADATA_NAME} == copy.objects
        assert all(name.startswith("run-00000007/") for name in imported.objects)
        assert decode_metadata(encode_metadata(imported)) == imported
    wipe("large")


def test_verify_and_show(storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    stored = with_large(writer, tmp_path, 1, 0, big())
    assert run(["verify", url]) == 0
    capsys.readouterr()
    assert run(["show", url]) == 0
    assert stored.object in capsys.readouterr().out
    assert run(["show", url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["files"][COMPACT]
    assert told == {"bytes": stored.length, "object": stored.object, "checksum": stored.checksum}
    storage.put(stored.object, big()[:-1] + b"?")
    assert run(["verify", url, "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["checkpoints"][0]["problems"]
    assert problem["what"] == stored.object
    assert "CRC-32" in problem["message"]


def test_gc_leaves_what_a_plan_in_the_log_names(storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    old = with_large(writer, tmp_path, 1, 0, big(1))
    kept = with_large(writer, tmp_path, 1, 1, big(2))
    writer.begin(2, origin=CheckpointId(1, 1), inherits=(CheckpointId(1, 1),))
    orphan = handle(big(3), 1, 2)
    storage.put(orphan.object, big(3))
    assert run(["gc", url, "--delete", "--min-age", "0s"]) == 0
    there = {s.key for s in storage.list("")}
    assert {old.object, kept.object} <= there, "an epoch of the log can be run again"
    assert orphan.object not in there
    storage.delete([paths.log_key(2)])
    assert run(["gc", url, "--delete", "--min-age", "0s"]) == 0
    assert old.object not in {s.key for s in storage.list("")}, "its plan is gone, and its checkpoint"
    assert storage.size(kept.object) is not None


def test_a_file_that_is_gone_is_named_and_no_fault_of_ours(tmp_path: Path) -> None:
    given = handed(tmp_path / "handed", big())
    Path(given["file"]).unlink()
    with pytest.raises(StorageError, match=r"/handed/0, which .*, cannot be read \(No such file or directory\); look at"):
        read(given)
