"""The small parts of the protocol: tail, commit, driver files, pending, registry, deletion, garbage, executors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, Decline, FileHandle
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements, Gathering
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.checkpoints.required_ids import Slot, required_ids
from spark_ckpt.protocol.driver_files import DriverFiles, needed
from spark_ckpt.protocol.entries import Claim, End, Entry, Plan, Restored
from spark_ckpt.protocol.reasons import AckResult
from spark_ckpt.protocol.retention.completed import CompletedCheckpointStore
from spark_ckpt.protocol.retention.deletion import Batch, Deletions
from spark_ckpt.protocol.retention.garbage import garbage, planned_objects, settled
from spark_ckpt.protocol.retention.shared_state import SharedStateRegistry
from spark_ckpt.protocol.start.gallop import Gallop
from tests.drivers.protocol_driving import JOB, ack, commit


def checkpoint(run: int, epoch: int, *objects: str) -> Checkpoint:
    snapshots = tuple(ack(run, epoch, p, obj=o).snapshot for p, o in enumerate(objects))
    return Checkpoint(CheckpointId(run, epoch), epoch + 2, 1, "q", 0, JOB, {}, snapshots, {})


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_the_gallop_finds_the_tail_with_few_questions(tail: int, known: int) -> None:
    known = min(known, tail)
    gallop, asked = Gallop(known), 0
    while (number := gallop.probe) is not None:
        gallop.tell(number, number <= tail)
        asked += 1
    assert gallop.found == tail
    assert asked <= 2 * (tail - known + 1).bit_length() + 1


def test_commits_name_the_required_ids() -> None:
    assert required_ids(3, commit(["a", "b"])) == {"a": Slot(0, 0, 0), "b": Slot(0, 1, 0)}
    assert required_ids(3, b'v1\n{"nextBatchWatermarkMs":0}') == {}
    assert required_ids(3, b'v3\n{"stateUniqueIds":{"4":[["x","y"]]}}') == {"x": Slot(4, 0, 0), "y": Slot(4, 0, 1)}
    for damaged in (b"", b"v9\n{}", b"v2\n{", b'v2\n{"stateUniqueIds":{"0":[[7]]}}', b'v2\n{"stateUniqueIds":[1]}', b"v2\n[]"):
        with pytest.raises(FormatError, match="commits/3"):
            required_ids(3, damaged)


def test_a_checkpoint_holds_the_driver_files_a_restore_needs() -> None:
    state = {"state/0/0/_metadata/schema": b"s", "state/0/_metadata/metadata": b"m"}
    logs = {f"{kind}/{n}": b"" for kind in ("offsets", "commits") for n in range(5)}
    kafka = {"sources/1/0": b"start"}
    compacted = {f"sources/0/{n}": b"" for n in (8, 10, 11, 20, 21)} | {f"sources/0/{n}.compact": b"" for n in (9, 19)}
    older = {"sources/0/7": b"", "sources/0/5.compact": b""}
    kept = needed({**state, **logs, **kafka, **compacted, **older}, 4)
    expected = {*state, *kafka, "offsets/3", "offsets/4", "commits/3", "commits/4"}
    assert set(kept) == expected | {
        "sources/0/9.compact",
        "sources/0/10",
        "sources/0/11",
        "sources/0/19.compact",
        "sources/0/20",
        "sources/0/21",
    }
    one_compact = {"sources/0/8": b"", "sources/0/9.compact": b"", "sources/0/10": b""}
    assert set(needed(one_compact, 0)) == {"sources/0/9.compact", "sources/0/10"}


def test_driver_files_collect_changes_for_the_next_plan() -> None:
    files = DriverFiles({"offsets/0": b"0", "sources/0/0": b"a"})
    files.apply({"sources/0/1": b"b", "sources/0/0": None, "offsets/1": b"1", "commits/0": b"c", "metadata": b"id"})
    assert files.as_mapping() == {"offsets/0": b"0", "offsets/1": b"1", "commits/0": b"c", "sources/0/1": b"b"}
    assert files.take_changes() == {"sources/0/1": b"b", "sources/0/0": None}
    assert files.take_changes() == {}
    files.forget_before(1)
    assert set(files) == {"offsets/1", "sources/0/1"}


def test_pending_counts_each_id_once_and_drops_losers_at_the_seal() -> None:
    pending = Acknowledgements(CheckpointId(1, 4))
    assert pending.acknowledge(ack(1, 4, 0, "a")) is AckResult.SUCCESS
    assert pending.acknowledge(ack(1, 4, 0, "a")) is AckResult.DUPLICATE
    assert pending.acknowledge(ack(1, 4, 0, "loser")) is AckResult.SUCCESS
    assert pending.acknowledge(ack(1, 3, 0, "old")) is AckResult.DISCARDED
    assert pending.acknowledge(ack(2, 4, 0, "zombie")) is AckResult.DISCARDED
    assert pending.subtasks.new_bytes == 2 * ack(1, 4, 0, "a").new_bytes
    known = [ack(1, 3, 2, "same").snapshot, ack(1, 3, 1, "replaced").snapshot]
    losers = pending.seal({"a": Slot(0, 0, 0), "b": Slot(0, 1, 0), "same": Slot(0, 2, 0)})
    assert [pending.carry(one) for one in known] == [True, False]
    assert [one.uid for one in losers] == ["loser"]
    assert pending.subtasks.new_bytes == ack(1, 4, 0, "a").new_bytes > 0, "what losers have stored is none of the checkpoint's"
    assert list(pending.carried) == ["same"]
    assert pending.missing == {"b"}
    assert pending.acknowledge(ack(1, 4, 0, "late loser")) is AckResult.UNKNOWN
    assert pending.acknowledge(ack(1, 4, 7, "b")) is AckResult.UNKNOWN
    assert pending.decline(Decline(1, 4, ack(1, 4, 1).snapshot.store, "b", "1", "full")) is AckResult.SUCCESS
    assert [d.uid for d in filter(None, [pending.refused])] == ["b"]
    assert pending.acknowledge(ack(1, 4, 1, "b")) is AckResult.SUCCESS
    assert list(filter(None, [pending.refused])) == []
    assert [s.uid for s in pending.snapshots] == ["a", "b", "same"]
    assert [s.uid for s in pending.discard()] == ["a", "b", "same"], "what was carried may be in no checkpoint yet either"
    assert pending.state is Gathering.DISCARDED
    assert pending.acknowledge(ack(1, 4, 1, "c")) is AckResult.DISCARDED


def test_retained_bounds_the_completed_ones_and_keeps_the_newest() -> None:
    store = CompletedCheckpointStore(0)
    assert store.add(checkpoint(1, 0)) == []
    assert store.add(checkpoint(1, 1)) == [CheckpointId(1, 0)]
    assert store.ids == (CheckpointId(1, 1),)


def registered(*checkpoints: Checkpoint) -> SharedStateRegistry:
    registry = SharedStateRegistry()
    for one in checkpoints:
        registry.register(one)
    return registry


def test_an_object_is_named_as_long_as_any_checkpoint_names_it_however_often_that_is_registered() -> None:
    zero, one = checkpoint(1, 0, "a", "shared"), checkpoint(1, 1, "b", "shared")
    registry = registered(zero, one, zero)
    assert registry.named_of(["a", "b", "shared", "of nobody"], but=[zero.id, zero.id]) == {"b", "shared"}
    assert registry.named_of(["a", "b", "shared"], but=[zero.id, one.id, CheckpointId(1, 7)]) == frozenset()
    registry.unregister(zero.id)
    registry.unregister(zero.id)
    assert registry.named() == {"b", "shared"}
    registry.register(checkpoint(1, 1, "c"))
    assert registry.named() == {"c"}
    assert "shared" not in registry


def test_nothing_is_deleted_before_an_append_issued_after_the_drop() -> None:
    deletions = Deletions(registered(checkpoint(1, 0, "a"), checkpoint(1, 1, "b")))
    deletions.append_issued(5)
    deletions.drop([CheckpointId(1, 0)])
    assert deletions.append_stored(5) is None
    deletions.append_issued(6)
    assert deletions.append_stored(6) == Batch((CheckpointId(1, 0),), ("a",))


def test_a_refused_append_frees_nothing_and_the_next_one_does() -> None:
    deletions = Deletions(registered(checkpoint(1, 0, "a")))
    deletions.drop([CheckpointId(1, 0)])
    deletions.append_issued(5)
    deletions.append_failed(5)
    deletions.append_issued(6)
    assert deletions.append_stored(6) == Batch((CheckpointId(1, 0),), ("a",))


def test_deletion_spares_what_any_checkpoint_not_on_the_list_names() -> None:
    zero, one, two = checkpoint(1, 0, "a", "shared", "x"), checkpoint(1, 1, "b", "shared"), checkpoint(1, 2, "c")
    deletions = Deletions(registered(zero, one, two))
    deletions.drop([zero.id], ["stray", "kept"])
    deletions.append_issued(5)
    deletions.drop([one.id])
    deletions.keep(["kept"])
    assert deletions.append_stored(5, pending=["x"]) == Batch((zero.id,), ("a", "stray"))
    deletions.deleted(Batch((zero.id,), ("a", "stray")))
    deletions.append_issued(6)
    assert deletions.append_stored(6) == Batch((one.id,), ("b", "shared", "x"))


class _Compared(str):
    """A name. Counts how often one is compared with another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Compared.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("issued", [False, True])
def test_what_acks_name_is_not_compared_with_all_that_waits(issued: bool) -> None:
    deletions, many = Deletions(registered(checkpoint(1, 0, "a"))), 1000
    deletions.drop([], [_Compared(f"waits {n}") for n in range(many)])
    if issued:
        deletions.append_issued(5)
    _Compared.compared = 0
    for n in range(many):
        deletions.keep([_Compared(f"named {n}"), _Compared(f"waits {n}")])
    assert _Compared.compared <= 4 * many
    assert deletions.queued.objects == ()


def test_a_deletion_that_is_overtaken_by_the_next_one_keeps_its_objects_until_its_metadata_is_gone() -> None:
    zero, one, two = checkpoint(1, 0, "a", "shared"), checkpoint(1, 1, "b", "shared"), checkpoint(1, 2, "c")
    deletions = Deletions(registered(zero, one, two))
    deletions.drop([zero.id])
    deletions.append_issued(5)
    first = deletions.append_stored(5)
    assert first == Batch((zero.id,), ("a",))
    deletions.drop([one.id])
    deletions.append_issued(6)
    second = deletions.append_stored(6)
    assert second == Batch((one.id,), ("b",))
    deletions.deleted(second)
    deletions.deleted(first)
    deletions.append_issued(7)
    assert deletions.append_stored(7) == Batch((), ("shared",))


def test_garbage_is_what_superseded_runs_left_and_nobody_names() -> None:
    kept, own = checkpoint(1, 7, "run-00000001/seg/7-a", "run-00000001/sst/s.sst"), checkpoint(3, 8, "run-00000001/sst/s.sst")
    claim = Claim(9, 3, "q", JOB, kept.id, (kept.id,), (), "h", {}, 0, "n")
    keys = [
        "log/00000000000000000001",
        "savepoints/a/_metadata",
        "run-00000001/chk-6/_metadata",
        "run-00000001/chk-7/_metadata",
        "run-00000001/seg/6-a",
        "run-00000001/seg/7-a",
        "run-00000001/sst/s.sst",
        "run-00000002/seg/7-z",
        "run-00000003/seg/9-unfinished",
        "run-00000004/seg/9-successor",
    ]
    assert garbage(claim, [kept, own], keys) == Batch((CheckpointId(1, 6),), ("run-00000001/seg/6-a", "run-00000002/seg/7-z"))


def test_what_plans_name_counts_until_the_stream_is_deleted() -> None:
    def plan(claim: int, name: str) -> Plan:
        return Plan(claim, claim, 0, b"v1", {"sources/0/9.compact": FileHandle(name, 1, 1)})

    def claim(number: int, restored: Restored | None = None) -> Claim:
        return Claim(number, number, "q", JOB, None, (), (), "h", {}, 1, "n", restored)

    log: list[Entry] = [claim(1), plan(1, "a"), claim(3), plan(3, "b")]
    assert planned_objects(log) == {"a", "b"}
    assert planned_objects([*log, End(3, 3)]) == frozenset()
    assert planned_objects([*log, End(3, 3), claim(6), plan(6, "c")]) == {"c"}
    assert planned_objects([*log, End(3, 3), claim(6, Restored("s3://b/savepoints/x")), plan(6, "c")]) == {"c"}


def test_nothing_is_settled_by_a_checkpoint_behind_which_an_older_one_may_still_land() -> None:
    first, second = checkpoint(1, 0), checkpoint(1, 2)
    newest = replace(checkpoint(1, 5), unfinished=(2,))
    assert settled([first, newest]) == first
    assert settled([first, second, newest]) == newest
    assert settled([newest]) is None
    assert settled([newest, checkpoint(1, 6)]) == checkpoint(1, 6)


def test_after_a_loss_only_newer_reports_count() -> None:
    executors = Executors()
    executors.holds("1", frozenset("a"))
    executors.lost("2")
    assert executors.held == frozenset()
    executors.holds("1", frozenset("b"))
    executors.holds("2", frozenset("c"))
    assert executors.held == frozenset("b")
