"""`spark-ckpt rescale` without Spark: what becomes of the state that Spark has repartitioned, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ckpt.errors import ConflictError
from spark_ckpt.model import Checkpoint, FileHandle
from spark_ckpt.protocol.driver_files import offsets_file
from spark_ckpt.protocol.offsets_conf import partitions_of
from spark_ckpt.protocol.start.restoring import incomplete
from spark_ckpt.stock import repartition_process, rescaling
from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.stock.layout import OURS
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.reading import GIVEN_UP
from tests.drivers.command_line import call
from tests.drivers.stock_location import StockLocation
from tests.drivers.stored_stream import make_store

Spark = Callable[[Path, int], None]


class FakeRepartition:
    """In the place of Spark: `does` is given the location and the number of partitions."""

    does: Spark

    def __init__(self, location: Path, partitions: int, scratch: Path) -> None:
        self._given = location, partitions

    def __enter__(self) -> FakeRepartition:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        type(self).does(*self._given)
        return True


def repartitioned(location: Path, partitions: int, keys: int = 10) -> None:
    """As Spark leaves a location with `keys` in each of two partitions: one batch more, with full snapshots of all partitions."""
    batch = max(int(p.name) for p in (location / "commits").glob("[0-9]*"))
    lines = (location / "offsets" / str(batch)).read_text().split("\n", 2)
    metadata = json.loads(lines[1])
    assert not (location / "offsets" / str(batch + 1)).exists(), "Spark does not repartition behind a batch that was begun"
    metadata["conf"]["spark.sql.shuffle.partitions"] = str(partitions)
    (location / "offsets" / str(batch + 1)).write_text("\n".join([lines[0], json.dumps(metadata), lines[2]]))
    (location / "commits" / str(batch + 1)).write_bytes((location / "commits" / str(batch)).read_bytes())
    for partition in range(partitions):
        share = keys // partitions + (partition < keys % partitions)
        store = make_store(location.parent, share, f"spark-{partition}")
        folder = location / "state" / "0" / str(partition)
        (folder / "SSTs").mkdir(parents=True, exist_ok=True)
        (folder / f"{batch + 2}.zip").write_bytes(store.zip_bytes)
        for name, data in store.ssts.items():
            (folder / "SSTs" / name).write_bytes(data)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> type[FakeRepartition]:
    fake = type("Fake", (FakeRepartition,), {"does": staticmethod(repartitioned)})
    monkeypatch.setattr(rescaling, "Repartition", fake)
    return fake


def savepoint(tmp_path: Path, begun: bool = False, **how: Any) -> tuple[str, Checkpoint]:
    """Of a stock query with two partitions."""
    at = StockLocation(tmp_path / "stock", conf={"spark.sql.shuffle.partitions": "2"}, **how).begin()
    for batch in range(3):
        at.batch(batch, full=batch == 2)
    if begun:
        at.plan(3)
    target = open_storage(f"file://{tmp_path}/savepoints/first")
    return target.url, import_checkpoint(open_storage(f"file://{at.folder}"), target)


def rescaled(capsys: pytest.CaptureFixture[str], source: str, partitions: int, *more: str) -> tuple[dict[str, Any], Checkpoint]:
    status, told = call(capsys, "rescale", source, "--partitions", str(partitions), *more)
    assert status == 0, told
    with open_storage(told["savepoint"]) as storage:
        return told, RestorePath.at(told["savepoint"]).read(storage)


@pytest.mark.parametrize("partitions", [1, 5])
def test_all_partitions_are_there_under_new_ids_at_the_same_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: type[FakeRepartition], partitions: int
) -> None:
    url, before = savepoint(tmp_path)
    told, made = rescaled(capsys, url, partitions)
    assert told["savepoint"].startswith(f"file://{tmp_path}/savepoints/rescaled-{partitions}-")
    assert (told["epoch"], made.id.epoch, partitions_of(made)) == (2, 2, partitions)
    assert [s.store.partition for s in made.snapshots] == list(range(partitions))
    assert {s.version for s in made.snapshots} == {3}
    assert sum(s.num_keys or 0 for s in made.snapshots) == 10
    assert not {s.uid for s in made.snapshots} & {s.uid for s in before.snapshots}
    assert incomplete(made) == []
    assert (made.query_id, made.job, made.time_ms) == (before.query_id, before.job, before.time_ms)
    status, _ = call(capsys, "verify", told["savepoint"])
    assert status == 0
    operator = json.loads((made.file("state/0/_metadata/metadata") or b"").split(b"\n")[1])
    assert [store["numPartitions"] for store in operator["stateStoreInfo"]] == [partitions]


def test_two_savepoints_of_one_checkpoint_share_no_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: type[FakeRepartition]
) -> None:
    url, _ = savepoint(tmp_path)
    (_, one), (_, other) = rescaled(capsys, url, 3), rescaled(capsys, url, 4)
    assert not {s.uid for s in one.snapshots} & {s.uid for s in other.snapshots}


def test_an_operator_with_many_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: type[FakeRepartition]) -> None:
    """Its schema is an object of its own."""
    url, before = savepoint(tmp_path, values=[f"measurement_{n:04d}" for n in range(1000)])
    _, made = rescaled(capsys, url, 5)
    assert len(made.snapshots) == 5
    one, other = (checkpoint.files["state/0/0/_metadata/schema"] for checkpoint in (before, made))
    assert isinstance(one, FileHandle)
    assert isinstance(other, FileHandle)
    assert (one.length, one.checksum) == (other.length, other.checksum)


def test_a_batch_that_was_begun_runs_again_with_the_new_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: type[FakeRepartition]
) -> None:
    url, _ = savepoint(tmp_path, begun=True)
    told, made = rescaled(capsys, url, 5)
    assert told["reruns"] == [3]
    assert made.imported is not None
    assert made.imported.planned is not None
    lines = made.imported.planned.split(b"\n")
    conf = json.loads(lines[1])["conf"]
    assert conf["spark.sql.shuffle.partitions"] == "5"
    assert conf["spark.sql.streaming.stateStore.providerClass"].encode() == OURS
    assert json.loads(lines[2]) == {"logOffset": 3}
    assert offsets_file(3) not in made.files


def test_an_operator_without_keys_keeps_its_partition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: type[FakeRepartition]
) -> None:
    """Spark is not shown it."""

    def nothing(location: Path, partitions: int) -> None:
        raise AssertionError("there is nothing for Spark to do")

    spark.does = staticmethod(nothing)
    at = StockLocation(tmp_path / "stock", partitions=1, operator="globalLimit", conf={"spark.sql.shuffle.partitions": "2"}).begin()
    for batch in range(2):
        at.batch(batch)
    target = open_storage(f"file://{tmp_path}/savepoints/limit")
    before = import_checkpoint(open_storage(f"file://{at.folder}"), target)
    assert len(before.snapshots) == 1
    _, made = rescaled(capsys, target.url, 9)
    assert [s.store for s in made.snapshots] == [s.store for s in before.snapshots]
    assert partitions_of(made) == 9
    assert incomplete(made) == []


def test_keys_that_are_lost_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: type[FakeRepartition]) -> None:
    spark.does = staticmethod(lambda location, partitions: repartitioned(location, partitions, keys=9))
    url, _ = savepoint(tmp_path)
    status, told = call(capsys, "rescale", url, "--partitions", "3", "--name", "lost")
    assert status == 1
    assert "store default had 10 keys, and 9 after it was repartitioned" in str(told)
    assert not (tmp_path / "savepoints" / "lost" / "_metadata").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("--partitions", "2"), 1, "has 2 state partitions already; nothing is to be done"),
        (("--partitions", "100001"), 2, "100001 is no number of state partitions; write 1 to 100000"),
        (("--partitions", "3", "--name", "first"), 1, "there is a savepoint at"),
    ],
)
def test_what_is_refused_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, why: str
) -> None:
    url, _ = savepoint(tmp_path)
    found, told = call(capsys, "rescale", url, *arguments)
    assert (found, why in str(told)) == (status, True), told


def test_a_name_that_gc_has_given_up_is_told_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, _ = savepoint(tmp_path)
    given_up = tmp_path / "savepoints/cut"
    given_up.mkdir()
    (given_up / "_metadata").write_bytes(GIVEN_UP)
    status, told = call(capsys, "rescale", url, "--partitions", "3", "--name", "cut")
    assert (status, "was never completed, and `gc` has given its name up" in str(told)) == (1, True), told


def test_a_query_without_state_has_no_partitions_to_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = StockLocation(tmp_path / "stock")
    at.write("metadata", b'{"id":"q"}')
    at.plan(0)
    at.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    target = open_storage(f"file://{tmp_path}/savepoints/first")
    import_checkpoint(open_storage(f"file://{at.folder}"), target)
    status, told = call(capsys, "rescale", target.url, "--partitions", "3")
    assert (status, "has no state, so there are no state partitions to change" in str(told)) == (1, True), told


_SCRIPTS = {
    "refused": ('print(\'{"ok": false, "class": "SparkRuntimeException", "message": "[X] so\\\\nmore"}\')', "Spark cannot repartition"),
    "full": ('import sys; sys.stderr.write("java.io.IOException: No space left on device"); sys.exit(3)', "is full (No space left on"),
    "java": ('print(\'{"ok": false, "class": "PySparkRuntimeError", "message": "[JAVA_GATEWAY_EXITED] Java"}\')', "JVM does not start"),
    "thrown": ('print(\'{"ok": false, "class": "Py4JJavaError", "message": "java.io.X: so"}\')', "state: java.io.X: so (Py4JJavaError)"),
    "killed": ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
}


@pytest.mark.parametrize("script", _SCRIPTS)
def test_what_spark_says_is_told_and_no_savepoint_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    code, why = _SCRIPTS[script]
    begin = repartition_process.Repartition.__init__

    def other(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        self._command = [sys.executable, "-c", code]

    monkeypatch.setattr(repartition_process.Repartition, "__init__", other)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    url, _ = savepoint(tmp_path)
    status, told = call(capsys, "rescale", url, "--partitions", "3", "--name", "none")
    assert (status != 0, why in str(told)) == (True, True), told
    assert not (tmp_path / "savepoints" / "none" / "_metadata").exists()
    assert list(tmp_path.glob(".spark-ckpt-*")) == []


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = savepoint(tmp_path)
    monkeypatch.setattr("spark_ckpt.stock.rescaling.shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    status, told = call(capsys, "rescale", url, "--partitions", "3")
    assert (status, "has 0 MiB of free space, and the state takes 0 MiB; a rescale takes three times" in str(told)) == (2, True), told


def test_a_folder_that_spark_would_write_in_another_way_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark makes of such a name is not relied upon."""
    url, _ = savepoint(tmp_path)
    (tmp_path / "a folder").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a folder"))
    status, told = call(capsys, "rescale", url, "--partitions", "3")
    assert (status, "set TMPDIR to a folder of letters, digits" in str(told)) == (2, True), told
    assert list((tmp_path / "a folder").iterdir()) == []


def test_what_it_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that does not end by itself, too: it would write where the scratch folder was."""
    spark = repartition_process.Repartition(tmp_path, 3, tmp_path / "scratch")
    child = "import subprocess, time; subprocess.Popen(['sleep', '300']); open('begun', 'w').close(); time.sleep(300)"
    monkeypatch.setattr(spark, "_command", [sys.executable, "-c", child])
    monkeypatch.setattr(repartition_process, "_END_S", 0.5)
    with spark:
        while not (tmp_path / "scratch" / "begun").exists():
            assert not spark.wait(0.05)
        assert spark._process is not None
        group = spark._process.pid
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_a_long_answer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark names all columns of a state that it refuses."""
    spark = repartition_process.Repartition(tmp_path, 3, tmp_path / "scratch")
    child = "import json; print(json.dumps({'ok': False, 'class': 'E', 'message': 'no ' + 'x' * 1_000_000}), flush=True)"
    monkeypatch.setattr(spark, "_command", [sys.executable, "-c", child])
    monkeypatch.setattr(repartition_process, "_END_S", 0.5)
    with spark, pytest.raises(ConflictError, match=r"Spark cannot repartition this state: no x{397} \(E\)"):
        assert spark.wait(30), "it waits for its answer to be read"


def test_the_session_ends_with_its_stdin() -> None:
    code = "import threading, time; from spark_ckpt.stock.repartition_session import _end_with_stdin as e\n"
    code += "threading.Thread(target=e, daemon=True).start(); print('begun', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.stdin.close()
        assert process.wait(20) == 1
