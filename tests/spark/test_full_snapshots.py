"""When a store takes a full snapshot, and when it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

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
