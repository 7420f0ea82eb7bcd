"""A stream belongs to a start of a query from the moment Spark has accepted it until it ends, and to no other."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FILES = 14
LOOKS_S = 8.0
"""More than an idle run waits before it looks at its log again."""


def write_rows(folder: Path) -> Counter[int]:
    """What `lifecycle.feed` takes its files from, and the ids in them."""
    folder.mkdir()
    for number in range(FILES):
        rows = [{"id": 10 * number + n, "key": "k", "value": n} for n in range(10)]
        (folder / f"{number:05d}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Counter(range(10 * FILES))


def ids(out: Path) -> Counter[int]:
    return Counter(json.loads(line)["id"] for file in out.glob("*.json") for line in file.read_text().splitlines())


@pytest.mark.campaign
def test_a_start_that_is_refused_replaced_or_stopped_leaves_no_trace_in_a_live_query(start: Start, s3: Server, tmp_path: Path) -> None:
    rows, work = write_rows(tmp_path / "rows"), tmp_path / "work"
    work.mkdir()
    s3.proxy.inject(WireFault(Wire.HOLD, r"^PUT \S*/ghost/log/", delay_s=5))
    args = (str(tmp_path / "rows"), str(tmp_path / "locations"), str(tmp_path / "out"), str(work))
    conf = {**s3.conf, "spark.ckpt.timeout": "20s", "spark.ckpt.onStop": "DELETE"}
    app = start("starts.py", *args, storage=f"s3://{s3.bucket}/ckpt", conf=conf, env=s3.env)
    app.until(lambda: bool(s3.proxy.struck), "the claim of the query that is stopped while it starts")
    (work / "held").touch()
    app.until(lambda: (work / "stopped").exists(), "its end")
    requests = s3.proxy.requests
    assert ids(tmp_path / "out/live") == rows
    assert any("/live/run-00000003/" in line for line in requests)
    assert not any("/live/run-00000004/" in line for line in requests), "a start that was refused has claimed the stream"

    time.sleep(5 + LOOKS_S)  # what is on its way arrives
    before = len(s3.proxy.requests)
    time.sleep(LOOKS_S)
    late = [line for line in s3.proxy.requests[before:] if "/ghost/" in line]
    assert late == [], "the run of a query that has ended goes on"
    (work / "again").touch()
    app.expect_success()
    assert len(ids(tmp_path / "out/ghost")) == 20
