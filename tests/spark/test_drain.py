"""The end of a query that is drained: results as those of a batch query over the same input, and what is left in the state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.cli.main import run as cli
from tests.drivers.spark.harness import Start
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.oracle import differences, read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCHS = (FILES + 2) // 3
"""Of three files each."""
KEYS, IDS = 5, 60 * FILES
"""In all events."""


@pytest.fixture
def drained(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Drained:
    return Drained(start, tmp_path, capsys)


class Drained:
    """Queries of `drains.py` that were stopped with a savepoint and a drain when they had taken all events."""

    def __init__(self, start: Start, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._start, self._folder, self._capsys = start, folder, capsys
        self.out = folder / "out"

    def keys_left(self, names: Sequence[str]) -> dict[str, int]:
        """Query -> the keys that `spark-ckpt show` counts in all stores of its savepoint."""
        events = self._folder / "events"
        write_events(events, 0, FILES)
        args = (",".join(names), str(events), str(EPOCHS), str(self._folder / "locations"), str(self.out))
        self._start("drains.py", *args, storage=f"file://{self._folder}/storage").expect_success(240)
        return {name: sum(store["num_keys"] for store in self.shown(name)["stores"]) for name in names}

    def shown(self, name: str) -> dict[str, Any]:
        """What `spark-ckpt show` says of that query's savepoint."""
        assert cli(["show", json.loads((self.out / "facts.json").read_text())[name], "--json"]) == 0
        shown: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return shown

    def check(self, queries: Mapping[str, Path]) -> None:
        """queries: name -> the rows that a batch query gives."""
        assert {name: differences(self.out / name, batch) for name, batch in queries.items()} == {name: [] for name in queries}


@pytest.mark.campaign
def test_windows_and_what_is_chained_behind_them_put_out_all_and_keep_nothing(drained: Drained, oracle: Mapping[str, Path]) -> None:
    names = ("windows", "sliding", "sessions", "chained")
    assert drained.keys_left(names) == dict.fromkeys(names, 0)
    drained.check({name: oracle[name] for name in names})


@pytest.mark.campaign
def test_joins_put_out_what_found_no_partner_and_keep_nothing(drained: Drained, oracle: Mapping[str, Path]) -> None:
    names = ("inner", "outer", "within")
    assert drained.keys_left(names) == dict.fromkeys(names, 0)
    drained.check({name: oracle[name] for name in names})


@pytest.mark.campaign
def test_what_waits_for_event_time_fires_and_leaves_what_the_function_leaves(drained: Drained, oracle: Mapping[str, Path]) -> None:
    """Two clear their state when time is up, and the third does not."""
    left = drained.keys_left(("event_time_out", "event_timers", "timers"))
    assert left.pop("timers") > 0
    assert left == {"event_time_out": 0, "event_timers": 0}
    drained.check({"event_time_out": oracle["update"], "event_timers": oracle["update"], "timers": oracle["timers"]})


@pytest.mark.campaign
def test_what_waits_for_the_clock_waits_on_and_what_has_no_end_stays(drained: Drained, oracle: Mapping[str, Path]) -> None:
    """An hour of the clock has not passed because a query ends: what waits for that is in the savepoint. Totals and ids have no end."""
    left = drained.keys_left(("processing_time_out", "processing_timers", "update", "unique"))
    assert left.pop("processing_timers") > 0
    assert left == {"processing_time_out": KEYS, "update": KEYS, "unique": IDS}
    assert not read(drained.out / "processing_time_out")
    assert not read(drained.out / "processing_timers")
    drained.check({name: oracle[name] for name in ("update", "unique")})


@pytest.mark.campaign
def test_what_is_due_by_the_clock_fires_at_the_drain_itself(drained: Drained, oracle: Mapping[str, Path]) -> None:
    names = ("due_time_out", "due_timers")
    assert drained.keys_left(names) == dict.fromkeys(names, 0)
    drained.check(dict.fromkeys(names, oracle["update"]))
    for name in names:
        last = drained.shown(name)["epoch"]
        assert read(drained.out / name) == read(drained.out / name / f"batch={last}"), f"of {name} something fired before epoch {last}"
