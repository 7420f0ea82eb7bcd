"""Ranges of objects: few reads, each compared with its checksum; what is damaged on its way is read once more."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Handle, HandleKind
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.ranges import RangeDamagedError, near, read, read_to_file, read_to_files
from testbed.faulty import Fault, FaultyStorage, Moment

KEY = "run-00000001/seg/1-a"
ON_THEIR_WAY = [Moment.TRUNCATE, Moment.FLIP]


@pytest.fixture
def storage() -> Iterator[Storage]:
    with open_storage(f"memory://{uuid.uuid4()}/stream") as opened:
        yield opened


def handle(data: bytes, offset: int = 0, name: str = "1_u.changelog") -> Handle:
    return Handle(HandleKind.CHANGELOG, name, KEY, offset, len(data), zlib.crc32(data))


def two(storage: Storage) -> list[Handle]:
    """Ranges with some bytes between them that are no one's."""
    storage.put(KEY, b"first..a longer second")
    return [handle(b"first", 0, "1"), handle(b"a longer second", 7, "2")]


def once(storage: Storage, moment: Moment) -> FaultyStorage:
    return FaultyStorage(storage, [Fault(moment, KEY, frozenset({"get"}))])


@pytest.mark.parametrize("moment", ON_THEIR_WAY)
def test_a_group_in_memory_is_read_once_more(storage: Storage, moment: Moment) -> None:
    group, faulty = two(storage), once(storage, moment)
    assert [(bytes(one.data), one.damage) for one in read(faulty, group)] == [(b"first", None), (b"a longer second", None)]
    assert storage.requests["get"] == 2


@pytest.mark.parametrize("moment", ON_THEIR_WAY)
def test_a_group_to_files_is_read_once_more(storage: Storage, moment: Moment, tmp_path: Path) -> None:
    group, faulty = two(storage), once(storage, moment)
    read_to_files(faulty, group, [tmp_path / "1", tmp_path / "2"], tmp_path / "whole")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"1": b"first", "2": b"a longer second"}
    assert len(faulty.hits) == 1


def test_what_is_damaged_for_good_is_told_of_the_range_that_is(storage: Storage, tmp_path: Path) -> None:
    first, second = two(storage)
    wrong = replace(second, checksum=7)
    found = read(storage, [first, wrong])
    assert found[0].damage is None
    assert str(found[1].damage) == f"2 in {KEY} has the CRC-32 {zlib.crc32(b'a longer second'):08x} instead of 00000007"
    with pytest.raises(RangeDamagedError, match=r"^2 in"):
        read_to_files(storage, [first, wrong], [tmp_path / "1", tmp_path / "2"], tmp_path / "whole")
    with pytest.raises(RangeDamagedError, match=r"^2 in"):
        read_to_file(storage, wrong, tmp_path / "2")
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_is_too_short(storage: Storage, tmp_path: Path) -> None:
    behind = replace(two(storage)[1], length=100)
    with pytest.raises(DamagedError, match="too few"):
        read(storage, [behind])
    with pytest.raises(DamagedError, match="too few"):
        read_to_file(storage, behind, tmp_path / "2")
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10 << 20), st.integers(0, 1 << 20)), max_size=20))
def test_coalescing_covers_every_handle_once_and_stays_small(rows: list[tuple[str, int, int]]) -> None:
    handles = [Handle(HandleKind.CHANGELOG, str(n), obj, offset, length, 0) for n, (obj, offset, length) in enumerate(rows)]
    groups = near(handles)
    assert sorted(h.name for g in groups for h in g) == sorted(h.name for h in handles)
    for group in groups:
        assert len({h.object for h in group}) == 1
        assert group[0].offset == min(h.offset for h in group)
        assert len(group) == 1 or max(h.offset + h.length for h in group) - group[0].offset <= 4 << 20
