"""What a copy or an export reads of the checkpoint that somebody chose: damage ends it, and is named with the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Handle
from spark_ckpt.storage import Storage
from spark_ckpt.stored.ranges import RangeDamagedError, read, read_to_file


def contents_of(source: Storage, group: Sequence[Handle]) -> Iterable[memoryview]:
    """A group (`ranges.near`) in memory, in its order. Raises `DamagedError`, `ObjectMissingError`, `StorageError`."""
    for one in read(source, group):
        if (damage := one.damage) is not None:
            raise _named(source, damage)
        yield one.data


def to_file(source: Storage, handle: Handle, path: Path) -> None:
    """To a new local file, streaming. Raises like `contents_of`; no file is there then."""
    try:
        read_to_file(source, handle, path)
    except RangeDamagedError as error:
        raise _named(source, error) from error


def _named(source: Storage, damage: RangeDamagedError) -> DamagedError:
    handle = damage.handle
    return DamagedError(f"{handle.name} in {source.url_of(handle.object)} {damage.difference}; choose another checkpoint")
