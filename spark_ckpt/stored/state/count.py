"""Counting an assembled store's keys with rocksdict, against the number that Spark recorded with the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spark_ckpt.errors import DamagedError
from spark_ckpt.stored.state.assemble import AssembledStore


class CountResult(Enum):
    """What the comparison says."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    NOT_RECORDED = "NOT_RECORDED"
    """Spark was told not to count (`trackTotalNumberOfRows=false`): opened and read through, which checks every block."""


@dataclass(frozen=True)
class KeyCount:
    """`entries` were read; `recorded` are keys and Spark's own internal keys together."""

    entries: int
    recorded: int | None

    @property
    def result(self) -> CountResult:
        if self.recorded is None:
            return CountResult.NOT_RECORDED
        return CountResult.EQUAL if self.entries == self.recorded else CountResult.DIFFERENT


def count_keys(store: AssembledStore) -> KeyCount:
    """Open read-only and read every entry. Raises `DamagedError` where RocksDB refuses the files or finds a bad block."""
    from rocksdict import AccessType, Options, Rdict

    entries = 0
    try:
        # RocksDB's own OPTIONS file is not used: it can name folders to write to, and keys need none of it.
        db = Rdict(str(store.folder), Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            cursor = db.iter()
            cursor.seek_to_first()
            while cursor.valid():
                entries += 1
                cursor.next()
            # An iterator that meets a bad block just ends; only its status tells that from the end of the data.
            cursor.status()
            del cursor
        finally:
            db.close()
    # rocksdict raises plain Exception for whatever RocksDB reports.
    except Exception as e:
        raise DamagedError(f"RocksDB cannot read {store.zip_name}: {e}") from e
    return KeyCount(entries, store.content.num_entries)
