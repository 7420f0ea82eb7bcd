"""What listeners are told of a checkpoint's partitions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.model import Ack, CheckpointId, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements
from spark_ckpt.protocol.checkpoints.stats import Summary, summary_of
from spark_ckpt.protocol.checkpoints.subtasks import PARTITIONS_LISTED, SLOWEST_LISTED, Subtasks, distribution

TEN_MINUTES = 600_000
ROW = 64


def ack(
    op: int = 0, part: int = 0, executor: str = "1", *, store: str = "default", start: float = 5, commit: float = 20, new: int = 10
) -> Ack:
    handle = Handle(HandleKind.CHANGELOG, "7_a.changelog", "run-00000001/seg/7-x", 0, 3 * new, 0)
    snapshot = Snapshot(StoreId(op, part, store), 7, f"{op}-{part}-{store}", (handle,))
    return Ack(1, 7, snapshot, executor, new, sync_ms=1.25, async_ms=40, start_delay_ms=start, commit_delay_ms=commit)


def test_an_ack_survives_the_pipe() -> None:
    assert Ack.from_json(json.loads(json.dumps(ack(commit=12.5).to_json()))) == ack(commit=12.5)


def test_partitions_are_told_slowest_first_with_their_wait_for_the_last_one() -> None:
    acks = [ack(part=0, executor="2"), ack(part=1, executor="1", start=7, commit=50), ack(op=1, part=0, executor="1")]
    told = Subtasks(acks).by_partition()
    assert told["executors"] == ["1", "2"]
    assert told["subtasks"] == {
        "0": [[1, 0, 7, 0, 1250, 40, 10, 30], [0, 1, 5, 30, 1250, 40, 10, 30]],
        "1": [[0, 0, 5, 0, 1250, 40, 10, 30]],
    }
    assert "distributions" not in told


def test_the_stores_of_a_join_are_one_partition() -> None:
    acks = [ack(store=name) for name in ("left-keyToNumValues", "left-keyWithIndexToValue")]
    assert Subtasks(acks).by_partition()["subtasks"] == {"0": [[0, 0, 5, 0, 2500, 40, 20, 60]]}
    assert Subtasks(acks).by_operator()["0"]["snapshots"] == 2
    assert Subtasks(acks).by_operator()["0"]["partitions"] == 1


def test_operators_have_the_latency_of_their_slowest_partition() -> None:
    told = Subtasks([ack(part=0, commit=20), ack(part=1, commit=50)]).by_operator()["0"]
    assert told["commit_ms_max"] == 50
    assert told["acked_ms_max"] == 90


def test_many_partitions_are_told_as_distributions_and_the_slowest() -> None:
    count = 2 * PARTITIONS_LISTED
    told = Subtasks(ack(part=part, executor=str(part % 40), commit=part) for part in range(count)).by_partition()
    assert [row[0] for row in told["subtasks"]["0"]] == list(range(count - 1, count - 1 - SLOWEST_LISTED, -1))
    start, alignment, *_ = told["distributions"]["0"]
    assert start == [5] * 8
    assert alignment == [0, round((count - 1) / 2), count - 1, 999, 1799, 1899, 1979, 1997]
    assert len(json.dumps(told)) < ROW * PARTITIONS_LISTED


@given(
    st.integers(0, 9_999),
    st.integers(0, 999),
    st.floats(0, TEN_MINUTES),
    st.floats(0, TEN_MINUTES),
    st.floats(0, 9_999),
    st.integers(0, 10**10 - 1),
)
def test_a_partition_takes_at_most_64_bytes(part: int, executors: int, start: float, commit: float, sync: float, new: int) -> None:
    others = [ack(part=10_000 + i, executor=f"{i:03d}", commit=TEN_MINUTES) for i in range(executors)]
    mine = ack(part=part, executor="999", start=start, commit=commit, new=new)
    mine = Ack.from_json({**mine.to_json(), "sync_ms": sync, "async_ms": start})
    rows = Subtasks([*others, mine]).by_partition()["subtasks"]["0"]
    row = next(r for r in rows if r[0] == part)
    assert len(json.dumps(row, separators=(",", ":")) + ",") <= ROW


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_a_distribution_is_ordered(values: list[int]) -> None:
    least, average, most, *ranks = distribution(values)
    assert least == min(values)
    assert most == max(values)
    assert least <= average <= most
    assert ranks == sorted(ranks)
    assert set(ranks) <= set(values)


def told_of(acks: list[Ack]) -> Summary:
    acknowledged = Acknowledgements(CheckpointId(1, 7))
    for one in acks:
        acknowledged.acknowledge(one)
    return summary_of(CheckpointId(1, 7), 1000, acknowledged, 1090, 5)


def test_only_listeners_are_told_the_partitions() -> None:
    told = told_of([ack()])
    assert "subtasks" not in told.to_json()
    assert "acks" not in told.announcement()
    assert told.announcement()["subtasks"] == {"0": [[0, 0, 5, 0, 1250, 40, 10, 30]]}


@pytest.mark.parametrize("acks", [[], [ack()]])
def test_a_summary_is_json(acks: list[Ack]) -> None:
    json.dumps(told_of(acks).announcement(), allow_nan=False)
