"""A thread of the user's that outlives the epoch it was made in."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.storage import open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Start
from tests.drivers.spark.scala_jobs import compiled
from tests.drivers.spark.totals import last_totals, totals_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"


@pytest.mark.parametrize(("queries", "interval", "failures", "master"), [(1, "1s", 0, CLUSTER), (2, "1s", 0, LOCAL), (1, None, 1, LOCAL)])
def test_tasks_of_a_pool_commit_for_the_epoch_that_is_running(
    queries: int, interval: str | None, failures: int, master: str, start: Start, events: Path, tmp_path: Path
) -> None:
    """Spark gives them the properties that the pool's thread has got when it was made: of another epoch, another query, or another run that
    was at the same epoch. The timeout is shorter than an agent waits for more snapshots that it is not told of."""
    jar = compiled("PooledBatches.scala", tmp_path / "scala")
    location, output, storage = tmp_path / "location", tmp_path / "output", f"file://{tmp_path}/storage"
    conf = {"spark.ckpt.timeout": "9s"} | ({"spark.ckpt.interval": interval} if interval else {})
    words = [str(events), str(location), str(output), str(queries), str(failures)]
    started = start("pooled_totals.py", *words, storage=storage, jars=[jar], conf=conf, master=master)
    assert started.wait() == 0, started.log.read_text()[-3000:]
    for number in range(queries):
        assert last_totals(output / str(number)) == totals_of(events)
        with open_storage(f"{storage}{location}/{number}") as stream:
            reader = StreamReader(stream)
            assert reader.checkpoints()[-1][0].epoch == len(list(events.iterdir())) - 1
            assert len(list(reader.runs())) == 1 + failures
