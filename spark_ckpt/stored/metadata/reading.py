"""A completed checkpoint's `_metadata`, from the storage where it lies."""

from __future__ import annotations

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.damage import read_twice
from spark_ckpt.stored.metadata.codec import decode_metadata
from spark_ckpt.stored.metadata.limits import LIMITS

GIVEN_UP = b"spark-ckpt gc: this savepoint was never completed, and what there was of it has been deleted\n"
"""In the place of a savepoint's `_metadata`: whoever still writes it finds that taken."""


def read_metadata(storage: Storage, key: str, named: CheckpointId | None, advice: str = "") -> Checkpoint:
    """What lies under `key`. `named`: the checkpoint that its folder is the name of; None: a savepoint, whose folder may have any name.

    Raises `ObjectMissingError`, `DamagedError` (also for another checkpoint than `named`, with `advice` behind the sentence) and
    `StorageError`.
    """
    where = storage.url_of(key)

    def read() -> Checkpoint:
        data = storage.get(key, limit=LIMITS.file)
        if data == GIVEN_UP:
            raise DamagedError(
                f"{where} says that this savepoint was never completed, and that `gc` has deleted what there was of it; choose another "
                "one, or another name for a new one"
            )
        return decode_metadata(data, where=where)

    content = read_twice(read)
    if named is not None and content.id != named:
        raise DamagedError(f"{where} holds {checkpoint_name(content.id)} instead; it was moved or damaged{advice}")
    return content
