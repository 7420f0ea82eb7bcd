"""The far side of `benchmarks.states`: stock Spark in `local[2]`, whose own reader of state is asked again and again.

It reads requests from its standard input, a JSON object a line: {"path", "options"}. Each becomes a line {"spent", "rows"}; the first
line of all is {"ready": true}, when the session is there. The processor time is that of this process's session, the JVM's among it.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from benchmarks.processes import session_cpu_ms
from benchmarks.spent import spending

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("state_job")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        with spending(lambda: session_cpu_ms(os.getsid(0))["all"]) as reading:
            found = spark.read.format("statestore").options(**asked["options"]).load(asked["path"])
            # Every column of every row is made, and nothing is done with it: less than what `read_state` does.
            found.write.format("noop").mode("overwrite").save()
        rows = found.count() if asked.get("counted") else None
        print(json.dumps({"spent": reading.spent.to_json(), "rows": rows}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
