"""Tables of Delta and Iceberg, which remember the batches that they have taken: killed between a batch there and its checkpoint."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Start
from tests.drivers.spark.inputs import write_file
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.table_formats import NAMES, table_format

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(900)]

FILES, PER_FILE, NEW_PER_FILE = 8, 30, 20


def write_overlapping(folder: Path) -> Counter[int]:
    """File n has ids from 20 n to 20 n + 29: a third of them again in the next file. Returns each id once."""
    folder.mkdir()
    for n in range(FILES):
        ids = range(n * NEW_PER_FILE, n * NEW_PER_FILE + PER_FILE)
        write_file(folder, n, [{"id": i, "key": f"k{i % 5}", "value": i} for i in ids])
    return Counter(range(FILES * NEW_PER_FILE + PER_FILE - NEW_PER_FILE))


@pytest.mark.parametrize("interval", ["0", "2s"])
@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_each_row_once(start: Start, s3: Server, tmp_path: Path, name: str, interval: str) -> None:
    lake = table_format(name, tmp_path / "warehouse/db/events")
    if lake is None:
        pytest.skip(f"there is no {name} for this Spark")
    events, location, ids = tmp_path / "in", tmp_path / "location", tmp_path / "ids.json"
    wanted = write_overlapping(events)
    job = ("table_formats.py", name, str(events), str(location), lake.table, str(ids))
    conf = {**s3.conf, **lake.conf, "spark.ckpt.interval": interval}
    how = {"storage": f"s3://{s3.bucket}/ckpt", "conf": conf, "env": s3.env, "jars": lake.jars}

    def killed_with(epochs: int, complete: int) -> None:
        """While the table has so many epochs, and so many checkpoints of this run are complete."""
        before = len(s3.proxy.struck)
        s3.proxy.inject(WireFault(Wire.HOLD, r"^PUT \S*/_metadata", skip=complete, times=None, delay_s=120))
        app = start(*job, **how)
        app.until(lambda: len(s3.proxy.struck) > before and lake.epochs() >= epochs, f"{epochs} epochs in the table, one not complete", 200)
        app.kill()
        s3.proxy.heal()
        assert lake.epochs() == epochs

    # Without an interval an epoch waits for its checkpoint; with one all of them go into the table before the first.
    killed_with(*(3, 2) if interval == "0" else (FILES, 0))
    killed_with(*(5, 2) if interval == "0" else (FILES, 0))
    shutil.rmtree(location)

    start(*job, **how).expect_success()
    assert Counter(json.loads(ids.read_text())) == wanted
    assert lake.epochs() == FILES, "an epoch that the table had was written once more, or with another number"
