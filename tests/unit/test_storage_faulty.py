"""The storage that fails on demand does so where it is told, and nowhere else."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_ckpt.errors import DamagedError, ObjectMissingError, OutcomeUnknownError, StorageError, StorageSetupError
from spark_ckpt.storage import PutResult, Slice
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.storage.probe import check_put_if_absent
from testbed.faulty import Fault, FaultyStorage, Hit, Moment


@pytest.fixture
def inner() -> Iterator[MemoryStorage]:
    yield MemoryStorage("memory://faulty")
    wipe("faulty")


def _try_put(storage: FaultyStorage, key: str) -> str:
    """The error's message, or nothing."""
    try:
        storage.put(key, b"v")
    except StorageError as error:
        return str(error)
    return ""


def _failed(key: str) -> str:
    return f"put memory://faulty/{key} failed (injected, seed 0)"


def test_without_faults_it_is_the_storage(inner: MemoryStorage, tmp_path: Path) -> None:
    storage = FaultyStorage(inner)
    (tmp_path / "f").write_bytes(b"slice")
    storage.put("a", b"v")
    storage.put_slices("b", [Slice(tmp_path / "f", 0, 5)])
    assert storage.put_if_absent("a", b"w") is PutResult.EXISTS
    assert storage.get("b") == b"slice"
    assert storage.get_to_file("b", 0, 5, tmp_path / "out") != 0
    assert storage.size("a") == 1
    assert [stored.key for stored in storage.list("")] == ["a", "b"]
    assert list(storage.list_folders("")) == []
    storage.delete(["a"])
    assert storage.requests == inner.requests
    assert storage.bytes_out == inner.bytes_out == 7
    assert storage.hits == ()


def test_fail_before_happens_once_for_its_key(inner: MemoryStorage) -> None:
    storage = FaultyStorage(inner, [Fault(Moment.FAIL_BEFORE, "*/_metadata", frozenset(("put_if_absent",)))])
    storage.put("chk-1/_metadata", b"put is another operation")
    storage.put_if_absent("log/1", b"another key")
    with pytest.raises(StorageError, match="chk-2/_metadata"):
        storage.put_if_absent("chk-2/_metadata", b"v")
    assert inner.size("chk-2/_metadata") is None
    assert storage.put_if_absent("chk-2/_metadata", b"v") is PutResult.STORED
    assert storage.hits == (Hit(Moment.FAIL_BEFORE, "put_if_absent", "chk-2/_metadata"),)


def test_a_lost_answer_has_happened(inner: MemoryStorage) -> None:
    storage = FaultyStorage(inner, [Fault(Moment.LOSE_ANSWER, "log/*", times=None)])
    with pytest.raises(OutcomeUnknownError):
        storage.put_if_absent("log/1", b"mine")
    assert inner.get("log/1") == b"mine"
    with pytest.raises(OutcomeUnknownError):
        storage.put("log/2", b"mine")
    for call in (lambda: storage.get("log/1"), lambda: storage.size("log/1"), lambda: list(storage.list("log/"))):
        with pytest.raises(StorageError) as raised:
            call()
        assert not isinstance(raised.value, OutcomeUnknownError)
    with pytest.raises(StorageError):
        storage.delete(["log/1"])
    with pytest.raises(ObjectMissingError):
        inner.get("log/1")


def test_a_pause_holds_the_call_until_it_is_let_go(inner: MemoryStorage) -> None:
    reached, go = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        go.wait(10)

    storage = FaultyStorage(inner, [Fault(Moment.DELAY, "k", pause=pause)])
    writer = threading.Thread(target=storage.put, args=("k", b"v"))
    writer.start()
    assert reached.wait(10)
    assert inner.size("k") is None
    go.set()
    writer.join()
    assert inner.get("k") == b"v"


def test_a_delay_sleeps_by_the_clock_it_was_given(inner: MemoryStorage) -> None:
    slept: list[float] = []
    storage = FaultyStorage(inner, [Fault(Moment.DELAY, delay_s=2.5, times=2)], sleep=slept.append)
    for _ in range(3):
        storage.put("k", b"v")
    assert slept == [2.5, 2.5]


def test_truncation(inner: MemoryStorage, tmp_path: Path) -> None:
    storage = FaultyStorage(inner, [Fault(Moment.TRUNCATE, "torn*", times=None)])
    (tmp_path / "f").write_bytes(b"0123456789")
    storage.put("torn", b"0123456789")
    storage.put_slices("torn-seg", [Slice(tmp_path / "f", 0, 4), Slice(tmp_path / "f", 0, 4)])
    assert inner.get("torn") == b"01234"
    assert inner.get("torn-seg") == b"0123"
    assert storage.get("torn") == b"01"
    with pytest.raises(DamagedError):
        storage.get("torn", 0, 5)
    with pytest.raises(DamagedError):
        storage.get_to_file("torn", 0, 5, tmp_path / "out")


def test_a_flipped_byte(inner: MemoryStorage, tmp_path: Path) -> None:
    storage = FaultyStorage(inner, [Fault(Moment.FLIP, operations=frozenset({"get"}), times=2)])
    storage.put("k", b"0123456789")
    assert storage.get("k", 2, 5) == b"23556"
    assert storage.get_to_file("k", 2, 5, tmp_path / "out") == zlib.crc32(b"23556")
    assert (tmp_path / "out").read_bytes() == b"23556"
    assert storage.get("k", 2, 5) == b"23456"


def test_skip_times_inject_and_heal(inner: MemoryStorage) -> None:
    storage = FaultyStorage(inner)
    storage.inject(Fault(Moment.FAIL_BEFORE, skip=2, times=2))
    assert [_try_put(storage, f"k{number}") for number in range(6)] == ["", "", _failed("k2"), _failed("k3"), "", ""]
    storage.inject(Fault(Moment.FAIL_BEFORE, times=None))
    storage.heal()
    storage.put("k", b"v")


def test_the_same_seed_gives_the_same_faults(inner: MemoryStorage) -> None:
    def run(seed: int) -> tuple[Hit, ...]:
        storage = FaultyStorage(inner, [Fault(Moment.FAIL_BEFORE, probability=0.3, times=None)], seed)
        messages = {_try_put(storage, f"k{number}").rpartition("seed ")[2] for number in range(100)}
        assert messages == {"", f"{seed})"}
        return tuple(storage.hits)

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 10 < len(run(1)) < 50


def test_a_storage_that_does_not_delete_is_found_out(inner: MemoryStorage) -> None:
    storage = FaultyStorage(inner, [Fault(Moment.FAIL_BEFORE, operations=frozenset({"delete"}))])
    with pytest.raises(StorageSetupError, match="s3:DeleteObject"):
        check_put_if_absent(storage)
