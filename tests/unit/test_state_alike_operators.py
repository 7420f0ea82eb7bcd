"""The change feed of a query in which several operators are alike: compared where it is certain that numbers are the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import ConfigError, DamagedError
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol.entries import Restored
from spark_ckpt.protocol.operators import OperatorChoice, match
from spark_ckpt.protocol.start.renumbering import renumbered
from spark_ckpt.state.changelogs import Change
from spark_ckpt.state.changes import Changes, Counts, read_older
from spark_ckpt.state.operators import describe, state_files
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.planned_operators import a_deduplication, a_total
from tests.drivers.state_versions import StoreVersions
from tests.drivers.unsafe_rows import row
from tests.stored.earlier import place


@dataclass(frozen=True)
class TwoTotals:
    """A query with two sums over one key, each with an entry of its own."""

    folder: Path

    def checkpoint(self, epochs: int = 1, full: int = 1, segment: str = "a") -> StateOfCheckpoint:
        """`full`: of how many epochs there are full snapshots; the others have changelogs."""
        files = {**a_total(0, "user"), **a_total(1, "user")}
        storage = open_storage(f"file://{self.folder}/totals")
        snapshots = []
        for operator in (0, 1):
            versions = StoreVersions(storage, files, {}, segment=f"run-00000001/seg/{operator}-{segment}")
            family = versions.checkpoint([[]], 1).select(operator, None).family
            keys = [b"\0" + row(family.key, [f"{'alice' if operator else 'bob'}-{epoch}"]) for epoch in range(epochs)]
            told = [[(Change.PUT, key, b"\0" + row(family.value, [operator]))] for key in keys]
            state = versions.checkpoint(told, full)
            (one,) = state.checkpoint.snapshots
            handles = tuple(replace(h, name=h.name.replace("_u", f"_{operator}u")) for h in one.handles)
            snapshots.append(replace(one, store=replace(one.store, operator=operator), uid=f"{operator}{one.uid}", handles=handles))
        ids = {str(operator): [[snapshot.uid]] for operator, snapshot in enumerate(snapshots)}
        commits = b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": ids}).encode()
        found = state.checkpoint
        files_now = {**found.files, f"commits/{found.id.epoch}": commits}
        return StateOfCheckpoint(storage, replace(found, snapshots=tuple(snapshots), files=files_now, stream="s"))


def of_run(state: StateOfCheckpoint, run: int, **what: Any) -> StateOfCheckpoint:
    found = state.checkpoint
    return StateOfCheckpoint(state.storage, replace(found, id=CheckpointId(run, found.id.epoch), **what))


@pytest.mark.parametrize("now", [
    {**a_deduplication(0, "id"), **a_total(1, "user"), **a_total(2, "user")},
    {**a_total(0, "user"), **a_total(1, "user")},
])  # fmt: skip
def test_among_operators_that_are_alike_a_number_proves_nothing(tmp_path: Path, now: Mapping[str, bytes]) -> None:
    """One came in front of them, or a person has swapped them: nothing has changed, and 1 has the state that 0 had."""
    before = TwoTotals(tmp_path).checkpoint()
    choice = OperatorChoice({} if len(describe(now)) == 3 else {0: 1, 1: 0})
    matched = match(describe(now), describe(state_files(before.storage, before.checkpoint)), choice)
    assert matched.kept[1] == 0
    after = of_run(StateOfCheckpoint(before.storage, renumbered(before.checkpoint, matched, now)), 2)
    with pytest.raises(ConfigError, match=r"operator 1 \(stateStoreSave\) is one of several .* alike.*; read both checkpoints instead"):
        Changes(before, after, after.select(1, None))


def test_operators_that_are_alike_are_compared_where_changelogs_go_back(tmp_path: Path) -> None:
    query = TwoTotals(tmp_path)
    before = query.checkpoint(full=0)
    for number in (0, 1):
        after = of_run(query.checkpoint(2, 0, segment="b"), 2)
        with_full = of_run(query.checkpoint(2, 2, segment="c"), 2)
        assert Changes(before, after, after.select(number, None)).count(1) == Counts(1, 0, 0)
        with pytest.raises(ConfigError, match="not known which goes on from which"):
            Changes(before, with_full, with_full.select(number, None))
        assert Changes(before, with_full, with_full.select(number, None), same_numbers=True).count(1) == Counts(1, 0, 0)


def test_whether_numbers_are_the_same_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = TwoTotals(tmp_path)
    before, after = query.checkpoint(), query.checkpoint(2, 2, segment="b")
    place("1", tmp_path / "stream")
    reader = StreamReader(open_storage(f"file://{tmp_path}/stream"))
    standing = reader.standing()
    assert standing is not None
    claim = replace(standing.claim, run=5, stream="s", restored=None)

    def same(one: StateOfCheckpoint, other: StateOfCheckpoint, **says: Any) -> bool:
        monkeypatch.setattr(StreamReader, "standing", lambda *_: replace(standing, claim=replace(claim, **says)))
        path = RestorePath.at("file:///elsewhere/kept")
        monkeypatch.setattr(RestorePath, "read", lambda *_: one.checkpoint)
        found = read_older(path, one.storage, reader, other.checkpoint)
        assert found.checkpoint.snapshots == one.checkpoint.snapshots
        return found.same_numbers

    earlier, newest = of_run(before, 3), of_run(after, 5)
    assert same(earlier, of_run(after, 3))
    assert not same(of_run(before, 3, stream=""), of_run(after, 3, stream=""))  # two imports of run 1, say
    assert same(earlier, newest, origin=CheckpointId(3, 1))
    for says in (
        {"origin": CheckpointId(5, 1)},  # a copy: restored from elsewhere, or of a query that has changed
        {"origin": CheckpointId(4, 1)},
        {"origin": None},
        {"origin": CheckpointId(3, 1), "run": 6},
        {"origin": CheckpointId(3, 1), "stream": "another"},
    ):
        assert not same(earlier, newest, **says)
    restored = Restored("file:///elsewhere/kept", CheckpointId(5, 1))
    assert not same(of_run(before, 5, stream="old", query_id="old"), newest, origin=CheckpointId(5, 1), restored=restored)

    assert same(earlier, newest, origin=CheckpointId(3, 1))

    def damaged(*_: object) -> None:
        raise DamagedError("the log is damaged")

    monkeypatch.setattr(StreamReader, "standing", damaged)
    assert not read_older(RestorePath.at("file:///x"), earlier.storage, reader, newest.checkpoint).same_numbers
