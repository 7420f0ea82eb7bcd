"""One query for each kind of source, all in one session, each until it has run an epoch; an ordinary PySpark job.

usage: sources.py NAMES INPUT CHECKPOINTS
"""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

SCHEMA = "id long, key string, ts timestamp, value long"


class Lines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        try:
            while True:
                self.wfile.write(b"a line\n")
                time.sleep(0.05)
        except OSError:  # the query has ended
            return


class CounterReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        at = start["at"]
        return iter([(at,), (at + 1,)]), {"at": at + 2}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(n,) for n in range(start["at"], end["at"])])


class Counter(DataSource):
    """A user's own source, of which nobody knows what it can give twice."""

    @classmethod
    def name(cls) -> str:
        return "counter"

    def schema(self) -> str:
        return "n long"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return CounterReader()


class Sources:
    def __init__(self, spark: SparkSession, source: str, port: int) -> None:
        self.spark, self.source, self._port = spark, source, port

    def _files(self, folder: str | None = None, **options: str) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).options(**options).json(folder or self.source)

    def files(self) -> DataFrame:
        return self._files()

    def kept(self) -> DataFrame:
        return self._files(CLEANSOURCE="OFF")

    def archived(self) -> DataFrame:
        """From a folder of its own: the others need their files."""
        return self._files(f"{self.source}-moved", cleanSource="archive", sourceArchiveDir=f"{self.source}-archive")

    def rate(self) -> DataFrame:
        return self.spark.readStream.format("rate").option("rowsPerSecond", 50).load()

    def micro(self) -> DataFrame:
        return self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 7).load()

    def socket(self) -> DataFrame:
        return self.spark.readStream.format("socket").option("host", "127.0.0.1").option("port", self._port).load()

    def own(self) -> DataFrame:
        return self.spark.readStream.format("counter").load()

    def both(self) -> DataFrame:
        """One that gives its rows again beside one that does not."""
        lines = self.socket().selectExpr("value")
        return self.micro().selectExpr("cast(value as string) as value").union(lines)


def main() -> None:
    names, source, checkpoints = sys.argv[1:]
    spark = SparkSession.builder.appName("sources").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(Counter)
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sources = Sources(spark, source, server.server_address[1])
    queries = []
    for name in names.split(","):
        to = getattr(sources, name)().writeStream.format("noop").queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
        queries.append(to.trigger(processingTime="100 milliseconds").start())
    while not all(any(p.numInputRows for p in query.recentProgress) for query in queries):
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
        time.sleep(0.1)
    for query in queries:
        query.stop()
    server.shutdown()
    spark.stop()


if __name__ == "__main__":
    main()
