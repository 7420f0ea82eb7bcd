"""What does not fit a chosen savepoint is said before anything is changed: operators, sources, partitions, schemas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt import paths
from spark_ckpt.stored.metadata.codec import decode_metadata, encode_metadata
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.teller import Told, sentence

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Place:
    """Queries with locations of their own over one input, in one application."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage, self.events = folder, folder / "storage", folder / "events"
        self.told = Told(folder / "told", {}, {"spark.sql.shuffle.partitions": "2"})

    def session(self, **conf: str) -> None:
        assert self.told.session({"spark.ckpt.storage": f"file://{self.storage}", **conf}) is None

    def run(self, name: str, query: str = "totals") -> str | None:
        return self.told.query(query, self.events, self.folder / "out" / name, self.folder / "locations" / name)

    def stream(self, name: str) -> Path:
        return Path(paths.stream_url(f"file://{self.storage}", f"file:{self.folder}/locations/{name}").removeprefix("file://"))

    def checkpoints(self, name: str) -> list[Path]:
        return sorted(self.stream(name).glob("run-*/chk-*/_metadata"), key=lambda p: int(p.parent.name.removeprefix("chk-")))

    def totals(self) -> dict[str, tuple[int, int]]:
        """What a batch query gives: key -> (rows, sum)."""
        n, total = Counter[str](), Counter[str]()
        for event in (json.loads(line) for path in self.events.iterdir() for line in path.read_text().splitlines()):
            n[event["key"]] += 1
            total[event["key"]] += event["value"]
        return {key: (n[key], total[key]) for key in n}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.told.app.kill()


def test_a_query_that_does_not_fit_is_told_so_before_anything_is_changed(place: Place) -> None:
    write_events(place.events, 0, 3)
    place.session()
    assert place.run("first") is None
    newest = place.checkpoints("first")[-1]
    before = {path: path.read_bytes() for path in place.stream("first").rglob("*") if path.is_file()}

    # The number of partitions is the checkpoint's, whatever the session says.
    chosen = f"file://{newest.parent}"
    place.session(**{"spark.ckpt.restore.path": chosen, "spark.sql.shuffle.partitions": "5"})
    whole = newest.read_bytes()
    content = decode_metadata(whole)
    part = replace(content, snapshots=tuple(s for s in content.snapshots if s.store.partition != 1))
    misfits = {
        "unique": ("its stateful operators are aggregate(key)", "deduplicate(id)"),
        "rated": ("its sources are FileSource", "those of the query rate"),
        "wide": ("Provided value schema does not match existing state value schema",),
        "totals": ("operator 0 lacks partitions 1",),
    }
    for query, said in misfits.items():
        newest.write_bytes(encode_metadata(part) if query == "totals" else whole)
        error = sentence(place.run(query, query))
        print(error)
        assert error.startswith(f"spark.ckpt.restore.path={chosen} does not fit this query: "), error
        for words in said:
            assert words in error, error
        assert not [path for path in place.stream(query).rglob("*") if path.is_file()], "something was written"
        assert not list((place.folder / "locations" / query).rglob("[0-9]*")), "something was written"
    newest.write_bytes(whole)
    assert {path: path.read_bytes() for path in place.stream("first").rglob("*") if path.is_file()} == before

    write_events(place.events, 3, 1)
    assert place.run("fork") is None
    forked = decode_metadata(place.checkpoints("fork")[-1].read_bytes())
    assert {s.store.partition for s in forked.snapshots} == {0, 1}
    rows = json.loads((place.folder / "out" / "fork" / "3.json").read_text())
    assert {row["key"]: (row["n"], row["total"]) for row in rows} == place.totals()
    place.told.end()
