"""Kafka as a source, on a real broker: what brokers are asked beside Spark's own source, and what is told of it, in a JVM without an
application; and a query whose consumer group follows its checkpoints."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import Consumer
from py4j.protocol import Py4JJavaError

from testbed.kafka import KafkaBroker, connector_jars
from testbed.servers import UnavailableError
from tests.drivers.killed_starter import left
from tests.drivers.spark.harness import Start
from tests.drivers.spark.jvm import jvm
from tests.drivers.spark.topics import Topics, TopicsTrial, broker_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

GROUP = "spark.ckpt.kafka.group"
USER, PASSWORD = "alice", "alice-secret"
PREFIX = "org.apache.kafka.common.errors."
STARTER = """
import sys, time
from pathlib import Path
from testbed.kafka import KafkaBroker
with KafkaBroker(Path(sys.argv[1])) as broker:
    print(broker.address, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    try:
        jars = connector_jars()
    except UnavailableError as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    with jvm(*jars) as started:
        spark = started.org.apache.spark
        env = spark.SparkEnv("driver", *[None] * 10, spark.SparkConf(False))
        getattr(getattr(spark, "SparkEnv$"), "MODULE$").set(env)
        yield started


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker", {USER: PASSWORD}) as running:
        yield running


class Source:
    """One that subscribes to a topic. `settings` is what its clients are made with: it may be changed between two of them."""

    def __init__(self, java: Any, topic: str, address: str, settings: Mapping[str, str] | None = None) -> None:
        self._java = java
        sql = java.org.apache.spark.sql
        topics = java.scala.jdk.javaapi.CollectionConverters.asScala([topic]).toSeq()
        nothing = java.java.lang.Class.forName("scala.collection.immutable.HashMap$").getField("MODULE$").get(None).empty()
        options = getattr(getattr(sql.catalyst.util, "CaseInsensitiveMap$"), "MODULE$").apply(nothing)
        self.settings = java.java.util.HashMap()
        times = {"request.timeout.ms": "1500", "default.api.timeout.ms": "3000"}
        for name, value in {"bootstrap.servers": address, **times, **(settings or {})}.items():
            self.settings.put(name, value)
        strategy = sql.kafka010.SubscribeStrategy(topics)
        self._reader = sql.kafka010.KafkaOffsetReaderAdmin(strategy, self.settings, options, "of-nobody")

    def client(self) -> Any:
        return self._java.org.apache.spark.sql.ckpt.KafkaClient(self._reader)

    def ends(self, offsets: Mapping[str, Mapping[str, int]]) -> Any:
        return self._java.org.apache.spark.sql.ckpt.KafkaClient.partitions(json.dumps(offsets))

    def explained(self, error: str, offsets: Mapping[str, Mapping[str, int]], fails_on_loss: bool = True) -> Any:
        """What epoch 7, which was to begin with these offsets, is told to have failed of; None: nothing."""
        ckpt = self._java.org.apache.spark.sql.ckpt
        reading = ckpt.KafkaReading("KafkaV2[Subscribe[t]]", self.ends(offsets), self.client(), fails_on_loss)
        sources = self._java.scala.jdk.javaapi.CollectionConverters.asScala([reading]).toSeq()
        thrown = self._java.java.lang.RuntimeException(f"Job aborted: {PREFIX}{error}")
        found = ckpt.KafkaTrouble.explained(thrown, 7, sources)
        return found.get() if found.isDefined() else None


def login(password: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
    }


@pytest.mark.parametrize(
    "error",
    [
        "UnknownTopicOrPartitionException: This server does not host this topic-partition.",
        "OffsetOutOfRangeException: Fetch position is out of range",
        "TopicAuthorizationException: Not authorized to access topics: [the sink's]",
        "SaslAuthenticationException: Authentication failed",
    ],
)
def test_an_error_that_has_passed_or_is_the_sinks_is_left_as_it_is(java: Any, broker: KafkaBroker, error: str) -> None:
    topics = Topics(broker)
    name = "there-" + error.split("Exc", maxsplit=1)[0]
    topics.create(name, 2)
    topics.produce([name], 20)
    assert Source(java, name, broker.address).explained(error, {name: {"0": 3, "1": 0}}) is None


def test_rows_and_topics_that_are_gone_are_named(java: Any, broker: KafkaBroker) -> None:
    topics = Topics(broker)
    topics.create("cut", 1)
    topics.produce(["cut"], 100)
    topics.delete_before("cut", 0, 40)
    source = Source(java, "cut", broker.address)
    told = source.explained("OffsetOutOfRangeException", {"cut": {"0": 10}})
    assert told.kind() == "UNUSABLE"
    assert "what Kafka does not have any more: offsets 10 to 39 of cut-0 (retention has deleted it)" in told.getMessage()
    assert source.explained("OffsetOutOfRangeException", {"cut": {"0": 40}}) is None
    assert source.explained("UnknownTopicOrPartitionException", {"cut": {"0": 10}}, fails_on_loss=False) is None, "the sink's"

    topics.delete("cut")
    client = source.client()
    deadline = time.monotonic() + 20
    while client.gone(source.ends({"cut": {"0": 10}}).keys()).isEmpty():  # the broker hears of it from its controller
        assert time.monotonic() < deadline
    client.close()
    told = source.explained("UnknownTopicOrPartitionException", {"cut": {"0": 10}})
    assert told.kind() == "UNUSABLE"
    assert "all of cut-0 (the topic was deleted)" in told.getMessage()


@pytest.mark.parametrize("offsets", [{}, {"guarded": {"0": 0}}], ids=["its first epoch", "a later one"])
def test_who_is_not_let_in_is_told_so_and_may_come_again(java: Any, broker: KafkaBroker, offsets: Mapping[str, Mapping[str, int]]) -> None:
    """Credentials are renewed, and what checks them may be away for a moment: `spark_ckpt.run` goes on."""
    source = Source(java, "guarded", broker.secure_address, login("not-the-password"))
    told = source.explained("SaslAuthenticationException: Authentication failed", offsets)
    assert told.kind() == "SOURCE"
    assert f"Kafka at {broker.secure_address} does not let KafkaV2[Subscribe[t]] in" in told.getMessage()
    assert "not-the-password" not in told.getMessage()


def test_brokers_that_do_not_answer_say_nothing(java: Any, tmp_path: Path) -> None:
    source = Source(java, "away", "127.0.0.1:1")
    assert source.explained("UnknownTopicOrPartitionException", {"away": {"0": 0}}) is None


def test_after_a_failure_the_client_comes_in_with_new_credentials(java: Any, broker: KafkaBroker) -> None:
    topics = Topics(broker)
    topics.create("renewed", 1)
    source = Source(java, "renewed", broker.secure_address, login("not-the-password"))
    client = source.client()
    ends = source.ends({"renewed": {"0": 0}})
    try:
        with pytest.raises(Py4JJavaError, match="SaslAuthenticationException"):
            client.commit("renewed-group", ends)
        for name, value in login(PASSWORD).items():
            source.settings.put(name, value)
        client.renew()
        client.commit("renewed-group", ends)
    finally:
        client.close()
    assert topics.group("renewed-group") == {("renewed", 0): 0}
    with pytest.raises(Py4JJavaError, match="is closed"):
        client.commit("renewed-group", ends)


def test_a_cluster_is_one_by_whatever_address_it_is_asked(java: Any, broker: KafkaBroker) -> None:
    port = broker.address.split(":")[1]
    clients = [Source(java, "any", address).client() for address in (broker.address, f"localhost:{port}")]
    try:
        assert clients[0].servers() != clients[1].servers()
        assert clients[0].cluster() == clients[1].cluster()
    finally:
        for client in clients:
            client.close()


def test_a_cluster_that_is_away_holds_up_no_other(java: Any, broker: KafkaBroker) -> None:
    """But for partitions that both sources read: perhaps it is one cluster, whose group is to stay at what both have."""
    topics = Topics(broker)
    topics.create("here", 2)
    here, away = Source(java, "here", broker.address), Source(java, "there", "127.0.0.1:1")
    clients = [away.client(), here.client()]
    read = [away.ends({"there": {"0": 5}, "here": {"1": 1}}), here.ends({"here": {"0": 3, "1": 4}})]
    pairs = [java.scala.Tuple2(client, offsets) for client, offsets in zip(clients, read, strict=True)]
    in_scala = java.scala.jdk.javaapi.CollectionConverters.asScala
    ends, nobody, away_one = (in_scala(of).toSeq() for of in (pairs, [], clients[:1]))
    commit_all = java.org.apache.spark.sql.ckpt.KafkaSources.commitAll
    try:
        failed = commit_all("follows", ends, nobody)
        assert [failed.apply(n)._1().servers() for n in range(failed.size())] == ["127.0.0.1:1"]
        assert "TimeoutException" in failed.apply(0)._2().toString()
        begun = time.monotonic()
        assert commit_all("follows-without", ends, away_one).isEmpty()
        assert time.monotonic() - begun < 2, "it was asked"
    finally:
        for client in clients:
            client.close()
    assert topics.group("follows") == topics.group("follows-without") == {("here", 0): 3}


def test_of_a_partition_that_two_sources_read_the_group_has_what_both_have(java: Any, broker: KafkaBroker) -> None:
    topics = Topics(broker)
    topics.create("both", 2)
    sources = [Source(java, "both", broker.address) for _ in range(2)]
    clients = [source.client() for source in sources]
    read = [sources[0].ends({"both": {"0": 5, "1": 2}}), sources[1].ends({"both": {"0": 3}})]
    pairs = [java.scala.Tuple2(client, offsets) for client, offsets in zip(clients, read, strict=True)]
    in_scala = java.scala.jdk.javaapi.CollectionConverters.asScala
    try:
        assert java.org.apache.spark.sql.ckpt.KafkaSources.commitAll("lesser", in_scala(pairs).toSeq(), in_scala([]).toSeq()).isEmpty()
    finally:
        for client in clients:
            client.close()
    assert topics.group("lesser") == {("both", 0): 3, ("both", 1): 2}


def test_a_broker_ends_with_a_test_that_is_killed(java: Any, tmp_path: Path) -> None:
    assert left(STARTER, tmp_path / "broker") == []


def test_the_group_follows_a_restore_also_backwards_and_a_group_in_use_harms_nobody(
    start: Start, broker: KafkaBroker, tmp_path: Path
) -> None:
    topics = Topics(broker)
    topics.create("back", 2)
    topics.produce(["back"], 200)
    trial = TopicsTrial(start, topics, tmp_path, {"subscribe": "back", "maxOffsetsPerTrigger": "50"}, ["records"])
    conf = {GROUP: "back-checkpoints", "spark.ckpt.retained": "10"}
    user = Consumer({"bootstrap.servers": topics.broker.address, "group.id": "back-checkpoints", "log_level": 0})
    user.subscribe(["back"])
    try:
        user.poll(5)
        app = trial.start("available", conf)
        app.expect_success()
    finally:
        user.close()
    assert "could not be committed to the consumer group back-checkpoints" in app.log.read_text()
    assert trial.differences() == []

    (run, epoch), _ = trial.checkpoints("records")[1]
    path = f"file://{trial.stream('records')}/run-{run:08}/chk-{epoch}"
    app = trial.start("available", {**conf, "spark.ckpt.restore.path": path})
    app.expect_success()
    assert f"the end offsets of checkpoint {epoch} are committed to the consumer group back-checkpoints" in app.log.read_text()
    assert topics.group("back-checkpoints") == trial.checkpoints("records")[-1][1]
    assert trial.differences() == []
