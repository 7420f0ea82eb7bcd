"""What a person is told before a restore: that a drain runs again, which operators a new query would go on with, that somebody may run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt.cli import options
from spark_ckpt.cli.main import run
from spark_ckpt.model import Checkpoint, CheckpointId, Imported, Job
from spark_ckpt.paths import log_key, metadata_key
from spark_ckpt.protocol.entries import Claim, End, Plan, Restored, decode, encode
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.copies import RestorePath, store_savepoint
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.preflight import into
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.command_line import call
from tests.drivers.coordinator_process import FakeJvm, b64
from tests.drivers.planned_operators import a_deduplication, a_total
from tests.drivers.protocol_driving import JOB, offsets
from tests.drivers.stored_stream import StreamWriter, begun, make_store
from tests.stored.earlier import place

DRAINED = b"v1\n" + json.dumps({"batchWatermarkMs": 0, "conf": {"spark.ckpt.drained": "true"}}).encode() + b"\n{}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/ckpt/orders"


@pytest.fixture
def storage(url: str) -> Storage:
    return open_storage(url)


def test_it_is_told_that_no_stream_begins_in_the_folder_of_a_savepoint(
    storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = begun(storage, tmp_path, 1)
    kept = f"file://{tmp_path}/kept"
    with open_storage(kept) as target:
        store_savepoint(storage, writer.checkpoints[0], target)
    status, doc = call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", kept)
    assert (status, [f"there is a savepoint at {kept}" in problem for problem in doc["problems"]]) == (1, [True])


def test_a_drain_that_runs_again_is_told(storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = begun(storage, tmp_path, 2)
    assert call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[1]["drains"] is None
    writer.append(Plan(writer.claim, 1, 2, DRAINED))
    with open_storage(f"file://{tmp_path}/kept") as target:
        store_savepoint(storage, writer.checkpoints[1], target)
    for path in (f"{url}/run-00000001/chk-1", f"file://{tmp_path}/kept"):
        status, told = call(capsys, "restore", path, "--check", url)
        assert (status, told["reruns"], told["drains"]) == (0, [2], 2)
        run(["restore", path, "--check", url])
        assert "to live on instead, restore it with spark.ckpt.restore.plans=DISCARD too" in capsys.readouterr().out


def test_the_driver_warns_of_a_drain_that_runs_again(tmp_path: Path) -> None:
    first = FakeJvm(tmp_path)
    first.start()
    first.epoch(1, 0)
    first.epoch(1, 1)
    first.ask("trigger", root=first.root, epoch=2, offsets=b64(DRAINED), files={})
    first.kill()
    after = FakeJvm(tmp_path)
    after.start()
    assert not any("drains the query" in line for line in after.logs)
    after.kill()
    path = f"{after.url}/run-00000001/chk-0"
    back = FakeJvm(tmp_path, **{"restore.path": path})
    assert [plan["epoch"] for plan in back.start()["planned"]] == [2]
    back.close()
    assert any("epoch 2 drains the query again" in line and "restore.plans=DISCARD" in line for line in back.logs), back.logs
    way_out = {"restore.path": path, "restore.plans": "DISCARD"}
    for conf, planned in (({"restore.path": path}, [2]), ({}, [2]), (way_out, [])):
        later = FakeJvm(tmp_path, **conf)
        assert [plan["epoch"] for plan in later.start()["planned"]] == planned
        later.close()
        assert not any("drains the query" in line for line in later.logs)


def test_a_query_that_was_tried_elsewhere_shows_its_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_store(tmp_path, 30, "s")
    old = StreamWriter(open_storage(f"file://{tmp_path}/old"))
    old.begin(1)
    old.complete(1, 0, [made], files=a_total(0))
    tried = StreamWriter(open_storage(f"file://{tmp_path}/tried"))
    tried.begin(1)
    tried.complete(1, 0, [made], files={**a_deduplication(0), **a_total(1)})
    path, check = f"file://{tmp_path}/old/run-00000001/chk-0", f"file://{tmp_path}/tried"
    status, told = call(capsys, "restore", path, "--check", check, "--as-new")
    assert (status, told["fits"], [(o["operator"], o["in_query"]) for o in told["operators"]]) == (0, True, [(0, 1), (None, 0)])
    fewer = StreamWriter(open_storage(f"file://{tmp_path}/fewer"))
    fewer.begin(1)
    fewer.complete(1, 0, [made], files=a_deduplication(0))
    status, told = call(capsys, "restore", path, "--check", f"file://{tmp_path}/fewer", "--as-new")
    assert (status, "no operator of the query takes the state" in " ".join(told["problems"])) == (1, True)
    status, told = call(capsys, "restore", path, "--check", f"file://{tmp_path}/nothing", "--as-new")
    assert (status, "it has completed no checkpoint" in " ".join(told["problems"])) == (1, True)
    assert call(capsys, "restore", path, "--as-new")[1]["error"]["kind"] == "CONFIG"


@pytest.mark.parametrize(("later_s", "told"), [(5, True), (86_400, False)])
def test_who_makes_something_of_a_stream_that_may_run_hears_of_it(
    storage: Storage, tmp_path: Path, capsys: pytest.CaptureFixture[str], later_s: int, told: bool
) -> None:
    begun(storage, tmp_path, 1)
    entry = max((tmp_path / "ckpt/orders/log").iterdir())
    options.tell_of_a_run(storage, clock=lambda: entry.stat().st_mtime + later_s)
    said = capsys.readouterr().err
    assert ("run-1 appended to the log" in said and "5 s ago: if its query still runs, end it" in said) == told


@pytest.mark.parametrize("place_of", ["", "/run-00000002/chk-5"])
def test_export_and_rescale_tell_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], place_of: str) -> None:
    place("1", tmp_path / "stream")
    (tmp_path / "stream/log/00000000000000000010").touch()
    source = f"{tmp_path}/stream{place_of}"
    run(["export", source, f"{tmp_path}/out"])
    assert "run-2 appended to the log of file:" in capsys.readouterr().err
    run(["rescale", source, "--partitions", "2", "--target", f"{tmp_path}/rescaled"])  # it has two, and nothing is to be done
    assert "run-2 appended to the log of file:" in capsys.readouterr().err


def test_of_a_savepoint_there_is_nothing_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place("1", tmp_path / "stream")
    made = spark_ckpt.transform_state(f"{tmp_path}/stream", 0, lambda batch: batch, target=f"{tmp_path}/kept", name="one")
    assert run(["export", made, f"{tmp_path}/out"]) == 0
    assert "appended to the log" not in capsys.readouterr().err


def ended(tmp_path: Path, name: str, epochs: int) -> str:
    """A stream that was deleted, after so many epochs."""
    jvm = FakeJvm(tmp_path / name, query="q-2")
    jvm.start()
    for epoch in range(epochs):
        jvm.epoch(1, epoch)
    jvm.close()
    with open_storage(jvm.url) as storage:
        standing = StreamReader(storage).standing()
        assert standing is not None
        end = End(standing.claim.claim, 1, used=epochs - 1, floor=standing.floor)
        storage.put(log_key(standing.tail + 1), encode(end))
    return jvm.url


def kept(tmp_path: Path) -> Checkpoint:
    """Of epoch 1, at `kept`; the same with an epoch that stock Spark had begun at `begun`."""
    jvm = FakeJvm(tmp_path / "source")
    jvm.start()
    for epoch in range(2):
        jvm.epoch(1, epoch)
    jvm.close()
    with open_storage(jvm.url) as storage, open_storage(f"file://{tmp_path}/kept") as target:
        reader = StreamReader(storage)
        latest = reader.latest()
        assert latest is not None
        made = store_savepoint(storage, reader.read(latest), target)
    shutil.copytree(tmp_path / "kept", tmp_path / "begun")
    begun = replace(made, imported=Imported("file:///stock", offsets(2)), job=Job((), (), ""), claim=0, log=0, stream="")
    (tmp_path / "begun" / "_metadata").write_bytes(encode_metadata(begun))
    return made


@pytest.mark.parametrize(
    ("path", "epochs", "first", "again"), [("kept", 6, 6, []), ("kept", 1, 2, []), ("begun", 1, 2, [2]), ("begun", 6, 6, [])]
)
def test_a_deleted_streams_numbers_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, epochs: int, first: int, again: list[int]
) -> None:
    """What `restore --check` says is what the start does; a batch that is begun under another number is told."""
    kept(tmp_path)
    url = ended(tmp_path, "deleted", epochs)
    source = f"file://{tmp_path}/{path}"
    status, told = call(capsys, "restore", source, "--check", url)
    assert (status, told["reruns"]) == (0, again)
    run(["restore", source, "--check", url])
    assert (f"its epochs begin with {first}:" in capsys.readouterr().out) is not bool(again)
    jvm = FakeJvm(tmp_path / "deleted", query="q-2", **{"restore.path": source})
    started = jvm.start()
    jvm.close()
    assert (started["epoch"], [plan["epoch"] for plan in started["planned"]]) == (first, again)
    anew = [line for line in jvm.logs if "what stock Spark had begun as epoch 2 runs anew, under a number from 6 on" in line]
    assert len(anew) == (1 if path == "begun" and epochs == 6 else 0), jvm.logs


def test_a_restore_that_was_cut_short_may_be_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path)
    conf = {"restore.path": f"file://{tmp_path}/kept"}
    first = FakeJvm(tmp_path / "new", query="q-2", **conf)
    first.start()
    first.kill()
    (copied,) = (tmp_path / "new").rglob("_metadata")
    copied.unlink()
    status, told = call(capsys, "restore", conf["restore.path"], "--check", first.url)
    assert (status, told["problems"]) == (0, [])
    again = FakeJvm(tmp_path / "new", query="q-2", **conf)
    assert again.start()["epoch"] == 2
    again.close()
    assert call(capsys, "restore", conf["restore.path"], "--check", first.url)[0] == 1


def test_a_rescaled_savepoint_with_a_planned_epoch_is_still_of_its_job(tmp_path: Path) -> None:
    """It counts as imported, for stock Spark could have begun that epoch; but its job is known."""
    made = replace(kept(tmp_path), imported=Imported("file:///s/run-00000001/chk-1", offsets(2)))
    (tmp_path / "kept" / "_metadata").write_bytes(encode_metadata(made))
    another = FakeJvm(tmp_path / "new", query="q-2", **{"restore.path": f"file://{tmp_path}/kept"})
    job = replace(JOB, sources=("KafkaV2[Subscribe[another]]",)).to_json()
    refused = another.ask("start", **{**another.start_fields(), "job": job})
    another.kill()
    assert "its sources are" in refused["error"]["message"]
    same = FakeJvm(tmp_path / "same", query="q-2", **{"restore.path": f"file://{tmp_path}/kept"})
    assert [plan["epoch"] for plan in same.start()["planned"]] == [2]
    same.close()


def test_what_a_run_had_given_up_is_told_apart_from_what_is_past_retained(tmp_path: Path) -> None:
    storage = FileStorage(f"file://{tmp_path}/stream")
    stream = StreamWriter(storage)
    stream.begin(1)
    for epoch in range(2):
        stream.complete(1, epoch, [make_store(tmp_path, 3, f"of-{epoch}")])
    key = metadata_key(CheckpointId(1, 1))
    storage.delete([key])
    storage.put(key, encode_metadata(replace(stream.checkpoints[1], given_up=(0,))))
    path = RestorePath.at(f"file://{tmp_path}/stream/run-00000001/chk-0")
    told = into(path.read(storage), path, storage).problems
    assert told == ("its run had given it up, not knowing that it was stored, and may delete it at any moment",)


def test_another_savepoint_may_take_the_place_of_the_first_that_was_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new stream has nothing of its own yet: a start takes it, and `--check` says so."""
    kept(tmp_path)
    shutil.copytree(tmp_path / "kept", tmp_path / "other")
    first = FakeJvm(tmp_path / "new", query="q-2", **{"restore.path": f"file://{tmp_path}/kept"})
    first.start()
    first.kill()
    (copied,) = (tmp_path / "new").rglob("_metadata")
    copied.unlink()
    other = f"file://{tmp_path}/other"
    status, told = call(capsys, "restore", other, "--check", first.url)
    assert (status, told["problems"]) == (0, [])
    again = FakeJvm(tmp_path / "new", query="q-2", **{"restore.path": other})
    assert again.start()["epoch"] == 2
    again.close()
    status, told = call(capsys, "restore", f"file://{tmp_path}/kept", "--check", first.url)
    assert status == 1
    assert "epochs of its own" in told["problems"][0]


def test_beside_checkpoints_of_the_stream_none_of_another_may_take_the_place_of_what_was_cut_short(tmp_path: Path) -> None:
    kept(tmp_path)
    storage = FileStorage(f"file://{tmp_path}/stream")
    stream = StreamWriter(storage)
    stream.begin(1)
    first = stream.complete(1, 0, [make_store(tmp_path, 3, "one")])
    claim = decode(1, storage.get(log_key(1)))
    assert isinstance(claim, Claim)
    copy = CheckpointId(2, 1)
    number = stream.log + 1
    restored = Restored(f"file://{tmp_path}/elsewhere", copy)
    stream.append(replace(claim, claim=number, run=2, origin=copy, inherits=(first.id, copy), restored=restored))
    path = RestorePath.at(f"file://{tmp_path}/kept")
    told = into(path.read(open_storage(path.storage_url)), path, storage).problems
    assert any("belongs to another stream, and this one has epochs of its own" in problem for problem in told)
