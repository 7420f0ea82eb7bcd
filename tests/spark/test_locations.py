"""Where a checkpointLocation and a spool may lie, and what a machine may have done to them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import write_events

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]

FILES = 3


def totals(folder: Path) -> dict[str, tuple[int, int]]:
    """key -> (rows, sum), of what the files hold."""
    rows, total = Counter[str](), Counter[str]()
    for path in folder.glob("*.json"):
        for event in map(json.loads, path.read_text().splitlines()):
            rows[event["key"]] += 1
            total[event["key"]] += event["value"]
    return {key: (rows[key], total[key]) for key in rows}


def written(out: Path) -> dict[str, tuple[int, int]]:
    held: dict[str, tuple[int, int]] = {}
    for batch in sorted(out.glob("batch-*.json"), key=lambda path: int(path.stem.split("-")[1])):
        for row in map(json.loads, batch.read_text().splitlines()):
            held[row["key"]] = (row["n"], row["total"])
    return held


def test_a_location_that_is_no_local_folder_and_a_spool_with_an_odd_name(start: Start, tmp_path: Path) -> None:
    """Hadoop's ViewFS is a file system of its own to Spark; a spool's name goes through URIs and back."""
    events, out, location, spool = tmp_path / "events", tmp_path / "out", tmp_path / "data" / "query", tmp_path / "sp ool%20 #?"
    conf = {"spark.hadoop.fs.viewfs.mounttable.cl.link./data": f"file://{tmp_path}/data", "spark.ckpt.spool.dir": str(spool)}
    location.parent.mkdir()

    def run(files: int) -> Application:
        write_events(events, files - FILES, FILES)
        app = start("file_totals.py", str(events), "viewfs://cl/data/query", str(out), storage=f"file://{tmp_path}/storage", conf=conf)
        app.expect_success()
        assert written(out) == totals(events)
        return app

    run(FILES)
    run(2 * FILES)
    shutil.rmtree(location)
    run(3 * FILES)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("sp") and path != spool and path.name != "storage"]


def test_an_empty_query_id_is_written_anew_where_the_storage_knows_it(start: Start, tmp_path: Path) -> None:
    """As a machine that loses its power may leave it."""
    events, out, location = tmp_path / "events", tmp_path / "out", tmp_path / "query"
    args = ("file_totals.py", str(events), str(location), str(out))
    write_events(events, 0, FILES)
    start(*args, storage=f"file://{tmp_path}/storage").expect_success()
    (location / "metadata").write_bytes(b"")
    write_events(events, FILES, FILES)
    start(*args, storage=f"file://{tmp_path}/storage").expect_success()
    assert written(out) == totals(events)
    assert json.loads((location / "metadata").read_text())["id"]

    (location / "metadata").write_bytes(b"[]")
    unknown = start(*args, storage=f"file://{tmp_path}/elsewhere")
    assert unknown.wait() != 0
    assert "holds no query id, and the storage knows none of this location" in unknown.tail(200)
