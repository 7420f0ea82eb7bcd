"""transformWithStateInPandas with processing time, TTL and timers under a processingTime trigger; an ordinary PySpark job.

usage: timers.py INPUT CHECKPOINT OUTPUT   (ends once a file INPUT/../end exists)

Rows set a timer where none is set; when it fires, the key comes out once with what its states hold then.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from collected import collected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

SCHEMA = "id long, key string, value long"
FIRST_FIRES_AFTER_MS, NEXT_FIRES_AFTER_MS = 20_000, 1_500
SHORT_MS, LONG_MS = 1_000, 3_600_000


class Fires(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.long = handle.getMapState("long", "id long", "value long", LONG_MS)
        self.short = handle.getListState("short", "value long", SHORT_MS)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n = self.count.get()[0] if self.count.exists() else 0
        after = NEXT_FIRES_AFTER_MS if n else FIRST_FIRES_AFTER_MS
        for frame in rows:
            for number, value in zip(frame["id"], frame["value"], strict=True):
                n += 1
                self.long.updateValue((int(number),), (int(value),))
                self.short.appendValue((int(value),))
        self.count.update((n,))
        if not list(self.handle.listTimers()):
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + after)
        yield pd.DataFrame({"key": [], "n": [], "long": [], "short": []}).astype({"key": str, "n": int, "long": int, "short": int})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        long = len(list(self.long.keys()))
        short = len(list(self.short.get())) if self.short.exists() else 0
        yield pd.DataFrame({"key": [key[0]], "n": [self.count.get()[0]], "long": [long], "short": [short]})

    def close(self) -> None:
        pass


def main() -> None:
    source, checkpoint, out = sys.argv[1:]
    spark = SparkSession.builder.appName("timers").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    def each(df: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in collected(df)]
        if rows:
            os.makedirs(out, exist_ok=True)
            with open(f"{out}/.{batch}", "w") as f:
                f.writelines(json.dumps(row) + "\n" for row in rows)
            os.rename(f"{out}/.{batch}", f"{out}/batch={batch}.json")

    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
    fired = events.groupBy("key").transformWithStateInPandas(
        Fires(), "key string, n long, long long, short long", outputMode="Update", timeMode="ProcessingTime"
    )
    to = fired.writeStream.outputMode("update").foreachBatch(each).option("checkpointLocation", checkpoint)
    query = to.trigger(processingTime="200 milliseconds").start()
    while not os.path.exists(os.path.join(os.path.dirname(source), "end")):
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
