"""What the coordinator does for savepoints, restores and requests: one instruction in, one event out."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_ckpt import paths
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.errors import StorageSetupError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, Request, Restored
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.storage.base import LARGEST_READ
from spark_ckpt.storage.memory import wipe
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.places import Places
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.checkpoints import written

STREAM = "memory://actions/s"


@pytest.fixture
def actions() -> Iterator[StorageActions]:
    made = StorageActions(STREAM, open_storage)
    yield made
    made.close()
    wipe("actions")


@pytest.fixture
def checkpoint(actions: StorageActions) -> Checkpoint:
    made = written(actions.storage, random.Random(4), 3)
    actions.storage.put(paths.metadata_key(made.id), encode_metadata(made))
    return made


def asked(target: str = "", name: str = "", nonce: str = "0123456789abcdef") -> Request:
    return Request(1, SAVEPOINT, target, "me", name, False, nonce)


def taken_over(url: str, copy: Checkpoint) -> Restored:
    return Restored(url, copy.id, owned=True)


def stored(event: ev.Event) -> ev.SavepointStored:
    assert isinstance(event, ev.SavepointStored)
    return event


def test_a_savepoint_is_made_where_the_request_or_the_configuration_says(actions: StorageActions, checkpoint: Checkpoint) -> None:
    by_default = stored(actions.perform(do.StoreSavepoint(7, checkpoint, asked(), 12)))
    assert by_default == ev.SavepointStored(7, 12, f"{STREAM}/savepoints/savepoint-8-0123456789ab")
    again = stored(actions.perform(do.StoreSavepoint(8, checkpoint, asked(), 12, attempt=1)))
    assert again.url == by_default.url
    named = stored(actions.perform(do.StoreSavepoint(9, checkpoint, asked(f"{STREAM}/savepoints/t", "x"), 13)))
    assert named.url == f"{STREAM}/savepoints/t/x"
    configured = StorageActions(STREAM, open_storage, Places(STREAM, "memory://actions/dir"))
    assert stored(configured.perform(do.StoreSavepoint(9, checkpoint, asked(name="y"), 14))).url == "memory://actions/dir/y"
    below = asked("memory://actions/dir/of/mine/", "z")
    assert stored(configured.perform(do.StoreSavepoint(9, checkpoint, below, 15))).url == "memory://actions/dir/of/mine/z"
    configured.close()


def test_a_forged_request_makes_no_savepoint_elsewhere(actions: StorageActions, checkpoint: Checkpoint) -> None:
    opened: list[str] = []

    def open_it(url: str) -> Storage:
        opened.append(url)
        return open_storage(url)

    configured = StorageActions(STREAM, open_it, Places(STREAM, "memory://actions/dir"))
    within = (f"{STREAM}/{folder}" for folder in ("run-00000001", "log", "savepoints/../log", "savepoints2"))
    for target in ("file:///tmp/x", "/tmp/x", "memory://actions/dirty", *within):
        refused = stored(configured.perform(do.StoreSavepoint(1, checkpoint, asked(target, "chk-9"), 12)))
        assert (refused.url, refused.hopeless) == (None, True), target
        assert f"{STREAM}/savepoints and memory://actions/dir and what lies below" in refused.message
    assert opened == []


def test_a_savepoint_that_cannot_be_made_says_whether_it_is_worth_another_attempt(actions: StorageActions, checkpoint: Checkpoint) -> None:
    stored(actions.perform(do.StoreSavepoint(1, checkpoint, asked(name="x"), 12)))
    other = stored(actions.perform(do.StoreSavepoint(2, replace(checkpoint, id=CheckpointId(1, 9)), asked(name="x"), 13)))
    assert (other.url, other.hopeless) == (None, True)
    assert "another savepoint" in other.message
    badly_named = stored(actions.perform(do.StoreSavepoint(3, checkpoint, asked(name="../x"), 14)))
    assert (badly_named.url, badly_named.hopeless) == (None, True)
    actions.storage.delete(sorted(checkpoint.objects))
    gone = stored(actions.perform(do.StoreSavepoint(4, checkpoint, asked(name="z"), 15)))
    assert (gone.url, gone.hopeless) == (None, True)


def test_an_answer_lies_where_who_asked_looks(actions: StorageActions) -> None:
    assert actions.perform(do.AnswerRequest(1, 3, 12, "s3://b/x")) == ev.RequestAnswered(1, 12, Outcome.STORED)
    assert actions.perform(do.AnswerRequest(2, 3, 13, None, "no")) == ev.RequestAnswered(2, 13, Outcome.STORED)
    found = [json.loads(actions.storage.get(paths.answer_key(3, number))) for number in (12, 13)]
    assert found == [{"path": "s3://b/x"}, {"error": "no"}]


def test_a_source_is_read_and_copied(actions: StorageActions, checkpoint: Checkpoint) -> None:
    url = stored(actions.perform(do.StoreSavepoint(1, checkpoint, asked(), 12))).url or ""
    fork = StorageActions("memory://actions/fork", open_storage)
    for path in (url, f"{STREAM}/run-00000001/chk-8"):
        read = fork.perform(do.ReadRestorePath(1, path))
        assert isinstance(read, ev.RestorePathRead)
        assert read.checkpoint is not None
        copied = fork.perform(do.ImportObjects(2, path, read.checkpoint, 4))
        assert isinstance(copied, ev.ObjectsImported)
        imported = replace(read.checkpoint, snapshots=copied.snapshots)
        assert fork.perform(do.VerifyObjects(3, imported)) == ev.ObjectsVerified(3, imported.id, None)
    missing = fork.perform(do.ReadRestorePath(1, "memory://actions/nowhere"))
    assert isinstance(missing, ev.RestorePathRead)
    assert "no checkpoint or savepoint at memory://actions/nowhere" in missing.problem
    fork.close()


@pytest.mark.parametrize(
    "change",
    [
        {"object": "log/00000000000000000001"},
        {"object": "savepoints/x/_metadata"},
        {"object": "../other/run-00000001/seg/a"},
        {"name": "../../x"},
        {"offset": -1},
        {"length": -1},
        {"offset": 2**63},
        {"checksum": 2**32},
        {"object": "run-00000001/seg/" + "a" * 256},
        {"name": "a" * 1025},
    ],
)
def test_a_forged_acknowledgement_names_nothing_but_objects_of_a_run(actions: StorageActions, change: dict[str, object]) -> None:
    """What it names and no checkpoint needs would be deleted."""
    handle = Handle(HandleKind.CHANGELOG, "8_u.changelog", "run-00000001/seg/8-a", 0, 5, 7)
    left = Ack(1, 8, Snapshot(StoreId(0, 0, "default"), 8, "u", (handle,)), "1", 5, 1.0, 1.0, 1.0)
    actions.storage.put(paths.left_acks_key(1, 8, "a"), json.dumps({"acks": [left.to_json()]}).encode())
    read = actions.perform(do.ReadLeftAcks(1, 1, 8))
    assert isinstance(read, ev.LeftAcksRead)
    assert read.acks == (left,)
    forged = replace(left, snapshot=replace(left.snapshot, handles=(replace(handle, **change),)))  # type: ignore[arg-type]
    actions.storage.put(paths.left_acks_key(1, 8, "b"), json.dumps({"acks": [forged.to_json()]}).encode())
    both = actions.perform(do.ReadLeftAcks(1, 1, 8))
    assert isinstance(both, ev.LeftAcksRead)
    assert (both.acks, both.keys) == ((left,), (paths.left_acks_key(1, 8, "a"),)), "the other one counts all the same"
    (problem,) = both.unreadable
    assert paths.left_acks_key(1, 8, "b") in problem
    assert "damaged or forged" in problem


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"acks": [[]]}', b'{"acks": ["decline"]}', b"[]", b"\xff", b'{"acks": [{"run": 1e999}]}']
)
def test_whatever_was_left_as_acknowledgements_is_read_or_told(actions: StorageActions, data: bytes) -> None:
    actions.storage.put(paths.left_acks_key(1, 8, "a"), data)
    read = actions.perform(do.ReadLeftAcks(1, 1, 8))
    assert isinstance(read, ev.LeftAcksRead)
    assert (read.acks, len(read.keys) + len(read.unreadable)) == ((), 1)


def test_left_acknowledgements_are_bounded_together(actions: StorageActions, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle(HandleKind.CHANGELOG, "8_u.changelog", "run-00000001/seg/8-a", 0, 5, 7)
    left = Ack(1, 8, Snapshot(StoreId(0, 0, "default"), 8, "u", (handle,)), "1", 5, 1.0, 1.0, 1.0)
    document = json.dumps({"acks": [left.to_json()]}).encode()
    monkeypatch.setattr("spark_ckpt.stored.left_acks.LARGEST_TOGETHER", 5 * len(document) // 2)
    for name in "abcd":
        actions.storage.put(paths.left_acks_key(1, 8, name), document)
    read = actions.perform(do.ReadLeftAcks(1, 1, 8))
    assert isinstance(read, ev.LeftAcksRead)
    assert read.keys == tuple(paths.left_acks_key(1, 8, name) for name in "ab")
    assert len(read.unreadable) == 1
    assert "are left of epoch 8 of run 1: not all are read" in read.unreadable[0]


@pytest.mark.parametrize("name", ["sync_ms", "async_ms", "start_delay_ms", "commit_delay_ms", "new_bytes"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 10**400, -(10**30), 2**53, "x", []])
def test_an_acknowledgement_tells_times_and_sizes_that_can_be_added_up(actions: StorageActions, name: str, value: object) -> None:
    """They would break the run that adds them up, long after the file that they stand in was read."""
    handle = Handle(HandleKind.CHANGELOG, "8_u.changelog", "run-00000001/seg/8-a", 0, 5, 7)
    left = Ack(1, 8, Snapshot(StoreId(0, 0, "default"), 8, "u", (handle,)), "1", 5, 1.0, 1.0, -1.0)
    actions.storage.put(paths.left_acks_key(1, 8, "a"), json.dumps({"acks": [left.to_json()]}).encode())
    read = actions.perform(do.ReadLeftAcks(1, 1, 8))
    assert isinstance(read, ev.LeftAcksRead)
    assert read.acks == (left,)
    actions.storage.put(paths.left_acks_key(1, 8, "a"), json.dumps({"acks": [{**left.to_json(), name: value}]}).encode())
    if name == "commit_delay_ms" and value == []:
        return  # as if it were not told
    refused = actions.perform(do.ReadLeftAcks(1, 1, 8))
    assert isinstance(refused, ev.LeftAcksRead)
    assert (refused.acks, refused.keys, len(refused.unreadable)) == ((), (), 1)


@pytest.mark.parametrize("target", ["savepoints/a\0b", "savepoints/\ud800", "savepoints/a\nb", "savepoints/\x7f"])
def test_a_request_with_a_target_that_no_storage_can_have_is_refused_and_answered(
    actions: StorageActions, checkpoint: Checkpoint, target: str
) -> None:
    on_disk = StorageActions(STREAM, open_storage, Places(STREAM))
    refused = stored(on_disk.perform(do.StoreSavepoint(1, checkpoint, asked(f"{STREAM}/{target}"), 12)))
    assert (refused.url, refused.hopeless) == (None, True)
    assert f"{STREAM}/savepoints and what lies below" in refused.message
    assert refused.message.isprintable()
    assert actions.perform(do.AnswerRequest(2, 3, 13, None, refused.message)) == ev.RequestAnswered(2, 13, Outcome.STORED)


def test_what_can_fail_alone_ends_no_run_whatever_it_meets(checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(url: str) -> Storage:
        raise ZeroDivisionError(url)

    def perform(instruction: do.Question | do.Delete | do.Trimming) -> ev.Event:
        return StorageActions(STREAM, broken).perform(instruction)

    copied = stored(perform(do.StoreSavepoint(1, checkpoint, asked(), 12)))
    assert (copied.url, copied.hopeless) == (None, True)
    assert "internal error, please report it: ZeroDivisionError" in copied.message
    answered = perform(do.AnswerRequest(2, 3, 13, None, "no"))
    assert isinstance(answered, ev.RequestAnswered)
    assert answered.outcome is Outcome.HOPELESS
    assert isinstance(perform(do.Delete(3, (checkpoint.id,), ())), ev.Deleted)
    assert isinstance(perform(do.DeleteEntries(4, (1,), 3)), ev.TrimFailed)
    assert capsys.readouterr().err.count("Traceback") == 4
    with pytest.raises(ZeroDivisionError):
        perform(do.PutEntry(5, 1, b""))


def test_a_savepoint_that_meets_a_broken_disk_is_refused_and_nothing_else(checkpoint: Checkpoint) -> None:
    def full(url: str) -> Storage:
        raise PermissionError(13, "Permission denied", url)

    refused = stored(StorageActions(STREAM, full).perform(do.StoreSavepoint(1, checkpoint, asked(), 12)))
    assert "look at TMPDIR and free space" in refused.message
    assert refused.hopeless


def test_a_location_of_stock_spark_is_nobodys_but_its_owners(checkpoint: Checkpoint) -> None:
    """Imported with CLAIM: other queries, and people, may go on from it."""
    url = "memory://stock/ckpt"
    files = ("metadata", "offsets/0", "commits/0", "state/0/0/1.zip")
    with open_storage(url) as folder:
        for name in files:
            folder.put(name, b"of stock Spark")
    configured = StorageActions(STREAM, open_storage, Places(STREAM, owned=url))
    assert configured.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint))) == ev.Deleted(1)
    configured.close()
    with open_storage(url) as folder:
        assert {stored.key for stored in folder.list("")} == set(files)
    wipe("stock")


@pytest.mark.parametrize("broken", [False, True])
def test_a_claimed_source_that_cannot_be_deleted_keeps_nothing_else(checkpoint: Checkpoint, broken: bool) -> None:
    url = "memory://elsewhere/savepoint"
    with open_storage(url) as folder:
        folder.put("_metadata", b"no savepoint")
    denied = FaultyStorage(open_storage("memory://elsewhere"), [Fault(Moment.FAIL_BEFORE, times=None)])

    def opened(to: str, *_: object) -> Storage:
        if "elsewhere" not in to:
            return open_storage(to)
        if broken:
            raise PermissionError("injected")
        return denied

    configured = StorageActions(STREAM, opened, Places(STREAM, owned=url))
    answer = configured.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint)))
    assert isinstance(answer, ev.Deleted)
    assert answer.failure is None
    assert answer.savepoint_failure
    configured.close()
    wipe("elsewhere")


def test_a_claimed_source_goes_with_its_import(actions: StorageActions, checkpoint: Checkpoint) -> None:
    url = stored(actions.perform(do.StoreSavepoint(1, checkpoint, asked(), 12))).url or ""
    # What only a claim in the log says: anybody may have written it.
    assert actions.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint))) == ev.Deleted(1)
    other = StorageActions(STREAM, open_storage, Places(STREAM, owned=f"{url}2"))
    assert other.perform(do.Delete(1, (), (), taken_over(url, checkpoint))) == ev.Deleted(1)
    with open_storage(url) as folder:
        assert folder.size(RestorePath.at(url).key) is not None
    actions.storage.put(paths.metadata_key(checkpoint.id), encode_metadata(checkpoint))
    configured = StorageActions(STREAM, open_storage, Places(STREAM, owned=url))
    assert configured.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint))) == ev.Deleted(1)
    configured.close()
    with open_storage(url) as folder:
        assert folder.size(RestorePath.at(url).key) is None
        assert list(folder.list("")) == []


@pytest.mark.parametrize("gone_before", [False, True])
def test_what_has_taken_the_place_of_a_claimed_savepoint_stays(
    actions: StorageActions, checkpoint: Checkpoint, gone_before: bool
) -> None:
    """(1) A stream goes on from it with CLAIM; (2) a person removes it by hand; (3) another savepoint gets its name; (4) the copy goes.
    `gone_before`: so that only its name is left to go by."""
    actions.perform(do.StoreSavepoint(1, checkpoint, asked(name="release"), 12))
    url = f"{STREAM}/savepoints/release"
    with open_storage(url) as folder:
        folder.delete([found.key for found in folder.list("")])
    if not gone_before:
        newer = replace(checkpoint, id=replace(checkpoint.id, epoch=checkpoint.id.epoch + 9))
        assert stored(actions.perform(do.StoreSavepoint(2, newer, asked(name="release"), 13))).url == url
    else:
        assert stored(actions.perform(do.StoreSavepoint(2, checkpoint, asked(name="release"), 13))).url == url
        actions.storage.delete([paths.metadata_key(checkpoint.id)])
    configured = StorageActions(STREAM, open_storage, Places(STREAM, owned=url))
    answer = configured.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint)))
    assert isinstance(answer, ev.Deleted)
    assert (answer.failure, answer.savepoint_failure) == (None, None)
    assert ("nobody knows whether" if gone_before else "another savepoint is there now (epoch 17") in (answer.savepoint_kept or "")
    assert actions.storage.size(paths.metadata_key(checkpoint.id)) is None
    configured.close()
    with open_storage(url) as folder:
        there = RestorePath.at(url).read(folder)
        assert there.objects <= {found.key for found in folder.list("")}


def test_a_copy_that_may_not_be_read_keeps_no_deletion_from_being_done(actions: StorageActions, checkpoint: Checkpoint) -> None:
    """As where the bucket archives what is old."""
    url = stored(actions.perform(do.StoreSavepoint(1, checkpoint, asked(), 12))).url or ""

    class Archived(FaultyStorage):
        def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
            if key == paths.metadata_key(checkpoint.id):
                raise StorageSetupError("it is archived")
            return super().get(key, offset, length, limit)

    def opened(to: str, *_: object) -> Storage:
        return open_storage(to) if to == url else Archived(open_storage(to), [])

    configured = StorageActions(STREAM, opened, Places(STREAM, owned=url))
    answer = configured.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint)))
    assert isinstance(answer, ev.Deleted)
    assert (answer.failure, "nobody knows whether" in (answer.savepoint_kept or "")) == (None, True)
    assert actions.storage.size(paths.metadata_key(checkpoint.id)) is None
    configured.close()


@pytest.mark.parametrize("which", ["_metadata", "run-*"])
def test_a_claimed_savepoint_that_could_not_go_is_still_known_when_its_copy_is_gone(
    actions: StorageActions, checkpoint: Checkpoint, which: str
) -> None:
    """Also where its `_metadata` is gone, and only that."""
    url = stored(actions.perform(do.StoreSavepoint(1, checkpoint, asked(), 12))).url or ""
    denied = Fault(Moment.FAIL_BEFORE, which, frozenset({"delete"}))

    def opened(to: str, *_: object) -> Storage:
        return FaultyStorage(open_storage(to), [denied]) if to == url else open_storage(to)

    configured = StorageActions(STREAM, opened, Places(STREAM, owned=url))
    answer = configured.perform(do.Delete(1, (checkpoint.id,), (), taken_over(url, checkpoint)))
    assert isinstance(answer, ev.Deleted)
    assert answer.savepoint_failure
    assert actions.storage.size(paths.metadata_key(checkpoint.id)) is None
    configured._opener = open_storage
    assert configured.perform(do.Delete(2, (), (), taken_over(url, checkpoint))) == ev.Deleted(2)
    configured.close()
    with open_storage(url) as folder:
        assert list(folder.list("")) == []
