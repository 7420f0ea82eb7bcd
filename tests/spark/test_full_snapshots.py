"""When a store takes a full snapshot, and when it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.model import HandleKind
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Start
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


@pytest.mark.parametrize(("least", "taken"), [(1, {1}), (3, {3}), (10, {10, 11, 12, 13, 14}), (2**31 - 1, {2**31 - 1})])
def test_partitions_take_their_full_snapshots_in_different_epochs(java: Any, least: int, taken: set[int]) -> None:
    spread = java.org.apache.spark.sql.execution.streaming.state.ckpt.SnapshotSpread
    assert {spread.commits(least, partition) for partition in range(20)} == taken


def test_a_full_snapshot_is_asked_for_when_the_chain_is_dearer_and_has_paid_for_it(java: Any) -> None:
    cost = java.org.apache.spark.sql.execution.streaming.state.ckpt.ChainCost

    def is_too_dear(changelogs: int, changelog_bytes: int, full_bytes: int) -> bool:
        return bool(cost(changelogs, changelog_bytes, full_bytes).isTooDear())

    small, large = 20_000, 50_000_000
    zipped = 8 << 10
    assert not is_too_dear(5, 100_000, small), "five small files are replayed sooner than a snapshot is loaded"
    assert not is_too_dear(50, 2 * small, small), "a snapshot now and then would be half of all bytes"
    assert is_too_dear(50, 3 * (small + zipped), small)
    assert not is_too_dear(50, large, large)
    assert is_too_dear(50, 3 * (large + zipped), large)
    assert not is_too_dear(50, zipped, 0), "a snapshot of nothing has some KB too"
    assert not is_too_dear(199, large, large)
    assert is_too_dear(200, large, large), "a changelog names all before it, and can name some 800"


def lineage(java: Any, *versions: int) -> Any:
    kind = java.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.state.LineageItem")
    items = java.java.lang.reflect.Array.newInstance(kind, len(versions))
    for n, version in enumerate(versions):
        items[n] = java.org.apache.spark.sql.execution.streaming.state.LineageItem(version, f"uid{version}")
    return items


def test_a_chain_that_was_loaded_counts_and_the_next_commit_ends_a_dear_one(java: Any, tmp_path: Path) -> None:
    for version in (*range(1, 41), 42, 43):
        (tmp_path / f"{version}_uid{version}.changelog").write_bytes(bytes(2_000))
    chain = java.org.apache.spark.sql.execution.streaming.state.ckpt.LoadedChain(java.java.io.File(str(tmp_path)), 5)

    def ends_now(*versions: int) -> bool:
        chain.loaded(lineage(java, *versions))
        return bool(chain.endsNow(lineage(java, *versions)))

    assert not ends_now(*range(1, 37)), "other partitions have theirs now, and this one in the next start"
    assert ends_now(*range(1, 38))
    (tmp_path / "41_uid41.zip").touch()
    (tmp_path / "41_uid41.changelog").write_bytes(bytes(2_000))
    assert (chain.committed(lineage(java, 41), 5_000).changelogBytes(), chain.endsNow(lineage(java, 41))) == (0, False)
    assert chain.committed(lineage(java, 41, 42), 5_000).changelogBytes() == 2_000
    assert chain.committed(lineage(java, 41, 42, 43), 5_000).changelogBytes() == 4_000
    (tmp_path / "1_uid1.changelog").write_bytes(bytes(10_000_000))
    assert not ends_now(1), "all that there is was loaded at once, and a snapshot has to be as large"
    (tmp_path / "SSTs").mkdir()
    (tmp_path / "SSTs" / "1.sst").write_bytes(bytes(10_000_000))
    assert not ends_now(*range(1, 41)), "a snapshot of that size has not paid yet"
    assert not chain.endsNow(lineage(java, *range(1, 500)))
    assert chain.endsNow(lineage(java, *range(1, 501))), "there is no room for many more names"
    assert ends_now(*range(1, 201)), "a changelog names all before it"
    (tmp_path / "SSTs" / "1.sst").write_bytes(bytes(1_000_000))
    assert ends_now(1, 2), "the last snapshot was small: what came since is dear to replay, be it ever so few"


@pytest.mark.parametrize(("partition", "least"), [(0, 32), (5, 37), (31, 63), (32, 32), (900, 36)])
def test_first_full_snapshots_at_a_start_are_spread_over_the_partitions(java: Any, tmp_path: Path, partition: int, least: int) -> None:
    for version in range(1, least + 1):
        (tmp_path / f"{version}_uid{version}.changelog").write_bytes(bytes(2_000))
    chain = java.org.apache.spark.sql.execution.streaming.state.ckpt.LoadedChain(java.java.io.File(str(tmp_path)), partition)
    for length, ends in ((least - 1, False), (least, True)):
        versions = lineage(java, *range(1, length + 1))
        chain.loaded(versions)
        assert chain.endsNow(versions) is ends


def test_a_file_that_is_stored_is_not_stored_again_however_old_it_is(start: Start, tmp_path: Path) -> None:
    """Spark takes an SST for gone that is older than the versions it keeps, and gives it another name in the next full snapshot."""
    storage, told = f"file://{tmp_path}/storage", tmp_path / "told"
    told.mkdir()
    conf = {
        "spark.ckpt.retained": "1000",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
    }
    app = start("steady.py", "q", str(tmp_path / "at"), str(tmp_path / "out"), str(told), "20", "128", storage=storage, conf=conf)
    app.until(lambda: (tmp_path / "at" / "q" / "commits" / "30").exists(), "epoch 30", 120)
    for word in ("stop", "end"):
        (told / word).touch()
    app.expect_success()
    places: dict[tuple[int, int], set[tuple[str, int]]] = {}
    snapshots = set()
    with closing(open_storage(paths.stream_url(storage, f"file:{tmp_path}/at/q"))) as stream:
        reader = StreamReader(stream)
        for checkpoint, _ in reader.checkpoints():
            for handle in (h for snapshot in reader.read(checkpoint).snapshots for h in snapshot.handles):
                if handle.kind is HandleKind.SNAPSHOT:
                    snapshots.add(handle.name)
                if handle.kind is HandleKind.SST:
                    places.setdefault((handle.length, handle.checksum), set()).add((handle.object, handle.offset))
    assert len(snapshots) > 5, "no full snapshots: the test has lost its point"
    assert [found for found in places.values() if len(found) > 1] == []
