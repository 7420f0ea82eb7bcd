"""What `spark-ckpt gc` deletes below `savepoints/`: of those that were cut off, and beside those that are complete."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.errors import StorageError, StorageSetupError
from spark_ckpt.model import Checkpoint
from spark_ckpt.storage import Storage
from spark_ckpt.storage.base import PutResult
from spark_ckpt.stored.gc import Collector
from spark_ckpt.stored.metadata.codec import encode_metadata
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.checkpoints import sample
from tests.drivers.garbage import crashed_once, expected_garbage, gc, keys, now, refuse
from tests.drivers.stored_stream import StreamWriter


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    return crashed_once(storage, tmp_path)


def test_what_is_left_of_a_savepoint_that_was_cut_off_goes_when_it_is_a_day_old(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {
        f"savepoints/{name}/run-00000001/{key}" for name in ("cut", "mine/below") for key in ("seg/2-edited-a-0", "sst/b.sst", "drv/2-c")
    }
    kept = {"savepoints/mine/run-00000001/seg/2-a.00000000", "savepoints/orders/log/00000000000000000001", "savepoints/note"}
    for key in (*left, *kept, "savepoints/orders/run-00000001/seg/2-a"):
        storage.put(key, b"x")
    before = keys(storage)
    status, doc = gc(capsys, url, "--min-age", "0", "--delete")
    assert (status, doc["savepoints"]["garbage"]) == (0, {"objects": 0, "bytes": 0})
    assert (doc["savepoints"]["young"], doc["savepoints"]["unread"]) == ({"objects": 6, "bytes": 6}, ["savepoints/mine/"])
    assert keys(storage) == before - expected_garbage(writer), "it may still be in the making"
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    assert found.savepoints.share.garbage.objects == found.total().garbage.objects == 6
    collector.delete(found)
    marks = {f"savepoints/{name}/_metadata" for name in ("cut", "mine/below")}
    assert keys(storage) == (before - expected_garbage(writer) - left) | marks
    assert collector.look().savepoints.share.garbage.objects == 0


def test_what_lies_beside_a_complete_savepoint_goes_when_it_is_a_day_old(writer: StreamWriter, storage: Storage) -> None:
    """Of an attempt that was killed behind its `_metadata`, or came too late: state of a person may be there who was to be forgotten."""
    folder = "savepoints/one/"
    made = sample()
    for key in made.objects:
        storage.put(folder + key, b"x")
    storage.put(folder + "_metadata", encode_metadata(made))
    left = folder + "run-00000001/seg/5-edited-0123456789abcdef-0-0123456789abcdef0123456789abcdef"
    storage.put(left, b"x")
    storage.put("savepoints/damaged/_metadata", b"damaged")
    storage.put("savepoints/damaged/run-00000001/seg/5-a", b"x")
    before = keys(storage)
    assert left not in Collector(storage, 0, now(storage)).look().savepoints.keys, "somebody may be about to be told that he lost"
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    assert found.savepoints.keys == [left]
    collector.delete(found)
    assert {key for key in before if key.startswith("savepoints/")} - keys(storage) == {left}


def complete(storage: Storage, name: str) -> Checkpoint:
    made = sample()
    for key in made.objects:
        storage.put(f"savepoints/{name}/{key}", b"x")
    storage.put(f"savepoints/{name}/_metadata", encode_metadata(made))
    return made


def refused() -> None:
    raise StorageSetupError("archived")


def test_a_savepoint_that_may_not_be_read_keeps_what_it_has_and_the_rest_is_collected(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(storage, "archived")
    left = "savepoints/archived/run-00000001/seg/5-left"
    storage.put(left, b"x")
    archived = Fault(Moment.DELAY, "savepoints/archived/_metadata", frozenset({"get"}), times=None, pause=refused)
    collector = Collector(FaultyStorage(storage, [archived]), 0, now(storage) + 86_400_000)
    found = collector.look()
    assert found.savepoints.unread == ("savepoints/archived/", "savepoints/mine/")
    before = keys(storage)
    collector.delete(found)
    assert before - keys(storage) == expected_garbage(writer)
    assert run(["gc", url]) == 0
    assert "all of savepoints/mine stays, for what its _metadata names cannot be read now" in capsys.readouterr().out


def test_a_savepoint_that_is_made_again_meanwhile_keeps_what_it_names(writer: StreamWriter, storage: Storage) -> None:
    """(1) gc sees what an attempt has left beside a savepoint; (2) a person deletes that, and makes another of it; (3) gc deletes."""
    made = complete(storage, "one")
    used, left = (f"savepoints/one/run-00000001/seg/5-{name}" for name in ("used", "left"))
    for key in (used, left):
        storage.put(key, b"x")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    assert found.savepoints.keys == sorted([used, left])
    snapshot = made.snapshots[0]
    handles = tuple(replace(handle, object=used.removeprefix("savepoints/one/")) for handle in snapshot.handles)
    storage.delete(["savepoints/one/_metadata"])
    storage.put("savepoints/one/_metadata", encode_metadata(replace(made, snapshots=(replace(snapshot, handles=handles),))))
    collector.delete(found)
    assert (storage.size(used), storage.size(left)) == (1, None)


@pytest.mark.parametrize("name", ["seg", "sst", "drv"])
def test_a_savepoint_with_the_name_of_a_folder_of_objects_is_none_of_them(writer: StreamWriter, storage: Storage, name: str) -> None:
    complete(storage, f"x/run-20261127/{name}")
    before = {key for key in keys(storage) if key.startswith("savepoints/x/")}
    for _ in range(2):
        collector = Collector(storage, 0, now(storage) + 86_400_000)
        collector.delete(collector.look())
        assert {key for key in keys(storage) if key.startswith("savepoints/x/")} == before


def test_a_savepoint_that_a_person_protects_is_no_error(
    writer: StreamWriter, storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not url.startswith("file:"):
        pytest.skip("only a disk has temporary files")
    complete(storage, "kept")
    (Path(url.removeprefix("file://")) / "savepoints/kept/.tmp").mkdir(exist_ok=True)
    refuse(monkeypatch, "rmdir")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    assert collector.delete(collector.look()) == {}


def test_a_savepoint_that_a_person_protects_is_named_and_the_others_are_cleared(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        complete(storage, name)
        storage.put(f"savepoints/{name}/run-00000001/seg/5-left", b"x")
        storage.put(f"savepoints/{name}-cut/run-00000001/seg/5-left", b"x")
    protected = [
        Fault(Moment.DELAY, "savepoints/a/*", frozenset({"delete"}), times=None, pause=refused),
        Fault(Moment.DELAY, "savepoints/a-cut/*", frozenset({"put_if_absent"}), times=None, pause=refused),
    ]
    collector = Collector(FaultyStorage(storage, protected), 0, now(storage) + 86_400_000)
    found = collector.look()
    assert collector.delete(found) == dict.fromkeys(("savepoints/a/", "savepoints/a-cut/"), "archived")
    left = {key for key in keys(storage) if key.endswith("5-left")}
    assert left == {f"savepoints/{name}/run-00000001/seg/5-left" for name in ("a", "a-cut")}


def test_keys_that_expire_after_the_look_are_no_success(writer: StreamWriter, storage: Storage) -> None:
    complete(storage, "one")
    left = "savepoints/one/run-00000001/seg/5-left"
    storage.put(left, b"x")
    expired = Fault(Moment.DELAY, "savepoints/one/_metadata", frozenset({"get"}), skip=1, times=None, pause=refused)
    collector = Collector(FaultyStorage(storage, [expired]), 0, now(storage) + 86_400_000)
    found = collector.look()
    assert found.savepoints.keys == [left]
    assert collector.delete(found) == {"savepoints/one/": "archived"}
    assert storage.size(left) == 1


CHANGED = "what is there has changed since it was looked at; look again"


def test_what_stays_since_it_has_changed_is_told_and_what_is_gone_is_not(writer: StreamWriter, storage: Storage) -> None:
    """(1) gc looks; (2) a person deletes a savepoint or its `_metadata`, damages it, or completes one; (3) gc deletes."""
    for name in ("whole", "bare", "damaged", "clean"):
        complete(storage, name)
    names = ("whole", "bare", "damaged", "late", "cut")
    for name in names:
        storage.put(f"savepoints/{name}/run-00000001/seg/5-left", b"x")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    storage.delete([key for key in keys(storage) if key.startswith("savepoints/whole/") or key == "savepoints/bare/_metadata"])
    storage.put("savepoints/damaged/_metadata", b"damaged")
    storage.put("savepoints/late/_metadata", b"complete" * 1000)
    assert collector.delete(found) == dict.fromkeys([f"savepoints/{name}/" for name in ("late", "bare", "damaged")], CHANGED)
    left = {name for name in names if storage.size(f"savepoints/{name}/run-00000001/seg/5-left") is not None}
    assert left == {"bare", "damaged", "late"}


def test_an_outage_ends_the_deletion(writer: StreamWriter, storage: Storage) -> None:
    complete(storage, "one")
    storage.put("savepoints/one/run-00000001/seg/5-left", b"x")
    outage = Fault(Moment.FAIL_BEFORE, "savepoints/one/run-*", frozenset({"delete"}), times=None)
    collector = Collector(FaultyStorage(storage, [outage]), 0, now(storage) + 86_400_000)
    found = collector.look()
    with pytest.raises(StorageError):
        collector.delete(found)


def test_what_could_not_be_deleted_is_printed_and_is_status_1(
    writer: StreamWriter, storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not url.startswith("file:"):
        pytest.skip("only what is on a disk is made old by a test")
    left = "savepoints/cut/run-00000001/seg/2-a"
    storage.put(left, b"x")
    os.utime(Path(url.removeprefix("file://")) / left, (0, 0))
    refuse(monkeypatch, "link")
    status, doc = gc(capsys, url, "--delete")
    assert (status, doc["deleted"], list(doc["savepoints"]["stays"])) == (1, False, ["savepoints/cut/"])
    assert "Permission denied" in doc["savepoints"]["stays"]["savepoints/cut/"]
    assert run(["gc", url, "--delete"]) == 1
    said = capsys.readouterr().out
    assert "not all that is garbage in savepoints/cut could be deleted: " in said
    assert said.rstrip().splitlines()[-1].startswith("of 1 objects (1 B), ")
    assert storage.size(left) == 1
    monkeypatch.undo()
    assert gc(capsys, url, "--delete")[0] == 0
    assert storage.size(left) is None


def test_a_maker_in_a_folder_that_holds_no_savepoint_any_more_is_left_alone(writer: StreamWriter, storage: Storage, url: str) -> None:
    """(1) gc looks; (2) a person deletes the savepoint; (3) another one is being written there; (4) gc deletes."""
    if not url.startswith("file:"):
        pytest.skip("only a disk has temporary files")
    complete(storage, "one")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    storage.delete(["savepoints/one/_metadata"])
    writing = Path(url.removeprefix("file://")) / "savepoints/one/.tmp" / ("0" * 32)
    writing.parent.mkdir(exist_ok=True)
    writing.write_bytes(b"x")
    collector.delete(found)
    assert writing.exists()


def test_temporary_files_of_a_savepoint_that_was_given_up_go_with_it(writer: StreamWriter, storage: Storage, url: str) -> None:
    if not url.startswith("file:"):
        pytest.skip("only a disk has them")
    for name in ("cut", "done"):
        storage.put(f"savepoints/{name}/run-00000001/seg/2-a", b"x")
    storage.put("savepoints/done/_metadata", encode_metadata(sample()))
    root = Path(url.removeprefix("file://")) / "savepoints"
    for name in ("cut", "done"):
        (root / name / ".tmp").mkdir(exist_ok=True)
        (root / name / ".tmp" / ("0" * 32)).write_bytes(b"x")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    collector.delete(collector.look())
    assert not (root / "cut" / ".tmp").exists()
    assert not (root / "done" / ".tmp").exists()


def test_temporary_files_that_cannot_be_removed_are_told(
    writer: StreamWriter, storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State of a person may be in them."""
    if not url.startswith("file:"):
        pytest.skip("only a disk has them")
    complete(storage, "kept")
    temporary = Path(url.removeprefix("file://")) / "savepoints/kept/.tmp" / ("0" * 32)
    temporary.parent.mkdir(exist_ok=True)
    temporary.write_bytes(b"x")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    refuse(monkeypatch, "unlink", temporary.name)
    stays = collector.delete(found)
    assert list(stays) == ["savepoints/kept/"]
    assert "Permission denied" in stays["savepoints/kept/"]
    monkeypatch.undo()
    assert collector.delete(found) == {}
    assert not temporary.exists()


def test_a_savepoint_that_is_completed_meanwhile_keeps_its_objects_and_one_that_is_not_cannot_be_any_more(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("slow", "late"):
        storage.put(f"savepoints/{name}/run-00000001/seg/2-a", b"x")
    collector = Collector(storage, 0, now(storage) + 86_400_000)
    found = collector.look()
    assert storage.put_if_absent("savepoints/slow/_metadata", b"complete" * 1000) is PutResult.STORED
    collector.delete(found)
    assert storage.size("savepoints/slow/run-00000001/seg/2-a") == 1
    assert storage.size("savepoints/late/run-00000001/seg/2-a") is None
    assert storage.put_if_absent("savepoints/late/_metadata", b"complete") is PutResult.EXISTS
    storage.put("savepoints/late/run-00000001/seg/2-b", b"x")
    collector.delete(collector.look())
    assert storage.size("savepoints/late/run-00000001/seg/2-b") is None, "what comes behind it goes the next time"
    assert run(["show", f"{url}/savepoints/late"]) == 1
    assert "this savepoint was never completed" in capsys.readouterr().err
