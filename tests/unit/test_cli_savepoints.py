"""savepoint, restore, and list, show, verify on a savepoint's folder: what they print and the exit status."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.cli.options import storage_url
from spark_ckpt.errors import DamagedError
from spark_ckpt.model import CheckpointId, FileHandle, Job
from spark_ckpt.paths import log_key, metadata_key
from spark_ckpt.protocol import entries
from spark_ckpt.protocol.entries import Damage, End, Plan, Request, decode, encode
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.copies import store_savepoint
from spark_ckpt.stored.log_check import checkpoint_lost
from spark_ckpt.stored.metadata.codec import decode_metadata, encode_metadata
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Overview, Standing
from tests.drivers.command_line import call
from tests.drivers.planned_operators import a_deduplication, a_total
from tests.drivers.stored_stream import JOB, StreamWriter, begun, flip, make_store


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    """Epochs 0 to 2, and epoch 3 planned."""
    writer = begun(storage, tmp_path, 3)
    writer.append(entries.Plan(writer.claim, 1, 3, b"v1\n{}"))
    return writer


@pytest.fixture
def savepoint(writer: StreamWriter, storage: Storage, tmp_path: Path) -> str:
    """A savepoint of epoch 1, in a place of its own."""
    path = f"file://{tmp_path}/kept/here"
    with open_storage(path) as target:
        store_savepoint(storage, writer.checkpoints[1], target)
    return path


def test_a_savepoint_is_listed_shown_and_verified_by_its_folder(savepoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, listed = call(capsys, "list", savepoint)
    assert (status, [(c["epoch"], c["path"], c["status"]) for c in listed["checkpoints"]]) == (0, [(1, savepoint, "COMPLETED")])
    status, shown = call(capsys, "show", savepoint)
    assert (status, shown["epoch"], shown["path"]) == (0, 1, savepoint)
    status, verified = call(capsys, "verify", savepoint, "--deep")
    assert (status, verified["intact"], verified["checkpoints"][0]["stores_opened"]) == (0, True, 1)
    assert call(capsys, "show", savepoint + "/_metadata")[1]["path"] == savepoint


def test_so_is_one_checkpoint_by_its_folder(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{url}/run-00000001/chk-1"
    assert [c["path"] for c in call(capsys, "list", path)[1]["checkpoints"]] == [path]
    assert call(capsys, "show", path)[1]["epoch"] == 1
    assert call(capsys, "verify", path)[0] == 0
    status, missing = call(capsys, "show", f"{url}/run-00000001/chk-9")
    assert (status, missing["error"]["kind"]) == (1, "MISSING")


def test_a_savepoint_needs_nothing_of_its_stream(savepoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(tmp_path / "ckpt")
    shutil.move(tmp_path / "kept" / "here", tmp_path / "elsewhere")
    assert call(capsys, "verify", f"{tmp_path}/elsewhere", "--deep")[0] == 0


def test_a_damaged_savepoint_is_told(savepoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_storage(savepoint) as folder:
        flip(folder, next(s.key for s in folder.list("run-") if "/sst/" in s.key))
    status, doc = call(capsys, "verify", savepoint)
    assert (status, doc["intact"]) == (1, False)


def test_gc_leaves_savepoints_alone(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_storage(f"{url}/savepoints/x") as target:
        made = store_savepoint(storage, writer.checkpoints[0], target)
        writer.begin(2, CheckpointId(1, 2))
        status, doc = call(capsys, "gc", url, "--delete", "--min-age", "0")
        assert (status, doc["checkpoints"]) == (0, ["run-1/chk-0", "run-1/chk-1"])
        assert {s.key for s in target.list("run-")} == made.objects
    status, doc = call(capsys, "gc", f"{url}/savepoints/x", "--delete", "--min-age", "0")
    assert (status, doc["error"]["kind"]) == (1, "DAMAGED")
    assert call(capsys, "verify", f"{url}/savepoints/x", "--deep")[0] == 0


def test_restore_prints_what_it_is_and_the_option(savepoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "restore", savepoint)
    assert (status, doc["kind"], doc["epoch"], doc["fits"]) == (0, "savepoint", 1, True)
    assert doc["option"] == f"spark.ckpt.restore.path={savepoint}"
    assert run(["restore", savepoint]) == 0
    assert f"restore it with spark.ckpt.restore.path={savepoint}" in capsys.readouterr().out


def test_restore_into_its_own_stream_says_what_runs_again(
    savepoint: str, url: str, writer: StreamWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, copied in ((savepoint, True), (f"{url}/run-00000001/chk-1", False)):
        status, doc = call(capsys, "restore", path, "--check", url)
        assert (status, doc["fits"], doc["same_stream"], doc["copied"], doc["reruns"]) == (0, True, True, copied, [2, 3])
    assert run(["restore", savepoint, "--check", url]) == 0
    assert "epochs 2 to 3 run again as they were planned" in capsys.readouterr().out
    assert writer.log == 5


def test_restore_into_a_new_stream_fits(savepoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "restore", savepoint, "--check", f"{tmp_path}/ckpt/new")
    assert (status, doc["fits"], doc["same_stream"], doc["new_stream"], doc["reruns"]) == (0, True, False, True, [])
    assert run(["restore", savepoint, "--check", f"{tmp_path}/ckpt/new"]) == 0
    out = capsys.readouterr().out
    assert f"there is no stream at {tmp_path}/ckpt/new yet" in out
    assert "its epochs begin with 2" in out


def test_restore_into_a_stream_whose_log_is_gone_is_refused(
    savepoint: str, url: str, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "restore", savepoint, "--check", url)[1]["new_stream"] is False
    storage.delete([s.key for s in storage.list("log/")])
    status, doc = call(capsys, "restore", savepoint, "--check", url)
    assert (status, doc["fits"], doc["new_stream"]) == (1, False, False)
    assert "its log is gone" in doc["problems"][0]


def test_restore_looks_whether_the_objects_are_there(
    savepoint: str, url: str, writer: StreamWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_storage(savepoint) as folder:
        key = next(s.key for s in folder.list("run-") if "/seg/" in s.key)
        folder.put(key, b"short")
        status, doc = call(capsys, "restore", savepoint)
        assert (status, doc["fits"]) == (1, False)
        assert f"{savepoint}/{key} has 5 bytes of" in doc["problems"][0]
        folder.delete([key])
    for arguments in ([], ["--check", url], ["--check", f"{tmp_path}/ckpt/new"]):
        status, doc = call(capsys, "restore", savepoint, *arguments)
        assert (status, doc["fits"], doc["problems"]) == (1, False, [f"{savepoint}/{key} is missing"])
    writer.storage.delete([writer.checkpoints[1].snapshots[0].handles[0].object])
    assert call(capsys, "restore", f"{url}/run-00000001/chk-1", "--check", url)[0] == 1
    assert call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[0] == 0


def test_restore_says_that_it_was_applied_before(
    savepoint: str, url: str, writer: StreamWriter, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start goes on from the newest checkpoint then, and said so in its log only."""
    for path, imported in ((f"{url}/run-00000001/chk-1", None), (savepoint, CheckpointId(1, 2))):
        claim = decode(1, storage.get(log_key(1)))
        assert isinstance(claim, entries.Claim)
        writer.claim = writer.log + 1
        restored = entries.Restored(path, imported)
        origin = CheckpointId(1, 1)
        writer.append(replace(claim, claim=writer.claim, run=2, origin=origin, inherits=(origin,), restored=restored))
        status, doc = call(capsys, "restore", path, "--check", url)
        assert (status, doc["fits"], doc["reruns"]) == (1, False, [])
        assert "start the query once without the option, and then with it" in doc["problems"][0]
        assert call(capsys, "restore", f"{url}/run-00000001/chk-1/", "--check", url)[0] == (1 if imported is None else 0)


def test_restore_into_a_stream_in_at_least_once_takes_new_numbers_each_time(
    savepoint: str, url: str, writer: StreamWriter, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = decode(1, storage.get(log_key(1)))
    assert isinstance(claim, entries.Claim)
    origin = CheckpointId(1, writer.checkpoints[-1].id.epoch)
    for successor, ahead in ((2, 64), (3, 0)):
        number = writer.claim = writer.log + 1
        first = 67 * (successor - 1)
        writer.append(replace(claim, claim=number, run=successor, origin=origin, inherits=(origin,), ahead=ahead, first=first, adopts=()))
        status, doc = call(capsys, "restore", savepoint, "--check", url)
        assert (status, doc["reruns"]) == (0 if ahead else 1, [])
    assert "went on under new numbers" in doc["problems"][0]


def test_restore_into_another_stream_does_not_fit(savepoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = StreamWriter(open_storage(f"file://{tmp_path}/ckpt/other"))
    job = replace(JOB, operators=("join",), sources=("kafka",))
    other.claim = 1
    other.append(entries.Claim(1, 1, "other", job, None, (), (), "host", {}, 1, "nonce"))
    status, doc = call(capsys, "restore", savepoint, "--check", f"{tmp_path}/ckpt/other")
    assert (status, doc["fits"]) == (1, False)
    told = " ".join(doc["problems"])
    assert "stateful operators are stateStoreSave, those of the query join" in told
    assert "sources are FileStreamSource, those of the query kafka" in told
    assert "belongs to another stream" in told
    assert isinstance(job, Job)


def test_restore_shows_which_operator_goes_on_from_which_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_store(tmp_path, 30, "s")
    old = StreamWriter(open_storage(f"file://{tmp_path}/old"))
    old.begin(1)
    old.complete(1, 0, [made], files={**a_total(0), **a_deduplication(1, "user")})
    path = f"file://{tmp_path}/old/run-00000001/chk-0"
    status, doc = call(capsys, "restore", path)
    assert [(o["operator"], o["kind"], o["keys"], o["in_query"]) for o in doc["operators"]] == [
        (0, "stateStoreSave", "key string", None),
        (1, "dedupe", "user bigint", None),
    ]
    new = StreamWriter(open_storage(f"file://{tmp_path}/new"))
    new.begin(1)
    new.complete(1, 0, [made], files={**a_deduplication(0), **a_total(1)})
    status, doc = call(capsys, "restore", path, "--check", f"file://{tmp_path}/new")
    assert status == 1
    assert [(o["operator"], o["kind"], o["in_query"]) for o in doc["operators"]] == [
        (0, "stateStoreSave", 1),
        (1, "dedupe", None),
        (None, "dedupe", 0),
    ]
    assert "no operator of the query takes the state of the checkpoint's 1 dedupe(user bigint)" in " ".join(doc["problems"])
    more = ("--operators", "0:1"), ("--allow-non-restored-state",)
    for options in more:
        status, doc = call(capsys, "restore", path, "--check", f"file://{tmp_path}/new", *options)
        assert "dedupe" not in " ".join(doc["problems"])
    assert [o["in_query"] for o in doc["operators"]] == [1, None, 0]
    run(["restore", path, "--check", f"file://{tmp_path}/new", "--allow-non-restored-state"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["OPERATOR", "KIND", "KEYS", "SIZE", "IN", "THE", "QUERY"] in lines
    assert [line for line in lines if "dedupe" in line] == [
        ["1", "dedupe", "user", "bigint", "0", "B", "none"],
        ["dedupe", "id", "bigint", "0,", "begins", "empty"],
    ]
    assert call(capsys, "restore", path, "--operators", "0:1")[1]["error"]["kind"] == "CONFIG"
    assert run(["restore", path, "--check", f"file://{tmp_path}/new", "--operators", "0-1"]) == 2


def test_show_says_which_operators_begin_empty(savepoint: str, writer: StreamWriter, capsys: pytest.CaptureFixture[str]) -> None:
    with open_storage(savepoint) as folder:
        folder.put("_metadata", encode_metadata(replace(writer.checkpoints[1], begins=(1, 2))))
    assert call(capsys, "show", savepoint)[1]["begins"] == [1, 2]
    assert run(["show", savepoint]) == 0
    assert "operators 1, 2" in capsys.readouterr().out


def test_restore_of_what_the_stream_cannot_go_back_to(
    url: str, writer: StreamWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.begin(2, CheckpointId(1, 1), bad=(CheckpointId(1, 2),), inherits=(CheckpointId(1, 1),))
    assert (
        "is not one that the stream can go back to"
        in call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[1]["problems"][0]
    )
    writer.append(Damage(writer.claim, 2, (CheckpointId(1, 1),), "broken"))
    assert "was found damaged" in call(capsys, "restore", f"{url}/run-00000001/chk-1", "--check", url)[1]["problems"][0]
    status, doc = call(capsys, "restore", f"{tmp_path}/nowhere")
    assert (status, doc["error"]["kind"]) == (1, "MISSING")


def test_savepoint_of_a_stream_that_nobody_runs(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "savepoint", url, "--timeout", "100ms", "--name", "x", "--stop", "--drain")
    assert (status, doc["error"]["kind"]) == (1, "TIMEOUT")
    assert "is its query running? If not, start the query, then ask again." in doc["error"]["message"]
    assert "a run that begins later does not" in doc["error"]["message"]
    found = decode(writer.log + 1, writer.storage.get(f"log/{writer.log + 1:020d}"))
    assert isinstance(found, Request)
    assert (found.action, found.name, found.drain) == ("stop", "x", True)


@pytest.mark.parametrize("verb", ["savepoint", "checkpoint"])
def test_it_says_what_it_waits_for(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert run([verb, url, "--timeout", "100ms"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"asked in log entry {writer.log + 1} of {url}, waiting for up to 0.1 s\n")


def test_a_checkpoint_is_not_asked_for_a_savepoint(
    savepoint: str, writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request went into the log of the checkpoint's stream."""
    for path in (f"{url}/run-00000001/chk-1", savepoint):
        for verb in ("savepoint", "checkpoint"):
            assert run([verb, path, "--timeout", "100ms"]) == 2
            assert "is the folder of a checkpoint or savepoint" in capsys.readouterr().err
    assert writer.storage.size(log_key(writer.log + 1)) is None


@contextmanager
def answering(writer: StreamWriter, path: str) -> Iterator[None]:
    """The query: it answers the next request."""

    def answer() -> None:
        while writer.storage.size(f"log/{writer.log + 1:020d}") is None:
            time.sleep(0.01)
        writer.storage.put(f"run-00000001/answer/{writer.log + 1}", json.dumps({"path": path}).encode())

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("verb", ["savepoint", "checkpoint"])
def test_a_request_that_is_answered(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with answering(writer, "s3://b/made"):
        status, doc = call(capsys, verb, url, "--timeout", "30s")
    assert (status, doc["stream"], doc[verb]) == (0, url, "s3://b/made")


@pytest.mark.parametrize("drained", [True, False])
def test_who_asks_for_a_stop_hears_that_somebody_else_had_the_query_drained(
    writer: StreamWriter, savepoint: str, url: str, capsys: pytest.CaptureFixture[str], drained: bool
) -> None:
    if drained:
        folder = open_storage(savepoint)
        made = decode_metadata(folder.get("_metadata"))
        offsets = {f"offsets/{made.id.epoch}": b'v1\n{"conf":{"spark.ckpt.drained":"true"}}'}
        folder.put("_metadata", encode_metadata(replace(made, files={**made.files, **offsets})))
    with answering(writer, savepoint):
        assert run(["savepoint", url, "--stop", "--timeout", "30s"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{savepoint}\n"
    assert ("somebody else has asked to drain the query" in told.err) is drained


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--drain"], 2, "drain without stop"),
        (["--name", "a/b"], 2, "cannot be the name"),
        (["--timeout", "soon"], 2, "duration"),
        (["--target", "hdfs://x/y"], 2, "s3://bucket/prefix"),
    ],
)
def test_a_savepoint_that_cannot_be_asked_for(
    writer: StreamWriter, url: str, arguments: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["savepoint", url, *arguments]) == status
    assert says in capsys.readouterr().err
    assert writer.storage.size(f"log/{writer.log + 1:020d}") is None


def test_a_target_behind_a_link_is_the_one_that_the_driver_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver, which compares letters, has its `checkpointLocation` and `savepointDir` from a person who wrote the same path."""
    (tmp_path / "vol1" / "savepoints").mkdir(parents=True)
    (tmp_path / "data").symlink_to(tmp_path / "vol1")
    data = tmp_path / "data"
    writer = StreamWriter(open_storage(f"file://{data}/orders/_ckpt"))
    writer.begin(1, savepoint_dir=f"file://{data}/savepoints")
    monkeypatch.chdir(data / "savepoints")
    monkeypatch.setenv("PWD", str(data / "savepoints"))
    targets = {
        f"{data}/savepoints": "savepoints",
        f"{data}/savepoints/monthly/": "savepoints/monthly",
        ".": "savepoints",
        "monthly": "savepoints/monthly",
        f"file://{data}/savepoints": "savepoints",
        f"{data}/orders/_ckpt/savepoints/x": "orders/_ckpt/savepoints/x",
    }
    for given, place in targets.items():
        assert run(["savepoint", f"{data}/orders", "--target", given, "--timeout", "0"]) == 1
        assert "nothing has answered" in capsys.readouterr().err
        writer.log += 1
        asked = decode(writer.log, writer.storage.get(log_key(writer.log)))
        assert isinstance(asked, Request)
        assert Places(f"file://{data}/orders/_ckpt", f"file://{data}/savepoints").savepoint(asked.target, "n") == f"file://{data}/{place}/n"
    for elsewhere in ("..", f"{data}/savepoints/../other"):
        assert run(["savepoint", f"{data}/orders", "--target", elsewhere, "--timeout", "0"]) == 2
        assert "is not made in" in capsys.readouterr().err


def test_a_path_from_a_folder_that_is_not_the_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for shells in ("/", f"{tmp_path}/gone", ".", ""):
        monkeypatch.setenv("PWD", shells)
        assert storage_url("a/b") == f"file://{tmp_path}/a/b"
    assert storage_url("a/../b") == f"file://{tmp_path}/b"


def test_restore_prints_the_path_that_was_given(savepoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    status, doc = call(capsys, "restore", f"{tmp_path}/link/here")
    assert (status, doc["option"]) == (0, f"spark.ckpt.restore.path=file://{tmp_path}/link/here")


def test_a_deleted_stream_is_not_asked(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer.append(End(writer.claim, 1))
    status, doc = call(capsys, "savepoint", url)
    assert (status, doc["error"]["kind"]) == (1, "CONFLICT")


def test_what_the_last_run_may_delete_at_any_moment_is_no_choice(
    storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ended has one more than it retains: it deletes after its next append only."""
    writer = StreamWriter(storage)
    writer.begin(1, retained=2)
    for epoch in range(3):
        writer.complete(1, epoch, [make_store(tmp_path, 3, f"r{epoch}")])
    _, listed = call(capsys, "list", url)
    assert [c["retained"] for c in listed["checkpoints"]] == [False, True, True]
    assert run(["list", url]) == 0
    assert [line.rpartition("  ")[2].strip() for line in capsys.readouterr().out.splitlines()[1:-1]] == [
        "COMPLETED, not retained",
        "COMPLETED",
        "COMPLETED, latest",
    ]
    status, doc = call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)
    why = "it is not among the newest 2 (spark.ckpt.retained; damaged ones count), and may be deleted at any moment"
    assert (status, doc["problems"]) == (1, [why])
    assert call(capsys, "restore", f"{url}/run-00000001/chk-1", "--check", url)[0] == 0
    storage.put(metadata_key(CheckpointId(1, 2)), b"damaged")
    assert call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[0] == 1, "its run counts what is damaged, if asleep"
    storage.put(metadata_key(CheckpointId(1, 1)), b"damaged")
    assert call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[0] == 0, "there is no other"
    _, listed = call(capsys, "list", url)
    assert [c["retained"] for c in listed["checkpoints"]] == [True, True, True]


def test_a_run_that_died_before_it_had_its_copy_limits_no_choice(
    storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    older, newer = (writer.complete(1, epoch, [make_store(tmp_path, 3, f"r{epoch}")]).id for epoch in range(2))
    copy = CheckpointId(2, 1)
    writer.append(
        entries.Claim(
            *(writer.log + 1, 2, "query", JOB, copy, (older, newer, copy), (), "host", {}, 1, "nonce"),
            restored=entries.Restored("s3://b/savepoint-x", copy),
            retained=1,
        )
    )
    status, listed = call(capsys, "list", url)
    assert [c["retained"] for c in listed["checkpoints"]] == [True, True]
    assert call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[0] == 0
    why = "run 2 is to go on from s3://b/savepoint-x, and the stream has no copy of it"
    assert (status, why in listed["problem"]) == (1, True)
    status, verified = call(capsys, "verify", url)
    assert (status, why in verified["problem"], [c["intact"] for c in verified["checkpoints"]]) == (1, True, [True, True])
    with pytest.raises(DamagedError, match="has no copy of it"):
        StreamReader(storage).latest()  # what a tool takes that is given no checkpoint


def test_verify_says_that_a_checkpoint_is_gone_which_nobody_has_deleted(
    storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    older, newer = (writer.complete(1, epoch, [make_store(tmp_path, 3, f"r{epoch}")]).id for epoch in range(2))
    writer.begin(2, newer, inherits=(older, newer))
    assert call(capsys, "verify", url)[0] == 0
    storage.delete([metadata_key(newer)])
    status, verified = call(capsys, "verify", url)
    assert (status, [c["intact"] for c in verified["checkpoints"]]) == (1, [True])
    assert "run-1/chk-1, which the stream at" in verified["problem"]
    assert "its run has not deleted it; put its _metadata back" in verified["problem"]
    writer.complete(2, 2, [make_store(tmp_path, 3, "r2")])
    writer.complete(2, 3, [make_store(tmp_path, 3, "r3")])
    writer.complete(2, 4, [make_store(tmp_path, 3, "r4")])
    assert call(capsys, "verify", url)[1]["problem"] is None, "a run that has newer ones drops it"


def test_what_the_run_deletes_while_it_is_looked_at_is_not_taken_for_lost(storage: Storage, tmp_path: Path) -> None:
    """(1) They are listed, and the newest run has none; (2) it completes some, and deletes what it began with; (3) that is read."""
    writer = StreamWriter(storage)
    writer.begin(1)
    older, newer = (writer.complete(1, epoch, [make_store(tmp_path, 3, f"r{epoch}")]).id for epoch in range(2))
    writer.begin(2, newer, inherits=(older, newer))
    before = list(StreamReader(storage).read_all())
    for epoch in (2, 3, 4):
        writer.complete(2, epoch, [make_store(tmp_path, 3, f"r{epoch}")])
    storage.delete([metadata_key(older), metadata_key(newer)])
    stale = Overview.of([item for item in before if item.id != older], StreamReader(storage).standing())
    assert checkpoint_lost(StreamReader(storage), stale) is None
    storage.delete([metadata_key(CheckpointId(2, epoch)) for epoch in (2, 3, 4)])
    assert "run-1/chk-1" in (checkpoint_lost(StreamReader(storage), stale) or "")


def test_a_copy_that_comes_while_the_stream_is_read_is_not_taken_for_cut_short(storage: Storage, tmp_path: Path) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    older = writer.complete(1, 0, [make_store(tmp_path, 3, "r0")])
    copy = replace(older, id=CheckpointId(2, 0))
    writer.append(
        entries.Claim(
            *(writer.log + 1, 2, "query", JOB, copy.id, (older.id, copy.id), (), "host", {}, 1, "nonce"),
            restored=entries.Restored("s3://b/savepoint-x", copy.id),
        )
    )

    class Late(StreamReader):
        def standing(self, known: int = 0) -> Standing | None:
            found = super().standing(known)
            storage.put(metadata_key(copy.id), encode_metadata(copy))
            return found

    assert Late(storage).overview().problem is None


def test_what_its_run_had_given_up_is_no_choice(storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    for epoch in range(2):
        writer.complete(1, epoch, [make_store(tmp_path, 3, f"r{epoch}")])
    storage.delete([metadata_key(CheckpointId(1, 1))])
    assert call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)[0] == 0
    storage.put(metadata_key(CheckpointId(1, 1)), encode_metadata(replace(writer.checkpoints[1], given_up=(0,))))
    _, listed = call(capsys, "list", url)
    assert [c["retained"] for c in listed["checkpoints"]] == [False, True]


def test_what_an_earlier_run_may_delete_is_no_choice_in_a_later_one(
    storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    for epoch in range(2):
        writer.complete(1, epoch, [make_store(tmp_path, 3, f"r{epoch}")])
    older, newer = CheckpointId(1, 0), CheckpointId(1, 1)
    writer.begin(2, newer, inherits=(older, newer), unsure=(older,))
    _, listed = call(capsys, "list", url)
    assert [c["retained"] for c in listed["checkpoints"]] == [False, True]
    status, doc = call(capsys, "restore", f"{url}/run-00000001/chk-0", "--check", url)
    assert (status, doc["problems"]) == (1, ["an earlier run had dropped it or given it up, and may delete it at any moment"])


ONLY = "with spark.ckpt.restore.plans=DISCARD only"


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("lost", "stored", "says"),
    [
        ([4], None, f"log entry 4 is missing, so it is not known which epochs were planned past it; put it back; or restore it {ONLY}"),
        ([4, 5], None, "log entry 4 is missing"),
        ([], Plan(1, 1, 3, b"v1\n{}"), "the plan of epoch 2 is not in the log, although a later one is; put it back; or restore it "),
        (
            [],
            Plan(1, 1, 2, b"v1\n{}", {"sources/0/9.compact": FileHandle("run-00000001/drv/2-" + "0" * 32, 70_000, 1)}),
            f"run-00000001/drv/2-{'0' * 32} is missing, which an epoch takes that runs again; put it back; or restore it {ONLY}",
        ),
    ],
    ids=["an entry", "all entries", "a plan", "a file"],
)
def test_restore_says_what_is_missing_of_what_runs_again(
    own: bool,
    lost: list[int],
    stored: Plan | None,
    says: str,
    savepoint: str,
    url: str,
    writer: StreamWriter,
    storage: Storage,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A start would be refused for it, or say that it takes `DISCARD`."""
    writer.append(Plan(1, 1, 4, b"v1\n{}"))
    path = f"{url}/run-00000001/chk-1" if own else savepoint
    assert call(capsys, "restore", path, "--check", url)[1]["reruns"] == [2, 3, 4]
    storage.delete([log_key(number) for number in lost])
    if stored is not None:
        storage.put(log_key(4), encode(stored))
    status, doc = call(capsys, "restore", path, "--check", url)
    assert (status, doc["fits"], doc["same_stream"]) == (1, False, True)
    assert len(doc["problems"]) == 1
    assert says in doc["problems"][0]


@pytest.mark.parametrize("own", [False, True])
def test_restore_says_that_the_logs_end_is_missing(
    own: bool, savepoint: str, url: str, writer: StreamWriter, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.delete([log_key(writer.log)])
    path = f"{url}/run-00000001/chk-0" if own else savepoint
    assert call(capsys, "restore", path, "--check", url)[0] == 0
    storage.delete([log_key(writer.log - 1)])
    status, doc = call(capsys, "restore", path, "--check", url)
    assert (status, doc["fits"]) == (1, False)
    assert "the log ends with entry 3, before the plan of run-1/chk-2" in doc["problems"][0]


@pytest.mark.parametrize("ran", [False, True])
def test_restore_tells_a_copy_that_is_gone_from_one_that_was_never_made(
    ran: bool, savepoint: str, url: str, writer: StreamWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that has planned something had the copy: its restore is not done again, whoever has asked since."""
    claim = decode(1, writer.storage.get(log_key(1)))
    assert isinstance(claim, entries.Claim)
    writer.claim = writer.log + 1
    copy = CheckpointId(2, 1)
    writer.append(replace(claim, claim=writer.claim, run=2, origin=copy, restored=entries.Restored(savepoint, copy)))
    if ran:
        writer.append(Plan(writer.claim, 2, 2, b"v1\n{}"))
    writer.append(entries.Request(writer.claim, entries.SAVEPOINT, "", "me"))
    problems = call(capsys, "restore", savepoint, "--check", url)[1]["problems"]
    assert any("an earlier run has restored it" in problem for problem in problems) is ran
