"""Kafka as a source, on a real broker: what was produced comes out once, whatever is killed, and a consumer group follows checkpoints."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import Consumer

from spark_ckpt.cli.main import run as cli
from spark_ckpt.stored.metadata.codec import decode_metadata
from testbed.kafka import KafkaBroker
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.sightings import lines, told
from tests.drivers.spark.topics import Record, Topics, TopicsTrial, broker_or_skip

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(400)]

USER, PASSWORD = "alice", "alice-secret"
OFTEN = "100 milliseconds"
GROUP = "spark.ckpt.kafka.group"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker", {USER: PASSWORD}) as running:
        yield running


@pytest.fixture
def topics(broker: KafkaBroker) -> Topics:
    return Topics(broker)


def ui(app: Application, path: str) -> str:
    """A page of the application's UI; empty: there is none yet."""
    base = next(iter(lines(app, "UI")), "")
    if not base:
        return ""
    with urllib.request.urlopen(f"{base}/{path}", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def ahead(app: Application, name: str) -> list[dict[str, Any]]:
    """What the tab's JSON says of the sources of that query; empty: nothing yet."""
    page = ui(app, f"checkpoints/json/?query={name}")
    found: list[dict[str, Any]] = json.loads(page)["sources"] if page else []
    return found


def behind(app: Application, name: str) -> dict[str, Any]:
    """The same of its one source."""
    return next(iter(ahead(app, name)), {})


def commits(app: Application, group: str) -> list[tuple[int, bool]]:
    """Of each line in the log that is about the group: the epoch of the checkpoint, and whether its offsets were committed."""
    line = rf"the end offsets of checkpoint (\d+) (are|could not be) committed to the consumer group {group}\b"
    return [(int(epoch), how == "are") for epoch, how in re.findall(line, app.log.read_text())]


def metric(app: Application, name: str) -> float:
    """Of the query `totals`, from Spark's own servlet."""
    gauges = json.loads(ui(app, "metrics/json/"))["gauges"]
    found = [gauge["value"] for key, gauge in gauges.items() if key.endswith(f".checkpoints.totals.{name}")]
    assert len(found) == 1, sorted(gauges)
    return float(found[0])


def failure(app: Application) -> str:
    """What the user was told when the query had failed."""
    assert app.wait(120) == 1, app.tail()
    message: str = told(app, "FAILED")[0]["message"]
    return message


def test_what_was_produced_comes_out_once_though_the_machine_is_lost(start: Start, topics: Topics, tmp_path: Path) -> None:
    """With a pattern, aborted transactions, and a topic that gets partitions meanwhile; a group of each query follows its checkpoints."""
    topics.create("sales-a", 3)
    topics.create("sales-b", 2)
    topics.create("other", 1)
    limits = {"maxOffsetsPerTrigger": "150", "minPartitions": "7"}
    trial = TopicsTrial(start, topics, tmp_path, {"subscribePattern": "sales-.*", "kafka.isolation.level": "read_committed", **limits})
    conf = {"spark.ckpt.interval": "1s", GROUP: "durable-{query}", "spark.ui.enabled": "true", "spark.ui.port": "0"}
    topics.produce(["sales-a", "sales-b"], 300)
    topics.transaction(["sales-a"], 40, commit=False)
    app = trial.start(OFTEN, conf)
    app.until(lambda: bool(trial.checkpoints("records") and trial.checkpoints("totals")), "a checkpoint of each query")
    topics.widen("sales-a", 5)
    topics.transaction(["sales-a", "sales-b"], 60, commit=True)
    topics.transaction(["sales-a", "sales-b"], 60, commit=False)
    epochs = trial.epochs("records")
    topics.produce(["sales-a", "sales-b"], 900)
    app.until(lambda: behind(app, "records").get("records") is not None, "how far the source is ahead")
    app.until(lambda: bool(topics.group("durable-records")), "the group's offsets")
    committed = topics.group("durable-records")
    newest = trial.checkpoints("records")[-1][1]
    assert all(offset <= newest[partition] for partition, offset in committed.items()), (committed, newest)
    trial.advance(2, epochs)
    trial.lose_the_machine()

    topics.produce(["sales-a", "sales-b"], 100)
    app = trial.start(OFTEN, conf)
    app.until(lambda: trial.differences() == [], "all that was produced")
    app.until(lambda: behind(app, "totals").get("records") == 0, "no record is behind the newest checkpoint")
    assert behind(app, "totals") == {"source": "KafkaV2[SubscribePattern[sales-.*]]", "records": 0, "ms": 0}
    assert (metric(app, "sourceLagRecords"), metric(app, "sourceLagMs")) == (0, 0)
    page = ui(app, "checkpoints/?query=totals")
    assert "Behind the Sources" in page
    assert "<td>KafkaV2[SubscribePattern[sales-.*]]</td><td>0</td><td>0 ms</td>" in page
    trial.stop()
    assert topics.aborted == 100
    assert trial.differences() == []
    for name in trial.names:
        assert topics.group(f"durable-{name}") == trial.checkpoints(name)[-1][1]


def test_what_a_checkpoint_does_not_hold_is_told_in_records_and_in_time(
    start: Start, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints on demand only, so that what the query has read since is behind none."""
    topics.create("since", 2)
    topics.produce(["since"], 100)
    trial = TopicsTrial(start, topics, tmp_path, {"subscribe": "since"}, ["totals"])
    app = trial.start(OFTEN, {"spark.ckpt.interval": "never", "spark.ui.enabled": "true", "spark.ui.port": "0"})
    app.until(lambda: trial.differences() == [], "the first records")
    assert cli(["checkpoint", f"file://{trial.stream('totals')}"]) == 0
    app.until(lambda: behind(app, "totals").get("records") == 0, "all of them are in the checkpoint")

    topics.produce(["since"], 37)
    app.until(lambda: trial.differences() == [], "the query has read the others")
    app.until(lambda: behind(app, "totals").get("records") == 37, "which are in no checkpoint")
    first = behind(app, "totals")["ms"]
    assert first > 0
    app.until(lambda: behind(app, "totals")["ms"] > first, "they get older")
    assert metric(app, "sourceLagRecords") == 37
    assert metric(app, "sourceLagMs") > first
    assert "<td>KafkaV2[Subscribe[since]]</td><td>37</td>" in ui(app, "checkpoints/?query=totals")

    assert cli(["checkpoint", f"file://{trial.stream('totals')}"]) == 0
    app.until(lambda: (behind(app, "totals")["records"], behind(app, "totals")["ms"]) == (0, 0), "nothing is behind any more")
    capsys.readouterr()
    trial.stop()


def test_rows_that_retention_has_deleted_under_a_plan_are_named(start: Start, topics: Topics, tmp_path: Path) -> None:
    topics.create("short", 2)
    topics.produce(["short"], 1000)
    trial = TopicsTrial(start, topics, tmp_path, {"subscribe": "short", "maxOffsetsPerTrigger": "40"}, ["records"])
    conf = {"spark.ckpt.interval": "3s"}

    def past_a_checkpoint() -> bool:
        """By some epochs, and much is still to come."""
        found = trial.checkpoints("records")
        return bool(found) and trial.epochs("records") > found[-1][0][1] + 3 and sum(found[-1][1].values()) < 800

    app = trial.start(OFTEN, conf)
    app.until(past_a_checkpoint, "epochs past a checkpoint")
    trial.lose_the_machine()
    first = trial.checkpoints("records")[-1][1][("short", 0)]
    begins = first + 30
    topics.delete_before("short", 0, begins)

    message = failure(trial.start("available", conf))
    assert f"offsets {first} to {begins - 1} of short-0 (retention has deleted it)" in message
    assert "failOnDataLoss=false" in message
    trial.start("available", conf, {"failOnDataLoss": "false"}).expect_success()

    def lost(record: Record) -> bool:
        return record.partition == 0 and first <= record.offset < begins

    assert trial.of_records("records", lost) == []


def test_wrong_credentials_and_a_deleted_topic_are_named(start: Start, topics: Topics, tmp_path: Path) -> None:
    topics.create("guarded", 2)
    topics.produce(["guarded"], 100)
    trial = TopicsTrial(start, topics, tmp_path, {"subscribe": "guarded"}, ["records"])
    conf = {"spark.ckpt.interval": "1s", GROUP: "guarded-checkpoints"}

    def login(password: str) -> dict[str, str]:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "kafka.bootstrap.servers": topics.broker.secure_address,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        }

    message = failure(trial.start(OFTEN, conf, login("not-the-password")))
    assert f"Kafka at {topics.broker.secure_address} does not let KafkaV2[Subscribe[guarded]] in" in message
    assert "not-the-password" not in message
    app = trial.start(OFTEN, conf, login(PASSWORD))
    app.until(lambda: bool(trial.checkpoints("records")), "a checkpoint")
    app.until(lambda: topics.group("guarded-checkpoints") == trial.checkpoints("records")[-1][1], "the group's offsets")
    assert trial.differences() == []
    topics.delete("guarded")
    message = failure(app)
    print("MESSAGE", message[:1500], app.log)
    assert "the topic was deleted" in message
    assert "failOnDataLoss=false" in message


def test_a_group_in_use_and_a_broker_that_is_away_cost_lines_and_never_the_query(
    start: Start, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sources, of which one has no topic at first. In the end the query goes back to a savepoint, and the group with it."""
    group = "two-sources"
    topics.create("early", 2)
    topics.produce(["early"], 300)
    named, pattern = {"subscribe": "early", "maxOffsetsPerTrigger": "50"}, {"subscribePattern": "late-.*"}
    trial = TopicsTrial(start, topics, tmp_path, named, ["records"], [pattern])
    conf = {"spark.ckpt.interval": "3s", GROUP: group, "spark.ckpt.retained": "100", "spark.ui.enabled": "true", "spark.ui.port": "0"}

    def newest() -> dict[tuple[str, int], int]:
        return trial.checkpoints("records")[-1][1]

    def settled() -> bool:
        """All that was produced has come out, is in a checkpoint, and the group says so."""
        return not trial.differences() and sum(newest().values()) == len(topics.records) and topics.group(group) == newest()

    user = Consumer({"bootstrap.servers": topics.broker.address, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    user.subscribe(["early"])
    try:
        user.poll(5)
        app = trial.start(OFTEN, conf)
        app.until(lambda: len(commits(app, group)) > 0 and len(trial.checkpoints("records")) >= 2, "checkpoints beside the consumer")
        app.until(lambda: trial.differences() == [], "all that was produced")
        assert topics.group(group) == {}
    finally:
        user.close()
    app.until(settled, "the newest checkpoint is committed when the consumer is gone")
    said = commits(app, group)
    assert [committed for _, committed in said] == [False, True]
    assert said[1][0] == trial.checkpoints("records")[-1][0][1]
    app.until(lambda: [source["records"] for source in ahead(app, "records")] == [0, 0], "how far both sources are ahead")

    topics.create("late-a", 2)
    topics.produce(["early", "late-a"], 100)
    app.until(settled, "both sources are in a checkpoint")
    assert {topic for topic, _ in newest()} == {"early", "late-a"}
    assert cli(["savepoint", f"file://{trial.stream('records')}", "--name", "kept"]) == 0
    kept = capsys.readouterr().out.strip()
    at = decode_metadata(Path(kept.removeprefix("file://"), "_metadata").read_bytes()).id.epoch

    def produced_but_in_no_checkpoint() -> bool:
        if sum(newest().values()) == len(topics.records):
            topics.produce(["early", "late-a"], 40)
        return trial.differences() == [] and sum(newest().values()) < len(topics.records)

    app.until(produced_but_in_no_checkpoint, "records that no checkpoint has")
    topics.broker.stop(kill=True)
    try:
        app.until(lambda: sum(newest().values()) == len(topics.records), "a checkpoint without a broker")
        app.until(lambda: len(commits(app, group)) > 2, "what the log says of it")
    finally:
        topics.broker.start()
    assert commits(app, group)[2:] == [(trial.checkpoints("records")[-1][0][1], False)]
    topics.produce(["early", "late-a"], 40)
    app.until(settled, "the query and its group when the broker is back")
    assert commits(app, group)[3][1]
    trial.stop()

    app = trial.start("available", {**conf, "spark.ckpt.restore.path": kept})
    app.expect_success()
    assert commits(app, group) == [(at, True)]
    assert settled()
