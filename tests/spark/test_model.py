"""What the tab keeps of checkpoint events, and what compaction does: in a JVM without an application."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.drivers.spark.event_logs import BEGIN_MS, PACKAGE, ROOT, SAVEPOINT, checkpoint_events
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

KEPT = 1000
RUN_ID = "5ab8ab15-d6d3-41bd-b4b0-0e4b0d2a4a54"
NO_LAG = {"epochs": 0, "ms": 0, "bytes": 0}
COUNTS = {"triggered": 1, "completed": 0, "failed": 0, "restored": 0}


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


def event(java: Any, line: str) -> Any:
    return java.org.apache.spark.util.JsonProtocol.sparkEventFromJson(line)


def companion(package: Any, name: str) -> Any:
    """A Scala object that has no static methods of its own."""
    return getattr(getattr(package, name + "$"), "MODULE$")


class Model:
    """The tab's, of an application that is gone."""

    def __init__(self, java: Any) -> None:
        self._java = java
        self.kept = java.org.apache.spark.ckpt.ui.CheckpointModel(java.scala.Option.empty())

    def add(self, kind: str, epoch: int, **fields: Any) -> None:
        common = {"Event": PACKAGE + kind, "root": ROOT, "run": 3, "epoch": epoch, "timeMs": BEGIN_MS + epoch}
        self.kept.add(event(self._java, json.dumps({**common, **fields})))

    def began(self) -> None:
        self.add("CheckpointRunStarted", 0, queryId="q", runId=RUN_ID, name="orders", background=True, options={"interval": "10s"})

    def completed(self, epoch: int, **fields: Any) -> None:
        given = {"path": f"s3://lake/chk-{epoch}", "acked": 2, "required": 2, "lag": NO_LAG, "counts": {**COUNTS, "completed": 1}}
        self.add("CheckpointCompleted", epoch, **{**given, **fields})

    def progress(self, epoch: int, behind: int) -> None:
        """What the query tells of an epoch when it has ended."""
        lag = {"checkpointLagEpochs": behind, "checkpointLagMs": 1000 * behind, "checkpointLagBytes": 7 * behind}
        operator = {
            "operatorName": "dedupe",
            **dict.fromkeys(("numRowsTotal", "numRowsUpdated", "allUpdatesTimeMs", "numRowsRemoved", "allRemovalsTimeMs"), 0),
            **dict.fromkeys(("commitTimeMs", "memoryUsedBytes", "numRowsDroppedByWatermark"), 0),
            **dict.fromkeys(("numShufflePartitions", "numStateStoreInstances"), 2),
            "customMetrics": lag,
        }
        told = {
            "id": "3b6c2f7d-2f25-4d94-8f65-3e3ad7a1d3c1",
            "runId": RUN_ID,
            "name": "orders",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": epoch,
            "batchDuration": 1,
            "durationMs": {},
            "eventTime": {},
            "stateOperators": [operator],
            "sources": [],
            "sink": {"description": "noop", "numOutputRows": 0, "metrics": {}},
            "observedMetrics": {},
        }
        streaming = self._java.org.apache.spark.sql.streaming
        self.kept.progress(companion(streaming, "StreamingQueryProgress").fromJson(json.dumps(told)))

    @property
    def view(self) -> Any:
        return self.kept.view(ROOT).get()

    @property
    def lag(self) -> tuple[int, int, int]:
        lag = self.view.lag()
        return lag.epochs(), lag.ms(), lag.bytes()


@pytest.fixture
def model(java: Any) -> Model:
    made = Model(java)
    made.began()
    return made


def used(java: Any) -> int:
    """Bytes of heap that hold something."""
    gc.collect()  # what Python lets go of, the JVM does
    runtime = java.Runtime.getRuntime()
    for _ in range(3):
        java.System.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


@pytest.mark.campaign
@pytest.mark.parametrize("partitions", [500, 2000], ids=["all 1,000 partitions listed", "summarised"])
def test_a_thousand_checkpoints_take_little_memory(java: Any, partitions: int) -> None:
    """Two operators of so many partitions each."""
    before = used(java)
    kept = java.org.apache.spark.ckpt.ui.CheckpointModel(java.scala.Option.empty())
    longest = 0
    for line in checkpoint_events(KEPT + 100, partitions, seed=3):
        longest = max(longest, len(line))
        kept.add(event(java, line))
    megabytes = (used(java) - before) / 2**20
    print(f"{partitions} partitions of 2 operators: {megabytes:.1f} MiB of heap for {KEPT} checkpoints, events of up to {longest} bytes")
    assert kept.view(ROOT).get().records().size() == KEPT
    assert megabytes < 40
    assert longest < 2 * 1000 * 64


@pytest.mark.campaign
def test_partitions_of_old_checkpoints_go_first_when_there_are_very_many(java: Any) -> None:
    kept = java.org.apache.spark.ckpt.ui.CheckpointModel(java.scala.Option.empty())
    rows = [[n, 0, 10**7, 10**7, 10**9, 10**7, 10**10, 10**11] for n in range(1000)]
    numbers = dict.fromkeys(("newBytes", "fullBytes", "syncMsMax", "asyncMsMax", "startDelayMsMax", "commitMsMax", "ackedMsMax"), 1)
    operator = {"id": 0, "name": "aggregate(k)", "partitions": 1000, "snapshots": 1000, **numbers, "subtasks": rows, "distributions": []}
    bytes_of_one = 0
    added = 0
    while not bytes_of_one or added * bytes_of_one < 80 * 2**20:
        common = {"Event": PACKAGE + "CheckpointCompleted", "root": f"file:/{added % 4}", "run": 1, "epoch": added, "timeMs": BEGIN_MS}
        told = {**common, "lag": NO_LAG, "counts": COUNTS, "executors": ["1"], "operators": [operator]}
        kept.add(event(java, json.dumps(told, separators=(",", ":"))))
        added += 1
        bytes_of_one = bytes_of_one or kept.view("file:/0").get().find("0").get().byteCount()
    records = [kept.view(f"file:/{place}").get().records() for place in range(4)]
    left = sum(some.apply(n).byteCount() for some in records for n in range(some.size()))
    assert 60 * 2**20 < left <= 64 * 2**20
    newest, oldest = (kept.view(f"file:/{n % 4}").get().find(str(n)).get() for n in (added - 1, 0))
    assert newest.operators().head().subtasks().size() == 1000
    assert oldest.operators().head().subtasks().size() == 0
    assert oldest.operators().head().partitions() == 1000, "what is known of the operator stays"


def test_a_savepoint_belongs_to_the_checkpoint_that_it_copies(model: Model) -> None:
    model.completed(4)
    model.add("CheckpointSavepoint", 4, path="s3://lake/savepoints/x", fullBytes=30)
    model.completed(5)
    record = model.view.find("4").get()
    assert (record.isSavepoint(), record.savepoint(), record.path()) == (True, "s3://lake/savepoints/x", "s3://lake/chk-4")
    assert model.view.latestSavepoint().get().epoch() == 4
    assert model.view.latestCompleted().get().epoch() == 5
    assert not model.view.find("5").get().isSavepoint()


def test_a_savepoint_of_a_checkpoint_that_is_not_kept_is_still_the_latest(model: Model) -> None:
    model.add("CheckpointSavepoint", 4, path="s3://lake/savepoints/x", fullBytes=30)
    savepoint = model.view.latestSavepoint().get()
    assert (savepoint.epoch(), savepoint.savepoint(), savepoint.fullBytes()) == (4, "s3://lake/savepoints/x", 30)
    assert model.view.records().size() == 0


def parsed(java: Any, **said: Any) -> dict[str, Any]:
    """What Spark's event log has of an announcement of the coordinator."""
    names = companion(java.scala.collection.immutable, "Map").empty()
    counts = java.org.apache.spark.ckpt.CheckpointCounts(1, 1, 0, 1)
    known = getattr(java.org.apache.spark.ckpt, "CheckpointEvents$Known")(counts, names, 0, False, None, 77)
    node = java.org.apache.spark.ckpt.Json.parse(json.dumps({"root": ROOT, "run": 3, "epoch": 4, "time_ms": 9, "full_bytes": 30, **said}))
    told = java.org.apache.spark.ckpt.CheckpointEvents.parse(node, known).get()
    line: dict[str, Any] = json.loads(java.org.apache.spark.util.JsonProtocol.sparkEventToJsonString(told))
    return line


ANNOUNCED = {"root": ROOT, "run": 3, "epoch": 4, "timeMs": 9, "fullBytes": 30}


def test_what_the_coordinator_says_of_a_savepoint_becomes_an_event(java: Any) -> None:
    line = parsed(java, event="SAVEPOINT", savepoint="s3://lake/savepoints/x")
    assert line == {"Event": PACKAGE + "CheckpointSavepoint", **ANNOUNCED, "path": "s3://lake/savepoints/x"}


def test_a_restore_tells_of_what_it_is_a_copy(java: Any, model: Model) -> None:
    line = parsed(java, event="RESTORED", path="s3://lake/chk-4", **{"from": "s3://lake/savepoints/x", "from_savepoint": True})
    copied = {"restoredMs": 77, "path": "s3://lake/chk-4", "from": "s3://lake/savepoints/x", "fromSavepoint": True}
    counts = {"triggered": 1, "completed": 1, "failed": 0, "restored": 1}
    assert line == {"Event": PACKAGE + "CheckpointRestored", **ANNOUNCED, **copied, "counts": counts}
    model.kept.add(event(java, json.dumps(line)))
    restored = model.view.latestRestored().get()
    assert (restored.origin(), restored.fromSavepoint()) == ("s3://lake/savepoints/x", True)
    own = parsed(java, event="RESTORED", path="s3://lake/chk-4")
    assert (own["from"], own["fromSavepoint"]) == ("", False)


def test_a_subsumed_checkpoint_is_given_up_and_counts_as_failed_like_flinks(model: Model) -> None:
    lag = {"epochs": 3, "ms": 4000, "bytes": 5}
    model.completed(6, lag={"epochs": 1, "ms": 1000, "bytes": 1})
    counts = {**COUNTS, "failed": 1}
    model.add("CheckpointAborted", 5, reason="SUBSUMED", message="checkpoint 6 completed first", lag=lag, counts=counts, late=False)
    record = model.view.find("5").get()
    assert record.isGivenUp()
    assert record.status().toString() == "FAILED"
    assert model.view.counts().failed() == 1
    assert model.lag == (1, 1000, 1), "what it says of the lag is older than what the newer one said"


def test_the_lag_is_that_of_the_newest_epoch(model: Model) -> None:
    model.completed(1)
    for epoch in (2, 3, 4):
        model.progress(epoch, epoch - 1)
    assert model.lag == (3, 3000, 21)
    assert [record.lag().epochs() for record in _each(model.view.lags())] == [1, 2, 3]
    model.completed(4)
    assert model.lag == (0, 0, 0)


def test_a_checkpoint_that_completes_before_its_epochs_progress_is_told_counts(model: Model) -> None:
    model.completed(4)
    model.progress(4, 3)
    assert model.lag == (0, 0, 0)
    model.completed(5, lag={"epochs": 0, "ms": 0, "bytes": 900})
    assert model.lag == (0, 0, 0), "nothing waits where nothing is behind"
    model.progress(7, 6)
    assert model.lag[0] == 2


def test_what_an_earlier_run_had_in_the_making_is_not_in_progress_for_ever(model: Model) -> None:
    model.add("CheckpointTriggered", 9, late=False, counts=COUNTS)
    assert model.view.inProgress().size() == 1
    model.add("CheckpointRunStarted", 9, run=4, queryId="q", runId=RUN_ID, name="orders", background=True, options={})
    assert model.view.inProgress().size() == 0


def test_rows_of_real_time_stand_still_from_the_end_of_a_batch_until_the_next_one_takes_some(model: Model) -> None:
    """Batches of 5 s; the run before was one of micro-batches, and between epochs 4 and 6 one is not known."""

    def ended(epoch: int, at: int, sink: int, run: int = 4) -> None:
        operator = {"id": 0, "name": "aggregate(k)", "commitMsMax": sink - 10, "partitions": 1, "snapshots": 1}
        model.completed(epoch, run=run, timeMs=BEGIN_MS + at, sinkMs=sink, operators=[operator])

    ended(1, at=0, sink=200, run=3)
    real_time = {"queryId": "q", "runId": RUN_ID, "name": "orders", "background": True, "options": {"interval": "0"}}
    model.add("CheckpointRunStarted", 2, run=4, batchMs=5000, **real_time)
    assert not model.view.standstills().nonEmpty()
    for epoch, at, sink in ((2, 1000, 5100), (3, 6150, 5080), (4, 11_200, 5004), (6, 30_000, 4990)):
        ended(epoch, at, sink)
    assert [(one.epoch(), one.ms()) for one in _each(model.view.standstills())] == [(2, 150), (3, 50)]
    shown = {one.epoch(): one.sinkMs() for one in _each(model.view.latencies())}
    assert shown == {1: 200, 2: 100, 3: 80, 4: 4, 6: 0}
    commits = [one.operators().apply(0) for one in _each(model.view.latencies())]
    assert commits == [190, 90, 70, 0, 0]


def test_events_of_an_older_release_are_taken_as_far_as_they_go(model: Model) -> None:
    model.add("CheckpointCompleted", 7)
    model.add("CheckpointAborted", 8)
    model.add("CheckpointRestored", 6)
    assert {str(r.status()) for r in _each(model.view.records())} == {"COMPLETED", "FAILED"}
    assert model.view.latestRestored().get().origin() == ""


def test_compaction_leaves_the_newest_and_the_latest_of_each_kind(java: Any) -> None:
    builder = java.org.apache.spark.ckpt.ui.CheckpointEventFilterBuilder()
    lines = list(checkpoint_events(KEPT + 400, 3, seed=5))
    for line in lines:
        builder.onOtherEvent(event(java, line))
    accept = builder.createFilter().acceptFn()
    kept = [json.loads(line) for line in lines if accept.apply(event(java, line))]
    by_kind: dict[str, list[int]] = {}
    for doc in kept:
        by_kind.setdefault(doc["Event"].removeprefix(PACKAGE), []).append(doc["epoch"])
    assert by_kind["CheckpointRunStarted"] == [0]
    assert by_kind["CheckpointRestored"] == [41]
    assert by_kind["CheckpointSavepoint"] == [SAVEPOINT]
    ended = by_kind["CheckpointCompleted"] + by_kind["CheckpointAborted"]
    assert sorted(ended) == list(range(400, KEPT + 400))


def _each(seq: Any) -> list[Any]:
    return [seq.apply(i) for i in range(seq.size())]
