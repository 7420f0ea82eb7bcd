"""One application, several queries, one `spark.ckpt.restore.path`: whose it is, through the coordinator's own messages."""

from __future__ import annotations

import base64
import io
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import __version__
from spark_ckpt.api.causes import Cause, cause_of
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.coordinator import Coordinator
from spark_ckpt.errors import CheckpointError
from spark_ckpt.model import CheckpointId, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.paths import log_key, metadata_key
from spark_ckpt.process.pipe import Pipe
from spark_ckpt.protocol.entries import Plan, Request, encode
from spark_ckpt.storage import S3Options, Storage
from spark_ckpt.storage import open_storage as open_real
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.copies import RestorePath, store_savepoint
from spark_ckpt.stored.verify import Verifier
from tests.drivers.stock_location import StockLocation

STORAGE = "file:///ckpt"
OF_A = f"{STORAGE}/a/run-00000001/chk-1"


def open_storage(url: str, _options: S3Options | None = None) -> Storage:
    """In memory, although it goes by the URL of a file."""
    storage = MemoryStorage(url.replace("file://", "memory://application"))
    storage.url = url
    return storage


class Application:
    """One coordinator, asked as the JVM asks it."""

    def __init__(self, **conf: str) -> None:
        self._said = io.BytesIO()
        self.coordinator = Coordinator(Pipe(io.BytesIO(), self._said), open_storage)
        settings = {f"spark.ckpt.{name.replace('_', '.')}": value for name, value in conf.items()}
        self.ask("hello", jar=__version__, conf={"spark.ckpt.storage": STORAGE, **settings})

    def ask(self, kind: str, **fields: Any) -> Mapping[str, Any]:
        reply = self.coordinator.handlers()[kind]({"type": kind, **fields})
        answer = reply.result(20) if isinstance(reply, Future) else reply
        assert answer is not None
        return answer

    def restored(self) -> list[Mapping[str, Any]]:
        lines = [json.loads(line) for line in self._said.getvalue().splitlines()]
        return [line for line in lines if line.get("event") == "RESTORED"]

    def start(self, name: str, sink_seen: int | None = None) -> Mapping[str, Any]:
        job = {"operators": [], "sources": ["rate"], "sink": "FileStreamSink"}
        return self.ask("start", root=f"file:/{name}", query_id=f"query-{name}", job=job, files=[], sink_seen=sink_seen, forgetful=[])

    def epochs(self, name: str, *numbers: int) -> None:
        for n in numbers:
            offsets = base64.b64encode(b'v1\n{"batchWatermarkMs":0}\n{"offset":%d}' % n).decode()
            self.ask("trigger", root=f"file:/{name}", epoch=n, offsets=offsets, files={})
            self.ask("seal", root=f"file:/{name}", epoch=n, commit=base64.b64encode(b'v2\n{"nextBatchWatermarkMs":0}').decode(), files={})

    def stop(self, name: str, by_person: bool) -> None:
        self.ask("stop", root=f"file:/{name}", failed=False, by_person=by_person)
        self.coordinator.close(5)


@pytest.fixture(autouse=True)
def stored() -> Iterator[None]:
    """Stream a has epochs 0 to 2."""
    before = Application()
    before.start("a")
    before.epochs("a", 0, 1, 2)
    before.stop("a", by_person=True)
    yield
    wipe("application")


def origin(started: Mapping[str, Any]) -> tuple[int, int] | None:
    found = started["origin"]
    return (found["run"], found["epoch"]) if found else None


def test_the_streams_own_query_goes_back_and_others_are_not_concerned() -> None:
    application = Application(restore_path=OF_A)
    back = application.start("a")
    assert (origin(back), back["epoch"], "offsets/2" in back["files"]) == ((1, 1), 2, True)
    assert origin(application.start("b")) is None


def test_of_several_each_counts_for_the_query_in_whose_folder_it_lies() -> None:
    application = Application(restore_path=f"{STORAGE}/b/run-00000001/chk-0,{OF_A}")
    assert origin(application.start("c")) is None
    back = application.start("a")
    assert (origin(back), back["epoch"]) == ((1, 1), 2)


def test_a_new_query_alone_is_a_fork_and_a_second_one_is_refused_with_both_named() -> None:
    application = Application(restore_path=OF_A)
    fork = application.start("b")
    assert (origin(fork), fork["epoch"], "offsets/2" in fork["files"]) == ((1, 1), 2, False)
    with pytest.raises(CheckpointError, match=r"is what the query at file:/b goes on from"):
        application.start("c")
    with pytest.raises(CheckpointError, match=r"is what the query at file:/b goes on from"):
        application.start("a")
    again = Application(restore_path=OF_A)
    application.epochs("b", 2, 3)
    assert origin(again.start("b")) == (1, 3)
    (copied,), (own,) = application.restored(), again.restored()
    assert (copied["from"], copied["from_savepoint"], copied["path"]) == (OF_A, False, f"{STORAGE}/b/run-00000001/chk-1")
    assert "from" not in own


def test_a_stopped_query_begins_anew_and_what_it_was_restored_from_stays_known() -> None:
    application = Application(restore_path=OF_A)
    application.start("b")
    application.epochs("b", 2, 3)
    application.ask("stop", root="file:/b", failed=False, by_person=True)
    with pytest.raises(CheckpointError, match=r"is what the query at file:/b goes on from"):
        application.start("c")
    again = application.start("b")
    assert (again["run"], origin(again)) == (2, (1, 3))


def test_a_sink_that_has_seen_more_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"the sink \(FileStreamSink\) has batch 7 already"):
        Application(restore_path=OF_A).start("b", sink_seen=7)


@pytest.mark.parametrize(("by_person", "on_stop", "left"), [(True, "DELETE", 0), (False, "DELETE", 3), (True, "RETAIN", 3)])
def test_who_stops_it_decides_whether_its_checkpoints_go(by_person: bool, on_stop: str, left: int) -> None:
    application = Application(onStop=on_stop)
    application.start("a")
    with open_storage(f"{STORAGE}/a") as stream:
        stream.put("savepoints/x/_metadata", b"not the stream's")
        application.stop("a", by_person)
        assert len([s for s in stream.list("run-") if s.key.endswith("/_metadata")]) == left
        assert stream.get("savepoints/x/_metadata") == b"not the stream's"
        assert [s.key for s in stream.list("log/")] != []


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ((1, 2, 3, 4), "has checkpoints, but its log is gone"),
        ((1,), "log entry 1 of file:///ckpt/a is missing, although there are later ones"),
    ],
)
def test_a_log_that_somebody_deleted_is_not_taken_for_a_new_stream(lost: tuple[int, ...], said: str) -> None:
    storage = open_storage(f"{STORAGE}/a")
    storage.delete(log_key(number) for number in lost)
    application = Application()
    with pytest.raises(CheckpointError, match=said):
        application.ask("open", root="file:/a", query_id=None)
    with pytest.raises(CheckpointError, match=r"is missing, although|its log is gone"):
        application.start("a")
    assert [stored.key for stored in storage.list("log/")] == [log_key(number) for number in (1, 2, 3, 4) if number not in lost]


def test_nothing_is_written_into_a_gap_of_the_log() -> None:
    storage = open_storage(f"{STORAGE}/a")
    storage.delete([metadata_key(CheckpointId(1, epoch)) for epoch in (1, 2)])
    storage.delete([log_key(3)])
    with pytest.raises(CheckpointError, match="log entry 3 is missing, so it is not known which epochs were planned past"):
        Application().start("a")
    assert storage.size(log_key(3)) is None


def missing_object(epoch: int) -> str:
    """A savepoint of stream a, one of whose objects is gone."""
    with open_storage(f"{STORAGE}/a") as stream, open_storage(f"{STORAGE}/kept") as kept:
        content = RestorePath.at(f"{STORAGE}/a/run-00000001/chk-{epoch}").read(stream)
        data = b"the state"
        stream.put("run-00000001/seg/1-a", data)
        handle = Handle(HandleKind.CHANGELOG, "8_u.changelog", "run-00000001/seg/1-a", 0, len(data), zlib.crc32(data))
        snapshot = Snapshot(StoreId(0, 0, "default"), 8, "u", (handle,))
        made = store_savepoint(stream, replace(content, snapshots=(snapshot,)), kept)
        kept.delete(sorted(made.objects))
    return f"{STORAGE}/kept"


def refused(application: Application, name: str) -> CheckpointError:
    with pytest.raises(CheckpointError) as raised:
        application.start(name)
    return raised.value


def test_what_a_start_is_refused_for_until_a_person_acts_is_not_tried_again() -> None:
    """`spark_ckpt.run` started such a query for ever."""
    mistyped = refused(Application(restore_path=f"{STORAGE}/a/run-00000001/chk-77"), "b")
    assert "there is no checkpoint or savepoint at" in str(mistyped)
    of_its_own = refused(Application(restore_path=f"{STORAGE}/a/run-00000001/chk-77"), "a")
    assert "choose one of its others" in str(of_its_own)
    with open_storage(f"{STORAGE}/a") as stream:
        stream.put(log_key(4), b"{")
    damaged = refused(Application(), "a")
    assert "log entry 4 is not JSON" in str(damaged)
    with pytest.raises(CheckpointError, match="log entry 4 is not JSON") as opened:
        Application().ask("open", root="file:/a", query_id=None)
    assert [cause_of(error) for error in (mistyped, of_its_own, damaged, opened.value)] == [Cause.UNUSABLE] * 4


def test_a_savepoint_without_one_of_its_objects_is_refused_with_the_way_out() -> None:
    path = missing_object(1)
    error = refused(Application(restore_path=path), "b")
    assert f"spark.ckpt.restore.path={path} cannot be restored: {path}/run-" in str(error)
    assert "choose another checkpoint or a savepoint" in str(error)
    assert cause_of(error) is Cause.UNUSABLE


@pytest.mark.parametrize("requests", [0, 1, 3])
def test_a_request_of_a_person_is_no_sign_of_life(requests: int, tmp_path: Path) -> None:
    """The run before ended an hour ago, and who looks whether it lives sees that, although somebody has asked it for a savepoint since."""
    with open_real(f"file://{tmp_path}") as stream:
        for number in range(1, 5):
            stream.put(log_key(number), encode(Plan(1, 1, number, b"v1\n{}")))
            os.utime(tmp_path / log_key(number), (time.time() - 3600,) * 2)
        for number in range(5, 5 + requests):
            stream.put(log_key(number), encode(Request(1, "savepoint", "", "person@host", nonce=str(number))))
        claim = 5 + requests
        stream.put(log_key(claim), b"the claim")
    actions = StorageActions(f"file://{tmp_path}", open_real)
    pause = actions.pause_before(claim)
    assert pause is not None
    assert pause > 3_500_000
    actions.storage.delete([log_key(4)])
    assert actions.pause_before(claim) is None
    actions.close()


@pytest.mark.parametrize("mode", ["NO_CLAIM", "CLAIM"])
@pytest.mark.parametrize("kind", ["savepoint", "checkpoint"])
def test_both_restore_modes_copy_and_only_a_claimed_savepoint_goes(kind: str, mode: str) -> None:
    path = f"{STORAGE}/saved/x" if kind == "savepoint" else OF_A
    with open_storage(f"{STORAGE}/a") as a, open_storage(f"{STORAGE}/saved/x") as target:
        store_savepoint(a, RestorePath.at(OF_A).read(a), target)
    application = Application(restore_path=path, restore_mode=mode, retained="1")
    application.start("b")
    application.epochs("b", 2)
    with open_storage(path) as folder:
        assert folder.size("_metadata") is not None, "as long as the copy is retained"
    application.epochs("b", 3, 4, 5)
    application.stop("b", by_person=True)
    with open_storage(f"{STORAGE}/b") as b, open_storage(path) as folder:
        assert b.size(metadata_key(CheckpointId(1, 1))) is None, "the copy is dropped like any checkpoint"
        assert (folder.size("_metadata") is None) == (kind == "savepoint" and mode == "CLAIM")
        claim = json.loads(b.get(log_key(1)))
    assert claim["restored"]["owned"] == (kind == "savepoint" and mode == "CLAIM"), "a checkpoint is the stream's that made it"


@pytest.mark.parametrize("mode", ["NO_CLAIM", "CLAIM"])
def test_a_claimed_savepoint_goes_with_all_checkpoints_when_a_person_stops_the_query_with_delete(mode: str) -> None:
    path = f"{STORAGE}/saved/x"
    with open_storage(f"{STORAGE}/a") as a, open_storage(path) as target:
        store_savepoint(a, RestorePath.at(OF_A).read(a), target)
    application = Application(restore_path=path, restore_mode=mode, onStop="DELETE")
    application.start("b")
    application.epochs("b", 2)
    application.stop("b", by_person=True)
    with open_storage(f"{STORAGE}/b") as b, open_storage(path) as folder:
        assert b.size(metadata_key(CheckpointId(1, 1))) is None, "the copy"
        assert (folder.size("_metadata") is None) == (mode == "CLAIM")


def test_a_savepoint_that_got_the_name_of_a_claimed_one_stays() -> None:
    """That one was removed by hand, for the query does not need it any more; its copy goes with the third checkpoint."""
    path = f"{STORAGE}/saved/x"
    with open_storage(f"{STORAGE}/a") as a, open_storage(path) as target:
        store_savepoint(a, RestorePath.at(OF_A).read(a), target)
    application = Application(restore_path=path, restore_mode="CLAIM", retained="1")
    application.start("b")
    application.epochs("b", 2)
    with open_storage(f"{STORAGE}/b") as b, open_storage(path) as target:
        target.delete([found.key for found in target.list("")])
        newer = store_savepoint(b, RestorePath.at(f"{STORAGE}/b/run-00000001/chk-2").read(b), target)
    application.epochs("b", 3, 4, 5)
    application.stop("b", by_person=True)
    with open_storage(f"{STORAGE}/b") as b, open_storage(path) as folder:
        assert b.size(metadata_key(CheckpointId(1, 1))) is None, "the copy"
        assert RestorePath.at(path).read(folder) == newer
        assert newer.objects <= {found.key for found in folder.list("")}


def test_no_stream_begins_in_the_folder_of_a_savepoint() -> None:
    """`gc` would take its objects for what runs have left."""
    with open_storage(f"{STORAGE}/a") as a, open_storage(f"{STORAGE}/c") as target:
        made = store_savepoint(a, RestorePath.at(OF_A).read(a), target)
        with pytest.raises(CheckpointError, match=r"there is a savepoint at .*; take another checkpointLocation"):
            Application().start("c")
        assert {found.key for found in target.list("")} == {"_metadata", *made.objects}


def stock_location(tmp_path: Path, begun: bool = False, **without: str) -> str:
    """Of stock Spark, which has committed batch 1; `without`: a part that is missing."""
    at = StockLocation(tmp_path / "stock").begin()
    at.batch(0)
    at.batch(1, full=True)
    if begun:
        at.plan(2)
    with open_storage("file:///stock") as storage:
        for name, (content, _) in at.contents().items():
            if name not in without.values():
                storage.put(name, content)
    return "file:///stock"


def test_a_location_of_stock_spark_is_imported_at_the_start(tmp_path: Path) -> None:
    path = stock_location(tmp_path, begun=True)
    application = Application(restore_path=path)
    begun = application.start("b", sink_seen=2)
    assert (origin(begun), begun["epoch"]) == ((1, 1), 2)
    assert [one["epoch"] for one in begun["planned"]] == [2]
    (restored,) = application.restored()
    assert restored["from"] == path
    with open_storage(f"{STORAGE}/b") as stream:
        copied = RestorePath.at(f"{STORAGE}/b/run-00000001/chk-1").read(stream)
        assert not Verifier(stream).verify(copied).problems
    assert [(s.store.partition, s.version, len(s.handles)) for s in copied.snapshots] == [(0, 2, 3), (1, 2, 3)]
    again = Application(restore_path=path)
    assert (again.start("b")["run"], [one["epoch"] for one in again.start("b")["planned"]]) == (2, [2])


def test_what_a_location_of_stock_spark_lacks_refuses_the_start(tmp_path: Path) -> None:
    path = stock_location(tmp_path, commits="commits/1", sums="commits/0")
    assert "has committed no batch yet" in str(refused(Application(restore_path=path), "b"))
    wipe("application")
    path = stock_location(tmp_path, zip="state/0/1/2.zip", changes="state/0/1/1.changelog")
    error = refused(Application(restore_path=path), "b")
    assert f"spark.ckpt.restore.path={path} cannot be restored: {path}/state/0/1 lacks the changelog of version 1" in str(error)
    with open_storage(f"{STORAGE}/b") as stream:
        assert list(stream.list("log/")) == []
