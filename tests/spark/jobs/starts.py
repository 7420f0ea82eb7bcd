"""Starts that Spark refuses, replaces, or that end before they have begun, beside queries that live; one application, two sessions.

usage: starts.py SOURCE LOCATIONS OUTPUT FOLDER

The file FOLDER/held tells that the storage does not answer the start of `ghost`, FOLDER/again that it is to be started once more;
FOLDER/stopped is written in between.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from lifecycle import feed, unique, until_progress, writing
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

RESTART = "spark.sql.streaming.stopActiveRunOnRestart"


class Starts:
    """Queries over folders of their own, which grow by two files for each of `steps`."""

    def __init__(self, source: str, locations: str, out: str, folder: str) -> None:
        self._source, self._locations, self._out, self._in = source, locations, out, f"{folder}/in"
        self._fed = 0

    def start(self, spark: SparkSession, of: str, name: str, mode: str = "append") -> StreamingQuery:
        os.makedirs(f"{self._in}/{of}", exist_ok=True)
        to = unique(spark, f"{self._in}/{of}").writeStream.queryName(name).outputMode(mode).foreachBatch(writing(f"{self._out}/{of}"))
        return to.option("checkpointLocation", f"{self._locations}/{of}").trigger(processingTime="100 milliseconds").start()

    def goes_on(self, query: StreamingQuery, of: str) -> None:
        feed(self._source, f"{self._in}/{of}", self._fed, 2)
        self._fed += 2
        until_progress([query], self._fed - 1)


def refused(start: Callable[[], StreamingQuery]) -> str:
    try:
        start()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    raise AssertionError("Spark was to refuse this start")


def until_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.02)


def beside_a_live_query(spark: SparkSession, starts: Starts) -> None:
    other = spark.newSession()
    live = starts.start(spark, "live", "first")
    starts.goes_on(live, "live")

    assert "with that name is already active" in refused(lambda: starts.start(spark, "live", "first"))
    starts.goes_on(live, "live")

    for session in (spark, other):
        session.conf.set(RESTART, "false")
        assert "same id is already active" in refused(lambda s=session: starts.start(s, "live", "second"))  # type: ignore[misc]
        session.conf.set(RESTART, "true")
        starts.goes_on(live, "live")

    assert "output mode" in refused(lambda: starts.start(other, "live", "third", "complete"))
    starts.goes_on(live, "live")

    for session in (spark, other):
        before, live = live, starts.start(session, "live", f"in the place of {live.name}")
        assert not before.isActive
        starts.goes_on(live, "live")
    live.stop()


def stopped_while_it_starts(spark: SparkSession, starts: Starts, folder: str) -> None:
    starting = threading.Thread(target=lambda: starts.start(spark, "ghost", "ghost"))
    starting.start()
    until_file(f"{folder}/held")
    (query,) = spark.streams.active
    query.stop()
    starting.join(30)
    assert not starting.is_alive()
    with open(f"{folder}/stopped", "w"):
        pass
    until_file(f"{folder}/again")
    query = starts.start(spark, "ghost", "ghost")
    starts.goes_on(query, "ghost")
    query.stop()


def main() -> None:
    source, locations, out, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("starts").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    beside_a_live_query(spark, Starts(source, locations, out, folder))
    stopped_while_it_starts(spark, Starts(source, locations, out, folder), folder)
    spark.stop()


if __name__ == "__main__":
    main()
