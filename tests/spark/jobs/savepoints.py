"""A windowed count that is asked for savepoints and checkpoints while it runs; what came of it goes to FACTS, a JSON file.

usage: savepoints.py STEP INPUT CHECKPOINT OUTPUT FACTS [TARGET]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import spark_ckpt

SCHEMA = "id long, key string, ts timestamp, value long"


def started(spark: SparkSession, source: str, checkpoint: str, out: str) -> StreamingQuery:
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
    counts = events.withWatermark("ts", "1 minute").groupBy(F.window("ts", "5 minutes").alias("w"), "key")
    rows = counts.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    rows = rows.select(F.col("w.start").cast("string").alias("start"), "key", "n", "total")
    return rows.writeStream.format("json").option("path", out).option("checkpointLocation", checkpoint).start()


def epoch_of(query: StreamingQuery) -> int:
    return query.lastProgress.batchId if query.lastProgress is not None else -1


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to that within a minute")
        time.sleep(0.01)


def stream_of(spark: SparkSession, checkpoint: str) -> str:
    return f"{spark.conf.get('spark.ckpt.storage')}{checkpoint}"


def first(query: StreamingQuery, stream: str, facts: dict[str, Any]) -> None:
    """Savepoints of a query that is busy and of one that is idle, asked for from here and from another process."""
    until(lambda: epoch_of(query) >= 2)
    facts["busy"] = spark_ckpt.savepoint(query, name="busy", timeout="60s")
    facts["epoch_after_busy"] = epoch_of(query)
    query.processAllAvailable()
    facts["idle"] = spark_ckpt.savepoint(query, timeout="60s")
    for name in ("from-cli", "busy"):
        command = [sys.executable, "-m", "spark_ckpt.cli.main", "savepoint", stream, "--name", name, "--timeout", "60s", "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        facts[f"cli {name}"] = {"status": ended.returncode, **json.loads(ended.stdout)}
    facts["epoch"] = epoch_of(query)


def checkpoint_by_cli(stream: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "spark_ckpt.cli.main", "checkpoint", stream, "--timeout", "60s", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    return {"status": ended.returncode, **json.loads(ended.stdout)}


def on_demand(query: StreamingQuery, stream: str, facts: dict[str, Any]) -> None:
    """Checkpoints of a busy query, asked for by two at a time, and by nobody once they are there: what follows is in none."""
    until(lambda: epoch_of(query) >= 2)
    facts["before"] = sorted(str(path) for path in Path(stream.removeprefix("file://")).glob("run-*/chk-*/_metadata"))
    facts["epoch_before"] = epoch_of(query)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(spark_ckpt.checkpoint, query, "60s"), pool.submit(spark_ckpt.checkpoint, stream, "60s")]
        facts["busy"] = [one.result() for one in asked]
    facts["cli"] = checkpoint_by_cli(stream)
    after = epoch_of(query)
    until(lambda: epoch_of(query) >= after + 1)
    query.processAllAvailable()
    facts["epoch"] = epoch_of(query)
    with urllib.request.urlopen(f"{SparkSession.active().sparkContext.uiWebUrl}/checkpoints/", timeout=60) as page:
        facts["tab"] = page.read().decode()


def idle(query: StreamingQuery, stream: str, facts: dict[str, Any]) -> None:
    """The same of a query that is idle, then a savepoint, and the end."""
    query.processAllAvailable()
    facts["epoch"] = epoch_of(query)
    facts["cli"] = checkpoint_by_cli(stream)
    facts["again"] = spark_ckpt.checkpoint(query, timeout="60s")
    drained(query, stream, facts)


def aside(query: StreamingQuery, _stream: str, facts: dict[str, Any]) -> None:
    """A savepoint in a folder of its own, while more comes."""
    until(lambda: epoch_of(query) >= 2)
    facts["aside"] = spark_ckpt.savepoint(query, target=sys.argv[6], name="aside", timeout="60s")
    query.processAllAvailable()


def drained(query: StreamingQuery, _stream: str, facts: dict[str, Any]) -> None:
    query.processAllAvailable()
    facts["drained"] = spark_ckpt.savepoint(query, name="drained", stop=True, drain=True, timeout="60s")
    facts["active"] = query.isActive
    try:
        spark_ckpt.savepoint(query, timeout="5s")
    except spark_ckpt.CheckpointError as e:
        facts["stopped_query"] = str(e)


def all_of_it(query: StreamingQuery, _stream: str, facts: dict[str, Any]) -> None:
    query.processAllAvailable()
    facts["epoch"] = epoch_of(query)


STEPS: dict[str, Callable[[StreamingQuery, str, dict[str, Any]], None]] = {
    "first": first,
    "aside": aside,
    "drained": drained,
    "on_demand": on_demand,
    "idle": idle,
    "all": all_of_it,
}


def main() -> None:
    step, source, checkpoint, out, told = sys.argv[1:6]
    spark = SparkSession.builder.appName("savepoints").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    facts: dict[str, Any] = {}
    query = started(spark, source, checkpoint, out)
    STEPS[step](query, stream_of(spark, checkpoint), facts)
    query.stop()
    # Spark tells its listeners later, and what onStop asks for is done then.
    spark._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    Path(told).write_text(json.dumps(facts, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
