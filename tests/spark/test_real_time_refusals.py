"""What Spark does not take in real time: who asks for it gets Spark's own sentence, as without the plugin."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.kafka import KafkaBroker, connector_jars
from tests.drivers.spark.harness import Start
from tests.drivers.spark.real_time import REAL_TIME, STOCK
from tests.drivers.spark.sightings import told
from tests.drivers.spark.topics import Topics, broker_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

LIMIT = "Streaming real-time mode has the following limitation: "
NOT_ON_THE_LIST = f"[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] {LIMIT}"
STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful"
SAID = {
    "unique within watermark": f"{NOT_ON_THE_LIST}The operator(s): {STATEFUL}.StreamingDeduplicateWithinWatermarkExec is not in",
    # Spark plans the first batch before it looks at its list.
    "transformed": "[STDS_FAILED_TO_READ_OPERATOR_METADATA] Failed to read the operator metadata for checkpointLocation=",
    "foreachBatch": f"{NOT_ON_THE_LIST}The sink(s): org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink is not in",
    "complete": f"[STREAMING_REAL_TIME_MODE.OUTPUT_MODE_NOT_SUPPORTED] {LIMIT}The output mode Complete is not supported",
    "short": "[INVALID_STREAMING_REAL_TIME_MODE_TRIGGER_INTERVAL] The real-time trigger interval is set to 900 ms",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


def refusals(start: Start, topics: Topics, folder: Path, plugin: bool) -> dict[str, str]:
    """By query the sentence that was said, but for what no two applications have in common."""
    folder.mkdir()
    spec = {"servers": topics.broker.address, "source": "refused", "locations": str(folder / "locations")}
    conf = {**REAL_TIME, **({} if plugin else STOCK)}
    storage = f"file://{folder / 'storage'}" if plugin else None
    jars, master = connector_jars(), "local[6]"
    app = start("real_time_refused.py", json.dumps(spec), conf=conf, storage=storage, plugin=plugin, jars=jars, master=master)
    app.expect_success()
    own = re.compile(rf"{re.escape(str(folder))}|[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
    return {one["query"]: own.sub("_", one["why"]).partition("\n=== Streaming Query")[0] for one in told(app, "REFUSED")}


def test_sparks_own_sentence_reaches_who_asks(start: Start, broker: KafkaBroker, tmp_path: Path) -> None:
    topics = Topics(broker)
    topics.create("refused", 2)
    topics.produce(["refused"], 10)
    with_plugin, alone = (refusals(start, topics, tmp_path / name, plugin=name == "plugin") for name in ("plugin", "stock"))
    assert with_plugin == alone
    assert [query for query, sentence in SAID.items() if sentence not in with_plugin[query]] == []
