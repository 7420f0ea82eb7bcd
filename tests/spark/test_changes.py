"""A query that has changed goes on from a checkpoint of what it was."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from spark_ckpt import paths
from tests.drivers.spark.harness import Application, Start, submit
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.teller import Told, sentence
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]


class Place:
    """Queries with locations of their own over one input, in one application."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage, self.events = folder, folder / "storage", folder / "events"
        self.told = Told(folder / "told", {}, {"spark.sql.shuffle.partitions": "2"})

    def session(self, **conf: str) -> None:
        given = {f"spark.ckpt.{name}": value for name, value in conf.items()}
        assert self.told.session({"spark.ckpt.storage": f"file://{self.storage}", **given}) is None

    def run(self, name: str, query: str, settings: Mapping[str, str] | None = None) -> str | None:
        return self.told.query(query, self.events, self.folder / "out" / name, self.folder / "locations" / name, settings=settings)

    def stream(self, name: str) -> Path:
        return Path(paths.stream_url(f"file://{self.storage}", f"file:{self.folder}/locations/{name}").removeprefix("file://"))

    def checkpoint(self, name: str) -> str:
        """The newest one's URL."""
        found = max(self.stream(name).glob("run-*/chk-*/_metadata"), key=lambda p: (p.parts[-3], int(p.parent.name.removeprefix("chk-"))))
        return f"file://{found.parent}"

    def rows(self, name: str) -> list[dict[str, object]]:
        """What the newest epoch has put out."""
        newest = max((self.folder / "out" / name).glob("*.json"), key=lambda p: int(p.stem))
        found: list[dict[str, object]] = json.loads(newest.read_text())
        return found

    def all_rows(self, name: str) -> list[dict[str, object]]:
        """What all epochs have put out."""
        return [row for path in (self.folder / "out" / name).glob("*.json") for row in json.loads(path.read_text())]

    def totals(self, name: str) -> dict[object, tuple[object, object]]:
        return {row["key"]: (row["n"], row["total"]) for row in self.rows(name)}

    def read(self, first: int, files: int, folder: str = "") -> list[dict[str, object]]:
        """The events of so many files."""
        named = [self.events / folder / f"events-{number:05d}.json" for number in range(first, first + files)]
        return [json.loads(line) for path in named for line in path.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.told.app.kill()


def summed(events: list[dict[str, object]]) -> dict[object, tuple[object, object]]:
    n, total = Counter[object](), Counter[object]()
    for event in events:
        n[event["key"]] += 1
        total[event["key"]] += int(str(event["value"]))
    return {key: (n[key], total[key]) for key in n}


def once(events: list[dict[str, object]]) -> list[dict[str, object]]:
    return list({event["id"]: event for event in events}.values())


@pytest.mark.campaign
def test_a_query_gets_one_more_operator_and_goes_on_with_its_sums(place: Place) -> None:
    write_events(place.events, 0, 3)
    place.session()
    assert place.run("first", "totals") is None
    assert place.totals("first") == summed(place.read(0, 3))
    savepoint = place.checkpoint("first")

    write_events(place.events, 3, 2)
    place.session(**{"restore.path": savepoint})
    assert place.run("second", "once") is None
    assert place.totals("second") == summed(place.read(0, 3) + once(place.read(3, 2)))

    place.session()
    error = sentence(place.run("second", "totals"))
    assert "no operator of the query takes the state of the checkpoint's" in error
    assert "Set spark.ckpt.restore.allowNonRestoredState=true to drop that state" in error
    write_events(place.events, 5, 1)
    assert place.run("second", "once") is None, "as it was"
    assert place.totals("second") == summed(place.read(0, 3) + once(place.read(3, 3)))

    place.session(**{"restore.allowNonRestoredState": "true"})
    write_events(place.events, 6, 1)
    assert place.run("second", "totals") is None
    assert place.totals("second") == summed(place.read(0, 3) + once(place.read(3, 3)) + place.read(6, 1))
    place.told.end()


@pytest.mark.campaign
def test_a_transform_with_state_begins_empty_and_then_keeps_its_state(place: Place) -> None:
    write_events(place.events, 0, 1)
    place.session()
    assert place.run("changing", "plain") is None, "without any state"
    write_events(place.events, 1, 1)
    place.session()
    assert place.run("changing", "seen") is None
    assert len(place.rows("changing")) == len(once(place.read(1, 1)))
    write_events(place.events, 2, 2)
    place.session()
    assert place.run("changing", "transformed") is None
    assert place.totals("changing") == summed(once(place.read(2, 2)))

    place.session(**{"restore.allowNonRestoredState": "true"})
    write_events(place.events, 4, 1)
    assert place.run("changing", "raw") is None, "without the deduplication"
    assert place.totals("changing") == summed(once(place.read(2, 2)) + place.read(4, 1))
    write_events(place.events, 5, 1)
    assert place.run("changing", "plain") is None, "and without any state once more"
    assert len(place.rows("changing")) == len(place.read(5, 1))
    place.told.end()


@pytest.mark.campaign
def test_two_of_a_kind_are_swapped_and_a_join_comes_behind_them(place: Place) -> None:
    write_events(place.events, 0, 2)
    place.session()
    assert place.run("first", "halves") is None
    assert len(place.all_rows("first")) == len(once(place.read(0, 2)))

    again = Path(shutil.copy(place.events / "events-00000.json", place.events / "events-00002.json"))
    os.utime(again, (1_700_000_002, 1_700_000_002))
    chosen = {"restore.path": place.checkpoint("first")}
    place.session(**chosen, **{"restore.operators": "0:1,1:0"})
    assert place.run("swapped", "swapped") is None
    assert place.all_rows("swapped") == [], "both know what they have seen"
    place.session(**chosen)
    assert place.run("guessed", "swapped") is None
    assert len(place.all_rows("guessed")) == len(once(place.read(2, 1))), "nobody can see that they were swapped"

    place.session(**chosen)
    write_events(place.events, 3, 1)
    assert place.run("joined", "joined") is None
    new = {int(str(event["id"])): event for event in once(place.read(3, 1))}
    pairs = [number for number in new if number % 2 == 0 and number + 1 in new]
    assert sorted(int(str(row["id"])) for row in place.all_rows("joined")) == sorted(pairs)

    place.session(**chosen, **{"restore.operators": "0:7"})
    assert "has 0:7, but the checkpoint's operators are" in sentence(place.run("refused", "halves"))
    place.session(**{"restore.path": place.checkpoint("joined")})
    assert "Set spark.ckpt.restore.allowNonRestoredState=true to drop that state" in sentence(place.run("refused", "halves"))
    place.session(**{"restore.path": place.checkpoint("joined"), "restore.allowNonRestoredState": "true"})
    write_events(place.events, 4, 1)
    assert place.run("halves", "halves") is None
    assert len(place.all_rows("halves")) == len(once(place.read(4, 1)))
    place.told.end()


NAMED = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true", "spark.sql.streaming.offsetLog.formatVersion": "2"}


@pytest.mark.campaign
def test_sources_come_and_go_where_they_have_names(place: Place) -> None:
    """Spark's own rule: a source is found again by its name, a new one begins with its first row, one that has gone is forgotten."""
    one, two = place.events / "one", place.events / "two"
    write_events(one, 0, 2)
    write_events(two, 10, 2)
    place.session()
    assert place.run("first", "of one=a", NAMED) is None
    assert place.totals("first") == summed(place.read(0, 2, "one"))
    chosen = {"restore.path": place.checkpoint("first")}

    place.session(**chosen)
    assert place.run("more", "of two=b one=a", NAMED) is None, "one more, and in another order"
    assert place.totals("more") == summed(place.read(0, 2, "one") + place.read(10, 2, "two"))

    shutil.rmtree(place.folder / "locations" / "more")
    place.session()
    write_events(one, 2, 1)
    write_events(two, 12, 1)
    assert place.run("more", "of two=b one=a", NAMED) is None, "what each has read is in the checkpoint"
    assert place.totals("more") == summed(place.read(0, 3, "one") + place.read(10, 3, "two"))

    write_events(one, 3, 1)
    write_events(two, 13, 1)
    assert place.run("more", "of two=b", NAMED) is None, "one less"
    assert place.totals("more") == summed(place.read(0, 3, "one") + place.read(10, 4, "two"))
    place.told.end()


@pytest.mark.campaign
def test_sources_without_names_are_those_that_they_were(place: Place) -> None:
    """Spark finds them by their position."""
    one, two = place.events / "one", place.events / "two"
    write_events(one, 0, 2)
    write_events(two, 10, 2)
    place.session()
    assert place.run("first", "of one") is None
    chosen = {"restore.path": place.checkpoint("first")}
    place.session(**chosen)
    for query, others in {"of one two": "FileSource, FileSource", "rated": "rate"}.items():
        error = sentence(place.run("refused", query))
        assert f"its sources are FileSource, those of the query {others}" in error, error
    place.session()
    assert "its sources are FileSource, those of this one FileSource, FileSource" in sentence(place.run("first", "of one two"))
    place.session(**chosen)
    told = place.run("replaced", "of two")
    assert told is not None
    assert "Wrong basePath" in told, "another folder: Spark has the source give its newest batch once more, of the files that it has read"
    place.told.end()


APPENDED = ("windows", "sliding", "sessions", "within", "timers", "stateless")
CHANGES = {"first": ("complete", "update", "pandas", "transform", "inner", "outer", *APPENDED), "last": APPENDED}
"""Where a deduplication goes, and before or behind which queries it can: behind a join of two watermarks Spark takes none."""


@pytest.mark.campaign
@pytest.mark.parametrize("interval", ["0", "2s"])
@pytest.mark.parametrize("where", CHANGES)
def test_every_operator_keeps_its_state_when_there_is_one_more_and_the_driver_is_killed(
    where: str, interval: str, start: Start, tmp_path: Path
) -> None:
    """In place, on machines that have nothing but the storage; compared with a batch query over what each of the two queries has read."""
    names = CHANGES[where]
    events, expected = tmp_path / "events", tmp_path / "expected"
    storage, locations, out = tmp_path / "storage", tmp_path / "locations", tmp_path / "out"
    paths_of = (str(events), str(locations), str(out))
    changed = ",".join(f"{where}-{name}" for name in names)

    def begin(queries: str) -> Application:
        return start("operators.py", "run", queries, *paths_of, storage=f"file://{storage}", conf={"spark.ckpt.interval": interval})

    def begun(least: int) -> bool:
        """Whether one of the queries has so many checkpoints since it has changed."""
        return any(sum(p.parts[-3] > "run-00000001" for p in completed(storage, locations / name)) >= least for name in names)

    write_events(events, 0, 4)
    begin(",".join(names)).expect_success()
    shutil.rmtree(locations)
    write_events(events, 4, 3, closing=True)
    for copies in (1, 2):
        app = begin(changed)
        app.until(partial(begun, copies), f"{copies} checkpoints of the changed query", 250)
        app.kill()
        shutil.rmtree(locations)
    begin(changed).expect_success()

    shutil.copytree(events, expected)
    for path in sorted(expected.iterdir())[4 if where == "first" else 99 :]:
        path.write_text("".join(dict.fromkeys(path.read_text().splitlines(keepends=True))))
    batch = ("batch", ",".join(names), str(expected), str(tmp_path / "oracle"))
    submit("operators.py", batch, log=tmp_path / "oracle.log", storage=None, plugin=False).expect_success()
    for name in names:
        oracle = tmp_path / "oracle" / name
        assert read(oracle), f"the oracle of {name} is empty: the comparison would show nothing"
        if where == "first":
            assert differences(out / name, oracle) == [], name
        else:
            assert set(read(out / name)) == set(read(oracle)), name
