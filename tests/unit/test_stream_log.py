"""Where a log ends."""

from __future__ import annotations

import uuid

import pytest

from spark_ckpt.errors import DamagedError
from spark_ckpt.paths import log_key
from spark_ckpt.protocol.entries import Plan, encode
from spark_ckpt.storage.base import LARGEST_READ
from spark_ckpt.storage.memory import MemoryStorage
from spark_ckpt.stored.log import WIDEST_GAP, StreamLog


def log_of(*numbers: int) -> StreamLog:
    storage = MemoryStorage(f"memory://{uuid.uuid4()}/s")
    for number in numbers:
        storage.put(log_key(number), b"{}")
    return StreamLog(storage)


def test_the_tail_lies_behind_every_gap() -> None:
    assert log_of().tail() == 0
    assert log_of(1, 2, 3).tail() == 3
    assert log_of(1, 2, 3, 7, 8).tail(2) == 8
    assert log_of(1, WIDEST_GAP + 1).tail() == WIDEST_GAP + 1


def test_an_entry_far_behind_all_others_is_none() -> None:
    with pytest.raises(DamagedError, match=r"log entry 9999999999999999999 has no version.* far behind entry 3: .* remove it"):
        log_of(1, 2, 3, 9999999999999999999).tail()


def test_numbers_without_an_entry_are_not_asked_for() -> None:
    """After a year they are nearly all of them."""
    asked: list[str] = []

    class Counting(MemoryStorage):
        def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
            asked.append(key)
            return super().get(key, offset, length, limit)

    storage = Counting(f"memory://{uuid.uuid4()}/s")
    for number in (200_000, 200_003, 200_004):
        storage.put(log_key(number), encode(Plan(1, 1, number, b"v1")))
    found = StreamLog(storage).all_readable(200_003)
    assert {number: entry.epoch for number, entry in found.items() if isinstance(entry, Plan)} == {200_000: 200_000, 200_003: 200_003}
    assert asked == [log_key(200_000), log_key(200_003)]
