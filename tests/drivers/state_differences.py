"""What changed between two states, against what two full reads of them differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa

from spark_ckpt.state.changes import COLUMN, Changes
from spark_ckpt.state.reading import StateOfCheckpoint


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [one for batch in batches for one in batch.to_pylist()]


def checked_changes(
    before: StateOfCheckpoint, after: StateOfCheckpoint, operator: int, store: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of a store that changed, and what became of each; asserts that these are the changes, all of them."""
    old, new = (_read(state, operator, store) for state in (before, after))
    found = rows(Changes(before, after, after.select(operator, store)).batches(None, 2))
    types = [one.pop(COLUMN) for one in found]
    told = list(zip(map(repr, found), types, strict=True))
    gone = Counter(one for one, kind in told if kind in ("delete", "update_preimage"))
    come = Counter(one for one, kind in told if kind in ("insert", "update_postimage"))
    assert (gone, come) == (old - new, new - old)
    updated = [second for first, second in pairwise(types) if first == "update_preimage"]
    assert updated == ["update_postimage"] * types.count("update_preimage")
    return found, types


def _read(state: StateOfCheckpoint, operator: int, store: str) -> Counter[str]:
    return Counter(map(repr, rows(state.batches(state.select(operator, store), None, 2))))
