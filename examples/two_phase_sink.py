"""A sink that publishes each epoch exactly once, with an interval too: two-phase commit by a hook, in a SQLite database.

The first half: `stage`, a `foreachBatch` function, writes an epoch's rows where no reader looks. The second half: when there is a durable
checkpoint, the hook's `completed` publishes the epochs up to it, in one transaction. Docs: docs/hooks.md.

    spark-ckpt submit --storage s3://bucket/ckpt --conf spark.ckpt.interval=10s two_phase_sink.py --input … --checkpoint … --database …
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

import spark_ckpt

TABLES = """
CREATE TABLE IF NOT EXISTS staged (epoch INTEGER, row TEXT);
CREATE TABLE IF NOT EXISTS published (epoch INTEGER, row TEXT);
CREATE TABLE IF NOT EXISTS progress (
    only INTEGER PRIMARY KEY CHECK (only = 1), stream TEXT, start INTEGER, published INTEGER, staged INTEGER
);
CREATE TABLE IF NOT EXISTS dropped (epoch INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS rows_of (only INTEGER PRIMARY KEY CHECK (only = 1), stream TEXT);
INSERT OR IGNORE INTO rows_of VALUES (1, '');
INSERT OR IGNORE INTO progress VALUES (1, '', 0, -1, -1);
"""


class TwoPhaseSink(spark_ckpt.CheckpointHook):
    """Readers look at the table `published`; `progress` says how far it goes, which start owns the database, and the highest epoch that was
    ever staged; `dropped`, which epochs are neither staged nor published any more; `rows_of`, which stream staged or dropped any last."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._owner: tuple[str, int] | None = None
        with closing(sqlite3.connect(database)) as db:
            db.executescript(TABLES)

    def stage(self, batch: DataFrame, epoch: int) -> None:
        """For `foreachBatch`. An epoch that runs again takes the place of its first try."""
        rows = [(epoch, json.dumps(row.asDict(), sort_keys=True, default=str)) for row in batch.collect()]
        # If the JVM was killed meanwhile, collect() has returned what came until then, without an error. This call would raise one.
        _ = batch.sparkSession.version
        with self._transaction() as (db, published):
            if epoch > published:  # an older checkpoint may have been restored than what was published before
                db.execute("DELETE FROM staged WHERE epoch = ?", (epoch,))
                db.executemany("INSERT INTO staged VALUES (?, ?)", rows)
                db.execute("UPDATE progress SET staged = max(staged, ?)", (epoch,))
                db.execute("DELETE FROM dropped WHERE epoch = ?", (epoch,))
                db.execute("UPDATE rows_of SET stream = ?", self._begun[:1])

    def snapshot(self, epoch: int) -> bytes:
        """Up to this epoch all is staged, or published, but for the numbers that other epochs have taken the place of."""
        with self._transaction() as (db, _):
            skipped = [number for (number,) in db.execute("SELECT epoch FROM dropped WHERE epoch <= ? ORDER BY epoch", (epoch,))]
        return json.dumps({"epoch": epoch, "stream": self._begun[0], "skipped": ranges(skipped)}).encode()

    def begin(self, stream: str, start: int) -> None:
        self._owner = (stream, start)

    def restore(self, state: bytes | None) -> None:
        """Take the database over from an earlier start that may still run, and drop what runs again: perhaps under other numbers."""
        checkpoint, made_by, skipped = read_state(state)
        with closing(sqlite3.connect(self._database, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            stream, start, published, staged = db.execute("SELECT stream, start, published, staged FROM progress").fetchone()
            own_stream, own_start = self._begun
            if stream == own_stream and start > own_start:
                raise RuntimeError(f"a later start of the query owns {self._database}; this one writes nothing")
            if stream != own_stream and published > checkpoint:
                raise ValueError(f"{self._database} has what another stream has published up to epoch {published}; use a new database")
            (rows_of,) = db.execute("SELECT stream FROM rows_of").fetchone()
            if rows_of not in ("", own_stream, made_by or rows_of):
                raise ValueError(f"{self._database} has been taken over by the stream {rows_of}; use a new database")
            if stream == own_stream and checkpoint > max(published, staged):
                has = f"{self._database} has rows up to epoch {max(published, staged)} only"
                raise ValueError(f"{has}, and the checkpoint goes on from epoch {checkpoint}; restore an older one")
            # The stream went back, so that they were dropped, and now forward again, to where they had been.
            dropped = {number for (number,) in db.execute("SELECT epoch FROM dropped WHERE epoch <= ?", (checkpoint,))}
            if lost := sorted(dropped - skipped):
                why = f"the checkpoint of epoch {checkpoint} counts on the rows of epoch {lost[0]}"
                raise ValueError(f"{why}, which {self._database} dropped when the query went back; restore a checkpoint before that epoch")
            gone = {number for (number,) in db.execute("SELECT DISTINCT epoch FROM staged WHERE epoch > ?", (checkpoint,))}
            if gone:
                db.execute("UPDATE rows_of SET stream = ?", (own_stream,))
            db.executemany("INSERT OR IGNORE INTO dropped VALUES (?)", [(number,) for number in gone | skipped])
            db.execute("UPDATE progress SET stream = ?, start = ?, staged = max(staged, ?)", (*self._begun, checkpoint))
            db.execute("DELETE FROM staged WHERE epoch > ?", (checkpoint,))
            db.execute("COMMIT")

    def completed(self, epoch: int) -> None:
        """Told at least once, so it may find all of it done."""
        with self._transaction() as (db, published):
            db.execute("INSERT INTO published SELECT epoch, row FROM staged WHERE epoch <= ? ORDER BY epoch, rowid", (epoch,))
            db.execute("DELETE FROM staged WHERE epoch <= ?", (epoch,))
            db.execute("UPDATE progress SET published = ?", (max(epoch, published),))

    @property
    def _begun(self) -> tuple[str, int]:
        if self._owner is None:
            raise RuntimeError("no checkpoint holds what this sink has; register it as a hook of this query, by the query's own name")
        return self._owner

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """With the epoch up to which is published. All of it or nothing happens, and only while no other start owns the database."""
        with closing(sqlite3.connect(self._database, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            stream, start, published = db.execute("SELECT stream, start, published FROM progress").fetchone()
            if (stream, start) != self._begun:
                raise RuntimeError(f"a later start of the query has taken over {self._database}; this one writes nothing more")
            yield db, published
            db.execute("COMMIT")


def ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each row of numbers without a gap."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        first = found.pop()[0] if found and found[-1][1] == number - 1 else number
        found.append((first, number))
    return found


def read_state(state: bytes | None) -> tuple[int, str | None, set[int]]:
    """Of `snapshot`: the epoch, the stream that made it, and the numbers up to it that stand for nothing. Earlier ones: the epoch only."""
    said = json.loads(state) if state is not None else -1
    if isinstance(said, int):
        return said, None, set()
    return said["epoch"], said["stream"], {number for first, last in said["skipped"] for number in range(first, last + 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="folder of Parquet files of flights (flights_data.py)")
    parser.add_argument("--checkpoint", required=True, help="checkpointLocation")
    parser.add_argument("--database", required=True, help="path of the SQLite database")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("two-phase sink").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    sink = TwoPhaseSink(options.database)
    spark_ckpt.register_hook("sqlite", sink, query="punctuality")

    flights = (
        spark.readStream.schema("time TIMESTAMP, carrier STRING, flight INT, origin STRING, dep_delay INT, arr_delay INT")
        .option("maxFilesPerTrigger", 1)
        .parquet(options.input)
    )
    once = flights.withWatermark("time", "1 day").dropDuplicatesWithinWatermark(["carrier", "flight", "origin", "time"])
    punctuality = once.groupBy(F.window("time", "6 hours"), "carrier", "origin").agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("dep_delay"),
        F.max("arr_delay").alias("worst_arr_delay"),
    )
    columns = ["carrier", "origin", "flights", "departed", "dep_delay", "worst_arr_delay"]
    query = (
        punctuality.select(F.col("window.start").cast("string").alias("start"), *columns)
        .writeStream.queryName("punctuality")
        .foreachBatch(sink.stage)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
