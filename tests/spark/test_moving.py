"""A query begins on stock Spark, moves in, gets more partitions, is killed, and leaves for stock Spark again; compared with a batch query.

Each of these steps for every kind of operator: `test_import.py`, `test_rescale.py` and `test_export.py`, in the campaign.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.stock.layout import STOCK
from tests.drivers.command_line import call
from tests.drivers.spark.harness import Start
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.trials import completed
from tests.drivers.state_entries import entries

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

QUERY = "windows"
ROCKSDB = {"spark.sql.streaming.stateStore.providerClass": STOCK.decode()}
PARTITIONS = 5
BEFORE, WITH_PLUGIN = 3, 4
"""So many files, one an epoch."""


@pytest.mark.campaign
def test_a_query_moves_in_is_rescaled_and_killed_and_leaves(
    start: Start, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, storage, out = (tmp_path / name for name in ("events", "storage", "out"))
    stock, moved, left = (tmp_path / name / QUERY for name in ("stock", "moved", "left"))

    def begin(location: Path, **how: Any) -> Any:
        return start("operators.py", "run", QUERY, str(events), str(location.parent), str(out), **how)

    def done(*arguments: str) -> dict[str, Any]:
        status, told = call(capsys, *arguments)
        assert status == 0, told
        return dict(told)

    write_events(events, 0, BEFORE)
    begin(stock, storage=None, plugin=False, conf=ROCKSDB).expect_success()
    imported = done("import", str(stock), f"{storage}{moved}")
    rescaled = done("rescale", imported["savepoint"], "--partitions", str(PARTITIONS))
    assert rescaled["epoch"] == imported["epoch"]
    assert entries(rescaled["savepoint"]) == entries(imported["savepoint"])

    write_events(events, BEFORE, WITH_PLUGIN)
    app = begin(moved, storage=f"file://{storage}", conf={"spark.ckpt.restore.path": rescaled["savepoint"]})
    # One is the savepoint's copy.
    app.until(lambda: len(completed(storage, moved)) >= 2, "a checkpoint of its own", 200)
    app.kill()

    exported = done("export", f"file://{storage}{moved}", str(left))
    assert exported["epoch"] > imported["epoch"]
    write_events(events, BEFORE + WITH_PLUGIN, FILES - BEFORE - WITH_PLUGIN, closing=True)
    begin(left, storage=None, plugin=False).expect_success()
    numbers = {int(path.name) for path in (left / "commits").glob("[0-9]*")}
    assert {exported["epoch"], exported["epoch"] + 1} <= numbers
    assert read(oracle[QUERY]), "the oracle is empty: the comparison would show nothing"
    assert differences(out / QUERY, oracle[QUERY]) == []
