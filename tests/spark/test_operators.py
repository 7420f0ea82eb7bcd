"""Every stateful operator, killed midway, restarted on a machine that has nothing but the storage, compared with a batch query."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.sightings import logged
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


NAMED = {
    "complete": {"aggregate(key)"},
    "update": {"aggregate(key)"},
    "windows": {"aggregate(window, key)"},
    "sliding": {"aggregate(window)"},
    "sessions": {"session windows(key)"},
    "inner": {"inner join(lkey = rkey)"},
    "outer": {"left outer join(lkey = rkey)"},
    "right": {"right outer join(lkey = rkey)"},
    "full": {"full outer join(lkey = rkey)"},
    "unique": {"deduplicate(id)"},
    "within": {"deduplicate within watermark(id)"},
    "pandas": {"groups with state(key)"},
    "transform": {"transform with state(key)"},
    "timers": {"transform with state(key)"},
    "chained": {"deduplicate(id, ts)", "aggregate(window, key)", "aggregate(window)"},
}
"""What a person reads of each query's stateful operators."""


def operators_in(folder: Path) -> dict[str, set[str]]:
    """By query, as the event log has them."""
    found: dict[str, set[str]] = {}
    for event in logged(folder):
        for operator in event.get("operators", ()):
            found.setdefault(event["root"].rsplit("/", 1)[1], set()).add(operator["name"])
    return found


IN_PYTHON = {"pandas", "transform", "timers"}
"""Each starts interpreters of its own, which Spark gives ten seconds each: too few beside a dozen other queries on two processors."""


@pytest.mark.parametrize("in_python", [False, True], ids=["in-the-jvm", "in-python"])
def test_every_operator_survives_the_loss_of_its_machine(
    start: Callable[..., Application], events: Path, oracle: Mapping[str, Path], tmp_path: Path, in_python: bool
) -> None:
    names = [name for name in oracle if (name in IN_PYTHON) == in_python]
    storage, locations, out = tmp_path / "storage", tmp_path / "locations", tmp_path / "out"
    args = ("operators.py", "run", ",".join(names), str(events), str(locations), str(out))

    app = start(*args, storage=f"file://{storage}")
    app.until(lambda: all(len(completed(storage, locations / n)) >= 2 for n in names), "two checkpoints of every query", 200)
    app.kill()
    shutil.rmtree(locations)
    (tmp_path / "events").mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": f"file://{tmp_path}/events"}
    again = start(*args, storage=f"file://{storage}", conf=log)
    again.expect_success()
    assert operators_in(tmp_path / "events") == {name: NAMED[name] for name in names if name in NAMED}

    for name in names:
        assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
        assert differences(out / name, oracle[name]) == [], name
        assert {p.parts[-3] for p in completed(storage, locations / name)} == {"run-00000002"}, f"{name} did not go on in a second run"
