"""What sinks of the tests take their rows with."""

from __future__ import annotations

from pyspark.sql import DataFrame, Row


def collected(df: DataFrame) -> list[Row]:
    """All rows, or an error if the JVM died meanwhile.

    PySpark reads rows until the connection ends: (1) the JVM is killed in the middle, (2) `collect()` returns what came until then, without
    an error, (3) the sink, whose Python outlives the JVM for a moment, would remember a batch that lacks rows. A call to a dead JVM fails.
    """
    rows = df.collect()
    df.sparkSession.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    return rows
