"""What stands between the benchmark and Spark: the floor, the jars' pom, what is gathered from a query's progress."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import jars
from benchmarks.access_log import Request
from benchmarks.epochs import gather_checkpoints, gather_epochs, gather_requests
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Case, Figures
from benchmarks.finalise import run as finalise
from benchmarks.floor import URL, ThrowAwayStorage, throw_away, write_interpreter
from spark_ckpt.storage.base import PutResult, Slice
from spark_ckpt.storage.options import S3Options
from spark_ckpt.storage.probe import check_put_if_absent

CASE = Case("aggregation", "system", 2, 10)


def test_the_floor_keeps_the_log_and_throws_state_away(tmp_path: Path) -> None:
    storage = ThrowAwayStorage("memory://thrown-away")
    check_put_if_absent(storage)
    storage.put_slices("run-00000001/seg/0-a", [Slice(tmp_path / "nothing is read", 0, 10)])
    assert storage.put_if_absent("log/1", b"claim") is PutResult.STORED
    assert [o.key for o in storage.list("")] == ["log/1"]


def test_the_floors_streams_know_nothing_of_each_other() -> None:
    assert throw_away(f"{URL}/q1", S3Options()).put_if_absent("log/1", b"claim") is PutResult.STORED
    assert throw_away(f"{URL}/q2", S3Options()).put_if_absent("log/1", b"claim") is PutResult.STORED


def test_the_floors_interpreter_is_one_for_everything_else(tmp_path: Path) -> None:
    python = write_interpreter(tmp_path / "python")
    said = subprocess.run([python, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == "42\n"


def test_a_coordinator_finishes_simulated_partitions() -> None:
    figures = Figures()
    finalise([50], figures)
    young, grown = figures.cases("finalise")
    small, large = (figures.median(case, "metadata_bytes") for case in (young, grown))
    assert small is not None
    assert large is not None
    assert (young.size, grown.size, small < large) == (1, 8, True)
    assert all(figures.values(case, "memory_bytes") for case in (young, grown))


def test_the_pom_asks_for_the_modules_and_not_for_the_bundle() -> None:
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ET.fromstring(jars.pom()).findall(".//m:dependencies/m:dependency", names)
    versions = {d.findtext("m:artifactId", "", names): d.findtext("m:version", "", names) for d in found}
    assert versions["hadoop-aws"] == jars.HADOOP
    assert versions["s3"] == versions["s3-transfer-manager"] == jars.SDK
    assert "bundle" not in versions
    excluded = {e.findtext("m:artifactId", "", names) for e in found[0].findall(".//m:exclusion", names)}
    assert "bundle" in excluded


def test_without_maven_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "FOLDER", tmp_path / "jars")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchmarkError, match=r"no Maven \(mvn\) on the PATH: install it$"):
        jars.s3a_jars()


def test_an_epoch_is_taken_from_the_querys_progress() -> None:
    metrics = {"rocksdbChangeLogWriterCommitLatencyMs": 10, "rocksdbLoadLatencyMs": 6}
    operator = {"numStateStoreInstances": 4, "commitTimeMs": 18, "customMetrics": metrics}
    durations = {"triggerExecution": 500, "addBatch": 400, "walCommit": 20, "commitOffsets": 30}
    figures = Figures()
    gather_epochs(figures, CASE, [{"durationMs": durations, "stateOperators": [operator]}])
    found = {metric: values for _, metric, values in figures}
    assert found == {
        "epoch_ms": [500],
        "tasks_ms": [400],
        "logs_ms": [50],
        "commit_per_store_ms": [4.5],
        "commit_beyond_engine_ms": [2.0],
        "load_per_store_ms": [1.5],
    }


def test_only_completed_checkpoints_of_measured_epochs_count() -> None:
    figures = Figures()
    record = {"id": 3, "status": "COMPLETED", "end_to_end_duration": 120, "checkpointed_size": 9}
    gather_checkpoints(figures, CASE, [record, {**record, "id": 1}, {**record, "id": 4, "status": "FAILED"}], {3, 4})
    assert figures.values(CASE, "end_to_end_ms") == [120]


def test_requests_and_bytes_are_those_of_an_epoch() -> None:
    figures = Figures()
    requests = [
        Request("PutObject", "log/1", 200, 100),
        Request("CreateMultipartUpload", "sst/a", 200, 0),
        Request("UploadPart", "sst/a", 200, 0),
        Request("CompleteMultipartUpload", "sst/a", 200, 0),
        Request("DeleteObjects", "-", 200, 0),
        Request("PutObject", "log/2", 412, 50),
    ]
    gather_requests(figures, CASE, requests, 2, {"sst/a": 9_000, "sst/of another turn": 7})
    found = {metric: values for _, metric, values in figures}
    assert found == {"put_requests": [2.5], "delete_requests": [0.5], "list_requests": [0], "requests": [3.0], "put_bytes": [4550]}
