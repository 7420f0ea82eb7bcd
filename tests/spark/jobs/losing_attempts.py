"""A deduplication of numbers, of which a task is held after its state is committed, and then fails, once whenever FOLDER/hold is there;
ends with FOLDER/end.

usage: losing_attempts.py INPUT CHECKPOINTS OUTPUT FOLDER

The held task writes the process id of its executor to FOLDER/executor, removes FOLDER/hold, waits for FOLDER/fail, and removes that too.
Each epoch's numbers are OUTPUT/<epoch>.json.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from steady import written

WAIT_S = 120


def executor() -> int:
    """The JVM, which has started the daemon that has forked this worker."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])


def main() -> None:
    source, checkpoints, out, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("losing attempts").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    def held(rows: Iterator[Any]) -> Iterator[Any]:
        """All rows first: when there are no more, the state store has committed."""
        found = list(rows)
        if any(len(some) for some in found):
            if not os.path.exists(f"{folder}/hold"):
                yield from found
                return
            Path(folder, "executor").write_text(str(executor()))
            os.remove(f"{folder}/hold")
            until = time.monotonic() + WAIT_S
            while not os.path.exists(f"{folder}/fail") and time.monotonic() < until:
                time.sleep(0.05)
            os.remove(f"{folder}/fail")
            raise RuntimeError("this task fails once")
        yield from found

    numbers = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1).json(source)
    unique = numbers.dropDuplicates(["value"]).mapInPandas(held, "value long")
    query = unique.writeStream.foreachBatch(written(out)).option("checkpointLocation", checkpoints).start()
    while not os.path.exists(f"{folder}/end"):
        if query.awaitTermination(1):
            raise AssertionError("the query has ended")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
