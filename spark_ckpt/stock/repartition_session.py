"""The process that repartitions: a Spark session of its own, whose JVM ends with it (`rescaling.py` starts it).

    python -m spark_ckpt.stock.repartition_session LOCATION PARTITIONS SCRATCH

On stdout it writes one JSON line, `{"ok": true}` or `{"ok": false, "class": …, "message": …}`; what Spark says goes to stderr. It ends when
its stdin does, so that nothing is left when whoever has started it is killed: PySpark's JVM ends with its own stdin, which is held here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

TEMPORARY = "tmp"
"""The folder in the scratch folder for the JVM's own files."""
_STATE = "spark.sql.streaming.stateStore"


def _conf(scratch: str) -> dict[str, str]:
    """Nothing is listened to from outside, nothing lies outside of `scratch`. State is written as full snapshots of format 1, which is what
    is exported."""
    return {
        "spark.master": "local[*]",
        "spark.app.name": "spark-ckpt rescale",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={scratch}/{TEMPORARY}"',
        "spark.sql.adaptive.enabled": "false",
        f"{_STATE}.checkpointFormatVersion": "1",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "false",
    }


def _repartition(location: str, partitions: int, scratch: str) -> dict[str, Any]:
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for name, value in _conf(scratch).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            spark.sparkContext.setLogLevel("WARN")
            manager: Any = spark._streamingCheckpointManager
            manager.repartition(location, partitions)
        finally:
            spark.stop()
    except Exception as e:
        java = getattr(e, "java_exception", None)
        return {"ok": False, "class": type(e).__name__, "message": str(java.toString() if java is not None else e)}
    return {"ok": True}


def _end_with_stdin() -> None:
    while os.read(0, 1 << 10):
        pass
    os._exit(1)


def main() -> None:
    location, partitions, scratch = sys.argv[1:]
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(json.dumps(_repartition(location, int(partitions), scratch)), file=answer, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
