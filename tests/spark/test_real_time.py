"""Spark's real-time trigger, from Kafka to Kafka: accepted by configuration alone, killed, saved and moved between triggers. Nothing is
lost, the state is that of a batch query, and what comes twice comes from behind the last checkpoint."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_ckpt
from spark_ckpt.errors import CheckpointError
from testbed.kafka import KafkaBroker
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.command_line import call
from tests.drivers.spark.harness import Start
from tests.drivers.spark.real_time import STOCK, RealTimeTrial, feed, feed_past_a_checkpoint
from tests.drivers.spark.s3_server import REGION, Server
from tests.drivers.spark.sightings import lines
from tests.drivers.spark.tab import checked, get, text
from tests.drivers.spark.topics import Topics, broker_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(600)]

METADATA = re.compile(r"^PUT \S*/_metadata")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def trial(start: Start, broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> RealTimeTrial:
    name = request.node.name.replace("[", "-").replace("]", "")
    return RealTimeTrial(start, Topics(broker), tmp_path, f"{name}-in", f"{name}-out")


@pytest.mark.parametrize("conf", [{}, {"spark.ckpt.interval": "3s"}], ids=["every-batch", "interval"])
def test_a_killed_query_goes_on_from_its_newest_checkpoint(trial: RealTimeTrial, conf: dict[str, str]) -> None:
    trial.produce(100)
    trial.start(conf)
    trial.wait_for_checkpoint()
    feed(trial, 5)
    feed_past_a_checkpoint(trial)
    trial.lose_the_machine()
    beyond = trial.said_beyond(trial.state())
    assert beyond or not conf, "with an interval the next checkpoint is seconds away"
    trial.start(conf)
    feed(trial, 5)
    trial.wait()
    trial.wait_for_state()
    trial.stop()
    assert trial.missing() == []
    assert trial.twice() == Counter(beyond), "what the checkpoint does not hold comes twice, and nothing else"


def test_a_stream_goes_back_and_forth_between_triggers(trial: RealTimeTrial) -> None:
    trial.produce(100)
    trial.start(trigger="processingTime", every="1 second")
    trial.wait()
    trial.lose_the_machine()
    trial.start()
    feed(trial, 4)
    trial.wait()
    at = trial.wait_for_checkpoint()
    trial.lose_the_machine()
    trial.produce(50)
    trial.start(trigger="processingTime", every="1 second")
    trial.wait()
    trial.wait_for_state()
    assert trial.checkpoints[-1] > at
    trial.stop()


def test_who_asks_for_the_end_while_micro_batches_become_real_time_gets_it(
    start: Start, broker: KafkaBroker, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query waits for the checkpoint of its last micro-batch then, and that for the storage."""
    for name, value in {**s3.env, "AWS_ENDPOINT_URL_S3": s3.proxy.endpoint, "AWS_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    trial = RealTimeTrial(start, Topics(broker), tmp_path, "becoming-in", "becoming-out", s3=s3)
    trial.produce(100)
    trial.start({"spark.ckpt.interval": "1h"}, trigger="processingTime", every="1 second")
    trial.wait()
    trial.produce(50)
    trial.wait()
    trial.lose_the_machine()
    s3.proxy.inject(WireFault(Wire.DELAY, METADATA.pattern, times=None, delay_s=12))
    app = trial.start({"spark.ckpt.interval": "1h"})
    app.until(lambda: any(METADATA.search(line) for line in s3.proxy.requests), "a checkpoint that is being stored")
    ended = spark_ckpt.savepoint(trial.stream, stop=True)
    s3.proxy.heal()
    app.expect_success(60)
    assert trial.state_of(ended) == trial.expected()
    trial.produce(50)
    trial.start({"spark.ckpt.restore.path": ended})
    trial.wait()
    trial.wait_for_state()
    trial.stop()


def test_a_savepoint_of_a_running_query_ends_it_and_is_restored(trial: RealTimeTrial) -> None:
    trial.produce(100)
    app = trial.start({"spark.ckpt.interval": "1h"})
    trial.wait()
    stream = trial.stream
    with pytest.raises(CheckpointError, match="a query in real time cannot be drained"):
        spark_ckpt.savepoint(stream, stop=True, drain=True)
    saved = spark_ckpt.savepoint(stream, name="busy")
    assert trial.state_of(saved) == trial.expected()
    feed(trial, 2)
    trial.wait()
    ended = spark_ckpt.savepoint(stream, stop=True)
    app.expect_success(60)
    assert trial.twice() == {}
    trial.produce(50)
    trial.start({"spark.ckpt.restore.path": ended})
    trial.wait()
    trial.wait_for_state()
    trial.stop()
    assert (trial.missing(), trial.twice()) == ([], {})


@pytest.mark.parametrize("trigger", ["realTime", "processingTime"])
def test_stock_spark_goes_on_from_an_exported_savepoint(
    trial: RealTimeTrial, tmp_path: Path, capsys: pytest.CaptureFixture[str], trigger: str
) -> None:
    trial.produce(100)
    app = trial.start()
    feed(trial, 4)
    trial.wait()
    ended = spark_ckpt.savepoint(trial.stream, stop=True)
    app.expect_success(60)
    refused, said = call(capsys, "export", trial.stream, str(tmp_path / "refused"))
    assert (refused, "in real time" in said["error"]["message"]) == (1, True), said
    status, told = call(capsys, "export", ended, str(tmp_path / "stock"), "--checkpoint-format", "2")
    assert status == 0, told
    shutil.rmtree(trial.location)
    trial.location = str(tmp_path / "stock")
    trial.produce(50)
    trial.start(STOCK, trigger=trigger, plugin=False, storage=None)
    feed(trial, 4)
    trial.produce(50)
    trial.wait()
    trial.stop()
    assert trial.twice() == {}
    if trigger == "realTime":
        assert trial.missing() == []  # micro-batches say a key's newest total only


def test_the_older_of_two_drivers_ends_while_its_batch_runs(trial: RealTimeTrial, tmp_path: Path) -> None:
    # The same path on two machines is two folders: each driver has another working folder.
    trial.location = "/proc/self/cwd/location"
    for name in ("older", "newer"):
        (tmp_path / name).mkdir()
    trial.produce(100)
    older = trial.start(every="10 minutes", cwd=tmp_path / "older")
    trial.wait()
    newer = trial.start(cwd=tmp_path / "newer")
    newer.until(lambda: not older.running, "the older driver's end, long before that of its batch")
    assert older.wait() != 0
    assert "took over the stream" in older.log.read_text()
    trial.produce(50)
    trial.wait()
    trial.wait_for_state()
    trial.stop()
    assert trial.missing() == []


def test_without_a_checkpoint_a_query_begins_where_it_had_begun(trial: RealTimeTrial) -> None:
    """From the newest records on: what had come before is read by nobody, and what comes after the first start by all means."""
    trial.produce(20)
    trial.topics.records.clear()
    app = trial.start(every="10 minutes", spec={"from": "latest"})
    app.until(lambda: 2 in trial.log, "the record that a batch begins")
    trial.produce(50)
    trial.wait()
    trial.lose_the_machine()
    trial.produce(50)
    trial.start(spec={"from": "latest"})
    trial.wait()
    trial.wait_for_state()
    trial.stop()
    assert trial.missing() == []


def test_a_query_without_state_has_checkpoints_of_its_offsets(trial: RealTimeTrial) -> None:
    trial.produce(100)
    trial.start(spec={"query": "stateless"})
    at = trial.wait_for_checkpoint()
    trial.produce(100)
    trial.wait_for_checkpoint(trial.wait_for_checkpoint(at))
    trial.lose_the_machine()
    trial.produce(100)
    trial.start(spec={"query": "stateless"})
    trial.wait_for_checkpoint(trial.wait_for_checkpoint())
    trial.stop()
    passed, sent = trial.passed(), [(record.key, int(record.value)) for record in trial.topics.records]
    assert set(passed) == set(sent)
    assert len(passed) < 2 * len(sent), "what checkpoints hold was read again"


@pytest.mark.parametrize("how", [{}, {"plugin": False, "storage": None}], ids=["plugin", "stock"])
def test_transform_with_state_is_not_for_sparks_real_time_yet(trial: RealTimeTrial, how: dict[str, Any]) -> None:
    """Spark 4.3.0 cannot plan it in this mode, with the plugin or without: for batch N it looks for `offsets/N`, which a batch in real time
    gets when it ends (`OperatorStateMetadataV2Reader`)."""
    conf = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false", **(STOCK if how else {})}
    trial.produce(20)
    app = trial.start(conf, spec={"query": "transformed"}, **how)
    assert app.wait(120) != 0
    assert "STDS_FAILED_TO_READ_OPERATOR_METADATA" in app.log.read_text()


def test_executors_die_in_the_middle_of_a_batch(trial: RealTimeTrial) -> None:
    """All tasks of a batch talk to each other: it ends with one of them, and the query with it. Started again, it goes on."""
    master = "local-cluster[2,3,1024]"
    trial.produce(100)
    app = trial.start(master=master)
    for _ in range(2):
        trial.wait()
        trial.wait_for_checkpoint()
        feed(trial, 2)
        app.kill_one("CoarseGrainedExecutorBackend")
        assert app.wait(60) != 0
        app = trial.start(master=master)
        feed(trial, 2)
    trial.wait()
    trial.wait_for_state()
    trial.stop()
    assert trial.missing() == []


def test_the_tab_shows_how_long_rows_stood_still(trial: RealTimeTrial) -> None:
    """Live, as the history server would from the same events; batches of two seconds."""
    app = trial.start({"spark.ui.enabled": "true", "spark.ui.port": "0"})
    app.until(lambda: bool(lines(app, "UI")), "the address of its pages", 60)
    base = lines(app, "UI")[0]
    feed(trial, 6)
    app.until(lambda: get(f"{base}/checkpoints/json/latencies")["standstill"] is not None, "two batches in the tab", 60)
    shown = checked(base, "/latencies", "latencies")
    stood = [epoch["standstill"] for epoch in shown["epochs"] if epoch["standstill"] is not None]
    assert stood
    assert all(epoch["sink"] < 60_000 for epoch in shown["epochs"])
    assert shown["standstill"]["max"] == max(stood)
    assert checked(base, "/config", "config")["real_time_batch"] == 2000
    page = text(f"{base}/checkpoints/")
    assert "in real time with batches of 2.00 s" in page
    assert "Standstill at the Barrier" in page
    assert "Standstill at the Barrier" in text(f"{base}/checkpoints/summary/")
    trial.stop()
